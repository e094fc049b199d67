"""Elementwise functions of one tensor: arithmetic, exponentials, trigonometry, rounding."""

from ....registration import DataType, GraphContext, Value, dtypes, onnx_symbolic
from ...compositions.integers import widen_integers
from ...compositions.operator_tables import register_functions, register_table
from .._common import binary, is_integral, restore_dtype

register_table(
    "tf",
    """
x: Ceil Cos Exp Floor Log Sin Sqrt Tanh Sigmoid Invert=BitwiseNot LogicalNot=Not
x: Acos=aten::acos Acosh=aten::acosh Asin=aten::asin Asinh=aten::asinh Atan=aten::atan Atanh=aten::atanh
x: Cosh=aten::cosh Expm1=aten::expm1 IsFinite=aten::isfinite IsInf=aten::isinf IsNan=aten::isnan
x: Log1p=aten::log1p Rint=aten::round Round=aten::round Rsqrt=aten::rsqrt Sinh=aten::sinh Tan=aten::tan
""",
)


register_functions(
    "tf",
    "x",
    {
        "Abs": lambda g, x: restore_dtype(g, g.op("Abs", widen_integers(g, x)), g.dtype(x)),
        "Neg": lambda g, x: restore_dtype(g, g.op("Neg", widen_integers(g, x)), g.dtype(x)),
        "Square": lambda g, x: binary(g, "Mul", x, x),
    },
)


@onnx_symbolic("tf::Sign")
def sign(g: GraphContext, x: Value) -> Value:
    """The sign of NaN is NaN; a Sign composed of comparisons would return 0."""
    result = restore_dtype(g, g.op("Sign", widen_integers(g, x)), g.dtype(x))
    return result if is_integral(g, x) else g.op("Where", g.call("aten::isnan", x), x, result)


@onnx_symbolic(["tf::Inv", "tf::Reciprocal"])
def reciprocal(g: GraphContext, x: Value) -> Value:
    """`1 / x`; rounded towards zero for integers."""
    dtype = g.dtype(x)
    return g.call("tf::TruncateDiv", g.constant(1, dtype), x) if is_integral(g, x) else g.op("Reciprocal", x)


@onnx_symbolic("tf::Cast")
def cast(g: GraphContext, x: Value, DstT: DataType, Truncate: bool = False) -> Value:
    """Cast; floats are rounded towards zero to integers."""
    narrower = DstT in dtypes.FLOATS and g.dtype(x) in dtypes.FLOATS and g.dtype(x) != DstT
    if Truncate and narrower and DstT != DataType.DOUBLE:
        raise g.refuse("Truncate=true, which truncates the mantissa, is not supported")
    return g.cast(x, DstT)
