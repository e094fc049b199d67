"""Changes a model of images between NCHW and NHWC.

ONNX operators on images compute in NCHW and have no layout attribute. So the layout is a choice for the
interface, and for the operators that work in either layout.

1. Inputs and outputs of four dimensions get the other layout: a Transpose follows the input or precedes the
   output.
2. The ONNX pass `PushTransposes` moves the Transposes over all operators that can work in either layout,
   and removes those that cancel. A region of such operators computes in the new layout if that needs no
   more Transposes.
3. The model's metadata records the layout of its interface, so that a second run changes nothing.
"""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes import common

from ....registration.metadata import LAYOUT
from ...onnx_graph.constants.initializers import Initializers
from ...onnx_graph.simplification.unused_nodes import RemoveUnused
from ...onnx_graph.transposes.permutations import Permutation, inverse, permute_shape
from ...onnx_graph.transposes.push_transposes import PushTransposes
from ...onnx_graph.transposes.transpose_rules import has_rule
from ..rewriting import Rewriter, is_onnx

_TO_LAST, _TO_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)


class _ChangeLayout(ir.passes.InPlacePass):
    """Changes the main graph's inputs and outputs of four dimensions."""

    layout: str
    order: Permutation
    """The Transpose from the old layout to the new one."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the model and report whether anything changed."""
        graph = model.graph
        if model.metadata_props.get(LAYOUT) == self.layout:
            return ir.passes.PassResult(model, False)
        inputs = [v for v in graph.inputs if _is_image(v) and not v.is_initializer() and v.uses()]
        # An input that is also an output would need both layouts under one name.
        inputs = [v for v in inputs if v not in graph.outputs]
        outputs = [v for v in graph.outputs if _is_image(v) and v.producer() is not None]
        if not inputs and not outputs:
            return ir.passes.PassResult(model, False)
        # PushTransposes permutes initializers, not Constant nodes.
        common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
        rewriter, names = Rewriter(model), [value.name for value in graph.outputs]
        for value in inputs:
            _transpose_input(rewriter, value, self.order)
        for value in dict.fromkeys(outputs):
            _transpose_output(rewriter, value, self.order)
        # A model with an NHWC interface already has Transposes around its NCHW operators.
        offered = _insert_transpose_pairs(rewriter, self.order) if self.layout == "NHWC" else []
        initializers = Initializers(model)
        PushTransposes(initializers, offered=frozenset(offered), gain=0, resizes=True)(model)
        PushTransposes(initializers, resizes=True)(model)
        RemoveUnused()(model)
        assert names == [value.name for value in graph.outputs]
        model.metadata_props[LAYOUT] = self.layout
        return ir.passes.PassResult(model, True)


class ChannelsLast(_ChangeLayout):
    """Changes the interface from NCHW to NHWC."""

    layout = "NHWC"
    order = _TO_LAST


class ChannelsFirst(_ChangeLayout):
    """Changes the interface from NHWC to NCHW."""

    layout = "NCHW"
    order = _TO_FIRST


def _is_image(value: ir.Value) -> bool:
    return isinstance(value.type, ir.TensorType) and value.shape is not None and len(value.shape) == 4


def _transpose(rewriter: Rewriter, value: ir.Value, order: Permutation) -> ir.Node:
    name = rewriter.unique(f"{value.name or 'image'}/Transpose")
    node = ir.node("Transpose", [value], {"perm": list(order)}, name=name)
    node.outputs[0].type = value.type
    node.outputs[0].shape = permute_shape(value.shape, order)
    node.outputs[0].name = rewriter.unique(f"{name}_output_0")
    return node


def _transpose_input(rewriter: Rewriter, value: ir.Value, order: Permutation) -> None:
    graph = rewriter.model.graph
    value.shape = permute_shape(value.shape, order)
    readers = list(value.uses())
    node = _transpose(rewriter, value, inverse(order))
    for reader, input_index in readers:
        reader.replace_input_with(input_index, node.outputs[0])
    graph.insert_before(graph[0], node)


def _transpose_output(rewriter: Rewriter, value: ir.Value, order: Permutation) -> None:
    graph = rewriter.model.graph
    node = _transpose(rewriter, value, order)
    result = node.outputs[0]
    result.name, value.name = value.name, result.name
    graph.append(node)
    for output_index, output in enumerate(graph.outputs):
        if output is value:
            graph.outputs[output_index] = result


def _insert_transpose_pairs(rewriter: Rewriter, order: Permutation) -> list[ir.Node]:
    """Insert a Transpose and its inverse after each operator that works in one layout only.

    The pair computes nothing; `PushTransposes` may move one of the two over the operators that follow.
    """
    transposes = []
    for node in list(rewriter.model.graph):
        if has_rule(node) or is_onnx(node, "Transpose"):
            continue
        for value in node.outputs:
            if not _is_image(value) or not value.uses() or value.is_graph_output():
                continue
            readers = list(value.uses())
            transpose = _transpose(rewriter, value, order)
            inverse_transpose = _transpose(rewriter, transpose.outputs[0], inverse(order))
            for reader, input_index in readers:
                reader.replace_input_with(input_index, inverse_transpose.outputs[0])
            rewriter.model.graph.insert_after(node, [transpose, inverse_transpose])
            transposes.append(transpose)
    return transposes
