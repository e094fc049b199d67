"""Elementwise arithmetic: unary and binary operators, and compositions of them."""

import math
from collections.abc import Callable
from typing import TypeVar

from .....registration import DataType, GraphContext, Number, Value, dtypes, onnx_symbolic
from ....compositions import integer_powers, integers
from ....compositions.operands import as_operands, floating, is_integral, value_like
from ....compositions.remainders import floored_float_remainder, quotient_in_double
from ....compositions.size_arithmetic import is_non_negative

Entry = TypeVar("Entry")

# ATen operator (with aliases) to the equivalent ONNX operator; integers are cast to FLOAT.
_UNARY = {
    "cos": "Cos",
    "exp": "Exp",
    "log": "Log",
    "reciprocal": "Reciprocal",
    "sigmoid special_expit": "Sigmoid",
    "sin": "Sin",
    "sqrt": "Sqrt",
    "tanh": "Tanh",
}

# ATen operator to its composition; integers are cast to FLOAT.
_COMPOSED: dict[str, Callable[[GraphContext, Value], Value]] = {
    "deg2rad": lambda g, x: g.op("Mul", x, math.pi / 180.0),
    "log10": lambda g, x: g.op("Div", g.op("Log", x), math.log(10.0)),
    "log2": lambda g, x: g.op("Div", g.op("Log", x), math.log(2.0)),
    "rad2deg": lambda g, x: g.op("Mul", x, 180.0 / math.pi),
    "rsqrt": lambda g, x: g.op("Reciprocal", g.op("Sqrt", x)),
}

# The same as an ONNX operator, but integers are returned unchanged.
_INTEGRAL_IDENTITY = {"ceil": "Ceil", "floor": "Floor"}

# The same for every element type.
_ANY_TYPE = {"abs absolute": "Abs", "neg negative": "Neg"}


def _register(names: str, entry: Entry, compute: Callable[[GraphContext, Value, Entry], Value]) -> None:
    """Register ATen operators of one tensor, which are computed from it and an entry of a table."""

    @onnx_symbolic([f"aten::{name}" for name in names.split()])
    def unary(g: GraphContext, self: Value) -> Value:
        return compute(g, self, entry)


for _names, _op_type in _UNARY.items():
    _register(_names, _op_type, lambda g, x, op_type: g.op(op_type, floating(g, x)))
for _names, _function in _COMPOSED.items():
    _register(_names, _function, lambda g, x, function: function(g, floating(g, x)))
for _names, _op_type in _INTEGRAL_IDENTITY.items():
    _register(_names, _op_type, lambda g, x, op_type: x if is_integral(g, x) else g.op(op_type, x))
for _names, _op_type in _ANY_TYPE.items():
    _register(_names, _op_type, lambda g, x, op_type: x if g.dtype(x) == DataType.BOOL else g.op(op_type, x))


@onnx_symbolic(["aten::sign", "aten::sgn"])
def sign(g: GraphContext, self: Value) -> Value:
    """The sign of NaN is 0; ONNX does not define it, onnxruntime gives NaN, and a composed Sign gives 0."""
    if g.dtype(self) == DataType.BOOL:
        return self
    if is_integral(g, self) or not g.has("Sign"):
        return g.op("Sign", self)
    return g.op("Where", g.op("IsNaN", self), 0.0, g.op("Sign", self))


@onnx_symbolic("aten::positive")
def positive(g: GraphContext, self: Value) -> Value:
    return self


@onnx_symbolic("aten::square")
def square(g: GraphContext, self: Value) -> Value:
    self = g.cast(self, DataType.INT64) if g.dtype(self) == DataType.BOOL else self
    return g.op("Mul", self, self)


@onnx_symbolic(["aten::exp2", "aten::special_exp2"])
def exp2(g: GraphContext, self: Value) -> Value:
    self = floating(g, self)
    return g.op("Pow", g.constant(2.0, g.dtype(self)), self)


@onnx_symbolic(["aten::expm1", "aten::special_expm1"])
def expm1(g: GraphContext, self: Value) -> Value:
    """`tanh(x / 2) * (exp(x) + 1)`, which is accurate for small x, unlike `exp(x) - 1`."""
    self = floating(g, self)
    return g.op("Mul", g.op("Tanh", g.op("Mul", self, 0.5)), g.op("Add", g.op("Exp", self), 1.0))


@onnx_symbolic(["aten::log1p", "aten::special_log1p"])
def log1p(g: GraphContext, self: Value) -> Value:
    """`log(1 + x)`, corrected for the rounding error of `1 + x`."""
    self = floating(g, self)
    # Beyond 1 the rounding error does not matter, and for infinity it would be NaN.
    small = g.call("aten::clamp_max", self, 1.0)
    lost = g.op("Sub", small, g.op("Sub", g.op("Add", small, 1.0), 1.0))
    return g.op("Add", g.op("Log", g.op("Add", self, 1.0)), lost)


