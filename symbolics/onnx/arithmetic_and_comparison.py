"""Arithmetic and comparison that an opset lacks, or lacks for some element types."""

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...registration import DataType, GraphContext, Number, Value, dtypes, onnx_symbolic
from ..compositions.bits import combine_digits, reinterpret_bits
from ..compositions.doubling import inclusive_scan
from ..compositions.einsum import contract, parse_equation
from ..compositions.remainders import emit_remainder, floored_float_remainder
from ..compositions.size_arithmetic import axis as front
from ..compositions.size_arithmetic import known_rank, same_size
from .support import below, by_axis, integers


@onnx_symbolic("onnx::Mod")
def mod(g: GraphContext, A: Value, B: Value | Number, fmod: int = 0) -> Value:
    """Below 10: the remainder with the sign of the divisor, or of the dividend."""
    return emit_remainder(g, A, B, floored=not fmod)


@below("Mod", 28)
def mod_of_floats(g: GraphContext, A: Value, B: Value | Number, fmod: int = 0) -> Value:
    """Below 28 Mod of floats returns only the remainder with the dividend's sign."""
    if fmod or g.dtype(A) not in dtypes.FLOATS or not g.has("Mod"):
        return g.op("Mod", A, B, fmod=fmod)
    return floored_float_remainder(g, A, B)


@onnx_symbolic("onnx::BitShift")
def bit_shift(g: GraphContext, X: Value, Y: Value, direction: str) -> Value:
    """Below 11, and for signed integers below 28: multiplication and division."""
    name = "aten::bitwise_left_shift" if direction == "LEFT" else "aten::bitwise_right_shift"
    dtype = g.dtype(X)
    if dtype == DataType.UINT64:
        return _shift_unsigned_64(g, X, Y, direction)
    return g.call(name, self=X, other=Y)


def _shift_unsigned_64(g: GraphContext, X: Value, Y: Value, direction: str) -> Value:
    """Shift of unsigned 64-bit integers by powers of two; 0 if the shift is not less than 64."""
    amount = g.cast(Y, DataType.INT64)
    inside = g.op("Less", amount, 64)
    # A table of powers, because Pow does not take UINT64.
    powers = g.constant(np.left_shift(np.uint64(1), np.arange(64, dtype=np.uint64)))
    power = g.op("Gather", powers, g.op("Where", inside, amount, 0))
    shifted = g.op("Mul" if direction == "LEFT" else "Div", X, power)
    return g.op("Mul", shifted, g.cast(inside, DataType.UINT64))


@onnx_symbolic("onnx::BitwiseNot")
def bitwise_not(g: GraphContext, X: Value) -> Value:
    """Below 18: in two's complement `~x` is all bits set minus x."""
    dtype = g.dtype(X)
    all_bits = dtypes.limits(dtype)[1] if dtype in dtypes.UNSIGNED else -1
    return g.op("Sub", g.constant(all_bits, dtype), X)


def _register_bitwise(op_type: str, combine: Callable[[int, int], int]) -> None:
    @onnx_symbolic(f"onnx::{op_type}")
    def bitwise(g: GraphContext, A: Value, B: Value | Number) -> Value:
        """Below 18: from tables of four bits."""
        A = g.constant(A)
        return combine_digits(g, A, g.constant(B, g.dtype(A)), combine)


_register_bitwise("BitwiseAnd", operator.and_)
_register_bitwise("BitwiseOr", operator.or_)
_register_bitwise("BitwiseXor", operator.xor)


@onnx_symbolic("onnx::BitCast")
def bit_cast(g: GraphContext, input: Value, to: int) -> Value:
    """Below 26: Cast between integers, which keeps the bits, and arithmetic for floats."""
    dtype, result_dtype = g.dtype(input), dtypes.element_type(to)
    if dtype == result_dtype:
        return g.op("Identity", input)
    if dtype is None or dtype.bitwidth != result_dtype.bitwidth:
        raise g.refuse("the element types of input and output must have the same width", first_opset=26)
    return reinterpret_bits(g, input, result_dtype)


