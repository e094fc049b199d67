"""Order statistics: mode, nanmedian, quantiles at computed positions."""

from typing import Any

import numpy as np

from .....registration import DataType, GraphContext, Value, onnx_symbolic
from ....compositions.operands import is_integral
from ....compositions.size_arithmetic import axis, known_rank, product, sizes_of


def _flat(g: GraphContext, self: Value) -> Value:
    count = product(g, sizes_of(g, self))
    return g.op("Reshape", self, [count if isinstance(count, int) else -1])


def _as_row(g: GraphContext, name: str, self: Value, keepdim: bool) -> list[Value]:
    """Remove the dimension that was added to a zero-dim tensor."""
    results = g.call_outputs(name, g.op("Unsqueeze", self, axes=[0]), 0, keepdim)
    return [g.op("Squeeze", result, axes=[0]) for result in results] if keepdim else results


@onnx_symbolic("aten::mode")
def mode(g: GraphContext, self: Value, dim: int = -1, keepdim: bool = False) -> list[Value]:
    """The most frequent element (the smallest of several), and its last position.

    Compares all pairs of elements along the dim.
    """
    if g.rank(self) == 0:
        return _as_row(g, "aten::mode", self, keepdim)
    dtype, dimension, rank = g.dtype(self), axis(g, self, dim), known_rank(g, self)
    values = g.cast(self, DataType.INT64) if is_integral(g, self) else self
    perm = [i for i in range(rank) if i != dimension] + [dimension]
    rows = g.op("Transpose", values, perm=perm)
    equal = g.call("aten::eq", g.op("Unsqueeze", rows, axes=[rank]), g.op("Unsqueeze", rows, axes=[rank - 1]))
    counts = g.op("ReduceSum", g.cast(equal, DataType.INT32), axes=[rank], keepdims=0)
    largest_count = g.op("ReduceMax", counts, axes=[rank - 1], keepdims=1)
    highest = np.iinfo(np.int64).max if is_integral(g, self) else float("inf")
    # Less frequent elements become larger than all others, so that the minimum ignores them.
    candidates = g.op("Where", g.op("Equal", counts, largest_count), rows, highest)
    value = g.op("ReduceMin", candidates, axes=[rank - 1], keepdims=1)
    is_mode = g.call("aten::eq", rows, value)
    positions = g.call("sym::range", start=0, end=g.size(rows, rank - 1))
    index = g.op("ReduceMax", g.op("Where", is_mode, positions, 0), axes=[rank - 1], keepdims=int(keepdim))
    value = value if keepdim else g.op("Squeeze", value, axes=[rank - 1])
    if keepdim:
        inverse_perm = [perm.index(i) for i in range(rank)]
        value, index = (
            g.op("Transpose", value, perm=inverse_perm),
            g.op("Transpose", index, perm=inverse_perm),
        )
    return [value if dtype is None else g.cast(value, dtype), index]


@onnx_symbolic("aten::nanmedian")
def nanmedian_of_all(g: GraphContext, self: Value) -> Value:
    """NaN without elements: an appended NaN does not change other results."""
    count = product(g, sizes_of(g, self))
    if is_integral(g, self) or count == 0:
        return g.call("aten::median", self)
    flat = _flat(g, self)
    if isinstance(count, Value):
        flat = g.op("Concat", flat, g.constant([float("nan")], g.dtype(self)), axis=0)
    return g.call_outputs("aten::nanmedian.dim", flat, 0)[0]


@onnx_symbolic("aten::nanmedian.dim")
def nanmedian(g: GraphContext, self: Value, dim: int, keepdim: bool = False) -> list[Value]:
    """The lower one of the two middle elements that are not NaN; NaN if there are none."""
    if is_integral(g, self):
        return g.call_outputs("aten::median.dim", self, dim, keepdim)
    if g.rank(self) == 0:
        return _as_row(g, "aten::nanmedian.dim", self, keepdim)
    dimension = axis(g, self, dim)
    missing = g.call("aten::isnan", self)
    ordered, order = g.call_outputs("aten::sort", g.op("Where", missing, float("inf"), self), dimension)
    order.shape = ordered.shape
    numbers = g.cast(g.op("Not", missing), DataType.INT64)
    count = g.op("ReduceSum", numbers, axes=[dimension], keepdims=1)
    # NaN, replaced by infinity, sorts behind the numbers that count.
    middle = g.op("Div", g.op("Sub", count, 1), 2)
    value = g.op("GatherElements", ordered, middle, axis=dimension)
    index = g.op("GatherElements", order, middle, axis=dimension)
    value = g.op("Where", g.op("Equal", count, 0), float("nan"), value)
    results = [value, index]
    return results if keepdim else [g.op("Squeeze", result, axes=[dimension]) for result in results]


