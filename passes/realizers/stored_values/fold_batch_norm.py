"""Folds batch normalization into the convolution or matrix product before it.

The ONNX pass `FoldScales` does the folding. Here, parameters and weights may also be Constants, and graph
outputs keep their names.
"""

from __future__ import annotations

import onnx_ir as ir

from ....registration.arguments import graphs_of
from ...onnx_graph.constants.initializers import Initializers
from ...onnx_graph.products.fold_scales import FoldScales
from ...onnx_graph.simplification.unused_nodes import RemoveUnused
from ..rewriting import Rewriter, constant_of, is_onnx, only_reader

_PRODUCTS = ("Conv", "ConvTranspose", "Gemm")


class FoldBatchNorm(ir.passes.InPlacePass):
    """Removes BatchNormalization after Conv, ConvTranspose and Gemm."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the main graph and its sub-graphs, and report whether anything changed."""
        modified = False
        rewriter = Rewriter(model)
        for graph in graphs_of(model.graph):
            for node in graph:
                if is_onnx(node, "BatchNormalization"):
                    modified |= _lift(rewriter, node)
        # FoldScales lets the product's output replace the normalization's, and with it the name.
        names = [(graph, [value.name for value in graph.outputs]) for graph in graphs_of(model.graph)]
        modified |= FoldScales(Initializers(model), ("BatchNormalization",))(model).modified
        for graph, output_names in names:
            for value, name in zip(graph.outputs, output_names, strict=True):
                value.name = name
        if modified:
            RemoveUnused()(model)
        return ir.passes.PassResult(model, modified)


def _lift(rewriter: Rewriter, node: ir.Node) -> bool:
    """Make the constants of a normalization and of the product before it initializers of the main graph.

    Returns:
        Whether anything changed; nothing does where something is not constant.
    """
    value = node.inputs[0]
    layer = value.producer() if value is not None else None
    if value is None or layer is None or not is_onnx(layer, *_PRODUCTS) or only_reader(value) is not node:
        return False
    uses = [(node, input_index) for input_index in range(1, 5)]
    uses += [
        (layer, input_index)
        for input_index in range(1, len(layer.inputs))
        if layer.inputs[input_index] is not None
    ]
    initializers = rewriter.model.graph.initializers
    lifted = []
    for reader, input_index in uses:
        read = reader.inputs[input_index]
        tensor = constant_of(read)
        if read is None or tensor is None:
            return False
        if initializers.get(read.name or "") is not read:
            lifted.append((reader, input_index, read.name or "constant", tensor))
    for reader, input_index, name, tensor in lifted:
        reader.replace_input_with(input_index, rewriter.initializer(name, tensor))
    return bool(lifted)
