"""Softmax and normalizations as nodes of the runtime: reductions, whose results are broadcast."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from .device_arithmetic import REDUCTIONS, elementwise, reduction
from .device_nodes import (
    Nodes,
    OnnxNode,
    Operand,
    Scratch,
    Strided,
    binary,
    broadcast_steps,
    strided_binary,
    strides_of,
)

_MEAN_OF_SQUARES = (0, 2, 1)
"""As in `REDUCTIONS`; ONNX has no such operator."""
_LOWEST = np.finfo(np.float32).min


def normalize_exponentials(
    node: OnnxNode, source: Operand, axis: int, result: Operand, has_empty: bool = False
) -> Nodes:
    """The softmax of the lines along an axis.

    Args:
        has_empty: the result of a line whose elements are all -inf is 0, and not NaN.
    """
    shape = node.shape(source)
    line = Scratch(ir.DataType.FLOAT, [*shape[:axis], 1, *shape[axis + 1 :]])
    yield from reduction(node, REDUCTIONS["ReduceMax"], source, [axis], line)
    if has_empty:
        yield from binary(node, "Max", line, np.array(_LOWEST), line)
    yield from binary(node, "Sub", source, line, result)
    yield from elementwise("Exp", result, result)
    yield from reduction(node, REDUCTIONS["ReduceSum"], result, [axis], line)
    if has_empty:
        yield from binary(node, "Max", line, np.array(1e-30, np.float32), line)
    yield from binary(node, "Div", result, line, result)


def _softmax(node: OnnxNode) -> Nodes:
    shape = node.shape(node.source())
    axis = node.axis(len(shape), default=-1)
    if not math.prod(shape):
        return
    if node.op_type == "Softmax":
        yield from normalize_exponentials(node, node.source(), axis, node.output)
    else:
        line = Scratch(ir.DataType.FLOAT, [*shape[:axis], 1, *shape[axis + 1 :]])
        yield from reduction(node, REDUCTIONS["ReduceLogSumExp"], node.source(), [axis], line)
        yield from binary(node, "Sub", node.source(), line, node.output)


def _normalize(node: OnnxNode) -> Nodes:
    """Operands are seen with axes for what is normalized together, and for what has its own scale."""
    source, result, shape = node.source(), node.output, node.shape(node.source())
    inputs: list[Operand] = list(node.inputs())
    view, axes = shape, list(range(2, len(shape)))
    sizes = [*node.shape(inputs[1]), *[1] * (len(shape) - 2)]
    if node.op_type in ("LayerNormalization", "RMSNormalization"):
        axes, sizes = list(range(node.axis(len(shape), default=-1), len(shape))), node.shape(inputs[1])
    elif node.op_type == "GroupNormalization":
        groups = node.integer("num_groups", 1)
        view, axes = [shape[0], groups, shape[1] // groups, math.prod(shape[2:])], [2, 3]
        sizes = [groups, shape[1] // groups if sizes[0] == shape[1] else 1, 1]
    if not math.prod(shape):
        return
    row_sizes = [1 if axis in axes else size for axis, size in enumerate(view)]
    mean, variance = (Scratch(ir.DataType.FLOAT, row_sizes) for _ in range(2))
    factor: Operand = variance

    def combine(op_type: str, first: Operand, second: Operand, second_sizes: Sequence[int]) -> Nodes:
        operands = Strided(first, strides_of(view)), Strided(second, broadcast_steps(second_sizes, view))
        return strided_binary(op_type, view, *operands, Strided(result, strides_of(view)))

    centered: Operand = source
    if node.op_type == "BatchNormalization":
        yield from combine("Sub", source, inputs[3], sizes)
        variance, row_sizes = Scratch(ir.DataType.FLOAT, node.shape(inputs[4])), sizes
        centered, factor = result, inputs[4]
    elif node.op_type != "RMSNormalization":
        yield from reduction(node, REDUCTIONS["ReduceMean"], source, axes, mean, view)
        yield from combine("Sub", source, mean, row_sizes)
        centered = result
    if factor is variance:
        yield from reduction(node, _MEAN_OF_SQUARES, centered, axes, variance, view)
    epsilon = np.array(node.real("epsilon", 1e-5), np.float32)
    yield from binary(node, "Add", factor, epsilon, variance)
    yield from elementwise("Sqrt", variance, variance)
    yield from combine("Div", centered, variance, row_sizes)
    yield from combine("Mul", result, inputs[1], sizes)
    if len(inputs) > 2:
        yield from combine("Add", result, inputs[2], sizes)


FORMS: Mapping[str, Callable[[OnnxNode], Nodes]] = {
    **dict.fromkeys(("LogSoftmax", "Softmax"), _softmax),
    **dict.fromkeys(
        (
            "BatchNormalization GroupNormalization InstanceNormalization LayerNormalization RMSNormalization"
        ).split(),
        _normalize,
    ),
}
"""How each operator becomes nodes of the runtime."""