@onnx_symbolic(["aten::erf", "aten::special_erf"])
def erf(g: GraphContext, self: Value) -> Value:
    if not g.has_kernel("Erf", self):
        return g.call("composed::erf_of_double", self)
    return g.op("Erf", floating(g, self))


@onnx_symbolic(["aten::logit", "aten::special_logit"])
def logit(g: GraphContext, self: Value, eps: float | None = None) -> Value:
    self = floating(g, self)
    if eps is not None:
        self = g.call("aten::clamp", self, eps, 1.0 - eps)
    return g.op("Log", g.op("Div", self, g.op("Sub", value_like(g, 1.0, self), self)))


@onnx_symbolic(["aten::trunc", "aten::fix"])
def trunc(g: GraphContext, self: Value) -> Value:
    """A zero result keeps the operand's sign, which onnxruntime's Where keeps only for its last operand."""
    if is_integral(g, self):
        return self
    return g.op("Where", g.op("Greater", self, 0.0), g.op("Floor", self), g.op("Ceil", self))


@onnx_symbolic("aten::frac")
def frac(g: GraphContext, self: Value) -> Value:
    return g.op("Sub", self, g.call("aten::trunc", self))


@onnx_symbolic(["aten::round", "aten::special_round"])
def round(g: GraphContext, self: Value, decimals: int = 0) -> Value:
    """Half to even."""
    if is_integral(g, self):
        return self
    if not decimals:
        return g.op("Round", self)
    scale = 10.0 ** abs(decimals)
    scaling, unscaling = ("Mul", "Div") if decimals > 0 else ("Div", "Mul")
    return g.op(unscaling, g.op("Round", g.op(scaling, self, scale)), scale)


def _times_alpha(g: GraphContext, value: Value | Number, alpha: Number) -> Value | Number:
    if alpha == 1:
        return value
    return g.op("Mul", value, alpha) if isinstance(value, Value) else value * alpha


@onnx_symbolic("aten::add")
def add(g: GraphContext, self: Value, other: Value | Number, alpha: Number = 1) -> Value:
    return g.op("Add", self, _times_alpha(g, other, alpha))


@onnx_symbolic(["aten::sub", "aten::subtract"])
def sub(g: GraphContext, self: Value, other: Value | Number, alpha: Number = 1) -> Value:
    return g.op("Sub", self, _times_alpha(g, other, alpha))


@onnx_symbolic("aten::rsub")
def rsub(g: GraphContext, self: Value, other: Value | Number, alpha: Number = 1) -> Value:
    return g.op("Sub", value_like(g, other, self), _times_alpha(g, self, alpha))


@onnx_symbolic(["aten::mul", "aten::multiply"])
def mul(g: GraphContext, self: Value, other: Value | Number) -> Value:
    if g.dtype(self) == DataType.BOOL:
        return g.op("And", self, other)
    return g.op("Mul", self, other)


@onnx_symbolic(["aten::div", "aten::divide", "aten::true_divide"])
def div(g: GraphContext, self: Value, other: Value | Number, rounding_mode: str | None = None) -> Value:
    if rounding_mode == "floor":
        return g.call("aten::floor_divide", self, other)
    if rounding_mode == "trunc":
        if is_integral(g, self):
            return integers.quotient(g, self, other)
        return g.call("aten::trunc", g.op("Div", self, other))
    return g.op("Div", floating(g, self), floating(g, other) if isinstance(other, Value) else other)


def _floored_quotient(g: GraphContext, self: Value, other: Value | Number) -> Value:
    """The truncated quotient, less one where it was rounded up.

    The multiple of `other` below `self` may be below the least number of the type.
    """
    truncated = integers.quotient(g, self, other)
    remainder = g.call("aten::fmod", self, other)
    if isinstance(other, Value):
        is_floored = g.op("Equal", remainder, g.call("aten::remainder", self, other))
        return g.op("Where", is_floored, truncated, g.op("Sub", truncated, 1))
    is_above = g.op("Less" if other > 0 else "Greater", remainder, 0)
    return g.call("aten::sub", truncated, g.cast(is_above, truncated.dtype or DataType.INT64))


