"""Gives a model of images the layout NHWC at its ends.

ONNX computes in NCHW: its operators have no layout of their own. So the decision is one about the interface:

1. Inputs and outputs of four dimensions become NHWC, with a Transpose behind and before them.
2. A Transpose at an input moves towards the outputs through operators that work element by element, and one
   at an output towards the inputs, until it meets an operator that depends on the layout. Where two
   meet that undo each other, both are removed.
3. The model's metadata says that its interface is NHWC, so that a second run changes nothing.
"""

from __future__ import annotations

import onnx_ir as ir

from ...registration.metadata import LAYOUT
from .rewriting import Rewriter, attribute, is_onnx, only_reader

_TO_LAST, _TO_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)
_ELEMENTWISE = (
    "Abs Cast Ceil Elu Erf Exp Floor HardSigmoid HardSwish Identity LeakyRelu Log Mish Neg Reciprocal Relu "
    "Round Selu Sigmoid Sign Softplus Softsign Sqrt Tanh"
).split()
"""Operators of one tensor that give each element by itself."""


class ChannelsLast(ir.passes.InPlacePass):
    """Changes the main graph's inputs and outputs of four dimensions to NHWC."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the model and report whether anything changed."""
        graph = model.graph
        if model.metadata_props.get(LAYOUT) == "NHWC":
            return ir.passes.PassResult(model, False)
        inputs = [v for v in graph.inputs if _is_image(v) and not v.is_initializer() and v.uses()]
        outputs = [v for v in graph.outputs if _is_image(v) and v.producer() is not None]
        if not inputs and not outputs:
            return ir.passes.PassResult(model, False)
        rewriter = Rewriter(model)
        at_inputs = [_transpose_input(rewriter, value) for value in inputs if value not in graph.outputs]
        at_outputs = [_transpose_output(rewriter, value) for value in dict.fromkeys(outputs)]
        for node in at_inputs:
            _push_down(node)
        for node in at_outputs:
            _push_up(node)
        model.metadata_props[LAYOUT] = "NHWC"
        return ir.passes.PassResult(model, True)


def _is_image(value: ir.Value) -> bool:
    return isinstance(value.type, ir.TensorType) and value.shape is not None and len(value.shape) == 4


def _permuted(shape: ir.Shape | None, order: tuple[int, ...]) -> ir.Shape | None:
    return None if shape is None or len(shape) != 4 else ir.Shape([shape[axis] for axis in order])


def _transpose(rewriter: Rewriter, value: ir.Value, order: tuple[int, ...], name: str) -> ir.Node:
    node = ir.node("Transpose", [value], {"perm": list(order)}, name=rewriter.unique(f"{name}/Transpose"))
    node.outputs[0].type = value.type
    node.outputs[0].shape = _permuted(value.shape, order)
    return node


def _transpose_input(rewriter: Rewriter, value: ir.Value) -> ir.Node:
    graph = rewriter.model.graph
    first, shape = graph[0], value.shape
    value.shape = _permuted(shape, _TO_LAST)
    readers = list(value.uses())
    node = _transpose(rewriter, value, _TO_FIRST, value.name or "input")
    node.outputs[0].name = rewriter.unique(f"{value.name}_nchw")
    for reader, place in readers:
        reader.replace_input_with(place, node.outputs[0])
    graph.insert_before(first, node)
    return node


def _transpose_output(rewriter: Rewriter, value: ir.Value) -> ir.Node:
    graph = rewriter.model.graph
    node = _transpose(rewriter, value, _TO_LAST, value.name or "output")
    result = node.outputs[0]
    result.name, value.name = value.name, rewriter.unique(f"{value.name}_nchw")
    graph.append(node)
    for place, output in enumerate(graph.outputs):
        if output is value:
            graph.outputs[place] = result
    return node


def _push_down(node: ir.Node) -> None:
    """Move a Transpose behind the element-wise operators that read it alone."""
    graph, source, moved = node.graph, node.inputs[0], node.outputs[0]
    assert graph is not None
    assert source is not None
    while True:
        reader = only_reader(moved)
        if reader is None or reader.graph is not graph or not is_onnx(reader, *_ELEMENTWISE):
            return
        result = reader.outputs[0]
        if result.is_graph_output():
            return
        reader.replace_input_with(0, source)
        graph.remove(node)
        graph.insert_after(reader, node)
        result.replace_all_uses_with(moved)
        node.replace_input_with(0, result)
        moved.shape, moved.type = result.shape, result.type
        result.shape = _permuted(result.shape, _TO_LAST)
        source = result


def _push_up(node: ir.Node) -> None:
    """Move a Transpose before the element-wise operators that it alone reads; remove it with its inverse."""
    graph = node.graph
    assert graph is not None
    while True:
        source, result = node.inputs[0], node.outputs[0]
        maker = None if source is None else source.producer()
        if source is None or maker is None or maker.graph is not graph or only_reader(source) is not node:
            break
        if is_onnx(maker, "Transpose") and tuple(attribute(maker, "perm", ())) == _TO_FIRST:
            _cancel(node, maker)
            return
        operand = maker.inputs[0] if maker.inputs else None
        if not is_onnx(maker, *_ELEMENTWISE) or operand is None or operand.shape is None:
            return
        # `maker` takes over the name and the place of the result.
        graph.remove(node)
        graph.insert_before(maker, node)
        result.replace_all_uses_with(source, replace_graph_outputs=True)
        node.replace_input_with(0, operand)
        maker.replace_input_with(0, result)
        source.name, result.name = result.name, source.name
        source.shape = _permuted(source.shape, _TO_LAST)
        result.shape, result.type = _permuted(operand.shape, _TO_LAST), operand.type


def _cancel(node: ir.Node, inverse: ir.Node) -> None:
    """Remove a Transpose and the one before it, whose order it reverses."""
    graph, source, result = node.graph, inverse.inputs[0], node.outputs[0]
    assert graph is not None
    assert source is not None
    if result.is_graph_output():
        if source.producer() is None or source.is_graph_output():
            return
        name = result.name
        result.replace_all_uses_with(source, replace_graph_outputs=True)
        graph.remove([node, inverse], safe=True)
        source.name = name
    else:
        result.replace_all_uses_with(source)
        graph.remove([node, inverse], safe=True)
