"""Error functions and their inverses, by ATen's methods from Cephes (Math.h)."""

import math

from .....registration import GraphContext, Value, onnx_symbolic
from ....compositions.special import error_coefficients as table
from ....compositions.special.formulas import Formula, rational
from ._registration import unary

_EXP_MINUS_2 = 0.13533528323661269189


def _erf_near(x: Formula) -> Formula:
    """`erf(x)` for x up to 1."""
    if not x.is_double:
        return x.call("aten::erf")
    return x * rational(x * x, table.ERF_T, table.ERF_U)


def _erfcx_far(size: Formula) -> Formula:
    """`exp(x^2) erfc(x)` for x from 1 on; beyond 8 in powers of 1 / x, which stay finite."""
    inverse = 1.0 / size
    far = inverse * rational(inverse, table.ERFCX_R[::-1], table.ERFCX_S[::-1])
    return (size < 8.0).chosen(rational(size, table.ERFCX_P, table.ERFCX_Q), far)


@unary("erfc", "special_erfc")
def erfc(x: Formula) -> Formula:
    """Beyond 1 computed directly, because `1 - erf(x)` loses relative accuracy."""
    size = abs(x)
    tail = (-size * size).exp() * _erfcx_far(size)
    tail = (x < 0.0).chosen(2.0 - tail, tail)
    return (size < 1.0).chosen(1.0 - _erf_near(x), tail)


@onnx_symbolic("composed::erf_of_double")
def erf_of_double(g: GraphContext, self: Value) -> Value:
    """A composition of Erf for DOUBLE."""
    x = Formula(g, self)
    size = abs(x)
    tail = 1.0 - (-size * size).exp() * _erfcx_far(size)
    return (size < 1.0).chosen(_erf_near(x), (x < 0.0).chosen(-tail, tail)).value


@unary("special_erfcx")
def erfcx(x: Formula) -> Formula:
    size, square = abs(x), (x * x).exp()
    tail = _erfcx_far(size)
    tail = (x < 0.0).chosen(square * 2.0 - tail, tail)
    return (size < 1.0).chosen(square * (1.0 - _erf_near(x)), tail)


@unary("special_ndtr")
def ndtr(x: Formula) -> Formula:
    """The standard normal distribution."""
    return erfc(x * -math.sqrt(0.5)) * 0.5


@unary("special_log_ndtr")
def log_ndtr(x: Formula) -> Formula:
    """Below -sqrt(2) computed from `erfcx`."""
    t = x * math.sqrt(0.5)
    # `erfc` would underflow to 0; the exponent is added as a logarithm instead.
    tail = (_erfcx_far(-t) * 0.5).log() - t * t
    return (t < -1.0).chosen(tail, (erfc(t) * -0.5).call("aten::log1p"))


@unary("special_ndtri")
def ndtri(y: Formula) -> Formula:
    """The inverse of `ndtr`: infinite at 0 and 1, NaN outside."""
    # By symmetry the upper tail is the negated lower one.
    upper = y > 1.0 - _EXP_MINUS_2
    p = upper.chosen(1.0 - y, y)
    centred = p - 0.5
    square = centred * centred
    middle = centred + centred * square * rational(square, table.NDTRI_P0, table.NDTRI_Q0)
    x = (p.log() * -2.0).sqrt()
    inverse = 1.0 / x
    near = inverse * rational(inverse, table.NDTRI_P1, table.NDTRI_Q1)
    far = inverse * rational(inverse, table.NDTRI_P2, table.NDTRI_Q2)
    tail = x - x.log() / x - (x < 8.0).chosen(near, far)
    tail = upper.chosen(tail, -tail)
    result = (p > _EXP_MINUS_2).chosen(middle * math.sqrt(2 * math.pi), tail)
    result = y.equals(0.0).chosen(-math.inf, result)
    return y.equals(1.0).chosen(math.inf, result)


@unary("erfinv", "special_erfinv")
def erfinv(y: Formula) -> Formula:
    """A rational approximation and two Newton steps, on `erfc` if `erf` is close to 1."""
    size = abs(y)
    square = size * size
    middle = size * rational(square, table.ERFINV_A, (*table.ERFINV_B, 1.0))
    z = ((1.0 - size) * 0.5).log()
    z = (-z).sqrt()
    x = (size <= 0.7).chosen(middle, rational(z, table.ERFINV_C, (*table.ERFINV_D, 1.0)))
    complement = 1.0 - size
    for _ in range(2):
        # Close to 1 the difference of two values of erf loses its digits; erfc keeps them.
        error = (size <= 0.7).chosen(_erf_near(x) - size, complement - erfc(x))
        x = x - error * (x * x).exp() * (math.sqrt(math.pi) / 2)
    x = size.equals(1.0).chosen(math.inf, x)
    return (y < 0.0).chosen(-x, x)
