"""Orthogonal polynomials of any degree, by ATen's recurrences (aten/src/ATen/native/Math.h).

A fractional degree is truncated; a negative, infinite or NaN degree gives 0.
"""

import math
from collections.abc import Callable

from .....registration import GraphContext, Number, Value, onnx_symbolic
from ....compositions.special.formulas import Formula, broadcast, iterate
from ._registration import cast_result, two_operands

Step = Callable[[Formula, Formula, Formula, Formula], Formula]
"""Maps the argument, the index k, and the polynomials of degree k - 1 and k to that of degree k + 1."""

Closed = Callable[[Formula, Formula], Formula]
"""Maps an argument in (-1, 1) and the degree to the polynomial."""


def _chebyshev(x: Formula, k: Formula, p: Formula, q: Formula) -> Formula:
    return (x + x) * q - p


def _hermite_h(x: Formula, k: Formula, p: Formula, q: Formula) -> Formula:
    return (x + x) * q - p * (k + k)


def _hermite_he(x: Formula, k: Formula, p: Formula, q: Formula) -> Formula:
    return x * q - p * k


def _laguerre(x: Formula, k: Formula, p: Formula, q: Formula) -> Formula:
    return ((1.0 - x + (k + k)) * q - p * k) / (k + 1.0)


def _legendre(x: Formula, k: Formula, p: Formula, q: Formula) -> Formula:
    return (x * q * (k + k + 1.0) - p * k) / (k + 1.0)


def _alternating(n: Formula) -> Formula:
    """1 for an even number, -1 for an odd one."""
    half = n * 0.5
    return half.equals(half.floor()).chosen(1.0, n * 0.0 - 1.0)


def _cosine(x: Formula, n: Formula) -> Formula:
    return (n * x.op("Acos")).cos()


def _sines(x: Formula, n: Formula) -> Formula:
    angle = x.op("Acos")
    return ((n + 1.0) * angle).sin() / angle.sin()


def _half_cosines(x: Formula, n: Formula) -> Formula:
    """If the divisor vanishes, the value at -1."""
    angle = x.op("Acos")
    half = angle * 0.5
    limit = (n + n + 1.0) * _alternating(n)
    return half.sin().equals(1.0).chosen(limit, ((n + 0.5) * angle).cos() / half.cos())


def _half_sines(x: Formula, n: Formula, limit: Formula | None = None) -> Formula:
    """If the divisor vanishes, the limit, which is by default the value at 1."""
    angle = x.op("Acos")
    half = angle * 0.5
    limit = n + n + 1.0 if limit is None else limit
    return half.cos().equals(1.0).chosen(limit, ((n + 0.5) * angle).sin() / half.sin())


def _shifted_half_sines(x: Formula, n: Formula) -> Formula:
    """If the divisor vanishes, ATen returns 1 or -1, which is not the value of the polynomial."""
    return _half_sines(x, n, _alternating(n))


def _evaluate(
    x: Formula, n: Formula, first: Formula, step: Step, largest: int | None, closed: tuple[int, Closed] | None
) -> Formula:
    """The polynomial of degree `n`; `first` is the polynomial of degree 1.

    Args:
        largest: the degree from which the result is NaN.
        closed: the degree above which arguments in (-1, 1) use a closed form, and that form.
    """
    # NaN and infinity become -1, whose polynomial is 0.
    n = (abs(n) < 2.0**62).chosen(n, -1.0).call("aten::trunc")
    x, first, n = broadcast(x, n), broadcast(first, n), broadcast(n, x)
    begins = n > 1.0
    if largest is not None:
        begins = begins & (n <= float(largest))
    at_once: Formula | None = None
    if closed is not None and x.g.has_kernel("Acos", x.value):
        at_once = (n > float(closed[0])) & (abs(x) < 1.0)
        begins = begins & ~at_once

    def advance(iteration: Formula, p: Formula, q: Formula) -> tuple[list[Formula], Formula]:
        later = step(x, iteration + 1.0, p, q)
        # Stops at NaN, which never becomes a number again.
        return [q, later], (n > iteration + 2.0) & later.equals(later)

    unit = n * 0.0 + 1.0
    result = iterate(begins, [unit, first], advance)[1]
    if at_once is not None and closed is not None:
        result = at_once.chosen(closed[1](x, n), result)
    if largest is not None:
        result = (n > float(largest)).chosen(math.nan, result)
    low = (n < 0.0).chosen(0.0, unit)
    return (n < 1.0).chosen(low, result)


def _register(
    names: str,
    degree_1: tuple[float, float],
    step: Step,
    closed: tuple[int, Closed] | None = None,
    largest: tuple[int, int] | None = None,
    shifted: bool = False,
) -> None:
    """Register a family by its polynomial of degree 1 (slope and intercept) and its recurrence."""

    @onnx_symbolic(f"aten::{names}")
    def polynomial(g: GraphContext, x: Value | Number, n: Value | Number) -> Value:
        argument, degree, like = two_operands(g, x, n)
        if shifted:
            argument = argument + argument - 1.0
        slope, intercept = degree_1
        first = argument * slope + intercept
        limit = None if largest is None else largest[argument.is_double]
        return cast_result(g, _evaluate(argument, degree, first, step, limit, closed), like)


# Slope and intercept of degree 1; and for the polynomial and the shifted one, the degree above which ATen
# uses a closed form, and that form.
_CHEBYSHEV: dict[str, tuple[tuple[float, float], tuple[int, Closed], tuple[int, Closed]]] = {
    "t": ((1.0, 0.0), (6, _cosine), (6, _cosine)),
    "u": ((2.0, 0.0), (8, _sines), (6, _sines)),
    "v": ((2.0, -1.0), (8, _half_cosines), (6, _half_cosines)),
    "w": ((2.0, 1.0), (8, _half_sines), (4, _shifted_half_sines)),
}

for _letter, (_degree_1, _closed, _shifted_closed) in _CHEBYSHEV.items():
    _name = f"chebyshev_polynomial_{_letter}"
    _register(f"special_{_name}", _degree_1, _chebyshev, _closed)
    _register(f"special_shifted_{_name}", _degree_1, _chebyshev, _shifted_closed, shifted=True)

_register("special_hermite_polynomial_h", (2.0, 0.0), _hermite_h, largest=(128, 512))
_register("special_hermite_polynomial_he", (1.0, 0.0), _hermite_he, largest=(128, 512))
_register("special_laguerre_polynomial_l", (-1.0, 1.0), _laguerre)
_register("special_legendre_polynomial_p", (1.0, 0.0), _legendre)
