"""The bits of numbers, by arithmetic where an opset lacks BitCast or bitwise operators."""

from collections.abc import Callable

import numpy as np

from ...registration import DataType, GraphContext, Value, dtypes
from .size_arithmetic import known_rank, set_shape
from .special.formulas import Formula

_FRACTIONS = {DataType.FLOAT: (23, 127), DataType.FLOAT16: (10, 15), DataType.BFLOAT16: (7, 127)}
"""The bits of the fraction and the bias of the exponent."""

_DIGIT = 16


def reinterpret_bits(g: GraphContext, input: Value, dtype: DataType) -> Value:
    """The same bits as numbers of another type.

    A wider number is made of the elements of the last dimension, the low bits first; a narrower type adds
    such a dimension.
    """
    source = g.dtype(input)
    if source == dtype:
        return input
    is_same_width = source is not None and source.bitwidth == dtype.bitwidth
    if is_same_width and not {source, dtype} <= dtypes.INTEGERS and g.has("BitCast"):
        return set_shape(g.op("BitCast", input, to=int(dtype)), g.shape(input))
    if source is None or not {source, dtype} <= {*dtypes.INTEGERS, *_FRACTIONS}:
        raise g.refuse(f"the bits of {source and source.name} cannot be read as {dtype.name}", first_opset=26)
    bits = _bits_of_float(g, input, source) if source in _FRACTIONS else g.cast(input, DataType.INT64)
    bits = set_shape(bits, g.shape(input))
    if dtype.bitwidth < source.bitwidth:
        # The parts of a number, the low one first, in a new last dimension.
        shifts = g.constant(np.arange(0, source.bitwidth, dtype.bitwidth), DataType.INT64)
        column = g.op("Unsqueeze", bits, axes=[known_rank(g, bits)])
        bits = g.call("aten::bitwise_right_shift", column, shifts)
    elif dtype.bitwidth > source.bitwidth:
        bits = _join_bits(g, bits, source, dtype)
    if dtype in _FRACTIONS:
        return _float_of_bits(g, bits, dtype)
    return g.cast(wrap_to_type(g, bits, dtype), dtype)


def wrap_to_type(g: GraphContext, bits: Value, dtype: DataType) -> Value:
    """The low bits of INT64 numbers as a number of the type; runtimes differ in casts that do not fit."""
    if dtype.bitwidth == 64:
        return bits
    low = g.call("aten::remainder", bits, 1 << dtype.bitwidth)
    if dtype in dtypes.UNSIGNED:
        return low
    half = 1 << (dtype.bitwidth - 1)
    return g.op("Sub", g.call("aten::remainder", g.op("Add", low, half), 1 << dtype.bitwidth), half)


def _join_bits(g: GraphContext, bits: Value, source: DataType, target: DataType) -> Value:
    """Numbers from parts in the last dimension."""
    axis = known_rank(g, bits) - 1
    count = target.bitwidth // source.bitwidth
    parts = [g.op("Gather", bits, index, axis=axis) for index in range(count)]
    # The last part has the sign, so that the sum stays within 64 bits.
    total = wrap_to_type(g, parts[-1], DataType[f"INT{source.bitwidth}"])
    for part in reversed(parts[:-1]):
        low = g.call("aten::remainder", part, 1 << source.bitwidth)
        total = g.op("Add", g.op("Mul", total, 1 << source.bitwidth), low)
    return total


def _bits_of_float(g: GraphContext, input: Value, dtype: DataType) -> Value:
    """The bits of floats as INT64. All NaN become the usual one, because ONNX tells no others apart."""
    fraction, bias = _FRACTIONS[dtype]
    x = g.cast(input, DataType.DOUBLE)
    magnitude = g.op("Abs", x)
    # DOUBLE has the powers of two and the fractions of all narrower types.
    powers = g.constant(2.0 ** np.arange(1 - bias, bias + 1))
    finite = g.op("Where", g.op("Less", magnitude, 2.0 ** (bias + 1)), magnitude, 0.0)
    logarithm = g.op("Div", g.op("Log", g.op("Max", finite, 2.0 ** (1 - bias))), float(np.log(2)))
    estimate = g.op("Add", g.cast(g.op("Floor", logarithm), DataType.INT64), bias - 1)
    estimate = g.call("aten::clamp", estimate, 0, 2 * bias - 1)
    # Near a power of two the logarithm may fall on the other side of an integer.
    is_high = g.op("Less", g.op("Max", finite, 2.0 ** (1 - bias)), g.op("Gather", powers, estimate))
    estimate = g.op("Sub", estimate, g.cast(is_high, DataType.INT64))
    scaled = g.op("Div", finite, g.op("Gather", powers, estimate))
    is_low = g.op("Not", g.op("Less", scaled, 2.0))
    exponent = g.op("Add", estimate, g.cast(is_low, DataType.INT64))
    scaled = g.op("Where", is_low, g.op("Div", scaled, 2.0), scaled)
    # Subnormal numbers have the lowest exponent and less than 1.
    number = g.op(
        "Add",
        g.op("Mul", exponent, 1 << fraction),
        g.cast(g.op("Mul", scaled, 2.0**fraction), DataType.INT64),
    )
    infinity = (2 * bias + 1) << fraction
    number = g.op("Where", g.op("Less", magnitude, 2.0 ** (bias + 1)), number, infinity)
    is_nan = g.op("Not", g.op("Equal", x, x))
    number = g.op("Where", is_nan, infinity | 1 << (fraction - 1), number)
    # 1 / -0.0 is negative.
    is_negative = g.op("Or", g.op("Less", x, 0.0), g.op("Less", g.op("Div", 1.0, x), 0.0))
    sign = g.op("Mul", g.cast(is_negative, DataType.INT64), 1 << (dtype.bitwidth - 1))
    return g.op("Add", number, sign)


