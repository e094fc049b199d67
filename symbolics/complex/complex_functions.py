"""Elementary functions of complex numbers.

For finite numbers the formulas follow C99's Annex G. Those of the inverse functions are W. Kahan's ("Branch
Cuts for Complex Elementary Functions", 1987).
"""

import math
from collections.abc import Callable

from ...registration import GraphContext, Value, onnx_symbolic
from .real_and_imaginary import Operand, Parts, number, operands, split

_SMALL_POWERS = 8


def _real(z: Parts, name: str, *arguments: Value) -> Value:
    return z.g.call(f"aten::{name}", *arguments)


def exp(z: Parts) -> Parts:
    """`e^x (cos y + i sin y)`."""
    g, modulus = z.g, z.g.op("Exp", z.re)
    if z.im is None:
        return Parts(g, modulus)
    re = g.op("Mul", modulus, _real(z, "cos", z.im))
    return Parts(g, re, g.op("Mul", modulus, _real(z, "sin", z.im)))


def exp2(z: Parts) -> Parts:
    """`e^(z log 2)`."""
    return exp(z * math.log(2.0))


def expm1(z: Parts) -> Parts:
    """`e^z - 1`, accurate near zero: `expm1(x) cos y - 2 sin^2(y / 2)`."""
    g, y = z.g, z.imaginary
    # `cos y - 1` loses its digits for a small y; `-2 sin^2(y / 2)` is the same number and does not.
    half = _real(z, "sin", g.op("Mul", y, 0.5))
    re = g.op(
        "Sub",
        g.op("Mul", _real(z, "expm1", z.re), _real(z, "cos", y)),
        g.op("Mul", g.op("Mul", half, half), 2.0),
    )
    return Parts(g, re, g.op("Mul", g.op("Exp", z.re), _real(z, "sin", y)))


def log(z: Parts) -> Parts:
    """`log |z| + i arg z`."""
    return Parts(z.g, z.g.op("Log", z.modulus()), z.argument())


def log2(z: Parts) -> Parts:
    """`log z / log 2`."""
    return log(z).scale(1.0 / math.log(2.0))


def log10(z: Parts) -> Parts:
    """`log z / log 10`."""
    return log(z).scale(1.0 / math.log(10.0))


def log1p(z: Parts) -> Parts:
    """`log(1 + z)`, accurate near zero: the real part is half of `log1p(x (2 + x) + y^2)`."""
    g, y = z.g, z.imaginary
    squares = g.op("Add", g.op("Mul", z.re, g.op("Add", z.re, 2.0)), g.op("Mul", y, y))
    return Parts(g, g.op("Mul", _real(z, "log1p", squares), 0.5), (z + 1).argument())


def sqrt(z: Parts) -> Parts:
    """The root with the non-negative real part."""
    g, y = z.g, z.imaginary
    larger_part = g.op("Sqrt", g.op("Mul", g.op("Add", z.modulus(), g.op("Abs", z.re)), 0.5))
    zero = g.constant(0.0, g.dtype(larger_part))
    is_zero = g.call("aten::eq", larger_part, 0)
    safe = g.op("Where", is_zero, g.constant(1.0, g.dtype(larger_part)), larger_part)
    smaller_part = g.op("Div", g.op("Mul", g.op("Abs", y), 0.5), safe)
    # On the left half-plane the imaginary part is the larger one. The smaller part is computed by division,
    # because the difference `|z| - |x|` would lose its digits.
    is_right = g.call("aten::ge", z.re, 0)
    re, im = (
        g.op("Where", is_right, larger_part, smaller_part),
        g.op("Where", is_right, smaller_part, larger_part),
    )
    return Parts(g, re, g.op("Where", g.op("Less", y, zero), g.op("Neg", im), im))


def rsqrt(z: Parts) -> Parts:
    """`1 / sqrt(z)`."""
    return number(z.g, 1, z.g.dtype(z.re)) / sqrt(z)


def sinh(z: Parts) -> Parts:
    """`sinh x cos y + i cosh x sin y`."""
    g, y = z.g, z.imaginary
    re = g.op("Mul", _real(z, "sinh", z.re), _real(z, "cos", y))
    return Parts(g, re, g.op("Mul", _real(z, "cosh", z.re), _real(z, "sin", y)))


def cosh(z: Parts) -> Parts:
    """`cosh x cos y + i sinh x sin y`."""
    g, y = z.g, z.imaginary
    re = g.op("Mul", _real(z, "cosh", z.re), _real(z, "cos", y))
    return Parts(g, re, g.op("Mul", _real(z, "sinh", z.re), _real(z, "sin", y)))


def tanh(z: Parts) -> Parts:
    """`(s (1 + t^2) + i t (1 - s^2)) / (1 + s^2 t^2)` with `s = tanh x`, `t = tan y`."""
    g = z.g
    s, t = g.op("Tanh", z.re), _real(z, "tan", z.imaginary)
    ss, tt = g.op("Mul", s, s), g.op("Mul", t, t)
    unit = g.constant(1.0, g.dtype(s))
    denominator = g.op("Add", g.op("Mul", ss, tt), 1.0)
    re = g.op("Div", g.op("Mul", s, g.op("Add", tt, 1.0)), denominator)
    return Parts(g, re, g.op("Div", g.op("Mul", t, g.op("Sub", unit, ss)), denominator))


def sin(z: Parts) -> Parts:
    """`sinh(iz) / i`."""
    return sinh(z.times_i()).over_i()