def _weights(g: GraphContext, ranks: Value, interpolation: str) -> tuple[Value, Value, Value]:
    """The ranks below and above fractional ranks, and the fractions between them."""
    low, high = g.op("Floor", ranks), g.op("Ceil", ranks)
    if interpolation in ("lower", "higher", "nearest"):
        exact = g.call("aten::round", ranks) if interpolation == "nearest" else low
        exact = high if interpolation == "higher" else exact
        return exact, exact, g.op("Sub", exact, exact)
    if interpolation == "midpoint":
        return low, high, g.op("Where", g.op("Less", low, high), 0.5, 0.0)
    return low, high, g.op("Sub", ranks, low)


def _quantiles(g: GraphContext, self: Value, q: Value, keepdim: bool, interpolation: str, nan: bool) -> Value:
    """Quantiles along the last dimension at computed positions; several come first in the shape."""
    rank = known_rank(g, self)
    missing = g.call("aten::isnan", self)
    ordered, _ = g.call_outputs("aten::sort", g.op("Where", missing, float("inf"), self), rank - 1)
    dtype = g.dtype(self) or DataType.FLOAT
    several = known_rank(g, q) == 1
    fractions = q if several else g.op("Unsqueeze", q, axes=[0])
    numbers = g.op("ReduceSum", g.cast(g.op("Not", missing), dtype), axes=[rank - 1], keepdims=1)
    if nan:
        top = g.call("aten::clamp_min", g.op("Sub", numbers, 1.0), 0)
        unusable = g.op("Less", numbers, 0.5)
    else:
        top = g.op("Sub", g.constant(g.size(self, rank - 1), dtype), 1.0)
        unusable = g.call("aten::any", missing, [rank - 1], True)
    low, high, weight = _weights(g, g.op("Mul", g.cast(fractions, dtype), top), interpolation)
    shape = [*sizes_of(g, self)[:-1], g.size(fractions, 0)]

    def gather_ranks(ranks: Value) -> Value:
        index = g.call("aten::expand", self=g.cast(ranks, DataType.INT64), size=shape)
        return g.op("GatherElements", ordered, index, axis=rank - 1)

    below, above = gather_ranks(low), gather_ranks(high)
    quantiles = g.call("aten::lerp", below, above, weight)
    # Interpolation between two infinities would give NaN.
    quantiles = g.op("Where", g.call("aten::eq", below, above), below, quantiles)
    quantiles = g.op("Where", unusable, float("nan"), quantiles)
    quantiles = g.call("aten::movedim", self=quantiles, source=-1, destination=0)
    if keepdim:
        quantiles = g.op("Unsqueeze", quantiles, axes=[rank])
    return quantiles if several else g.op("Squeeze", quantiles, axes=[0])


def _register_quantile(name: str, nan: bool) -> None:
    @onnx_symbolic(f"aten::{name}.default")
    def at_fractions(
        g: GraphContext,
        self: Value,
        q: Value,
        dim: int | None = None,
        keepdim: bool = False,
        interpolation: str = "linear",
    ) -> Value:
        """The quantiles at computed positions; several come first in the shape."""
        rank = known_rank(g, self)
        if dim is None or rank == 0:
            quantiles = _quantiles(g, _flat(g, self), q, False, interpolation, nan)
            if not keepdim or not rank:
                return quantiles
            front = [g.size(q, 0)] if known_rank(g, q) else []
            return g.call("aten::reshape", quantiles, [*front, *[1] * rank])
        dimension = axis(g, self, dim)
        rows = g.call("aten::movedim", self=self, source=dimension, destination=-1)
        quantiles = _quantiles(g, rows, q, keepdim, interpolation, nan)
        if not keepdim:
            return quantiles
        return g.call("aten::movedim", self=quantiles, source=-1, destination=dimension + known_rank(g, q))


_register_quantile("quantile", nan=False)
_register_quantile("nanquantile", nan=True)


@onnx_symbolic("aten::nanquantile.scalar")
def nanquantile(g: GraphContext, self: Value, q: float, **reduction: Any) -> Value:
    return g.call("aten::nanquantile.default", self, g.constant(q, g.dtype(self)), **reduction)