def _running(g: GraphContext, x: Value, dim: int, op_type: str) -> Value:
    if g.rank(x) == 0:
        return x
    # A scan over an unknown size needs a Loop; a masked sum needs none.
    if op_type == "Add" and isinstance(g.size(x, dim), Value):
        return _masked_sum(g, x, dim)
    return inclusive_scan(g, [x], dim, lambda earlier, element: [g.op(op_type, element[0], earlier[0])])[0]


def _masked_sum(g: GraphContext, x: Value, dim: int) -> Value:
    """A cumulative sum over a dim of unknown size: element i sums row i of a square that is 0 beyond i."""
    rank, size = known_rank(g, x), g.size(x, dim)
    positions = g.call("aten::arange", end=size)
    is_later = g.op("Greater", g.op("Unsqueeze", positions, axes=[0]), g.op("Unsqueeze", positions, axes=[1]))
    last = [i for i in range(rank) if i != dim] + [dim]
    rows = g.op("Unsqueeze", g.op("Transpose", x, perm=last), axes=[rank - 1])
    sums = g.op("ReduceSum", g.op("Where", is_later, 0, rows), axes=[rank], keepdims=0)
    return g.op("Transpose", sums, perm=[last.index(i) for i in range(rank)])


def _cumulative(
    g: GraphContext, x: Value, axis: Value | int, op_type: str, exclusive: int, reverse: int
) -> Value:
    axes = [axis] if isinstance(axis, int) else integers(g, axis)
    if axes is None:
        assert isinstance(axis, Value)
        rank = known_rank(g, x)
        if not rank:
            raise g.refuse("a scalar has no axis")
        candidates = [_cumulative(g, x, dim, op_type, exclusive, reverse) for dim in range(rank)]
        return by_axis(g, axis, candidates)
    dim = front(g, x, axes[0])
    dtype = g.dtype(x)
    # A reversed sum is the sum of the flipped tensor, flipped back.
    x = g.call("aten::flip", self=x, dims=[dim]) if reverse else x
    if exclusive:
        neutral = g.constant(0 if op_type == "Add" else 1, dtype or DataType.FLOAT)
        sizes = [g.size(x, i) if i != dim else 1 for i in range(known_rank(g, x))]
        # An exclusive sum starts with the neutral element and leaves out the last one.
        first = g.op("Expand", neutral, g.stack(sizes))
        x = g.op("Concat", first, g.call("aten::slice", self=x, dim=dim, start=0, end=-1), axis=dim)
    total = _running(g, x, dim, op_type)
    return g.call("aten::flip", self=total, dims=[dim]) if reverse else total


def _register_cumulative(name: str, op_type: str) -> None:
    @onnx_symbolic(f"onnx::{name}")
    def cumulative(
        g: GraphContext, x: Value, axis: Value | int, exclusive: int = 0, reverse: int = 0
    ) -> Value:
        return _cumulative(g, x, axis, op_type, exclusive, reverse)


_register_cumulative("CumSum", "Add")  # Below 11.
_register_cumulative("CumProd", "Mul")  # Below 26.


@onnx_symbolic("onnx::Round")
def round_(g: GraphContext, X: Value) -> Value:
    """Below 11: up if the fraction is above one half, or one half and the floor is odd."""
    floor = g.op("Floor", X)
    fraction = g.op("Sub", X, floor)
    # A whole number is odd if its half has a fraction.
    halved = g.op("Mul", floor, 0.5)
    odd = g.op("Greater", g.op("Sub", halved, g.op("Floor", halved)), 0.25)
    tie = g.op("And", g.op("Not", g.op("Less", fraction, 0.5)), odd)
    up = g.op("Or", g.op("Greater", fraction, 0.5), tie)
    return g.op("Add", floor, g.op("Cast", up, to=int(g.dtype(X) or DataType.FLOAT)))


@onnx_symbolic("onnx::IsInf")
def is_inf(g: GraphContext, X: Value, detect_negative: int = 1, detect_positive: int = 1) -> Value:
    """Below 10: numbers above the largest finite one."""
    is_infinite = g.op("Greater", g.op("Abs", X), float(dtypes.limits(g.dtype(X) or DataType.FLOAT)[1]))
    if not detect_negative:
        is_infinite = g.op("And", is_infinite, g.op("Greater", X, 0.0))
    if not detect_positive:
        is_infinite = g.op("And", is_infinite, g.op("Less", X, 0.0))
    return is_infinite