def cos(z: Parts) -> Parts:
    """`cosh(iz)`."""
    return cosh(z.times_i())


def tan(z: Parts) -> Parts:
    """`tanh(iz) / i`."""
    return tanh(z.times_i()).over_i()


def acos(z: Parts) -> Parts:
    """`2 atan(Re sqrt(1 - z) / Re sqrt(1 + z)) + i asinh(Im(conj(sqrt(1 + z)) sqrt(1 - z)))`."""
    root_below, root_above = sqrt(-z + 1), sqrt(z + 1)
    re = z.g.op("Mul", _real(z, "atan2", root_below.re, root_above.re), 2.0)
    return Parts(z.g, re, _real(z, "asinh", (root_above.conj() * root_below).imaginary))


def asin(z: Parts) -> Parts:
    """`atan(x / Re(sqrt(1 - z) sqrt(1 + z))) + i asinh(Im(conj(sqrt(1 - z)) sqrt(1 + z)))`."""
    below, above = sqrt(-z + 1), sqrt(z + 1)
    re = _real(z, "atan2", z.re, (below * above).re)
    return Parts(z.g, re, _real(z, "asinh", (below.conj() * above).imaginary))


def acosh(z: Parts) -> Parts:
    """`asinh(Re(conj(sqrt(z - 1)) sqrt(z + 1))) + 2i atan(Im sqrt(z - 1) / Re sqrt(z + 1))`."""
    below, above = sqrt(z - 1), sqrt(z + 1)
    im = z.g.op("Mul", _real(z, "atan2", below.imaginary, above.re), 2.0)
    return Parts(z.g, _real(z, "asinh", (below.conj() * above).re), im)


def atanh(z: Parts) -> Parts:
    """`log1p(4x / ((1 - x)^2 + y^2)) / 4 + i atan2(2y, (1 - x)(1 + x) - y^2) / 2`."""
    g, x, y = z.g, z.re, z.imaginary
    unit = g.constant(1.0, g.dtype(x))
    complement, squared = g.op("Sub", unit, x), g.op("Mul", y, y)
    near = g.op("Add", g.op("Mul", complement, complement), squared)
    re = g.op("Mul", _real(z, "log1p", g.op("Div", g.op("Mul", x, 4.0), near)), 0.25)
    far = g.op("Sub", g.op("Mul", complement, g.op("Add", x, 1.0)), squared)
    return Parts(g, re, g.op("Mul", _real(z, "atan2", g.op("Mul", y, 2.0), far), 0.5))


def asinh(z: Parts) -> Parts:
    """`asin(iz) / i`."""
    return asin(z.times_i()).over_i()


def atan(z: Parts) -> Parts:
    """`atanh(iz) / i`."""
    return atanh(z.times_i()).over_i()


def sigmoid(z: Parts) -> Parts:
    """`1 / (1 + e^-z)`."""
    return number(z.g, 1, z.g.dtype(z.re)) / (exp(-z) + 1)


def silu(z: Parts) -> Parts:
    """`z / (1 + e^-z)`."""
    return z / (exp(-z) + 1)


_FUNCTIONS: dict[Callable[[Parts], Parts], str] = {
    acos: "acos arccos",
    acosh: "acosh arccosh",
    asin: "asin arcsin",
    asinh: "asinh arcsinh",
    atan: "atan arctan",
    atanh: "atanh arctanh",
    Parts.conj: "conj _conj conj_physical _conj_physical",
    cos: "cos",
    cosh: "cosh",
    exp: "exp",
    exp2: "exp2 special_exp2",
    expm1: "expm1 special_expm1",
    log: "log",
    log10: "log10",
    log1p: "log1p special_log1p",
    log2: "log2",
    rsqrt: "rsqrt",
    sigmoid: "sigmoid special_expit",
    silu: "silu",
    sin: "sin",
    sinh: "sinh",
    sqrt: "sqrt",
    tan: "tan",
    tanh: "tanh",
}


def _register(function: Callable[[Parts], Parts], names: str) -> None:
    @onnx_symbolic([f"complex::{name}" for name in names.split()])
    def unary(g: GraphContext, self: Value) -> Value:
        return function(split(g, self)).pair()


for _function, _names in _FUNCTIONS.items():
    _register(_function, _names)


@onnx_symbolic("complex::pow")
def pow_(g: GraphContext, self: Operand, exponent: Operand) -> Value:
    """Small integer powers by products, roots by `sqrt`, others by `e^(w log z)`; zero to w is zero."""
    base, power = operands(g, self, exponent)
    if isinstance(exponent, (int, float)):
        if exponent == int(exponent) and abs(exponent) <= _SMALL_POWERS:
            return _whole_power(base, int(exponent)).pair()
        if abs(exponent) == 0.5:
            return (sqrt(base) if exponent > 0 else rsqrt(base)).pair()
    result = exp(log(base) * power).pair()
    # The logarithm of zero is infinite, and its product with the exponent may be NaN.
    is_zero = g.call("complex::eq", base.pair(), 0)
    at_zero = g.call(
        "complex::where", g.call("complex::eq", power.pair(), 0), 1, number(g, 0, g.dtype(base.re)).pair()
    )
    return g.call("complex::where", is_zero, at_zero, result)


def _whole_power(base: Parts, power: int) -> Parts:
    if power == 0:
        unit = base.g.call("aten::ones_like", base.re)
        return Parts(base.g, unit)
    result = base
    for _ in range(abs(power) - 1):
        result = result * base
    return result if power > 0 else number(base.g, 1, base.g.dtype(base.re)) / result
