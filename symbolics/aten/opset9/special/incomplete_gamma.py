"""The regularized incomplete gamma functions (Cephes; aten/src/ATen/native/Math.h).

Three iterations, at most one of which applies to each element, and an expansion for large `a` close to `x`.
"""

import math

from .....registration import GraphContext, Value, onnx_symbolic
from ....compositions.special import gamma_coefficients as table
from ....compositions.special.formulas import Formula, broadcast, iterate, polynomial, rational
from ._registration import cast_result, two_operands
from .error_functions import erfc
from .gamma import lgamma

_LANCZOS_G = 6.024680040776729583740234375
_ITERATIONS = 2000


def _log1p(x: Formula) -> Formula:
    return x.call("aten::log1p")


def _precision(x: Formula) -> float:
    return 2.0**-53 if x.is_double else 2.0**-24


def _factor(a: Formula, x: Formula) -> Formula:
    """`x^a exp(-x) / gamma(a)`."""
    direct = (a * x.log() - x - lgamma(a)).exp()
    shifted = a + (_LANCZOS_G - 0.5)
    root = (shifted / math.e).sqrt()
    # The Lanczos sum of gamma, scaled by `exp(g)`: powers of a would overflow, those of 1 / a stay finite.
    numerator, denominator = table.LANCZOS_NUMERATOR, table.LANCZOS_DENOMINATOR
    low = rational(a, numerator, denominator)
    high = rational(1.0 / a, numerator[::-1], denominator[::-1])
    scale = root / (a < 1.0).chosen(low, high)
    small = (a - x).exp() * (x / shifted) ** a
    change = (x - a - (_LANCZOS_G - 0.5)) / shifted
    large = (a * (_log1p(change) - change) + x * (0.5 - _LANCZOS_G) / shifted).exp()
    close = scale * ((a < 200.0) & (x < 200.0)).chosen(small, large)
    return (abs(a - x) > abs(a) * 0.4).chosen(direct, close)


def _series(begins: Formula, a: Formula, x: Formula, factor: Formula) -> Formula:
    """The lower function as a power series."""
    precision = _precision(x)

    def step(_: Formula, base: Formula, term: Formula, total: Formula) -> tuple[list[Formula], Formula]:
        base = base + 1.0
        term = term * (x / base)
        total = total + term
        return [base, term, total], term > total * precision

    unit = a * 0.0 + 1.0
    return iterate(begins, [a, unit, unit], step, _ITERATIONS)[2] * factor / a


def _upper_series(begins: Formula, a: Formula, x: Formula) -> Formula:
    """The upper function for small x."""
    precision = _precision(x)

    def step(i: Formula, power: Formula, total: Formula) -> tuple[list[Formula], Formula]:
        n = i + 1.0
        power = power * (-x / n)
        term = power / (a + n)
        total = total + term
        return [power, total], abs(term) > abs(total) * precision

    zero = a * 0.0
    total = iterate(begins, [zero + 1.0, zero], step, _ITERATIONS - 1)[1]
    exponent = a * x.log()
    leading_term = -(exponent - lgamma(a + 1.0)).call("aten::expm1")
    return leading_term - (exponent - lgamma(a)).exp() * total


def _continued_fraction(begins: Formula, a: Formula, x: Formula, factor: Formula) -> Formula:
    """The upper function for x above a."""
    precision = _precision(x)
    small, big = (2.0**-52, 2.0**52) if x.is_double else (2.0**-24, 2.0**24)

    def step(
        i: Formula, p2: Formula, q2: Formula, p1: Formula, q1: Formula, answer: Formula
    ) -> tuple[list[Formula], Formula]:
        c = i + 1.0
        y = c - a + 1.0
        z = x - a + (c + c) + 2.0
        p, q = p1 * z - p2 * (y * c), q1 * z - q2 * (y * c)
        vanishes = q.equals(0.0)
        ratio = vanishes.chosen(answer, p / q)
        error = abs((answer - ratio) / ratio)
        # Numerator and denominator grow together; scaling both keeps them finite and their quotient equal.
        scale = (abs(p) > big).chosen(small, p * 0.0 + 1.0)
        state = [p1 * scale, q1 * scale, p * scale, q * scale, ratio]
        return state, vanishes | (error > precision)

    z = x - a + 2.0
    state = [a * 0.0 + 1.0, x, x + 1.0, z * x, (x + 1.0) / (z * x)]
    return iterate(begins, state, step, _ITERATIONS)[4] * factor