def _neither(g: GraphContext, failed: Value, A: Value, B: Value | Number) -> Value:
    if g.dtype(A) not in dtypes.INTEGERS and g.dtype(A) != DataType.BOOL:
        # Every comparison with NaN is false.
        is_nan = g.op("IsNaN", A)
        if isinstance(B, Value) and not g.is_foldable(B):
            is_nan = g.op("Or", is_nan, g.op("IsNaN", B))
        failed = g.op("Or", failed, is_nan)
    return g.op("Not", failed)


@onnx_symbolic("onnx::Equal")
def equal(g: GraphContext, A: Value, B: Value | Number) -> Value:
    """Below 11 for floats; short integers and UINT64 compare their difference with 0."""
    if g.dtype(A) == DataType.UINT64:
        # UINT64 wraps around, so only equal numbers have a difference of 0.
        return g.op("Not", g.cast(g.op("Sub", A, B), DataType.BOOL))
    if g.dtype(A) not in dtypes.FLOATS:
        raise g.refuse(f"ONNX operator Equal does not support {g.dtype(A)} here", first_opset=19)
    return _neither(g, g.op("Or", g.op("Less", A, B), g.op("Greater", A, B)), A, B)


def _register_comparison(name: str, opposite: str) -> None:
    @onnx_symbolic(f"onnx::{name}")
    def comparison(g: GraphContext, A: Value, B: Value | Number) -> Value:
        """Below 12."""
        return _neither(g, g.op(opposite, A, B), A, B)


_register_comparison("GreaterOrEqual", "Less")
_register_comparison("LessOrEqual", "Greater")


def _register_extreme(op_type: str, comparison: str) -> None:
    @below(op_type, 8)
    def extreme_at_7(g: GraphContext, data_0: list[Value]) -> Value:
        """At 7: no broadcasting; with a number it is Clip."""
        result, *operands = data_0
        for operand in operands:
            limit = g.constant_value(operand) if g.is_foldable(operand) else None
            if (
                limit is not None
                and limit.ndim == 0
                and g.dtype(result) in dtypes.FLOATS
                and g.has_kernel("Clip", result)
            ):
                bound = float(limit)
                low, high = (bound, math.inf) if op_type == "Max" else (-math.inf, bound)
                result = g.op("Clip", result, min=low, max=high)
            else:
                result = g.call(f"composed::broadcast_{op_type.lower()}", result, operand)
        return result if operands else g.op("Identity", result)

    @below(op_type, 12)
    def extreme(g: GraphContext, data_0: list[Value]) -> Value:
        """Below 12 for integers: selected by a comparison."""
        result, *operands = data_0
        if g.dtype(result) in dtypes.FLOATS or g.dtype(result) is None:
            return g.op(op_type, *data_0)
        for operand in operands:
            result = g.op("Where", g.op(comparison, result, operand), result, operand)
        return result if operands else g.op("Identity", result)


_register_extreme("Max", "Greater")
_register_extreme("Min", "Less")


def _have_one_shape(values: Sequence[Value]) -> bool:
    """Whether values are known to have the same shape."""
    shape = values[0].shape
    return all(
        shape is not None
        and value.shape is not None
        and len(shape) == len(value.shape)
        and all(map(same_size, shape, value.shape))
        for value in values[1:]
    )


@below("Sum", 8)
def sum_(g: GraphContext, data_0: list[Value]) -> Value:
    """At 7: no broadcasting; Add broadcasts."""
    if _have_one_shape(data_0):
        return g.op("Sum", *data_0)
    return functools.reduce(functools.partial(g.op, "Add"), data_0)


@below("Mean", 8)
def mean(g: GraphContext, data_0: list[Value]) -> Value:
    """At 7: no broadcasting."""
    if _have_one_shape(data_0):
        return g.op("Mean", *data_0)
    return g.op("Div", g.op("Sum", *data_0), float(len(data_0)))


