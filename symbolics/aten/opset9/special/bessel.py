"""Bessel and Airy functions, by ATen's methods from Cephes (aten/src/ATen/native/Math.h)."""

import math

from .....registration import GraphContext, Value, onnx_symbolic
from ....compositions.special import bessel_coefficients as table
from ....compositions.special.formulas import Formula, chebyshev, odd_extension, polynomial, rational
from ._registration import cast_result, unary, unary_of_x, wide

_TWO_OVER_PI = 2 / math.pi
_ROOT_TWO_OVER_PI = math.sqrt(2 / math.pi)
_ROOTS_J0 = (5.78318596294678452118, 30.4712623436620863991)
_ROOTS_J1 = (14.6819706421238932572, 49.2184563216946036703)


def _scaled_i0(size: Formula) -> Formula:
    """`exp(-|x|) I0(x)`."""
    near = chebyshev(size * 0.5 - 2.0, table.I0_NEAR)
    far = chebyshev(32.0 / size - 2.0, table.I0_FAR) / size.sqrt()
    return (size <= 8.0).chosen(near, far)


def _scaled_i1(size: Formula) -> Formula:
    """`exp(-|x|) I1(|x|)`."""
    near = chebyshev(size * 0.5 - 2.0, table.I1_NEAR) * size
    far = chebyshev(32.0 / size - 2.0, table.I1_FAR) / size.sqrt()
    return (size <= 8.0).chosen(near, far)


@unary("i0", "special_i0", "special_modified_bessel_i0")
def i0(x: Formula) -> Formula:
    return abs(x).exp() * _scaled_i0(abs(x))


@unary("special_i0e")
def i0e(x: Formula) -> Formula:
    return _scaled_i0(abs(x))


@unary("special_i1", "special_modified_bessel_i1")
def i1(x: Formula) -> Formula:
    return odd_extension(x, abs(x).exp() * _scaled_i1(abs(x)))


@unary("special_i1e")
def i1e(x: Formula) -> Formula:
    return odd_extension(x, _scaled_i1(abs(x)))


def _k0_near(x: Formula) -> Formula:
    """`K0(x)` for x up to 2."""
    i0 = x.exp() * chebyshev(x * 0.5 - 2.0, table.I0_NEAR)
    return chebyshev(x * x - 2.0, table.K0_NEAR) - (x * 0.5).log() * i0


def _k1_near(x: Formula) -> Formula:
    """`K1(x)` for x up to 2."""
    i1 = x.exp() * x * chebyshev(x * 0.5 - 2.0, table.I1_NEAR)
    return (x * 0.5).log() * i1 + chebyshev(x * x - 2.0, table.K1_NEAR) / x


def _k(x: Formula, near: Formula, far: Formula) -> Formula:
    """Infinite at 0, NaN below."""
    near = x.equals(0.0).chosen(math.inf, near)
    return (x < 0.0).chosen(math.nan, (x <= 2.0).chosen(near, far))


def _scaled_k_asymptotic(x: Formula, coefficients: tuple[float, ...]) -> Formula:
    return chebyshev(8.0 / x - 2.0, coefficients) / x.sqrt()


@unary("special_modified_bessel_k0")
def k0(x: Formula) -> Formula:
    return _k(x, _k0_near(x), (-x).exp() * _scaled_k_asymptotic(x, table.K0_FAR))


@unary("special_modified_bessel_k1")
def k1(x: Formula) -> Formula:
    return _k(x, _k1_near(x), (-x).exp() * _scaled_k_asymptotic(x, table.K1_FAR))


def _register_scaled_k(name: str, near: str, far: tuple[float, ...]) -> None:
    @onnx_symbolic(f"aten::{name}")
    def scaled_bessel_k(g: GraphContext, x: Value) -> Value:
        argument = wide(g, x)
        close = {"k0": _k0_near, "k1": _k1_near}[near](argument) * argument.exp()
        return cast_result(g, _k(argument, close, _scaled_k_asymptotic(argument, far)), x)


_register_scaled_k("special_scaled_modified_bessel_k0", "k0", table.K0_FAR)
_register_scaled_k("special_scaled_modified_bessel_k1", "k1", table.K1_FAR)


def _j0_near(x: Formula) -> Formula:
    """`J0(x)` for x up to 5."""
    square = x * x
    first, second = _ROOTS_J0
    quotient = rational(square, table.J0_RP, table.J0_RQ)
    result = (square - first) * (square - second) * quotient
    # Two terms of the series are exact for tiny x, and avoid the rounded roots.
    return (x < 1e-5).chosen(1.0 - square * 0.25, result)


