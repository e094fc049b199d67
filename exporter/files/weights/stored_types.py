"""Weights that a graph converts from the element type of their file."""

from __future__ import annotations

import onnx_ir as ir

from .stored_tensors import ConvertedTensor, FileTensor

BFLOAT16_CAST = 13
"""The first opset whose Cast takes bfloat16."""


def cast_stored_weights(model: ir.Model, opset: int) -> ir.Model:
    """Let the graph cast weights that its files have in another element type.

    A graph can refer to a file only for tensors in the type of the file. Weights are left as they are, to be
    converted and copied, where the opset has no such Cast.

    Returns:
        The model, which is changed.
    """
    graph = model.graph
    for value in list(graph.initializers.values()):
        converted = value.const_value
        if not isinstance(converted, ConvertedTensor) or not isinstance(converted.source, FileTensor):
            continue
        stored, types = converted.source, (converted.source.dtype, converted.dtype)
        if ir.DataType.BFLOAT16 in types and opset < BFLOAT16_CAST:
            continue
        uses = value.uses()
        value.const_value = stored.renamed(value.name or "")
        value.dtype = stored.dtype
        cast = ir.node("Cast", [value], {"to": converted.dtype})
        result = cast.outputs[0]
        result.name, result.shape, result.dtype = f"{value.name}.cast", value.shape, converted.dtype
        for use in uses:
            use.node.replace_input_with(use.idx, result)
        # An output of the graph may be a weight itself.
        for position, output in enumerate(graph.outputs):
            if output is value:
                graph.outputs[position] = result
        graph.insert_before(graph[0], cast)
    return model
