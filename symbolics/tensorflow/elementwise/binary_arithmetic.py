"""Arithmetic, bits and logic of two or more tensors, which broadcast as in numpy."""

from ....registration import DataType, GraphContext, Value, dtypes, onnx_symbolic
from ...compositions import integers
from ...compositions.operator_tables import register_functions, register_table
from .._common import binary, call_on_wide, concatenate_strings, is_integral, restore_dtype
from .gelu import gelu_operand

register_table(
    "tf",
    """
x y: BitwiseAnd BitwiseOr BitwiseXor LogicalAnd=And LogicalOr=Or RealDiv=Div
y x: Atan2=aten::atan2
x1 x2: NextAfter=aten::nextafter
""",
)


def _register_shift(direction: str) -> None:
    @onnx_symbolic(f"tf::{direction.title()}Shift")
    def shift(g: GraphContext, x: Value, y: Value) -> Value:
        if g.dtype(x) == DataType.UINT64:
            # INT64, in which the other types are computed, does not hold these numbers.
            return g.op("BitShift", x, y, direction=direction)
        return g.call(f"aten::bitwise_{direction.lower()}_shift", x, y)


_register_shift("LEFT")
_register_shift("RIGHT")


@onnx_symbolic(["tf::Add", "tf::AddV2"])
def add(g: GraphContext, x: Value, y: Value) -> Value:
    if g.dtype(x) == DataType.STRING:
        return concatenate_strings(g, x, y)
    return binary(g, "Add", x, y)


@onnx_symbolic("tf::Mul")
def mul(g: GraphContext, x: Value, y: Value) -> Value:
    # Keras composes GELU of products; one operator, where ONNX has it, replaces about 30 nodes.
    operand = gelu_operand(g, x, y)
    if operand is not None:
        return g.call("aten::gelu", operand)
    return binary(g, "Mul", x, y)


def _zero_where(g: GraphContext, zero: Value, result: Value) -> Value:
    """0 where an operand is 0, else the result."""
    return g.op("Where", g.call("aten::eq", zero, 0.0), g.constant(0.0, g.dtype(result)), result)


@onnx_symbolic(["tf::Div", "tf::TruncateDiv"])
def div(g: GraphContext, x: Value, y: Value) -> Value:
    """Divide; integers are rounded towards zero."""
    if not is_integral(g, x):
        return g.op("Div", x, y)
    # No type is wider than UINT64; without signs, the division already truncates.
    if g.dtype(x) == DataType.UINT64:
        return g.op("Div", x, y)
    wide_x, wide_y = integers.widen_integers(g, x), integers.widen_integers(g, y)
    return restore_dtype(g, integers.quotient(g, wide_x, wide_y), g.dtype(x))


@onnx_symbolic("tf::FloorDiv")
def floor_div(g: GraphContext, x: Value, y: Value) -> Value:
    if not is_integral(g, x):
        return g.op("Floor", g.op("Div", x, y))
    # Without signs, flooring and truncating are the same.
    if g.dtype(x) in dtypes.UNSIGNED:
        return g.call("tf::Div", x=x, y=y)
    return call_on_wide(g, "aten::floor_divide", x, y)


def _squared_difference(g: GraphContext, x: Value, y: Value) -> Value:
    difference = binary(g, "Sub", x, y)
    return binary(g, "Mul", difference, difference)


def _power(g: GraphContext, x: Value, y: Value) -> Value:
    return call_on_wide(g, "aten::pow", x, y) if is_integral(g, x) else g.op("Pow", x, y)


register_functions(
    "tf",
    "x y",
    {
        "Sub": lambda g, x, y: binary(g, "Sub", x, y),
        "SquaredDifference": _squared_difference,
        "Pow": _power,
        # The remainder of flooring division has the sign of `y`, that of truncating division the sign of `x`.
        "FloorMod": lambda g, x, y: call_on_wide(g, "aten::remainder", x, y),
        "Mod": lambda g, x, y: call_on_wide(g, "aten::fmod", x, y),
        "TruncateMod": lambda g, x, y: call_on_wide(g, "aten::fmod", x, y),
        "Maximum": lambda g, x, y: call_on_wide(g, "aten::maximum", x, y),
        "Minimum": lambda g, x, y: call_on_wide(g, "aten::minimum", x, y),
        # 0 where `y` is 0, even if `x` is infinite or NaN.
        "MulNoNan": lambda g, x, y: _zero_where(g, y, g.op("Mul", x, y)),
        "DivNoNan": lambda g, x, y: _zero_where(g, y, g.op("Div", x, y)),
        # 0 where `x` is 0.
        "Xdivy": lambda g, x, y: _zero_where(g, x, g.op("Div", x, y)),
        "Xlogy": lambda g, x, y: _zero_where(g, x, g.op("Mul", x, g.op("Log", y))),
        "Xlog1py": lambda g, x, y: _zero_where(g, x, g.op("Mul", x, g.call("aten::log1p", y))),
    },
)


@onnx_symbolic("tf::ClipByValue")
def clip_by_value(g: GraphContext, t: Value, clip_value_min: Value, clip_value_max: Value) -> Value:
    return g.call("tf::Minimum", g.call("tf::Maximum", t, clip_value_min), clip_value_max)


@onnx_symbolic("tf::AddN")
def add_n(g: GraphContext, inputs: list[Value]) -> Value:
    total = inputs[0]
    for item in inputs[1:]:
        total = binary(g, "Add", total, item)
    return total


@onnx_symbolic("tf::AccumulateNV2")
def accumulate_n(g: GraphContext, inputs: list[Value], shape: list[int] | None = None) -> Value:
    return g.call("tf::AddN", inputs=inputs)
