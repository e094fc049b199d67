"""Elementwise operators, reductions, normalizations and searches as nodes of the runtime."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from .....registration import PlanError
from .device_copies import resample
from .device_nodes import (
    DeviceNode,
    Nodes,
    OnnxNode,
    Operand,
    Scratch,
    Strided,
    binary,
    bits_of,
    chain,
    constant_like,
    copy,
    copy_part,
    line_numbers,
    strided_binary,
    strides_of,
    walk_numbers,
)

STORED_TYPES: Mapping[ir.DataType, type[np.generic]] = {
    ir.DataType.INT4: np.int8,
    ir.DataType.UINT4: np.int8,
    ir.DataType.FLOAT16: np.float32,
    ir.DataType.BFLOAT16: np.float32,
}
"""By element type that the runtime lacks, the type in which its constants are stored."""
_EXCHANGED = {"Greater": "Less", "GreaterOrEqual": "LessOrEqual"}
"""By operator, the equivalent one with exchanged operands."""
REDUCTIONS = {
    "ReduceL1": (0, 1, 0),
    "ReduceL2": (0, 2, 2),
    "ReduceLogSum": (0, 0, 3),
    "ReduceLogSumExp": (0, 3, 3),
    "ReduceMax": (1, 0, 0),
    "ReduceMean": (0, 0, 1),
    "ReduceMin": (2, 0, 0),
    "ReduceProd": (3, 0, 0),
    "ReduceSum": (0, 0, 0),
    "ReduceSumSquare": (0, 2, 0),
    "GlobalAveragePool": (0, 0, 1),
    "GlobalMaxPool": (1, 0, 0),
}
"""Three numbers for the runtime's Reduce: how to combine elements (0 sum, 1 maximum, 2 minimum, 3 product),
what to apply to each element before (0 nothing, 1 absolute value, 2 square, 3 exponential), and to the result
(0 nothing, 1 mean, 2 square root, 3 logarithm)."""


def _unary(node: OnnxNode) -> Nodes:
    op_type, source, result = node.op_type, node.source(), node.output
    is_float = source.dtype == ir.DataType.FLOAT
    second = "gamma" if op_type == "Selu" else "beta"
    if op_type == "Relu" and not is_float:
        return binary(node, "Max", source, constant_like(source, 0), result)
    if op_type == "Neg" and not is_float:
        return binary(node, "Mul", source, constant_like(source, -1), result)
    if op_type == "Reciprocal" and not is_float:
        return binary(node, "Div", constant_like(source, 1), source, result)
    if op_type == "Not":
        return binary(node, "Xor", source, np.array(True), result)
    if op_type in ("IsInf", "IsNaN"):
        return binary(node, "IsInf" if op_type == "IsInf" else "Unequal", source, source, result)
    if op_type == "Gelu" and node.text("approximate") == "tanh":
        op_type = "GeluTanh"
    return elementwise(op_type, source, result, node.real("alpha", 1.0), node.real(second))


def elementwise(
    op_type: str, source: Operand, result: Operand, alpha: float = 0.0, beta: float = 0.0
) -> Nodes:
    """Emit an elementwise operator with one operand; alpha and beta are its parameters."""
    yield DeviceNode(op_type, [source], [result], bits_of(alpha, beta))


def _clip(node: OnnxNode) -> Nodes:
    source, result = node.source(), node.output
    bounds = [node.input(1), node.input(2)]
    constants = [node.constant(1), node.constant(2)]
    if source.dtype == ir.DataType.FLOAT and all(
        bound is None or constant is not None for bound, constant in zip(bounds, constants, strict=True)
    ):
        low, high = (None if constant is None else constant.item() for constant in constants)
        yield from elementwise(
            "Clip", source, result, -math.inf if low is None else low, math.inf if high is None else high
        )
        return
    steps = [(name, bound) for name, bound in zip(("Max", "Min"), bounds, strict=True) if bound is not None]
    if not steps:
        yield from copy(source, result, node.shape(result), strides_of(node.shape(result)))
    first: Operand = source
    for index, (name, bound) in enumerate(steps):
        target: Operand = result
        if any(node.shares_memory(later, result) for _, later in steps[index + 1 :]):
            target = Scratch(result.dtype or ir.DataType.FLOAT, node.shape(result))
        yield from binary(node, name, first, bound, target)
        first = target


def _binary(node: OnnxNode) -> Nodes:
    first, second = node.input(0), node.input(1)
    op_type = node.op_type
    if op_type in _EXCHANGED:
        return binary(node, _EXCHANGED[op_type], second, first, node.output)
    if op_type == "Mod" and node.integer("fmod"):
        op_type = "Fmod"
    return binary(node, op_type, first, second, node.output)


def _variadic(node: OnnxNode) -> Nodes:
    operands = node.inputs()
    op_type = node.op_type if node.op_type in ("Max", "Min") else "Add"
    yield from chain(node, op_type, operands, node.output)
    if node.op_type == "Mean" and len(operands) > 1:
        yield from binary(node, "Div", node.output, constant_like(node.output, len(operands)), node.output)


def _stored_operands(node: OnnxNode) -> list[Operand]:
    """Return the operands; constants are converted by `STORED_TYPES` if the runtime lacks their type."""
    operands: list[Operand] = list(node.inputs())
    for index, value in enumerate(node.inputs()):
        constant = node.constant(index)
        stored_type = None if value.dtype is None else STORED_TYPES.get(value.dtype)
        if stored_type is not None and constant is not None:
            operands[index] = constant.astype(stored_type)
    return operands


def _cast(node: OnnxNode) -> Nodes:
    yield DeviceNode("Cast", _stored_operands(node)[:1], [node.output])


def _reduce(node: OnnxNode) -> Nodes:
    source, shape = node.source(), node.shape(node.source())
    axes: Sequence[int] = range(2, len(shape))
    if not node.op_type.startswith("Global"):
        constant = node.constant(1)
        axes = node.integers("axes", []) if constant is None else constant.tolist()
        if not axes and not node.integer("noop_with_empty_axes"):
            axes = range(len(shape))
    return reduction(
        node, REDUCTIONS[node.op_type], source, [axis % len(shape) for axis in axes], node.output
    )


def reduction(
    node: OnnxNode,
    numbers: tuple[int, int, int],
    source: Operand,
    axes: Sequence[int],
    result: Operand,
    view: Sequence[int] | None = None,
) -> Nodes:
    """Emit a reduction over some axes.

    Args:
        numbers: the numbers of the operator, see `REDUCTIONS`.
        axes: the axes to reduce, counted from 0.
        view: the shape to use for the operand; by default its own.
    """
    shape = node.shape(source) if view is None else view
    strides = strides_of(shape)
    remaining_axes = [axis for axis in range(len(shape)) if axis not in axes]
    sizes = [shape[axis] for axis in remaining_axes]
    outer = (0, strides_of(sizes)), (0, [strides[axis] for axis in remaining_axes])
    reduced = sorted(set(axes))
    inner = [shape[axis] for axis in reduced], (0, [strides[axis] for axis in reduced])
    if not math.prod(inner[0]):
        assert isinstance(result, ir.Value)
        number = _reduction_of_nothing(numbers, result)
        yield from copy(constant_like(result, number), result, [math.prod(sizes)], [0])
    elif math.prod(sizes):
        walks = walk_numbers(sizes, *outer) + walk_numbers(*inner)
        yield DeviceNode("Reduce", [source], [result], [*numbers, *walks])


def _reduction_of_nothing(numbers: tuple[int, int, int], result: ir.Value) -> float:
    combination, _, last = numbers
    dtype = constant_like(result, 0).dtype
    if combination in (1, 2):
        if dtype.kind == "f":
            return -math.inf if combination == 1 else math.inf
        limits = np.iinfo(dtype)
        return limits.min if combination == 1 else limits.max
    if combination == 0 and last in (1, 3):
        return -math.inf if last == 3 else math.nan
    return combination // 3


def _search(node: OnnxNode) -> Nodes:
    """Emit ArgMax, ArgMin or TopK, all as the runtime's TopK."""
    shape = node.shape(node.source())
    is_single = node.op_type != "TopK"
    axis = node.axis(len(shape), default=0 if is_single else -1)
    is_ascending = node.op_type == "ArgMin" if is_single else not node.integer("largest", 1)
    count = 1 if is_single else node.shape(node.outputs[1])[axis]
    numbers = [*line_numbers(shape, axis), count, int(is_ascending), node.integer("select_last_index")]
    if math.prod(node.shape(node.outputs[-1])):
        outputs = [None, node.output] if is_single else list(node.outputs)
        yield DeviceNode("TopK", [node.source()], outputs, numbers)