@onnx_symbolic("aten::floor_divide")
def floor_divide(g: GraphContext, self: Value, other: Value | Number) -> Value:
    if g.dtype(self) in dtypes.UNSIGNED:
        return g.op("Div", self, other)
    if is_integral(g, self):
        if is_non_negative(self) and (is_non_negative(other) if isinstance(other, Value) else other >= 0):
            return integers.quotient(g, self, other)
        if g.dtype(self) in (DataType.INT32, DataType.INT64):
            return _floored_quotient(g, self, other)
        # The multiple of `other` below `self` may be below the least INT8 or INT16.
        dividend = integers.widen_integers(g, self)
        divisor = integers.widen_integers(g, other) if isinstance(other, Value) else other
        multiple = g.op("Sub", dividend, g.call("aten::remainder", dividend, divisor))
        return g.cast(integers.quotient(g, multiple, divisor), g.dtype(self) or DataType.INT64)
    if not isinstance(other, Value) and math.frexp(abs(other))[0] == 0.5:
        # Division by a power of two is exact.
        return g.op("Floor", g.op("Div", self, other))
    if g.dtype(self) == DataType.DOUBLE:
        # As ATen's `div_floor_floating`: a division alone may round up to an integer.
        multiple = g.op("Sub", self, g.call("aten::remainder", self, other))
        return g.call("aten::round", g.op("Div", multiple, other))
    # The quotient of two FLOATs is exact enough in DOUBLE to have the right floor.
    quotient = quotient_in_double(g, self, other, "aten::floor")[2]
    return g.cast(quotient, g.dtype(self) or DataType.FLOAT)


@onnx_symbolic("aten::fmod")
def fmod(g: GraphContext, self: Value, other: Value | Number) -> Value:
    """The remainder of truncating division: it has the sign of `self`."""
    return g.op("Mod", self, other, fmod=1)


@onnx_symbolic("aten::remainder")
def remainder(g: GraphContext, self: Value | Number, other: Value | Number) -> Value:
    """The remainder of flooring division: it has the sign of `other`."""
    a, b = as_operands(g, self, other)
    # Mod of floats gives zero the divisor's sign.
    if g.dtype(a) in dtypes.FLOATS and g.has("Mod"):
        return floored_float_remainder(g, a, b)
    return g.op("Mod", a, b)


@onnx_symbolic("aten::pow")
def pow(g: GraphContext, self: Value | Number, exponent: Value | Number) -> Value:
    self, exponent = as_operands(g, self, exponent)
    if isinstance(exponent, Value):
        if is_integral(g, self) and is_integral(g, exponent):
            base = g.constant_value(self)
            if base is not None and base.ndim == 0 and g.dtype(self) == g.dtype(exponent):
                return integer_powers.power_of_number(g, base, exponent)
            return integer_powers.power_of_integers(g, self, exponent)
        return g.op("Pow", self, exponent)
    if is_integral(g, self) and exponent >= 0 and exponent == int(exponent):
        return integer_powers.power_of_constant(g, self, int(exponent))
    if exponent == 1:
        return self
    # ATen's kernel takes roots and reciprocals here too.
    if exponent == 0.5:
        return g.op("Sqrt", self)
    if exponent == -0.5:
        return g.op("Reciprocal", g.op("Sqrt", self))
    if exponent == -1 and not is_integral(g, self):
        return g.op("Reciprocal", self)
    # A Python number would become an exponent of FLOAT.
    return g.op("Pow", self, g.constant(exponent, g.dtype(self)))


@onnx_symbolic("aten::float_power")
def float_power(g: GraphContext, self: Value | Number, exponent: Value | Number) -> Value:
    """The power, always in double precision."""
    base = g.constant(self, DataType.DOUBLE)
    if isinstance(exponent, Value):
        exponent = g.cast(exponent, DataType.DOUBLE)
    return g.call("aten::pow", base, exponent)


@onnx_symbolic(["aten::atan2", "aten::arctan2"])
def atan2(g: GraphContext, self: Value, other: Value) -> Value:
    """The angle in the first quadrant, mirrored by the signs of both operands, signed zeros included."""
    y, x = g.op("Abs", floating(g, self)), g.op("Abs", floating(g, other))
    origin = g.call("aten::eq", g.op("Add", x, y), 0.0)
    diagonal = g.call("aten::eq", x, y)
    # Equal infinities would give NaN, and 0 / 0 too.
    ratio = g.op("Where", diagonal, 1.0, g.op("Div", y, x))
    angle = g.call("aten::atan", g.op("Where", origin, 0.0, ratio))
    mirrored = g.op("Sub", value_like(g, math.pi, angle), angle)
    angle = g.op("Where", g.call("aten::signbit", other), mirrored, angle)
    return _copy_sign(g, angle, self)


