"""Remainders of division, exact, where the operator Mod does not give them."""

import math

from ...registration import DataType, GraphContext, Number, Value, dtypes
from . import integers


def quotient_in_double(
    g: GraphContext, self: Value, divisor: Value | Number, rounding: str
) -> tuple[Value, Value, Value]:
    """Both operands as DOUBLE, and the rounded quotient: exact for narrower floats, quotients below 2**29.

    The quotient of two 24-bit numbers is at least 2**-24 away from a whole number that it does not equal,
    so that rounding it to 53 bits never reaches one; whole number times divisor fits 53 bits again.
    """
    a = g.cast(self, DataType.DOUBLE)
    b = g.cast(g.constant(divisor, self.dtype), DataType.DOUBLE)
    return a, b, g.call(rounding, g.op("Div", a, b))


def _float_remainder(g: GraphContext, self: Value, divisor: Value | Number, rounding: str) -> Value:
    """The remainder of floats; a zero remainder has the sign of `self`.

    With an infinite divisor the remainder is `self`, or for flooring division with opposite signs the
    divisor.
    """
    if g.dtype(self) == DataType.DOUBLE:
        raise g.refuse("the remainder of DOUBLE needs ONNX operator Mod", first_opset=10)
    a, b, quotient = quotient_in_double(g, self, divisor, rounding)
    multiple = g.op("Mul", quotient, b)
    is_finite = not isinstance(divisor, Value) and math.isfinite(divisor)
    if not is_finite:
        # 0 times infinity would be NaN.
        multiple = g.op("Where", g.cast(quotient, DataType.BOOL), multiple, 0.0)
    remainder = g.op("Sub", a, multiple)
    if not is_finite and rounding == "aten::floor":
        remainder = g.op("Where", g.op("Less", g.op("Mul", remainder, b), 0.0), b, remainder)
    remainder = g.op("Where", g.cast(remainder, DataType.BOOL), remainder, g.op("Mul", a, 0.0))
    return g.cast(remainder, g.dtype(self) or DataType.FLOAT)


def emit_remainder(g: GraphContext, self: Value, divisor: Value | Number, floored: bool) -> Value:
    """The remainder: flooring division gives it the divisor's sign, truncating division the dividend's."""
    if g.dtype(self) not in dtypes.INTEGERS and g.dtype(self) != DataType.BOOL:
        return _float_remainder(g, self, divisor, "aten::floor" if floored else "aten::trunc")
    dividend = integers.widen_integers(g, self)
    divisor = integers.widen_integers(g, g.constant(divisor, self.dtype))
    remainder = g.op("Sub", dividend, g.op("Mul", integers.quotient(g, dividend, divisor), divisor))
    if floored and g.dtype(self) not in dtypes.UNSIGNED:
        opposite = g.op("Xor", g.op("Less", remainder, 0), g.op("Less", divisor, 0))
        wrong = g.op("And", opposite, g.op("Not", g.op("Equal", remainder, 0)))
        remainder = g.op("Where", wrong, g.op("Add", remainder, divisor), remainder)
    return g.cast(remainder, self.dtype) if self.dtype else remainder


def floored_float_remainder(g: GraphContext, self: Value, divisor: Value | Number) -> Value:
    """The remainder of floats with the divisor's sign, by Mod; a zero remainder has the sign of `self`."""
    divisor = g.constant(divisor, g.dtype(self))
    remainder = g.op("Mod", self, divisor, fmod=1)
    opposite = g.op("Xor", g.op("Less", remainder, 0.0), g.op("Less", divisor, 0.0))
    wrong = g.op("And", opposite, g.cast(remainder, DataType.BOOL))
    return g.op("Where", wrong, g.op("Add", remainder, divisor), remainder)
