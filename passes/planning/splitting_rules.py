"""Which parts of its operands a node needs to compute a part of its result along an axis.

Sources: the operators' definitions (https://onnx.ai/onnx/operators/).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import onnx_ir as ir

from ..onnx_graph.inplace import memory_sharing
from .parts import constant_integers, sizes_of


@dataclasses.dataclass(frozen=True)
class Window:
    """Which rows of input 0 the rows of a result need.

    Attributes:
        size: the rows of a window.
        stride: the rows between the beginnings of windows; of a transposed operator, those that a row gives.
        before: the rows of padding before the first row.
        is_transposed: whether rows of the input give rows of the result.
    """

    size: int
    stride: int
    before: int
    is_transposed: bool = False

    def whole_steps(self, rows: tuple[int, int]) -> tuple[int, int]:
        """The rows of the result that can be computed alone, with the given ones among them."""
        if not self.is_transposed:
            return rows
        return rows[0] // self.stride * self.stride, -(-rows[1] // self.stride) * self.stride

    def operand_rows(self, rows: tuple[int, int]) -> tuple[int, int]:
        """The rows of the operand, with those of the padding before (negative) and after it."""
        if self.is_transposed:
            return rows[0] // self.stride, rows[1] // self.stride
        return rows[0] * self.stride - self.before, (rows[1] - 1) * self.stride - self.before + self.size

    def padding(self, rows: tuple[int, int], count: int) -> tuple[int, int]:
        """The rows of padding before and after those of an operand of `count` rows."""
        begin, end = self.operand_rows(rows)
        return max(0, -begin), max(0, end - count)

    def existing_rows(self, rows: tuple[int, int], count: int) -> tuple[int, int]:
        """The rows of an operand of `count` rows that are needed."""
        begin, end = self.operand_rows(rows)
        return max(0, begin), min(count, end)


@dataclasses.dataclass(frozen=True)
class PartNeeds:
    """What a part of output 0 needs.

    Attributes:
        axes: for each input the axis along which the same fraction of it is enough; None if it is needed
            whole.
        units: a number of equal pieces of the axis that parts are made of; 0 for any.
        window: which rows of input 0 are needed, if they are not those of the result.
    """

    axes: tuple[int | None, ...]
    units: int = 0
    window: Window | None = None


def part_needs(node: ir.Node, axis: int, *, overlaps: bool) -> PartNeeds | None:
    """What a part of the only output of a node along an axis needs; None if it cannot be computed alone.

    Args:
        overlaps: whether parts may need elements that other parts need, too.
    """
    if node.domain not in ("", "ai.onnx") or len(node.outputs) != 1:
        return None
    result = sizes_of(node.outputs[0])
    operands = [sizes_of(value) for value in node.inputs]
    if result is None or not 0 <= axis < len(result):
        return None
    if any(value is not None and shape is None for value, shape in zip(node.inputs, operands, strict=True)):
        return None
    shapes = [shape or [] for shape in operands]
    if memory_sharing.is_broadcasting(node.op_type):
        return PartNeeds(_broadcast_axes(shapes, result, axis))
    rule = _RULES.get(node.op_type)
    if overlaps and axis == _ROWS:
        rule = _WINDOWS.get(node.op_type, rule)
    if rule is None and memory_sharing.is_elementwise(node.op_type):
        rule = _elementwise
    return None if rule is None else rule(node, axis, shapes, result)


def _first(node: ir.Node, axis: int | None, window: Window | None = None) -> PartNeeds:
    """A part of input 0, and all of the others."""
    return PartNeeds((axis, *[None] * (len(node.inputs) - 1)), window=window)


def _broadcast_axes(shapes: Sequence[list[int]], result: list[int], axis: int) -> tuple[int | None, ...]:
    axes: list[int | None] = []
    for shape in shapes:
        position = axis - (len(result) - len(shape))
        axes.append(position if position >= 0 and shape[position] == result[axis] != 1 else None)
    return tuple(axes)


def _elementwise(
    node: ir.Node, axis: int, shapes: Sequence[list[int]], result: list[int]
) -> PartNeeds | None:
    # Other operands, such as the limits of a Clip, are scalars.
    if any(math.prod(shape) != 1 for shape in shapes[1:] if shape):
        return None
    return _first(node, axis) if shapes[0] == result else None


def _convolution(
    node: ir.Node, axis: int, shapes: Sequence[list[int]], result: list[int]
) -> PartNeeds | None:
    if axis == 0:
        return _first(node, 0)
    if axis != 1:
        return None
    groups = node.attributes.get_int("group", 1)
    if groups == 1:
        return PartNeeds((None, *[0] * (len(shapes) - 1)))
    return PartNeeds((1, *[0] * (len(shapes) - 1)), groups)


def _channels(node: ir.Node, axis: int, shapes: Sequence[list[int]], result: list[int]) -> PartNeeds | None:
    """Each channel of each image by itself; further operands have an element for each channel."""
    if axis > 1:
        return None
    return PartNeeds((axis, *[0 if axis == 1 and shape else None for shape in shapes[1:]]))


def _pooling(node: ir.Node, axis: int, shapes: Sequence[list[int]], result: list[int]) -> PartNeeds | None:
    return _first(node, axis) if axis < 2 else None


def _windows(node: ir.Node, axis: int, shapes: Sequence[list[int]], result: list[int]) -> PartNeeds | None:
    """Rows of a convolution, a pooling, or a padded value."""
    attributes, dims, rows = node.attributes, len(result) - _ROWS, shapes[0][axis]
    if node.op_type == "Pad":
        widths = constant_integers(node.inputs[1]) if len(node.inputs) > 1 else None
        if attributes.get_string("mode", "constant") != "constant" or widths is None or len(node.inputs) > 3:
            return None
        return _first(node, axis, Window(1, 1, widths[axis]))
    kernel = attributes.get_ints("kernel_shape", shapes[1][_ROWS:] if len(shapes) > 1 else [])
    stride = attributes.get_ints("strides", [1] * dims)[0]
    dilation = attributes.get_ints("dilations", [1] * dims)[0]
    pads = attributes.get_ints("pads", [0] * 2 * dims)
    if attributes.get_int("ceil_mode", 0) or attributes.get_string("auto_pad", "NOTSET") != "NOTSET":
        return None
    if node.op_type == "ConvTranspose":
        # Without overlaps, each row of the operand gives rows of its own.
        is_separate = kernel[0] == stride and dilation == 1 and not pads[0] and not pads[dims]
        if not is_separate or rows * stride != result[axis] or "output_shape" in attributes:
            return None
        return _first(node, axis, Window(1, stride, 0, is_transposed=True))
    size = (kernel[0] - 1) * dilation + 1
    if (rows + pads[0] + pads[dims] - size) // stride + 1 != result[axis]:
        return None
    return _first(node, axis, Window(size, stride, pads[0]))


def _along_rows(node: ir.Node, axis: int, shapes: Sequence[list[int]], result: list[int]) -> PartNeeds | None:
    opset = node.graph.opset_imports.get("", 0) if isinstance(node.graph, ir.Graph) else 0
    is_normalization = node.op_type.endswith("Normalization")
    # Rows over all axes from this one on: of normalizations, and of Softmax before opset 13.
    is_row_of_axes = is_normalization or opset < 13
    first = node.attributes.get_int("axis", 1 if is_row_of_axes and not is_normalization else -1) % len(
        result
    )
    is_free = axis < first if is_row_of_axes else axis != first
    return _first(node, axis) if is_free else None


def _reduction(node: ir.Node, axis: int, shapes: Sequence[list[int]], result: list[int]) -> PartNeeds | None:
    axes = node.attributes.get_ints("axes", [])
    if len(node.inputs) > 1:
        axes = constant_integers(node.inputs[1]) or []
    if not axes:
        return None
    reduced = {number % len(shapes[0]) for number in axes}
    remaining = [number for number in range(len(shapes[0])) if number not in reduced]
    if node.attributes.get_int("keepdims", 1):
        return None if axis in reduced else _first(node, axis)
    return _first(node, remaining[axis])


def _matrix_product(
    node: ir.Node, axis: int, shapes: Sequence[list[int]], result: list[int]
) -> PartNeeds | None:
    first, second = shapes[:2]
    if min(len(first), len(second)) < 2:
        return None
    if axis == len(result) - 2:
        return PartNeeds((len(first) - 2, None))
    if axis == len(result) - 1:
        return PartNeeds((None, len(second) - 1))
    return PartNeeds(_broadcast_axes(shapes, result, axis))


def _gemm(node: ir.Node, axis: int, shapes: Sequence[list[int]], result: list[int]) -> PartNeeds | None:
    flags = [bool(node.attributes.get_int(name, 0)) for name in ("transA", "transB")]
    bias = _broadcast_axes(shapes[2:], result, axis)
    if axis == 0:
        return PartNeeds((1 if flags[0] else 0, None, *bias))
    return PartNeeds((None, 0 if flags[1] else 1, *bias))


def _transposition(
    node: ir.Node, axis: int, shapes: Sequence[list[int]], result: list[int]
) -> PartNeeds | None:
    order = node.attributes.get_ints("perm", list(reversed(range(len(result)))))
    return _first(node, order[axis])


def _reshaping(node: ir.Node, axis: int, shapes: Sequence[list[int]], result: list[int]) -> PartNeeds | None:
    """The axis of the operand before which there are as many elements as before the axis of the result."""
    before = math.prod(result[:axis])
    for number, size in enumerate(shapes[0]):
        if size > 1 and math.prod(shapes[0][:number]) == before:
            return _first(node, number)
    return None


def _expansion(node: ir.Node, axis: int, shapes: Sequence[list[int]], result: list[int]) -> PartNeeds | None:
    return _first(node, _broadcast_axes(shapes[:1], result, axis)[0])


def _concatenation(
    node: ir.Node, axis: int, shapes: Sequence[list[int]], result: list[int]
) -> PartNeeds | None:
    joined = node.attributes.get_int("axis", 0) % len(result)
    return None if axis == joined else PartNeeds((axis,) * len(shapes))


def _gathering(node: ir.Node, axis: int, shapes: Sequence[list[int]], result: list[int]) -> PartNeeds | None:
    gathered, count = node.attributes.get_int("axis", 0) % len(shapes[0]), len(shapes[1])
    if axis < gathered:
        return PartNeeds((axis, None))
    if axis < gathered + count:
        return PartNeeds((None, axis - gathered))
    return PartNeeds((axis - count + 1, None))


def _quantization(
    node: ir.Node, axis: int, shapes: Sequence[list[int]], result: list[int]
) -> PartNeeds | None:
    """One scale for all elements, for each index of an axis, or for each block along an axis."""
    if len(shapes[1]) == len(result) > 1:
        return PartNeeds((axis,) * len(shapes))
    channels = node.attributes.get_int("axis", 1) % len(result)
    # A vector of one number is for all elements, too.
    whole = axis != channels
    return PartNeeds((axis, *(None if whole or shape != [result[axis]] else 0 for shape in shapes[1:])))


_ROWS = 2
"""The axis of rows of images, and of steps of signals."""
_Rule = Callable[[ir.Node, int, Sequence[list[int]], list[int]], PartNeeds | None]
_RULES: dict[str, _Rule] = {
    "Conv": _convolution,
    "BatchNormalization": _channels,
    "InstanceNormalization": _channels,
    **dict.fromkeys(("MaxPool", "AveragePool", "LpPool"), _pooling),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool"), _pooling),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), _along_rows),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), _along_rows),
    **dict.fromkeys(
        (
            *("ReduceMax", "ReduceMin", "ReduceMean", "ReduceSum", "ReduceProd", "ReduceL1", "ReduceL2"),
            *("ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"),
        ),
        _reduction,
    ),
    "MatMul": _matrix_product,
    "Gemm": _gemm,
    "Transpose": _transposition,
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), _reshaping),
    "Expand": _expansion,
    "Concat": _concatenation,
    "Gather": _gathering,
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), _quantization),
}
_WINDOWS: dict[str, _Rule] = {
    **dict.fromkeys(("Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool", "Pad"), _windows),
    "BatchNormalization": lambda node, axis, shapes, result: _first(node, axis),
}
"""Operators whose rows need other rows of their operand."""