def _cumulative_sum(node: OnnxNode) -> Nodes:
    """Emit CumSum: copy the first elements, then add to each sum the next element."""
    source, result, shape = node.source(), node.output, node.shape(node.source())
    constant = node.constant(1)
    assert constant is not None
    axis, strides = int(constant.reshape(())) % len(shape), strides_of(shape)
    is_exclusive = node.integer("exclusive") != 0
    size, step, first = shape[axis], strides[axis], 0
    if node.integer("reverse"):
        step, first = -step, (size - 1) * step
    # The summed axis is walked last, because its steps depend on one another.
    batch_axes = [index for index in range(len(shape)) if index != axis]
    sizes, steps = [shape[index] for index in batch_axes], [strides[index] for index in batch_axes]
    start: Operand = constant_like(source, 0) if is_exclusive else source
    if not math.prod(shape):
        return
    origin = (0, [0] * len(sizes)) if is_exclusive else (first, steps)
    yield from copy_part(start, result, sizes, (first, steps), origin)
    numbers = [len(shape) + 1, *sizes, size - 1, 1]
    for begin in (first + step, first, first if is_exclusive else first + step):
        numbers += [begin, *steps, step, 1]
    if size > 1:
        yield DeviceNode("Add", [result, source], [result], numbers)


def _quantize(node: OnnxNode) -> Nodes:
    shape, scale = node.shape(node.source()), node.shape(node.input(1))
    inner = math.prod(shape)
    if math.prod(scale) != 1:
        inner = math.prod(shape[node.axis(len(shape), default=1) + 1 :])
    operands = _stored_operands(node)
    if not math.prod(shape):
        return
    block = node.integer("block_size")
    if not block:
        yield DeviceNode(node.op_type, operands, [node.output], [inner])
        return
    axis = node.axis(len(shape), default=1)
    if scale[axis] * block != shape[axis]:
        raise PlanError(f"the last block of '{node.source().name}' is smaller than the others")
    # The elements of a block share a scale and a zero point.
    view = [math.prod(shape[:axis]), scale[axis], block, inner]
    whole = Strided(node.output, strides_of(view))
    shared = [scale[axis] * inner, inner, 0, 1]
    yield DeviceNode("Cast", operands[:1], [node.output])
    if len(operands) > 2:
        zero = Scratch(ir.DataType.FLOAT, scale)
        yield DeviceNode("Cast", operands[2:], [zero])
        yield from strided_binary("Sub", view, whole, Strided(zero, shared), whole)
    yield from strided_binary("Mul", view, whole, Strided(operands[1], shared), whole)


