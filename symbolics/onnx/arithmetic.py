"""Arithmetic and comparison that an opset does not have, or not of these element types."""

import numpy as np

from ...registration import DataType, GraphContext, Value, dtypes, onnx_symbolic
from ..compositions.sizes import axis as front
from ..compositions.sizes import known_rank
from .support import by_axis, emitted_from, integers, today


@onnx_symbolic("canonical::Mod")
def mod(g: GraphContext, A: Value, B: Value, fmod: int = 0) -> Value:
    """Below 10: the remainder with the sign of the divisor, or of the dividend."""
    return g.call("aten::fmod" if fmod else "aten::remainder", self=A, other=B)


@onnx_symbolic("canonical::Mod", opset=10)
def mod_10(g: GraphContext, A: Value, B: Value, fmod: int = 0) -> Value:
    """Below 28 floats have the remainder with the dividend's sign only."""
    if not fmod and g.dtype(A) in dtypes.FLOATS:
        return g.call("aten::remainder", self=A, other=B)
    return g.op("Mod", A, B, fmod=fmod)


@onnx_symbolic("onnx::BitShift")
def bit_shift(g: GraphContext, X: Value, Y: Value, direction: str) -> Value:
    """Below 11, and of signed numbers below 28: multiplication and division."""
    name = "aten::bitwise_left_shift" if direction == "LEFT" else "aten::bitwise_right_shift"
    dtype = g.dtype(X)
    if dtype == DataType.UINT64:
        return _shifted_wide(g, X, Y, direction)
    return g.call(name, self=X, other=Y)


def _shifted_wide(g: GraphContext, X: Value, Y: Value, direction: str) -> Value:
    """Of unsigned 64-bit numbers: their powers of two, and nothing where the shift is as long as they are."""
    amount = g.cast(Y, DataType.INT64)
    inside = g.op("Less", amount, 64)
    powers = g.constant(np.left_shift(np.uint64(1), np.arange(64, dtype=np.uint64)))
    power = g.op("Gather", powers, g.op("Where", inside, amount, 0))
    shifted = g.op("Mul" if direction == "LEFT" else "Div", X, power)
    return g.op("Mul", shifted, g.cast(inside, DataType.UINT64))


@onnx_symbolic("onnx::BitwiseNot")
def bitwise_not(g: GraphContext, X: Value) -> Value:
    """Below 18 as arithmetic."""
    if g.dtype(X) == DataType.UINT64:
        return g.op("Sub", g.constant(2**64 - 1, DataType.UINT64), X)
    return g.call("aten::bitwise_not", self=X)


@onnx_symbolic("onnx::BitCast")
def bit_cast(g: GraphContext, input: Value, to: int) -> Value:
    """Below 26: between integers of one width, whose Cast keeps the bits."""
    own, wanted = g.dtype(input), DataType(to)
    if own == wanted:
        return g.op("Identity", input)
    integral = own in dtypes.INTEGERS and wanted in dtypes.INTEGERS
    if own is None or not integral or own.itemsize != wanted.itemsize:
        raise g.refuse("the bits of a number can be read as another kind from 26 on", first_opset=26)
    return g.cast(input, wanted)


def _cumulative(g: GraphContext, x: Value, axis: Value, name: str, exclusive: int, reverse: int) -> Value:
    known = integers(g, axis)
    if known is None:
        rank = known_rank(g, x)
        found = [_cumulative(g, x, g.constant(at), name, exclusive, reverse) for at in range(rank)]
        return by_axis(g, axis, found)
    at = front(g, x, known[0])
    dtype = g.dtype(x)
    x = g.call("aten::flip", self=x, dims=[at]) if reverse else x
    if exclusive:
        neutral = g.constant(0 if name == "aten::cumsum" else 1, dtype or DataType.FLOAT)
        sizes = [g.size(x, dim) if dim != at else 1 for dim in range(known_rank(g, x))]
        first = g.op("Expand", neutral, g.stack(sizes))
        x = g.op("Concat", first, g.call("aten::slice", self=x, dim=at, start=0, end=-1), axis=at)
    total = g.call(name, self=x, dim=at, dtype=dtype)
    return g.call("aten::flip", self=total, dims=[at]) if reverse else total


@onnx_symbolic("onnx::CumSum")
def cum_sum(g: GraphContext, x: Value, axis: Value, exclusive: int = 0, reverse: int = 0) -> Value:
    """Below 11."""
    return _cumulative(g, x, axis, "aten::cumsum", exclusive, reverse)


@onnx_symbolic("onnx::CumProd")
def cum_prod(g: GraphContext, x: Value, axis: Value, exclusive: int = 0, reverse: int = 0) -> Value:
    """Below 26."""
    return _cumulative(g, x, axis, "aten::cumprod", exclusive, reverse)


@onnx_symbolic("onnx::Round")
def round_(g: GraphContext, X: Value) -> Value:
    """Below 11."""
    return g.call("aten::round", self=X)


@onnx_symbolic("onnx::IsInf")
def is_inf(g: GraphContext, X: Value, detect_negative: int = 1, detect_positive: int = 1) -> Value:
    """Below 10."""
    found = g.call("aten::isinf", self=X)
    if not detect_negative:
        found = g.op("And", found, g.op("Greater", X, 0.0))
    if not detect_positive:
        found = g.op("And", found, g.op("Less", X, 0.0))
    return found