def _float_of_bits(g: GraphContext, bits: Value, dtype: DataType) -> Value:
    """The floats with the low bits of INT64 numbers."""
    fraction, bias = _FRACTIONS[dtype]
    number = g.call("aten::remainder", bits, 1 << dtype.bitwidth)
    half = 1 << (dtype.bitwidth - 1)
    is_negative = g.op("Not", g.op("Less", number, half))
    number = g.call("aten::remainder", number, half)
    exponent = g.op("Div", number, 1 << fraction)
    rest = g.call("aten::remainder", number, 1 << fraction)
    exponents = np.arange(2 * bias + 2)
    # Exponent 0 is that of 1 without the leading bit; the highest one is infinity or NaN.
    scales = 2.0 ** (np.maximum(exponents, 1) - float(bias + fraction))
    scales[-1] = np.inf
    leading = g.op("Mul", g.cast(g.op("Less", 0, exponent), DataType.INT64), 1 << fraction)
    significand = g.cast(g.op("Add", rest, leading), DataType.DOUBLE)
    value = g.op("Mul", significand, g.op("Gather", g.constant(scales), exponent))
    is_nan = g.op("And", g.op("Equal", exponent, 2 * bias + 1), g.op("Less", 0, rest))
    value = g.op("Where", is_nan, float("nan"), value)
    return g.cast(g.op("Where", is_negative, g.op("Neg", value), value), dtype)


def bit_width(g: GraphContext, value: Value) -> int:
    """The number of bits of an integer type; 64 if the type is unknown."""
    return 8 * (g.dtype(value) or DataType.INT64).numpy().itemsize


def combine_digits(g: GraphContext, A: Value, B: Value, combine: Callable[[int, int], int]) -> Value:
    """A bitwise operator on two integers of one type: looks up digits of four bits in a table.

    Uses halves of 32 bits, because onnxruntime sums INT64 in DOUBLE.
    """
    table = np.array([combine(a, b) for a in range(_DIGIT) for b in range(_DIGIT)])
    rank = max(known_rank(g, A), known_rank(g, B))
    count = bit_width(g, A) // 4
    digit_values = _DIGIT ** np.arange(count, dtype=np.int64)
    result: Formula | None = None
    # Eight digits of four bits are 32 bits, whose sum DOUBLE represents exactly.
    for start in range(0, count, 8):
        half = digit_values[start : start + 8]
        pairs = _digits(g, A, half) * _DIGIT + _digits(g, B, half)
        digits = g.op("Mul", g.op("Gather", table, pairs.value), half // half[0])
        half_result = Formula(g, g.op("ReduceSum", digits, axes=[rank], keepdims=0))
        result = half_result if result is None else half_result * int(half[0]) + result
    assert result is not None
    return g.cast(result.value, g.dtype(A) or DataType.INT64)


def _digits(g: GraphContext, value: Value, digit_values: np.ndarray) -> Formula:
    """The digits of integers in two's complement, lowest first, along a new last dimension."""
    column = g.op("Unsqueeze", g.cast(value, DataType.INT64), axes=[known_rank(g, value)])
    number, digit_value = Formula(g, column), Formula(g, g.constant(digit_values))
    return floored_modulo((number - floored_modulo(number, digit_value)) / digit_value, _DIGIT)


def floored_modulo(number: Formula, modulus: Formula | int) -> Formula:
    """The remainder of flooring division by a positive number; division itself truncates."""
    remainder = number - number / modulus * modulus + modulus
    # The first remainder may be negative and was raised by the modulus; this one is from 0 to the modulus.
    return remainder - remainder / modulus * modulus