def _dynamic_quantize(node: OnnxNode) -> Nodes:
    """Emit DynamicQuantizeLinear, whose range always includes 0."""
    source, zero = node.source(), np.zeros((), np.float32)
    shape = node.shape(source)
    low, high = (Scratch(ir.DataType.FLOAT, []) for _ in range(2))
    result, scale, zero_point = node.outputs
    if not math.prod(shape):
        return
    for name, bound in (("Min", low), ("Max", high)):
        yield from reduction(node, REDUCTIONS[f"Reduce{name}"], source, range(len(shape)), bound)
        yield from binary(node, name, bound, zero, bound)
    yield from binary(node, "Sub", high, low, high)
    yield from binary(node, "Div", high, np.float32(255).reshape(()), scale)
    yield from binary(node, "Mul", low, np.float32(-1).reshape(()), low)
    yield DeviceNode("QuantizeLinear", [low, scale], [zero_point], [1])
    yield DeviceNode("QuantizeLinear", [source, scale, zero_point], [result], [math.prod(shape)])


def _resize(node: OnnxNode) -> Nodes:
    before, after = node.shape(node.source()), node.shape(node.output)
    scales = node.constant(2)
    factors = [result / size if size else 1.0 for size, result in zip(before, after, strict=True)]
    if scales is not None and scales.size:
        factors = [float(scale) for scale in scales]
    axes: list[tuple[np.ndarray, np.ndarray | None]] = []
    for size, result, factor in zip(before, after, factors, strict=True):
        if size == result and factor == 1:
            axes.append((np.arange(size)[:, None], None))
        else:
            axes.append(_neighbours(node, _source_positions(node, size, result, factor), size))
    return resample(node, axes)


