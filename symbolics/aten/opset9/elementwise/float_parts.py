"""The representation of floats: neighbours, mantissa and exponent, bits; also the angle of real numbers."""

import math

from .....registration import DataType, GraphContext, Value, dtypes, onnx_symbolic
from ....compositions.special.formulas import Formula
from ..special._registration import cast_result, unary, wide

# For each element type: its mantissa bits, the hidden one included, and the exponent of its smallest number.
_PRECISION = {
    DataType.BFLOAT16: (8, -133),
    DataType.FLOAT16: (11, -24),
    DataType.FLOAT: (24, -149),
    DataType.DOUBLE: (53, -1074),
}

_INFINITY = 0x7FF << 52
_NAN = 0xFFF << 51


@onnx_symbolic("aten::nextafter")
def nextafter(g: GraphContext, self: Value, other: Value) -> Value:
    """The next float after `self` in the direction of `other`.

    Adds slightly more than half a unit in the last place, which rounding extends to one unit (Rump,
    Zimmermann, Boldo, Melquiond: "Computing predecessor and successor in rounding to nearest"). Scales up
    first if that half is subnormal; adds the smallest number if that is the distance between neighbours.
    """
    dtype = g.dtype(self)
    if dtype is None or dtype not in _PRECISION:
        raise g.refuse(f"neighbouring numbers of type {dtype} are not supported")
    bits, lowest = _PRECISION[dtype]
    x, target = Formula(g, self), Formula(g, other)
    unit, smallest = 2.0**-bits, 2.0**lowest
    size, is_upward = abs(x), target > x
    half = size * (unit * (1 + 2 * unit))
    scaled = x * 2.0**bits
    scaled_half = abs(scaled) * (unit * (1 + 2 * unit))
    result = x + is_upward.chosen(half, -half)
    small = (scaled + is_upward.chosen(scaled_half, -scaled_half)) * unit
    result = (size < 2.0 ** (2 * bits - 1 + lowest)).chosen(small, result)
    tiny = is_upward.chosen(x + smallest, x - smallest)
    result = (size < 2.0 ** (bits + lowest)).chosen(tiny, result)
    largest = float(dtypes.limits(dtype)[1])
    # Arithmetic on infinity stays infinite; its neighbour is the largest finite number.
    result = x.equals(math.inf).chosen(largest, x.equals(-math.inf).chosen(-largest, result))
    result = x.equals(target).chosen(target, result)
    return target.call("aten::isnan").chosen(target, result).value


@onnx_symbolic("aten::frexp.Tensor")
def frexp(g: GraphContext, self: Value) -> list[Value]:
    """Mantissas from 0.5 to 1 and INT32 exponents, by exact products with powers of two."""
    x = wide(g, self)
    finite = x.call("aten::isfinite") & (abs(x) > 0.0)
    size = finite.chosen(abs(x), 0.5)
    exponent = size * 0.0
    first = 512 if x.is_double else 64
    steps = [first >> i for i in range(first.bit_length())]
    # Binary search for the exponent; the first step twice, for subnormal numbers.
    for step in [first, *steps]:
        small = size < 2.0**-step
        size = small.chosen(size * 2.0**step, size)
        exponent = small.chosen(exponent - float(step), exponent)
    for step in [*steps, 1]:
        large = size >= (2.0**step if step > 1 else 1.0)
        size = large.chosen(size * 2.0**-step, size)
        exponent = large.chosen(exponent + float(step), exponent)
    mantissa = finite.chosen((x < 0.0).chosen(-size, size), x)
    return [cast_result(g, mantissa, self), g.cast(exponent.value, DataType.INT32)]


@onnx_symbolic("composed::bits_of_double")
def bits_of_double(g: GraphContext, self: Value) -> Value:
    """The bits of a DOUBLE, as INT64.

    Without BitCast from mantissa and exponent: NaN is the one that torch makes.
    """
    if g.has("BitCast"):
        return g.op("BitCast", self, to=int(DataType.INT64))
    x = Formula(g, self)
    mantissa, exponent = (Formula(g, part) for part in frexp(g, self))
    fraction = ((abs(mantissa) * 2.0 - 1.0) * 2.0**52).cast(DataType.INT64)
    normal = (exponent.cast(DataType.INT64) + 1022) * 2**52 + fraction
    # 2**1074 is no DOUBLE, so the product takes two steps.
    subnormal = (abs(x) * 2.0**537 * 2.0**537).cast(DataType.INT64)
    is_small, is_finite = abs(x) < 2.0**-1022, x.call("aten::isfinite")
    special = Formula(g, g.op("Where", g.call("aten::isnan", self), _NAN, _INFINITY))
    bits = is_finite.chosen(is_small.chosen(subnormal, normal), special)
    is_negative = (x < 0.0) | x.op("Reciprocal").equals(-math.inf)
    return is_negative.chosen(bits + -(2**63), bits).value


@unary("angle")
def angle(x: Formula) -> Formula:
    """The angle of real numbers: pi below zero, NaN for NaN, else 0."""
    return (x < 0.0).chosen(math.pi, (x > 0.0).chosen(0.0, abs(x)))


@unary("special_entr")
def entr(x: Formula) -> Formula:
    """`-x log(x)`: 0 at 0, and minus infinity below."""
    return (x < 0.0).chosen(-math.inf, (x > 0.0).chosen(-x * x.log(), x))
