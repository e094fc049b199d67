"""Formulas of the trigonometric and hyperbolic functions, accurate for small results too."""

import math
from collections.abc import Callable

from .formulas import Formula, coefficients, odd_extension, rational

# Coefficients of Cephes' atan for arguments up to 0.66.
_ATAN_P = coefficients(
    """
    -0.875060860003190412279 -16.1575371873336507664 -75.0085579231470466734 -122.886668449013617341
    -64.85021904942025371773
    """
)
_ATAN_Q = coefficients(
    """
    1 24.85846490142306297962 165.0270098316988542046 432.8810604912902668951 485.3903996359136964868
    194.5506571482613964425
    """
)


def atan(x: Formula) -> Formula:
    size = abs(x)
    is_large, is_medium = size > 1.0 + math.sqrt(2.0), size > 0.66
    # `atan(x) = pi/4 + atan((x - 1) / (x + 1))` and `pi/2 + atan(-1 / x)` bring the argument below 0.66.
    reduced = is_medium.chosen((size - 1.0) / (size + 1.0), size)
    reduced = is_large.chosen(-1.0 / size, reduced)
    square = reduced * reduced
    result = reduced + reduced * square * rational(square, _ATAN_P, _ATAN_Q)
    result = is_medium.chosen(is_large.chosen(result + math.pi / 2, result + math.pi / 4), result)
    return odd_extension(x, result)


def asin(x: Formula) -> Formula:
    return atan(x / ((1.0 - x) * (x + 1.0)).sqrt())


def acos(x: Formula) -> Formula:
    return atan(((1.0 - x) / (x + 1.0)).sqrt()) * 2.0


def tan(x: Formula) -> Formula:
    return x.sin() / x.cos()


def sinh(x: Formula) -> Formula:
    size = abs(x)
    exp_minus_1 = size.call("aten::expm1")
    half = (size * 0.5).exp()
    # Without the difference of two numbers that are both close to 1.
    near = (exp_minus_1 + exp_minus_1 / (exp_minus_1 + 1.0)) * 0.5
    return odd_extension(x, (size < 20.0).chosen(near, half * 0.5 * half))


def cosh(x: Formula) -> Formula:
    half = (abs(x) * 0.5).exp()
    # The factors are multiplied one by one, so that nothing overflows before the result does.
    return half * 0.5 * half + 0.5 / half / half


def asinh(x: Formula) -> Formula:
    size = abs(x)
    square = size * size
    # log1p keeps the digits of small arguments; beyond 1e8 the square would lose them, and log(2x) is
    # exact.
    near = (size + square / ((square + 1.0).sqrt() + 1.0)).call("aten::log1p")
    return odd_extension(x, (size < 1e8).chosen(near, size.log() + math.log(2.0)))


def acosh(x: Formula) -> Formula:
    above = x - 1.0
    near = (above + (above * (above + 2.0)).sqrt()).call("aten::log1p")
    result = (x < 1e8).chosen(near, x.log() + math.log(2.0))
    return (x < 1.0).chosen(math.nan, result)


def atanh(x: Formula) -> Formula:
    size = abs(x)
    return odd_extension(x, (size * 2.0 / (1.0 - size)).call("aten::log1p") * 0.5)


FORMULAS: dict[str, Callable[[Formula], Formula]] = {
    "Acos": acos,
    "Acosh": acosh,
    "Asin": asin,
    "Asinh": asinh,
    "Atan": atan,
    "Atanh": atanh,
    "Cosh": cosh,
    "Sinh": sinh,
    "Tan": tan,
}
"""The formula for each ONNX operator; runtimes lack some element types, opsets 7 and 8 most operators."""
