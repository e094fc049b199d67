"""Logarithm of the gamma function, its derivatives, and the Hurwitz zeta function (Cephes; ATen's Math.h)."""

import math

from .....registration import DataType, GraphContext, Number, Value, onnx_symbolic
from ....compositions.special import gamma_coefficients as table
from ....compositions.special.formulas import Formula, broadcast, iterate, polynomial, rational
from ._registration import cast_result, two_operands, unary, wide


def _lgamma_near(x: Formula, limit: int) -> Formula:
    """`lgamma` for 0 <= x < limit: shifted to 2 <= x < 3 by `gamma(x + 1) = x gamma(x)`, then a quotient.

    Below 2 the distance from 2 equals that from 1 or 0, computed before any rounding. Close to 2, where the
    logarithm vanishes, the quotient is accurate on both sides.
    """
    above, factor = x - 2.0, x
    product: Formula | None = None
    for _ in range(limit - 3):
        is_large = above >= 1.0
        factor = factor - 1.0
        chosen_factor = is_large.chosen(factor, 1.0)
        product = chosen_factor if product is None else product * chosen_factor
        above = is_large.chosen(above - 1.0, above)
    assert product is not None
    below = (x < 1.0).chosen(x, x - 1.0)
    is_below = x < 1.9
    distance = is_below.chosen(below, above)
    divisor = (x < 1.0).chosen(x * (x + 1.0), x)
    logarithm = is_below.chosen(divisor, product).log()
    logarithm = is_below.chosen(-logarithm, logarithm)
    return logarithm + distance * rational(distance, table.LGAMMA_NUMERATOR, table.LGAMMA_DENOMINATOR)


@unary("lgamma", "special_gammaln")
def lgamma(x: Formula) -> Formula:
    """Negative numbers use reflection; infinite at negative integers."""
    size = abs(x)
    limit = 13 if x.is_double else 6
    inverse = 1.0 / size
    stirling = (size - 0.5) * size.log() - size + math.log(2 * math.pi) / 2
    stirling = stirling + inverse * polynomial(inverse * inverse, table.LGAMMA_ASYMPTOTIC)
    positive = (size < float(limit)).chosen(_lgamma_near(size, limit), stirling)
    # The whole part is removed first, because the sine of a large multiple of pi is inaccurate.
    sine = abs(((size - size.call("aten::round")) * math.pi).sin())
    negative = math.log(math.pi) - size.log() - sine.log() - positive
    result = (x < 0.0).chosen(negative, positive)
    return x.call("aten::isinf").chosen(math.inf, x.equals(0.0).chosen(math.inf, result))


@onnx_symbolic(["aten::mvlgamma", "aten::special_multigammaln"])
def mvlgamma(g: GraphContext, self: Value, p: int) -> Value:
    x = wide(g, self)
    result = lgamma(x) + p * (p - 1) / 4 * math.log(math.pi)
    for index in range(1, p):
        result = result + lgamma(x - index / 2)
    return cast_result(g, result, self)


@unary("digamma", "special_digamma", "special_psi")
def digamma(x: Formula) -> Formula:
    """An asymptotic series from 10 on; negative numbers use reflection, NaN at negative integers."""
    is_negative = x < 0.0
    positive = is_negative.chosen(1.0 - x, x)
    shifted, terms = positive, None
    # `digamma(x) = digamma(x + 1) - 1 / x`, until the series converges.
    for _ in range(10):
        terms = 1.0 / shifted if terms is None else terms + 1.0 / shifted
        shifted = shifted + 1.0
    assert terms is not None
    is_small = positive < 10.0
    argument = is_small.chosen(shifted, positive)
    inverse = 1.0 / argument
    square = inverse * inverse
    result = argument.log() - inverse * 0.5 - square * polynomial(square, table.DIGAMMA)
    result = is_small.chosen(result - terms, result)
    part = (x - x.call("aten::round")) * math.pi
    reflected = result - part.cos() * math.pi / part.sin()
    reflected = part.equals(0.0).chosen(math.nan, reflected)
    result = is_negative.chosen(reflected, result)
    return x.equals(0.0).chosen(-1.0 / x, result)


def _trigamma(x: Formula) -> Formula:
    is_low = x < 0.5
    argument = is_low.chosen(1.0 - x, x)
    terms: Formula | None = None
    for _ in range(6):
        term = 1.0 / (argument * argument)
        terms = term if terms is None else terms + term
        argument = argument + 1.0
    assert terms is not None
    inverse = 1.0 / argument
    series = polynomial(inverse * inverse, (1 / 42, -1 / 30, 1 / 6)) * inverse * inverse
    result = terms + (inverse * 0.5 + series + 1.0) * inverse
    sine = (x * math.pi).sin()
    return is_low.chosen(math.pi**2 / (sine * sine) - result, result)


@onnx_symbolic(["aten::polygamma", "aten::special_polygamma"])
def polygamma(g: GraphContext, n: int, self: Value) -> Value:
    """The derivatives of `digamma`; from n = 2 on `(-1)^(n+1) n! zeta(n + 1, x)`."""
    x = wide(g, self)
    if n < 2:
        return cast_result(g, _trigamma(x) if n else digamma(x), self)
    order = Formula(g, g.constant(float(n + 1), x.value.dtype))
    # 171! overflows DOUBLE.
    factor = math.factorial(n) if n < 171 else math.inf
    return cast_result(g, _zeta(order, x) * float(factor if n % 2 else -factor), self)


_FURTHEST_POLE = -1e6
"""Arguments below this have too many terms to sum, and give NaN."""


def _zeta(x: Formula, q: Formula) -> Formula:
    """`sum((q + k) ** -x)`, in DOUBLE as in ATen: terms until 9 is passed, then Euler-Maclaurin's formula."""
    dtype = x.value.dtype
    x, q = x.cast(DataType.DOUBLE), q.cast(DataType.DOUBLE)
    q = broadcast(q, x)

    def step(iteration: Formula, base: Formula, total: Formula) -> tuple[list[Formula], Formula]:
        base = base + 1.0
        return [base, total + base ** (-x)], (base <= 9.0) | (iteration < 8.0)

    begins = q > _FURTHEST_POLE
    base, total = iterate(begins, [q, q ** (-x)], step)
    power = base ** (-x)
    total = total + power * base / (x - 1.0) - power * 0.5
    factor = x
    for k, coefficient in enumerate(table.ZETA):
        power = power / base
        total = total + factor * power / coefficient
        factor = factor * (x + (2 * k + 1.0)) * (x + (2 * k + 2.0))
        power = power / base
    is_whole = q.equals(q.floor())
    result = (begins & ((q > 0.0) | x.equals(x.floor()))).chosen(total, math.nan)
    result = ((q > 0.0) | ~is_whole).chosen(result, math.inf)
    result = x.equals(1.0).chosen(math.inf, (x < 1.0).chosen(math.nan, result))
    return result.cast(dtype or DataType.FLOAT)


@onnx_symbolic("aten::special_zeta")
def special_zeta(g: GraphContext, self: Value | Number, other: Value | Number) -> Value:
    x, q, like = two_operands(g, self, other)
    return cast_result(g, _zeta(x, q), like)