def _source_positions(node: OnnxNode, size: int, result: int, factor: float) -> np.ndarray:
    mode = node.text("coordinate_transformation_mode")
    positions = np.arange(result, dtype=np.float64)
    if mode == "align_corners":
        return positions * 0 if result == 1 else positions * (size - 1) / (size * factor - 1)
    if mode == "asymmetric":
        return positions / factor
    if mode == "pytorch_half_pixel" and result == 1:
        return positions * 0
    return (positions + 0.5) / factor - 0.5


def _neighbours(node: OnnxNode, positions: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Return, for each position along an axis, the indices of its source elements and their weights.

    Both are [positions, count]; the weights are None for single elements.
    """
    base = np.floor(positions)
    if node.text("mode") == "nearest":
        nearest = {
            "floor": base,
            "ceil": np.ceil(positions),
            "round_prefer_ceil": np.floor(positions + 0.5),
        }.get(node.text("nearest_mode"), np.ceil(positions - 0.5))
        return nearest.clip(0, size - 1).astype(np.int64)[:, None], None
    is_cubic = node.text("mode") == "cubic"
    offsets = np.arange(-1, 3) if is_cubic else np.arange(2)
    index = base[:, None] + offsets
    distance = np.abs(positions[:, None] - index)
    weight = 1 - distance
    if is_cubic:
        a = node.real("cubic_coeff_a", -0.75)
        weight = np.where(
            distance <= 1,
            ((a + 2) * distance - (a + 3)) * distance**2 + 1,
            ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a,
        )
        if node.integer("exclude_outside"):
            weight = np.where((index < 0) | (index >= size), 0, weight)
        weight = weight / weight.sum(1, keepdims=True)
    return index.clip(0, size - 1).astype(np.int64), weight


FORMS: Mapping[str, Callable[[OnnxNode], Nodes]] = {
    **dict.fromkeys(
        (
            "Abs Acos Acosh Asin Asinh Atan Atanh Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid "
            "HardSwish IsInf IsNaN LeakyRelu Log Mish Neg Not Reciprocal Relu Round Selu Sigmoid Sign Sin "
            "Sinh Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu"
        ).split(),
        _unary,
    ),
    **dict.fromkeys(
        "Add And Div Equal Greater GreaterOrEqual Less LessOrEqual Mod Mul Or Pow PRelu Sub Xor".split(),
        _binary,
    ),
    **dict.fromkeys(("Max", "Mean", "Min", "Sum"), _variadic),
    **dict.fromkeys(("Cast", "CastLike"), _cast),
    **dict.fromkeys(REDUCTIONS, _reduce),
    **dict.fromkeys(("ArgMax", "ArgMin", "TopK"), _search),
    **dict.fromkeys(("DequantizeLinear", "QuantizeLinear"), _quantize),
    "Clip": _clip,
    "CumSum": _cumulative_sum,
    "DynamicQuantizeLinear": _dynamic_quantize,
    "Resize": _resize,
}
"""By ONNX operator, the function that emits nodes of the runtime for it."""
