"""Arithmetic, bits and logic of two or more tensors, which broadcast as in numpy."""

from __future__ import annotations

from ....registration import DataType, GraphContext, Value, dtypes, onnx_symbolic
from ...compositions import integers
from .._common import binary, concatenate_strings, is_integral, restore_dtype
from .gelu import gelu_operand

# The ONNX operator of the same meaning.
_OPERATORS = {
    "BitwiseAnd": "BitwiseAnd",
    "BitwiseOr": "BitwiseOr",
    "BitwiseXor": "BitwiseXor",
    "LogicalAnd": "And",
    "LogicalOr": "Or",
    "RealDiv": "Div",
}


def _register(name: str, op_type: str) -> None:
    @onnx_symbolic(f"tf::{name}")
    def binary_operator(g: GraphContext, x: Value, y: Value) -> Value:
        return g.op(op_type, x, y)


def _register_as_in_aten(name: str, aten: str) -> None:
    @onnx_symbolic(f"tf::{name}")
    def aten_operator(g: GraphContext, x: Value, y: Value) -> Value:
        return g.call(f"aten::{aten}", x, y)


for _name, _op_type in _OPERATORS.items():
    _register(_name, _op_type)
_register_as_in_aten("LeftShift", "bitwise_left_shift")
_register_as_in_aten("RightShift", "bitwise_right_shift")


@onnx_symbolic(["tf::Add", "tf::AddV2"])
def add(g: GraphContext, x: Value, y: Value) -> Value:
    if g.dtype(x) == DataType.STRING:
        return concatenate_strings(g, x, y)
    return binary(g, "Add", x, y)


@onnx_symbolic("tf::Sub")
def sub(g: GraphContext, x: Value, y: Value) -> Value:
    return binary(g, "Sub", x, y)


@onnx_symbolic("tf::Mul")
def mul(g: GraphContext, x: Value, y: Value) -> Value:
    # Keras composes GELU of products; one operator, where ONNX has it, replaces about 30 nodes.
    operand = gelu_operand(g, x, y)
    if operand is not None:
        return g.call("aten::gelu", operand)
    return binary(g, "Mul", x, y)


@onnx_symbolic("tf::MulNoNan")
def mul_no_nan(g: GraphContext, x: Value, y: Value) -> Value:
    """0 where `y` is 0, even if `x` is infinite or NaN."""
    return _zero_where(g, y, g.op("Mul", x, y))


def _zero_where(g: GraphContext, zero: Value, result: Value) -> Value:
    """0 where an operand is 0, else the result."""
    return g.op("Where", g.call("aten::eq", zero, 0.0), g.constant(0.0, g.dtype(result)), result)


@onnx_symbolic(["tf::Div", "tf::TruncateDiv"])
def div(g: GraphContext, x: Value, y: Value) -> Value:
    """Divide; integers are rounded towards zero."""
    if not is_integral(g, x):
        return g.op("Div", x, y)
    dtype = g.dtype(x)
    # No type is wider; without signs, the division already truncates.
    if dtype == DataType.UINT64:
        return g.op("Div", x, y)
    return restore_dtype(
        g, integers.quotient(g, integers.widen_integers(g, x), integers.widen_integers(g, y)), dtype
    )


@onnx_symbolic("tf::FloorDiv")
def floor_div(g: GraphContext, x: Value, y: Value) -> Value:
    """Flooring division."""
    if not is_integral(g, x):
        return g.op("Floor", g.op("Div", x, y))
    # Without signs, flooring and truncating are the same.
    if g.dtype(x) in dtypes.UNSIGNED:
        return g.call("tf::Div", x=x, y=y)
    wide_x, wide_y = integers.widen_integers(g, x), integers.widen_integers(g, y)
    return restore_dtype(g, g.call("aten::floor_divide", wide_x, wide_y), g.dtype(x))


@onnx_symbolic("tf::FloorMod")
def floor_mod(g: GraphContext, x: Value, y: Value) -> Value:
    """The remainder of flooring division, with the sign of `y`."""
    wide_x, wide_y = integers.widen_integers(g, x), integers.widen_integers(g, y)
    return restore_dtype(g, g.call("aten::remainder", wide_x, wide_y), g.dtype(x))


@onnx_symbolic(["tf::Mod", "tf::TruncateMod"])
def truncate_mod(g: GraphContext, x: Value, y: Value) -> Value:
    """The remainder of truncating division, with the sign of `x`."""
    wide_x, wide_y = integers.widen_integers(g, x), integers.widen_integers(g, y)
    return restore_dtype(g, g.call("aten::fmod", wide_x, wide_y), g.dtype(x))


@onnx_symbolic("tf::DivNoNan")
def div_no_nan(g: GraphContext, x: Value, y: Value) -> Value:
    """0 where `y` is 0."""
    return _zero_where(g, y, g.op("Div", x, y))


@onnx_symbolic("tf::Xdivy")
def xdivy(g: GraphContext, x: Value, y: Value) -> Value:
    """0 where `x` is 0."""
    return _zero_where(g, x, g.op("Div", x, y))


@onnx_symbolic("tf::Xlogy")
def xlogy(g: GraphContext, x: Value, y: Value) -> Value:
    """0 where `x` is 0."""
    return _zero_where(g, x, g.op("Mul", x, g.op("Log", y)))


@onnx_symbolic("tf::Xlog1py")
def xlog1py(g: GraphContext, x: Value, y: Value) -> Value:
    """0 where `x` is 0."""
    return _zero_where(g, x, g.op("Mul", x, g.call("aten::log1p", y)))


@onnx_symbolic("tf::SquaredDifference")
def squared_difference(g: GraphContext, x: Value, y: Value) -> Value:
    difference = binary(g, "Sub", x, y)
    return binary(g, "Mul", difference, difference)


@onnx_symbolic("tf::Pow")
def pow_(g: GraphContext, x: Value, y: Value) -> Value:
    if not is_integral(g, x):
        return g.op("Pow", x, y)
    wide_x, wide_y = integers.widen_integers(g, x), integers.widen_integers(g, y)
    return restore_dtype(g, g.call("aten::pow", wide_x, wide_y), g.dtype(x))


def _register_extreme(name: str, aten: str) -> None:
    @onnx_symbolic(f"tf::{name}")
    def extreme(g: GraphContext, x: Value, y: Value) -> Value:
        wide_x, wide_y = integers.widen_integers(g, x), integers.widen_integers(g, y)
        return restore_dtype(g, g.call(f"aten::{aten}", wide_x, wide_y), g.dtype(x))


_register_extreme("Maximum", "maximum")
_register_extreme("Minimum", "minimum")


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


@onnx_symbolic("tf::Atan2")
def atan2(g: GraphContext, y: Value, x: Value) -> Value:
    return g.call("aten::atan2", y, x)


@onnx_symbolic("tf::NextAfter")
def next_after(g: GraphContext, x1: Value, x2: Value) -> Value:
    return g.call("aten::nextafter", x1, x2)