@onnx_symbolic("onnx::Equal")
def equal(g: GraphContext, A: Value, B: Value) -> Value:
    """Below 11 of floats; of short integers and UINT64 by their difference."""
    if g.dtype(A) == DataType.UINT64:
        return g.op("Not", g.cast(g.op("Sub", A, B), DataType.BOOL))
    if g.dtype(A) not in dtypes.FLOATS:
        raise g.refuse(f"ONNX operator Equal does not take {g.dtype(A)} here", first_opset=19)
    return g.call("aten::eq", self=A, other=B)


@onnx_symbolic("onnx::GreaterOrEqual")
def greater_or_equal(g: GraphContext, A: Value, B: Value) -> Value:
    """Below 12."""
    return g.call("aten::ge", self=A, other=B)


@onnx_symbolic("onnx::LessOrEqual")
def less_or_equal(g: GraphContext, A: Value, B: Value) -> Value:
    """Below 12."""
    return g.call("aten::le", self=A, other=B)


def _register_extreme(op_type: str, comparison: str) -> None:
    @onnx_symbolic(f"canonical::{op_type}")
    def extreme(g: GraphContext, data_0: list[Value]) -> Value:
        """Below 12: of integers, the one that a comparison chooses."""
        first, *others = data_0
        if g.dtype(first) in dtypes.FLOATS or g.dtype(first) is None:
            return g.op(op_type, *data_0)
        for other in others:
            first = g.op("Where", g.op(comparison, first, other), first, other)
        return first if others else g.op("Identity", first)

    emitted_from(op_type, 12)


_register_extreme("Max", "Greater")
_register_extreme("Min", "Less")


@onnx_symbolic("canonical::Clip")
def clip(g: GraphContext, input: Value, min: Value | None = None, max: Value | None = None) -> Value:
    """Below 12: of integers, and below 11 by computed bounds, as Max and Min."""
    bounds = [item for item in (min, max) if item is not None]
    arrays = [array for array in map(g.constant_value, bounds) if array is not None]
    constant = len(arrays) == len(bounds)
    if g.dtype(input) in (DataType.FLOAT, DataType.DOUBLE, DataType.FLOAT16) and constant:
        # The attributes are FLOAT, and a lower bound above the upper one gives the upper one.
        exact = all(np.float32(array) == array for array in arrays)
        ordered = len(arrays) < 2 or bool(arrays[0] <= arrays[1])
        if exact and ordered:
            return g.op("Clip", input, min=min, max=max)
    result = input
    if min is not None:
        result = today(g, "Max", [result, min])
    if max is not None:
        result = today(g, "Min", [result, max])
    return result if bounds else g.op("Identity", input)


@onnx_symbolic("canonical::Pow")
def pow_(g: GraphContext, X: Value, Y: Value) -> Value:
    """Below 12: of one floating type."""
    own, other = g.dtype(X), g.dtype(Y)
    if own == other and own in dtypes.FLOATS:
        return g.op("Pow", X, Y)
    if own is None or other is None:
        raise g.refuse("the element types of its inputs are unknown", first_opset=12)
    if own in dtypes.FLOATS:
        wide = DataType.DOUBLE if other in (DataType.INT64, DataType.UINT64, DataType.DOUBLE) else own
        return g.cast(g.op("Pow", g.cast(X, wide), g.cast(Y, wide)), own)
    if other in dtypes.FLOATS:
        power = g.op("Pow", g.cast(X, DataType.DOUBLE), g.cast(Y, DataType.DOUBLE))
        return g.cast(power, own)
    if own.itemsize > 4 or other.itemsize > 4:
        constant = g.constant_value(Y)
        if constant is None:
            raise g.refuse("powers of 64-bit integers, which DOUBLE does not hold", first_opset=12)
        return g.cast(g.call("aten::pow", self=X, exponent=Y), own)
    power = g.op("Pow", g.cast(X, DataType.DOUBLE), g.cast(Y, DataType.DOUBLE))
    return g.cast(power, own)


@onnx_symbolic("onnx::Det")
def det(g: GraphContext, X: Value) -> Value:
    """Below 11: of the factors."""
    return g.call("composed::determinant", X)


@onnx_symbolic("canonical::Einsum")
def einsum(g: GraphContext, Inputs: list[Value], equation: str) -> Value:
    """Below 12: products, sums and transpositions."""
    return g.call("aten::einsum", equation, Inputs)


def _register_position(op_type: str) -> None:
    @onnx_symbolic(f"onnx::{op_type}")
    def position(
        g: GraphContext, data: Value, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
    ) -> Value:
        """Below 12 the last of equal elements is the first one backwards."""
        if not select_last_index:
            raise g.refuse(f"ONNX operator {op_type} does not take {g.dtype(data)} here")
        at = front(g, data, axis)
        backwards = g.call("aten::flip", self=data, dims=[at])
        found = g.op(op_type, backwards, axis=at, keepdims=keepdims)
        last = g.call("sym::sub", a=g.size(data, at), b=1)
        return g.op("Sub", last, found)


_register_position("ArgMax")
_register_position("ArgMin")


@onnx_symbolic("canonical::Gemm")
def gemm(
    g: GraphContext,
    A: Value,
    B: Value,
    C: Value | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Value:
    """Below 11 something is added always, and be it 0."""
    added = C if C is not None else g.constant(0, g.dtype(A) or DataType.FLOAT)
    return g.op("Gemm", A, B, added, alpha=alpha, beta=beta, transA=transA, transB=transB)


emitted_from("Clip", 12)
emitted_from("Pow", 12)
emitted_from("Einsum", 12)
emitted_from("Gemm", 11)