def _expansion(a: Formula, x: Formula, sign: float) -> Formula:
    """Temme's uniform expansion for large a; `sign` is -1 for the lower function and 1 for the upper one."""
    sigma = (x - a) / a
    size = ((_log1p(sigma) - sigma) * -2.0).sqrt()
    eta = (x < a).chosen(-size, size)
    inverse = 1.0 / a
    total: Formula | None = None
    for row in reversed(table.TEMME):
        value = polynomial(eta, row[::-1])
        total = value if total is None else total * inverse + value
    assert total is not None
    decay = (a * eta * eta * -0.5).exp() * total / (a * (2 * math.pi)).sqrt()
    return erfc(eta * (a * 0.5).sqrt() * sign) * 0.5 + decay * sign


def _is_expanded(a: Formula, x: Formula) -> Formula:
    distance = abs(x - a) / a
    medium = (a > 20.0) & (a < 200.0) & (distance < 0.3)
    return medium | ((a > 200.0) & (distance < 4.5 / a.sqrt()))


def _at_edges(a: Formula, x: Formula, result: Formula, at_zero: float) -> Formula:
    """The values at 0 and infinity: `at_zero` for x = 0, and 1 - at_zero for infinite x."""
    infinite_a, infinite_x = a.call("aten::isinf"), x.call("aten::isinf")
    result = infinite_x.chosen(1.0 - at_zero, result)
    result = (infinite_a & infinite_x).chosen(math.nan, infinite_a.chosen(at_zero, result))
    result = x.equals(0.0).chosen(at_zero, result)
    degenerate = (x > 0.0).chosen(1.0 - at_zero, x * math.nan)
    result = a.equals(0.0).chosen(degenerate, result)
    return ((x < 0.0) | (a < 0.0)).chosen(math.nan, result)


def _is_ordinary(a: Formula, x: Formula) -> Formula:
    largest = 1e300 if x.is_double else 3e38
    return (a > 0.0) & (x > 0.0) & (a < largest) & (x < largest) & ~_is_expanded(a, x)


def _upper_parts(
    a: Formula, x: Formula, begins: Formula, factor: Formula
) -> tuple[Formula, Formula, Formula]:
    """A mask for the lower function's series, and the other two forms of the upper function."""
    least = (x <= 0.5).chosen(-0.4 / x.log(), (x <= 1.1).chosen(x * 1.1, x))
    # Where the upper function is close to 1, it is 1 minus the lower one.
    by_lower = least < a
    by_upper = begins & ~by_lower
    fraction = _continued_fraction(by_upper & (x > 1.1), a, x, factor)
    series = _upper_series(by_upper & (x <= 1.1), a, x)
    return by_lower, fraction, series


@onnx_symbolic(["aten::igammac", "aten::special_gammaincc"])
def igammac(g: GraphContext, self: Value, other: Value) -> Value:
    """The upper function."""
    a, x, like = two_operands(g, self, other)
    a, x = broadcast(a, x), broadcast(x, a)
    factor, begins = _factor(a, x), _is_ordinary(a, x)
    by_lower, fraction, upper_series = _upper_parts(a, x, begins, factor)
    lower = _series(begins & by_lower, a, x, factor)
    result = by_lower.chosen(1.0 - lower, (x > 1.1).chosen(fraction, upper_series))
    result = _is_expanded(a, x).chosen(_expansion(a, x, 1.0), result)
    return cast_result(g, _at_edges(a, x, result, 1.0), like)


@onnx_symbolic(["aten::igamma", "aten::special_gammainc"])
def igamma(g: GraphContext, self: Value, other: Value) -> Value:
    """The lower function."""
    a, x, like = two_operands(g, self, other)
    a, x = broadcast(a, x), broadcast(x, a)
    factor, begins = _factor(a, x), _is_ordinary(a, x)
    from_upper = (x > 1.0) & (x > a)
    by_lower, fraction, upper_series = _upper_parts(a, x, begins & from_upper, factor)
    upper = (x > 1.1).chosen(fraction, upper_series)
    takes_series = ~from_upper | by_lower
    lower = _series(begins & takes_series, a, x, factor)
    result = takes_series.chosen(lower, 1.0 - upper)
    result = _is_expanded(a, x).chosen(_expansion(a, x, -1.0), result)
    return cast_result(g, _at_edges(a, x, result, 0.0), like)
