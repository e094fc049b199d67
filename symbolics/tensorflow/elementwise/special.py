"""Special functions: error functions, gamma functions, Bessel functions."""

import numpy as np

from ....registration import GraphContext, Value, onnx_symbolic
from ...compositions.operator_tables import register_table

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
    """The order must be one constant whole number."""
    order = g.constant_value(a)
    if order is None or np.unique(order).size != 1 or float(order.flat[0]) % 1:
        raise g.refuse("the order of Polygamma must be a constant integer")
    result: Value = g.call("aten::polygamma", int(order.flat[0]), x)
    # The sum with zeros broadcasts the result to the shape of the order.
    return result if order.ndim == 0 else g.op("Add", result, g.constant(np.zeros_like(order)))