def _j1_near(x: Formula) -> Formula:
    """`J1(x)` for x up to 5."""
    square = x * x
    first, second = _ROOTS_J1
    quotient = rational(square, table.J1_RP, table.J1_RQ)
    return quotient * x * (square - first) * (square - second)


def _far(x: Formula, order: int, second_kind: bool) -> Formula:
    """The Bessel function of the first or second kind for x from 5 on, in phase-amplitude form."""
    rows = (
        (table.J0_PP, table.J0_PQ, table.J0_QP, table.J0_QQ),
        (table.J1_PP, table.J1_PQ, table.J1_QP, table.J1_QQ),
    )[order]
    inverse = 5.0 / x
    square = inverse * inverse
    p, q = rational(square, *rows[:2]), inverse * rational(square, *rows[2:])
    phase = x - (order + 0.5) * math.pi / 2
    sine, cosine = phase.sin(), phase.cos()
    wave = p * sine + q * cosine if second_kind else p * cosine - q * sine
    return wave * _ROOT_TWO_OVER_PI / x.sqrt()


@unary("special_bessel_j0")
def j0(x: Formula) -> Formula:
    size = abs(x)
    return (size <= 5.0).chosen(_j0_near(size), _far(size, 0, False))


@unary("special_bessel_j1")
def j1(x: Formula) -> Formula:
    size = abs(x)
    return odd_extension(x, (size <= 5.0).chosen(_j1_near(size), _far(size, 1, False)))


@unary("special_bessel_y0")
def y0(x: Formula) -> Formula:
    near = rational(x * x, table.Y0_YP, table.Y0_YQ) + x.log() * _j0_near(x) * _TWO_OVER_PI
    return (x <= 5.0).chosen(near, _far(x, 0, True))


@unary("special_bessel_y1")
def y1(x: Formula) -> Formula:
    logarithm = (_j1_near(x) * x.log() - 1.0 / x) * _TWO_OVER_PI
    near = x * rational(x * x, table.Y1_YP, table.Y1_YQ) + logarithm
    near = x.equals(0.0).chosen(-math.inf, near)
    return (x <= 5.0).chosen(near, _far(x, 1, True))


@unary_of_x("special_spherical_bessel_j0")
def spherical_j0(x: Formula) -> Formula:
    """`sin(x) / x`; near 0 a series, and 0 at infinity."""
    series = polynomial(x * x, [(-1) ** i / math.factorial(2 * i + 1) for i in range(6, -1, -1)])
    result = (abs(x) < 0.5).chosen(series, x.sin() / x)
    return x.call("aten::isinf").chosen(0.0, result)


_AI_0, _AI_SLOPE_0 = 0.355028053887817239260, 0.258819403792806798405
_HALF_ROOT_PI = 0.564189583547756286948


def _airy_series(x: Formula) -> Formula:
    """The Maclaurin series, for |x| up to 2.09."""
    # Enough terms for the digits of the element type.
    count = 18 if x.is_double else 11
    even, odd = [1.0], [1.0]
    for k in range(1, count):
        even.append(even[-1] / ((3 * k - 1) * (3 * k)))
        odd.append(odd[-1] / ((3 * k) * (3 * k + 1)))
    cube = x * x * x
    return polynomial(cube, even[::-1]) * _AI_0 - x * polynomial(cube, odd[::-1]) * _AI_SLOPE_0


@unary_of_x("special_airy_ai")
def airy_ai(x: Formula) -> Formula:
    """Oscillating for negative x, a series around 0, exponential beyond; NaN at infinity, as in ATen."""
    size = abs(x)
    zeta = size * size.sqrt() * (2 / 3)
    inverse = 1.0 / zeta
    square = inverse * inverse
    phase = zeta + math.pi / 4
    sine = phase.sin() * (square * rational(square, table.AIRY_AFN, table.AIRY_AFD) + 1.0)
    cosine = phase.cos() * inverse * rational(square, table.AIRY_AGN, table.AIRY_AGD)
    root = size.sqrt().sqrt()
    wave = (sine - cosine) * _HALF_ROOT_PI / root
    decay = rational(inverse, table.AIRY_AN, table.AIRY_AD) * _HALF_ROOT_PI / (root * 2.0 * zeta.exp())
    result = (x < -2.09).chosen(wave, (x < 2.09).chosen(_airy_series(x), decay))
    result = (x > 103.892).chosen(0.0, result)
    return x.call("aten::isinf").chosen(math.nan, result)
