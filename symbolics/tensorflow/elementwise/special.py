"""Special functions: error functions, gamma functions, Bessel functions."""

from __future__ import annotations

import numpy as np

from ....registration import GraphContext, Value, onnx_symbolic

# The ATen operator of the same meaning.
_ATEN_FUNCTIONS = {
    "BesselI0": "special_i0",
    "BesselI0e": "special_i0e",
    "BesselI1": "special_i1",
    "BesselI1e": "special_i1e",
    "BesselJ0": "special_bessel_j0",
    "BesselJ1": "special_bessel_j1",
    "BesselK0": "special_modified_bessel_k0",
    "BesselK0e": "special_scaled_modified_bessel_k0",
    "BesselK1": "special_modified_bessel_k1",
    "BesselK1e": "special_scaled_modified_bessel_k1",
    "BesselY0": "special_bessel_y0",
    "BesselY1": "special_bessel_y1",
    "Digamma": "digamma",
    "Erf": "erf",
    "Erfc": "erfc",
    "Erfinv": "erfinv",
    "Lgamma": "lgamma",
    "Ndtri": "special_ndtri",
}


def _register(name: str, aten: str) -> None:
    @onnx_symbolic(f"tf::{name}")
    def function(g: GraphContext, x: Value) -> Value:
        return g.call(f"aten::{aten}", x)


for _name, _aten in _ATEN_FUNCTIONS.items():
    _register(_name, _aten)


@onnx_symbolic("tf::Igamma")
def igamma(g: GraphContext, a: Value, x: Value) -> Value:
    return g.call("aten::igamma", a, x)


@onnx_symbolic("tf::Igammac")
def igammac(g: GraphContext, a: Value, x: Value) -> Value:
    return g.call("aten::igammac", a, x)


@onnx_symbolic("tf::Zeta")
def zeta(g: GraphContext, x: Value, q: Value) -> Value:
    return g.call("aten::special_zeta", x, q)


@onnx_symbolic("tf::Polygamma")
def polygamma(g: GraphContext, a: Value, x: Value) -> Value:
    """The order must be one constant whole number."""
    order = g.constant_value(a)
    if order is None or np.unique(order).size != 1 or float(order.flat[0]) % 1:
        raise g.refuse("the order of Polygamma must be a constant integer")
    result: Value = g.call("aten::polygamma", int(order.flat[0]), x)
    # The sum with zeros broadcasts the result to the shape of the order.
    return result if order.ndim == 0 else g.op("Add", result, g.constant(np.zeros_like(order)))
