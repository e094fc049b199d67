"""Cumulative sums, products and log-sum-exps along an axis."""

import math

from ....registration import DataType, GraphContext, Value, dtypes, onnx_symbolic
from ...compositions.doubling import inclusive_scan
from ...compositions.integers import widen_integers
from ...compositions.size_arithmetic import known_rank
from .._common import constant_integer, integers, restore_dtype, set_shape
from ..computed_axis import ComputedAxis


def _register(name: str, op_type: str) -> None:
    @onnx_symbolic(f"tf::{name}")
    def cumulative(
        g: GraphContext, x: Value, axis: Value, exclusive: bool = False, reverse: bool = False
    ) -> Value:
        dtype = g.dtype(x)
        # Runtimes have no CumSum for half precision and narrow integers.
        wide_x = g.cast(x, DataType.FLOAT) if dtype in dtypes.HALVES else widen_integers(g, x)
        constant_axis = integers(g, axis)
        axis_operand = g.cast(axis, DataType.INT64) if constant_axis is None else constant_axis[0]
        rank = g.rank(x)
        if isinstance(axis_operand, int) and rank is not None:
            axis_operand = g.axis(axis_operand, rank)
        result = g.op(op_type, wide_x, axis=axis_operand, exclusive=int(exclusive), reverse=int(reverse))
        set_shape(result, g.shape(x))
        return restore_dtype(g, result, dtype)


_register("Cumsum", "CumSum")
_register("Cumprod", "CumProd")


@onnx_symbolic("tf::CumulativeLogsumexp")
def cumulative_logsumexp(
    g: GraphContext, x: Value, axis: Value, exclusive: bool = False, reverse: bool = False
) -> Value:
    """With `exclusive`, the result begins with minus infinity."""
    if integers(g, axis) is None:
        computed = ComputedAxis.of(g, axis, x)
        scanned = g.call("tf::CumulativeLogsumexp", computed.view(x), g.constant(1), exclusive, reverse)
        return computed.restore(scanned, x)
    dim = g.axis(constant_integer(g, axis, "axis"), known_rank(g, x))
    dtype = g.dtype(x) or DataType.FLOAT
    values = g.call("aten::flip", self=x, dims=[dim]) if reverse else x
    if exclusive:
        first = g.call("aten::slice", self=values, dim=dim, end=1)
        # The logarithm of an empty sum.
        neutral = g.call("aten::full_like", first, -math.inf, dtype)
        values = g.op("Concat", neutral, g.call("aten::slice", self=values, dim=dim, end=-1), axis=dim)
        values.shape = x.shape
    [result] = inclusive_scan(g, [values], dim, lambda earlier, later: [_log_sum(g, later[0], earlier[0])])
    return g.call("aten::flip", self=result, dims=[dim]) if reverse else result


def _log_sum(g: GraphContext, a: Value, b: Value) -> Value:
    """`log(exp(a) + exp(b))` from the larger one."""
    larger = g.call("aten::maximum", a, b)
    distance = g.op("Abs", g.op("Sub", a, b))
    result = g.op("Add", larger, g.call("aten::log1p", g.op("Exp", g.op("Neg", distance))))
    # The difference of two minus infinities is NaN.
    return g.op("Where", g.call("aten::eq", larger, -math.inf), larger, result)
