"""Special functions: error functions, gamma functions, Bessel functions."""

import math

import numpy as np

from ....registration import DataType, GraphContext, Value, onnx_symbolic
from ...compositions.operator_tables import register_table
from ...compositions.special.formulas import Formula, broadcast, iterate

register_table(
    "tf",
    """
x: BesselI0=aten::special_i0 BesselI0e=aten::special_i0e BesselI1=aten::special_i1 BesselI1e=aten::special_i1e
x: BesselJ0=aten::special_bessel_j0 BesselJ1=aten::special_bessel_j1
x: BesselK0=aten::special_modified_bessel_k0 BesselK0e=aten::special_scaled_modified_bessel_k0
x: BesselK1=aten::special_modified_bessel_k1 BesselK1e=aten::special_scaled_modified_bessel_k1
x: BesselY0=aten::special_bessel_y0 BesselY1=aten::special_bessel_y1
x: Digamma=aten::digamma Erf=aten::erf Erfc=aten::erfc Erfinv=aten::erfinv Lgamma=aten::lgamma
x: Ndtri=aten::special_ndtri
a x: Igamma=aten::igamma Igammac=aten::igammac
x q: Zeta=aten::special_zeta
""",
)


@onnx_symbolic("tf::Polygamma")
def polygamma(g: GraphContext, a: Value, x: Value) -> Value:
    """Of order n: (-1)^(n + 1) n! zeta(n + 1, x), and Digamma of order 0; NaN if n is not a whole number.

    Source: NIST Digital Library of Mathematical Functions, 5.15.1 and 25.11.1.
    """
    order = g.constant_value(a)
    if order is None or np.unique(order).size != 1 or float(order.flat[0]) % 1:
        dtype = g.dtype(x) or DataType.FLOAT
        n = g.cast(a, DataType.DOUBLE)
        wide_x, next_order = g.cast(x, DataType.DOUBLE), g.op("Add", n, 1.0)
        factorial = g.op("Exp", g.call("aten::lgamma", next_order))
        magnitude = g.op("Mul", factorial, g.call("aten::special_zeta", next_order, wide_x))
        half = g.op("Div", next_order, 2.0)
        is_even = g.call("aten::eq", half, g.op("Floor", half))
        signed = g.op("Where", is_even, magnitude, g.op("Neg", magnitude))
        is_valid = g.op("And", g.call("aten::eq", n, g.op("Floor", n)), g.op("Less", -0.5, n))
        signed = g.op("Where", is_valid, signed, math.nan)
        return g.cast(
            g.op("Where", g.call("aten::eq", n, 0.0), g.call("aten::digamma", wide_x), signed), dtype
        )
    result: Value = g.call("aten::polygamma", int(order.flat[0]), x)
    # The sum with zeros broadcasts the result to the shape of the order.
    return result if order.ndim == 0 else g.op("Add", result, g.constant(np.zeros_like(order)))


_FRACTION_STEPS = 200
"""Steps of the continued fraction; O(sqrt(max(a, b))) are enough, in FLOAT for parameters up to 1e4."""


@onnx_symbolic("tf::Betainc")
def betainc(g: GraphContext, a: Value, b: Value, x: Value) -> Value:
    """The regularized incomplete beta function, in DOUBLE; NaN outside of its domain.

    Source: NIST Digital Library of Mathematical Functions, 8.17.4 and 8.17.22, by Lentz's method.
    """
    dtype = g.dtype(x) or DataType.FLOAT
    first, second, position = (Formula(g, g.cast(value, DataType.DOUBLE)) for value in (a, b, x))
    operands = (first, second, position)
    first, second, position = (broadcast(operand, *operands) for operand in operands)
    # The fraction converges fast below the mean; above it, I_x(a, b) = 1 - I_(1-x)(b, a).
    is_reflected = position > (first + 1.0) / (first + second + 2.0)
    p, q = is_reflected.chosen(second, first), is_reflected.chosen(first, second)
    z = is_reflected.chosen(1.0 - position, position)
    fraction = _beta_fraction(p, q, z)
    logarithm = p * z.log() + q * (1.0 - z).log()
    gammas = [argument.call("aten::lgamma") for argument in (p + q, p, q)]
    front = (logarithm + gammas[0] - gammas[1] - gammas[2]).exp() / p
    # At the ends of the range logarithms are infinite.
    result = z.equals(0.0).chosen(0.0, front * fraction)
    result = is_reflected.chosen(1.0 - result, result)
    is_outside = (first <= 0.0) | (second <= 0.0) | (position < 0.0) | (position > 1.0)
    return g.cast(is_outside.chosen(math.nan, result).value, dtype)


def _beta_fraction(a: Formula, b: Formula, x: Formula) -> Formula:
    def guard(number: Formula) -> Formula:
        return (abs(number) < 1e-300).chosen(1e-300, number)

    def step(iteration: Formula, result: Formula, c: Formula, d: Formula) -> tuple[list[Formula], Formula]:
        m = iteration + 1.0
        even, start = m * 2.0 + a, result
        for coefficient in (
            m * (b - m) * x / ((even - 1.0) * even),
            -(a + m) * (a + b + m) * x / (even * (even + 1.0)),
        ):
            d = 1.0 / guard(coefficient * d + 1.0)
            c = guard(coefficient / c + 1.0)
            result = result * c * d
        return [result, c, d], abs(result - start) > abs(result) * 1e-15

    d = 1.0 / guard(1.0 - (a + b) * x / (a + 1.0))
    everywhere = (x < 2.0) | (x > 1.0)
    return iterate(everywhere, [d, d * 0.0 + 1.0, d], step, _FRACTION_STEPS)[0]