@onnx_symbolic("aten::hypot")
def hypot(g: GraphContext, self: Value, other: Value) -> Value:
    """Scaled by the larger operand, to avoid overflow and underflow of its square."""
    largest = float(dtypes.limits(g.dtype(self) or DataType.FLOAT)[1])
    larger = g.op("Max", g.op("Abs", self), g.op("Abs", other))
    # The scale must be neither 0 nor infinite, or the quotients below would be NaN. 4 / largest is normal.
    scale = g.call("aten::clamp", larger, min=4 / largest, max=largest)
    parts = [g.op("Div", part, scale) for part in (self, other)]
    squares = g.op("Add", *(g.op("Mul", part, part) for part in parts))
    return g.op("Mul", scale, g.op("Sqrt", squares))


@onnx_symbolic("aten::logaddexp")
def logaddexp(g: GraphContext, self: Value, other: Value) -> Value:
    """The larger operand plus a correction; equal operands are separate, because they may be infinite."""
    distance = g.op("Neg", g.op("Abs", g.op("Sub", self, other)))
    sum_ = g.op("Add", g.call("aten::maximum", self, other), g.call("aten::softplus", distance))
    return g.op("Where", g.call("aten::eq", self, other), g.op("Add", self, math.log(2.0)), sum_)


@onnx_symbolic("aten::logaddexp2")
def logaddexp2(g: GraphContext, self: Value, other: Value) -> Value:
    scale = math.log(2.0)
    natural = g.call("aten::logaddexp", g.op("Mul", self, scale), g.op("Mul", other, scale))
    return g.op("Div", natural, scale)


@onnx_symbolic("aten::lerp")
def lerp(g: GraphContext, self: Value, end: Value, weight: Value | Number) -> Value:
    return g.op("Add", self, g.op("Mul", g.op("Sub", end, self), weight))


@onnx_symbolic("aten::addcmul")
def addcmul(g: GraphContext, self: Value, tensor1: Value, tensor2: Value, value: Number = 1) -> Value:
    return g.op("Add", self, _times_alpha(g, g.op("Mul", tensor1, tensor2), value))


@onnx_symbolic("aten::addcdiv")
def addcdiv(g: GraphContext, self: Value, tensor1: Value, tensor2: Value, value: Number = 1) -> Value:
    return g.op("Add", self, _times_alpha(g, g.op("Div", tensor1, tensor2), value))


def _zero_times(g: GraphContext, self: Value | Number, argument: Value, logarithm: Value) -> Value:
    """`self * logarithm`, but 0 if `self` is 0 and `other` is not NaN."""
    self = value_like(g, self, logarithm)
    zero = g.op("And", g.call("aten::eq", self, 0.0), g.op("Not", g.call("aten::isnan", argument)))
    return g.op("Where", zero, 0.0, g.op("Mul", self, logarithm))


@onnx_symbolic(["aten::xlogy", "aten::special_xlogy"])
def xlogy(g: GraphContext, self: Value | Number, other: Value | Number) -> Value:
    other = floating(g, value_like(g, other, self) if isinstance(self, Value) else g.constant(other))
    self = floating(g, self) if isinstance(self, Value) else self
    return _zero_times(g, self, other, g.op("Log", other))


@onnx_symbolic("aten::special_xlog1py")
def special_xlog1py(g: GraphContext, self: Value | Number, other: Value | Number) -> Value:
    other = floating(g, value_like(g, other, self) if isinstance(self, Value) else g.constant(other))
    self = floating(g, self) if isinstance(self, Value) else self
    return _zero_times(g, self, other, g.call("aten::log1p", other))


@onnx_symbolic("aten::heaviside")
def heaviside(g: GraphContext, self: Value, values: Value) -> Value:
    step = g.op("Cast", g.op("Greater", self, 0), to=int(g.dtype(values) or DataType.FLOAT))
    return g.call("aten::where", g.call("aten::eq", self, 0), values, step)


@onnx_symbolic("aten::copysign")
def copysign(g: GraphContext, self: Value, other: Value | Number) -> Value:
    magnitude = g.op("Abs", floating(g, self))
    if not isinstance(other, Value):
        return magnitude if math.copysign(1.0, other) > 0 else g.op("Neg", magnitude)
    return _copy_sign(g, magnitude, other)


def _copy_sign(g: GraphContext, magnitude: Value, sign_source: Value) -> Value:
    """A magnitude with the sign of `other`, by a product: onnxruntime's Where makes 0.0 of -0.0."""
    # signbit also knows the sign of zero, which a comparison does not.
    minus, plus = value_like(g, -1.0, magnitude), value_like(g, 1.0, magnitude)
    return g.op("Mul", magnitude, g.op("Where", g.call("aten::signbit", sign_source), minus, plus))


@onnx_symbolic(["aten::sinc", "aten::special_sinc"])
def sinc(g: GraphContext, self: Value) -> Value:
    angle = g.op("Mul", floating(g, self), math.pi)
    zero = g.call("aten::eq", angle, 0.0)
    return g.op("Where", zero, 1.0, g.op("Div", g.op("Sin", angle), angle))
