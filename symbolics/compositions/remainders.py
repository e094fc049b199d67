"""Remainders of division, exact, without the operator Mod."""

import math

from ...registration import DataType, GraphContext, Number, Value, dtypes
from . import integers


def quotient_in_double(
    g: GraphContext, self: Value, other: Value | Number, rounding: str
) -> tuple[Value, Value, Value]:
    """Both operands as DOUBLE, and the rounded quotient: exact for narrower floats, quotients below 2**29.

    The quotient of two 24-bit numbers is at least 2**-24 away from a whole number that it does not equal,
    so that rounding it to 53 bits never reaches one; whole number times divisor fits 53 bits again.
    """
    a = g.cast(self, DataType.DOUBLE)
    b = g.cast(g.constant(other, self.dtype), DataType.DOUBLE)
    return a, b, g.call(rounding, g.op("Div", a, b))


def _of_floats(g: GraphContext, self: Value, other: Value | Number, rounding: str) -> Value:
    """The remainder of floats; a zero remainder has the sign of `self`.

    With an infinite divisor the remainder is `self`, or for flooring division with opposite signs the
    divisor.
    """
    if g.dtype(self) == DataType.DOUBLE:
        raise g.refuse("the remainder of DOUBLE needs ONNX operator Mod", first_opset=10)
    a, b, quotient = quotient_in_double(g, self, other, rounding)
    taken = g.op("Mul", quotient, b)
    is_finite = not isinstance(other, Value) and math.isfinite(other)
    if not is_finite:
        taken = g.op("Where", g.cast(quotient, DataType.BOOL), taken, 0.0)
    rest = g.op("Sub", a, taken)
    if not is_finite and rounding == "aten::floor":
        rest = g.op("Where", g.op("Less", g.op("Mul", rest, b), 0.0), b, rest)
    rest = g.op("Where", g.cast(rest, DataType.BOOL), rest, g.op("Mul", a, 0.0))
    return g.cast(rest, g.dtype(self) or DataType.FLOAT)


def remainder(g: GraphContext, self: Value, other: Value | Number, floored: bool) -> Value:
    """The remainder: flooring division gives it the divisor's sign, truncating division the dividend's."""
    if g.dtype(self) not in dtypes.INTEGERS and g.dtype(self) != DataType.BOOL:
        return _of_floats(g, self, other, "aten::floor" if floored else "aten::trunc")
    rest = g.op("Sub", self, g.op("Mul", integers.quotient(g, self, other), other))
    if not floored or g.dtype(self) in dtypes.UNSIGNED:
        return rest
    other = g.constant(other, self.dtype)
    opposite = g.op("Xor", g.op("Less", rest, 0), g.op("Less", other, 0))
    wrong = g.op("And", opposite, g.op("Not", g.op("Equal", rest, 0)))
    return g.op("Where", wrong, g.op("Add", rest, other), rest)
