"""Operands of symbolic functions: casts that torch does implicitly, and numbers as constants."""

from ...registration import DataType, GraphContext, Number, Value, dtypes


def is_integral(g: GraphContext, value: Value) -> bool:
    """Whether the element type is known to be an integer type or BOOL."""
    return g.dtype(value) in dtypes.INTEGERS or g.dtype(value) == DataType.BOOL


def floating(g: GraphContext, value: Value) -> Value:
    """Cast integers and bools to FLOAT, as torch does for transcendental functions."""
    return g.cast(value, DataType.FLOAT) if is_integral(g, value) else value


def cast_integers_to_int64(g: GraphContext, value: Value) -> Value:
    """Cast integers and bools to INT64, as torch does for sums."""
    return g.cast(value, DataType.INT64) if is_integral(g, value) else value


def value_like(g: GraphContext, number: Value | Number, like: Value) -> Value:
    """Convert a number to a constant of another value's element type; return a value unchanged."""
    return number if isinstance(number, Value) else g.constant(number, g.dtype(like))


def as_operands(
    g: GraphContext, self: Value | Number, operand: Value | Number
) -> tuple[Value, Value | Number]:
    """Return the operands; a number as first operand becomes a constant of the second one's element type."""
    if isinstance(self, Value):
        return self, operand
    return (value_like(g, self, operand) if isinstance(operand, Value) else g.constant(self)), operand