@onnx_symbolic("onnx::Clip")
@below("Clip", 12, any_data=True)
def clip(
    g: GraphContext, input: Value, min: Value | Number | None = None, max: Value | Number | None = None
) -> Value:
    """Below 12 for integers, and below 11 for computed bounds: Max and Min."""
    bounds = [bound for bound in (min, max) if bound is not None]
    contents = [g.constant_value(bound) if isinstance(bound, Value) else bound for bound in bounds]
    arrays = [content for content in contents if content is not None]
    constant = len(arrays) == len(bounds)
    if g.dtype(input) in (DataType.FLOAT, DataType.DOUBLE, DataType.FLOAT16) and constant:
        # The attributes are FLOAT; if the bounds cross, the upper one is the result. Runtimes refuse NaN.
        exact = all(isinstance(array, (int, float)) or np.float32(array) == array for array in arrays)
        exact = exact and not any(np.isnan(array) for array in arrays)
        ordered = len(arrays) < 2 or bool(arrays[0] <= arrays[1])
        if exact and ordered:
            return g.op("Clip", input, min=min, max=max)
    result = input
    if min is not None:
        result = g.op("Max", result, min)
    if max is not None:
        result = g.op("Min", result, max)
    return result if bounds else g.op("Identity", input)


@below("Pow", 12)
def pow_(g: GraphContext, X: Value, Y: Value) -> Value:
    """Below 12: both operands in the same float type."""
    base_dtype, exponent_dtype = g.dtype(X), g.dtype(Y)
    if base_dtype == exponent_dtype and base_dtype in dtypes.FLOATS:
        return g.op("Pow", X, Y)
    if base_dtype is None or exponent_dtype is None:
        raise g.refuse("the element types of its inputs are unknown", first_opset=12)
    if base_dtype in dtypes.FLOATS:
        wide = (
            DataType.DOUBLE
            if exponent_dtype in (DataType.INT64, DataType.UINT64, DataType.DOUBLE)
            else base_dtype
        )
        return g.cast(g.op("Pow", g.cast(X, wide), g.cast(Y, wide)), base_dtype)
    if exponent_dtype in dtypes.FLOATS:
        power = g.op("Pow", g.cast(X, DataType.DOUBLE), g.cast(Y, DataType.DOUBLE))
        return g.cast(power, base_dtype)
    constant = g.constant_value(Y)
    if constant is not None and constant.size == 1 and constant.ndim <= (g.rank(X) or 0):
        return g.cast(g.call("aten::pow", self=X, exponent=constant.item()), base_dtype)
    return g.call("aten::pow", self=X, exponent=Y)


@onnx_symbolic("onnx::Det")
def det(g: GraphContext, X: Value) -> Value:
    """Below 11: from the LU factors."""
    return g.call_outputs("aten::_linalg_det", X)[0]


@onnx_symbolic("onnx::Einsum")
def einsum(g: GraphContext, Inputs: list[Value], equation: str) -> Value:
    """Below 12: matrix products, sums and transpositions."""
    ranks = [rank for rank in map(g.rank, Inputs) if rank is not None]
    if len(ranks) != len(Inputs):
        raise g.refuse("the rank of every tensor must be known", first_opset=12)
    return contract(g, parse_equation(g, equation, ranks), Inputs)


def _register_position(op_type: str) -> None:
    @onnx_symbolic(f"onnx::{op_type}")
    def position(
        g: GraphContext, data: Value, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
    ) -> Value:
        """Below 12 the last of equal elements is the first of the reversed tensor."""
        if not select_last_index:
            raise g.refuse(f"ONNX operator {op_type} does not support {g.dtype(data)} here")
        dim = front(g, data, axis)
        # The first of equal elements of the reversed tensor is the last one of the tensor.
        backwards = g.call("aten::flip", self=data, dims=[dim])
        reversed_index = g.op(op_type, backwards, axis=dim, keepdims=keepdims)
        last = g.call("sym::sub", a=g.size(data, dim), b=1)
        return g.op("Sub", last, reversed_index)


_register_position("ArgMax")
_register_position("ArgMin")


@onnx_symbolic("onnx::Gemm")
def gemm(g: GraphContext, A: Value, B: Value, C: Value | None = None, **attributes: Any) -> Value:
    """Below 11 the operator needs its third input; passes 0."""
    added = C if C is not None else g.constant(0, g.dtype(A) or DataType.FLOAT)
    result: Value = g.op("Gemm", A, B, added, **attributes)
    return result
