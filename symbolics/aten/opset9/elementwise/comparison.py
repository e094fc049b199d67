"""Elementwise comparisons, bounds and logic."""

import math

from .....registration import DataType, GraphContext, Number, Value, dtypes, onnx_symbolic
from ....compositions.operands import is_integral


def _register_comparison(names: str, op_type: str) -> None:
    @onnx_symbolic([f"aten::{name}" for name in names.split()])
    def comparison(g: GraphContext, self: Value, other: Value | Number) -> Value:
        return g.op(op_type, self, other)


for _names, _op_type in {
    "eq": "Equal",
    "lt less": "Less",
    "gt greater": "Greater",
    "le less_equal": "LessOrEqual",
    "ge greater_equal": "GreaterOrEqual",
}.items():
    _register_comparison(_names, _op_type)


@onnx_symbolic(["aten::ne", "aten::not_equal"])
def ne(g: GraphContext, self: Value, other: Value | Number) -> Value:
    return g.op("Not", g.call("aten::eq", self, other))


@onnx_symbolic("aten::isnan")
def isnan(g: GraphContext, self: Value) -> Value:
    return g.op("Less", self, self) if is_integral(g, self) else g.op("IsNaN", self)


def _largest(g: GraphContext, value: Value) -> float:
    return float(dtypes.limits(g.dtype(value) or DataType.FLOAT)[1])


@onnx_symbolic("aten::isinf")
def isinf(g: GraphContext, self: Value) -> Value:
    return g.op("Less", self, self) if is_integral(g, self) else g.op("IsInf", self)


@onnx_symbolic("aten::isposinf")
def isposinf(g: GraphContext, self: Value) -> Value:
    return g.op("Less", self, self) if is_integral(g, self) else g.op("Greater", self, _largest(g, self))


@onnx_symbolic("aten::isneginf")
def isneginf(g: GraphContext, self: Value) -> Value:
    return g.op("Less", self, self) if is_integral(g, self) else g.op("Less", self, -_largest(g, self))


@onnx_symbolic("aten::isfinite")
def isfinite(g: GraphContext, self: Value) -> Value:
    if is_integral(g, self):
        return g.call("aten::eq", self, self)
    return g.op("Less", g.op("Abs", self), math.inf)


@onnx_symbolic("aten::isclose")
def isclose(
    g: GraphContext,
    self: Value,
    other: Value,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    equal_nan: bool = False,
) -> Value:
    close = g.call("aten::eq", self, other)
    if equal_nan:
        nans = g.op("And", g.call("aten::isnan", self), g.call("aten::isnan", other))
        close = g.op("Or", close, nans)
    if is_integral(g, self):
        self, other = g.cast(self, DataType.DOUBLE), g.cast(other, DataType.DOUBLE)
    distance = g.op("Abs", g.op("Sub", self, other))
    allowed = g.op("Add", g.op("Abs", g.op("Mul", other, rtol)), atol)
    # An infinite tolerance would hold for an infinite distance; equal infinities are close already.
    near = g.op("And", g.call("aten::isfinite", distance), g.call("aten::le", distance, allowed))
    return g.op("Or", close, near)


@onnx_symbolic("aten::signbit")
def signbit(g: GraphContext, self: Value) -> Value:
    """True for negative numbers, and for the zero with a negative reciprocal."""
    negative = g.op("Less", self, 0)
    if is_integral(g, self):
        return negative
    # Only the reciprocal tells -0.0, which equals 0.0, apart.
    return g.op("Or", negative, g.op("Less", g.op("Reciprocal", self), 0))


@onnx_symbolic("aten::nan_to_num")
def nan_to_num(
    g: GraphContext,
    self: Value,
    nan: float | None = None,
    posinf: float | None = None,
    neginf: float | None = None,
) -> Value:
    if is_integral(g, self):
        return self
    largest = _largest(g, self)
    finite = g.op("Where", g.call("aten::isnan", self), 0.0 if nan is None else nan, self)
    high = g.call("aten::isposinf", self)
    finite = g.op("Where", high, largest if posinf is None else posinf, finite)
    return g.op("Where", g.call("aten::isneginf", self), -largest if neginf is None else neginf, finite)


def _register_extreme(name: str, op_type: str, comparison: str, logical: str) -> None:
    @onnx_symbolic([f"aten::{name}imum", f"aten::{name}.other"])
    def extreme(g: GraphContext, self: Value, other: Value | Number) -> Value:
        if not g.has_kernel(op_type, self):
            return g.call("composed::where", condition=g.op(comparison, self, other), self=self, other=other)
        return g.op(logical if g.dtype(self) == DataType.BOOL else op_type, self, other)

    @onnx_symbolic(f"aten::f{name}")
    def ignoring_nan(g: GraphContext, self: Value, other: Value) -> Value:
        result = g.call(f"aten::{name}imum", self, other)
        if is_integral(g, self):
            return result
        # Max and Min return NaN if an operand is NaN; here the other operand wins.
        result = g.op("Where", g.call("aten::isnan", other), self, result)
        return g.op("Where", g.call("aten::isnan", self), other, result)


_register_extreme("max", "Max", "Greater", "Or")
_register_extreme("min", "Min", "Less", "And")


@onnx_symbolic(["aten::clamp", "aten::clip"])
def clamp(
    g: GraphContext, self: Value, min: Value | Number | None = None, max: Value | Number | None = None
) -> Value:
    """Gives `max` if the bounds cross. One bound uses Max or Min, because Clip would limit infinity."""
    clipped = not is_integral(g, self) and g.has_kernel("Clip", self)
    # Clip with crossed bounds gives its upper bound at some opsets only.
    if clipped and isinstance(min, (int, float)) and isinstance(max, (int, float)) and min <= max:
        return g.op("Clip", self, min=float(min), max=float(max))
    if min is not None:
        self = g.call("aten::maximum", self, min)
    return self if max is None else g.call("aten::minimum", self, max)


@onnx_symbolic("aten::clamp_min")
def clamp_min(g: GraphContext, self: Value, min: Value | Number) -> Value:
    return g.call("aten::clamp", self, min)


@onnx_symbolic("aten::clamp_max")
def clamp_max(g: GraphContext, self: Value, max: Value | Number) -> Value:
    return g.call("aten::clamp", self, None, max)


def _register_logical(name: str, op_type: str) -> None:
    @onnx_symbolic(f"aten::{name}")
    def logical(g: GraphContext, self: Value, other: Value) -> Value:
        return g.op(op_type, g.cast(self, DataType.BOOL), g.cast(other, DataType.BOOL))


for _stem in ("And", "Or", "Xor"):
    _name = _stem.lower()
    _register_logical(f"logical_{_name}", _stem)


@onnx_symbolic("aten::logical_not")
def logical_not(g: GraphContext, self: Value) -> Value:
    return g.op("Not", g.cast(self, DataType.BOOL))
