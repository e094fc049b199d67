"""Writes causal convolutions as CausalConvWithState, which opsets from 27 on have.

    Slice(Conv(x, w, b, pads=[k - 1, k - 1]), end=length), and x * Sigmoid(x) or Swish(x) behind it

1. The Conv has one kernel of k elements for each channel, steps of one, and k - 1 elements before the first.
2. The elements behind the last one, if there are any, are cut off: the result has the length of the input.
3. The state of the operator is not used: the sequence begins with zeros.
"""

from __future__ import annotations

import onnx_ir as ir

from ....registration.arguments import graphs_of
from ....registration.schemas import operator_schema
from ...onnx_graph.simplification.unused_nodes import RemoveUnused
from ..rewriting import Rewriter, attribute, is_onnx, only_reader

CAUSAL_CONVOLUTION = "CausalConvWithState"


class FuseCausalConvolutions(ir.passes.InPlacePass):
    """Replaces Conv, Slice, Sigmoid and Mul."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the main graph and its sub-graphs, and report whether anything changed."""
        opset = model.opset_imports.get("")
        if opset is None or operator_schema(CAUSAL_CONVOLUTION, opset) is None:
            return ir.passes.PassResult(model, False)
        rewriter = Rewriter(model)
        modified = False
        for graph in graphs_of(model.graph):
            for node in [node for node in graph if is_onnx(node, "Conv")]:
                last = _last_of_convolution(node)
                if last is None:
                    continue
                last, activation = _with_activation(last)
                with rewriter.before(last, node.name) as g:
                    result, _ = g.op(CAUSAL_CONVOLUTION, *node.inputs, activation=activation, outputs=2)
                result.type, result.shape = last.outputs[0].type, last.outputs[0].shape
                rewriter.replace(last, [result])
                modified = True
        if modified:
            RemoveUnused()(model)
        return ir.passes.PassResult(model, modified)


def _last_of_convolution(node: ir.Node) -> ir.Node | None:
    """The node that computes the result of a causal convolution: the Conv, or a Slice behind it."""
    data, weight = node.inputs[0], node.inputs[1]
    if data is None or data.shape is None or weight is None or weight.shape is None or len(data.shape) != 3:
        return None
    channels, kernel = data.shape[1], weight.shape[2]
    if not isinstance(kernel, int) or tuple(weight.shape[:2]) != (channels, 1):
        return None
    before, behind = attribute(node, "pads", [0, 0])
    has_steps_of_one = {*attribute(node, "strides", [1]), *attribute(node, "dilations", [1])} == {1}
    is_padded = attribute(node, "auto_pad", "NOTSET") == "NOTSET" and before == kernel - 1
    if not has_steps_of_one or not is_padded or attribute(node, "group", 1) != channels:
        return None
    if behind == 0:
        return node
    reader = only_reader(node.outputs[0])
    if reader is None or not is_onnx(reader, "Slice") or reader.outputs[0].shape is None:
        return None
    length = data.shape[2]
    is_known = isinstance(length, int) or length.value is not None
    # Slices of the same length that begin later, or take each second element, are others.
    bounds = [(reader.inputs[1], 0), (reader.inputs[4] if len(reader.inputs) > 4 else None, 1)]
    is_from_first = all(
        value is None or (value.const_value is not None and value.const_value.numpy().tolist() == [number])
        for value, number in bounds
    )
    has_length = is_known and tuple(reader.outputs[0].shape) == tuple(data.shape)
    return reader if has_length and is_from_first else None


def _with_activation(node: ir.Node) -> tuple[ir.Node, str]:
    """The node that computes the result of an activation, and its name; the node itself without one."""
    value = node.outputs[0]
    readers = [reader for reader, _ in value.uses()]
    swish = only_reader(value)
    if swish is not None and is_onnx(swish, "Swish") and attribute(swish, "alpha", 1.0) == 1:
        return swish, "silu"
    sigmoid = next((reader for reader in readers if is_onnx(reader, "Sigmoid")), None)
    product = None if sigmoid is None else only_reader(sigmoid.outputs[0])
    is_silu = product is not None and is_onnx(product, "Mul") and not value.is_graph_output()
    if product is not None and is_silu and len(readers) == 2 and product in readers:
        return product, "silu"
    return node, "none"
