"""Cumulative sums, products and log-sum-exps along an axis."""

from __future__ import annotations

import math

from ....registration import DataType, GraphContext, Value, onnx_symbolic
from ...compositions.doubling import inclusive_scan
from ...compositions.integers import widen_integers
from ...compositions.size_arithmetic import known_rank
from .._common import HALVES, constant_integer, integers, restored, shaped


def _register(name: str, op_type: str) -> None:
    @onnx_symbolic(f"tf::{name}")
    def cumulative(
        g: GraphContext, x: Value, axis: Value, exclusive: bool = False, reverse: bool = False
    ) -> Value:
        dtype = g.dtype(x)
        wide = g.cast(x, DataType.FLOAT) if dtype in HALVES else widen_integers(g, x)
        at = integers(g, axis)
        place = g.cast(axis, DataType.INT64) if at is None else at[0]
        rank = g.rank(x)
        if isinstance(place, int) and rank is not None:
            place = g.axis(place, rank)
        result = g.op(op_type, wide, axis=place, exclusive=int(exclusive), reverse=int(reverse))
        shaped(result, g.shape(x))
        return restored(g, result, dtype)


_register("Cumsum", "CumSum")
_register("Cumprod", "CumProd")


@onnx_symbolic("tf::CumulativeLogsumexp")
def cumulative_logsumexp(
    g: GraphContext, x: Value, axis: Value, exclusive: bool = False, reverse: bool = False
) -> Value:
    """With `exclusive`, the result begins with minus infinity."""
    at = g.axis(constant_integer(g, axis, "axis"), known_rank(g, x))
    dtype = g.dtype(x) or DataType.FLOAT
    values = g.call("aten::flip", self=x, dims=[at]) if reverse else x
    if exclusive:
        first = g.call("aten::slice", self=values, dim=at, end=1)
        nothing = g.call("aten::full_like", first, -math.inf, dtype)
        values = g.op("Concat", nothing, g.call("aten::slice", self=values, dim=at, end=-1), axis=at)
        values.shape = x.shape
    [result] = inclusive_scan(g, [values], at, lambda before, now: [_log_sum(g, now[0], before[0])])
    return g.call("aten::flip", self=result, dims=[at]) if reverse else result


def _log_sum(g: GraphContext, a: Value, b: Value) -> Value:
    """`log(exp(a) + exp(b))` from the larger one."""
    larger = g.call("aten::maximum", a, b)
    distance = g.op("Abs", g.op("Sub", a, b))
    result = g.op("Add", larger, g.call("aten::log1p", g.op("Exp", g.op("Neg", distance))))
    return g.op("Where", g.call("aten::eq", larger, -math.inf), larger, result)
