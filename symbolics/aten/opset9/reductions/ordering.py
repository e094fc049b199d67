"""Order along a dim: topk, sort, median, quantile, cumulative sums."""

import math
from collections.abc import Callable

from .....registration import DataType, GraphContext, Value, dtypes, onnx_symbolic
from ....compositions.doubling import inclusive_scan
from ....compositions.operands import cast_integers_to_int64, is_integral
from ....compositions.size_arithmetic import axis, compute, fold_size, known_rank, product, sizes_of


def _as_list(g: GraphContext, value: Value, results: list[Value]) -> list[Value]:
    """Remove the dimension that was added to a zero-dim value."""
    return [g.op("Squeeze", result, axes=[0]) for result in results] if g.rank(value) == 0 else results


@onnx_symbolic("aten::topk")
def topk(
    g: GraphContext, self: Value, k: int | Value, dim: int = -1, largest: bool = True, sorted: bool = True
) -> list[Value]:
    """The result is always sorted, which `sorted=False` allows."""
    if g.rank(self) == 0:
        vector = g.op("Unsqueeze", self, axes=[0])
        return _as_list(g, self, g.call_outputs("aten::topk", vector, k, 0, largest))
    return g.op("TopK", self, K=[fold_size(g, k)], axis=dim, largest=int(largest), outputs=2)


@onnx_symbolic("composed::top")
def top(g: GraphContext, self: Value, k: int | Value, dim: int, largest: bool) -> list[Value]:
    """TopK takes floats below 11, and a computed `k` from 10; the smallest are the largest negated ones."""
    computed = isinstance(k, Value) and not g.has("TopK", "K")
    if computed or g.dtype(self) in (DataType.INT64, DataType.UINT64):
        return g.call_outputs("composed::top_by_rank", self, k, dim, largest)
    floats = self
    if is_integral(g, self):
        # FLOAT represents integers up to 16 bits exactly, and DOUBLE those of 32.
        wide = g.dtype(self) in (DataType.INT32, DataType.UINT32)
        floats = g.cast(self, DataType.DOUBLE if wide else DataType.FLOAT)
    if largest:
        values, indices = g.op_of_target("TopK", floats, K=[k], axis=dim, outputs=2)
    else:
        # Below 11 TopK has no `largest`.
        values, indices = g.op_of_target("TopK", g.op("Neg", floats), K=[k], axis=dim, outputs=2)
        values = g.op("Neg", values)
    return [g.cast(values, g.dtype(self) or DataType.FLOAT) if is_integral(g, self) else values, indices]


@onnx_symbolic("composed::top_by_rank")
def top_by_rank(g: GraphContext, self: Value, k: int | Value, dim: int, largest: bool) -> list[Value]:
    """Sort by the number of smaller elements; memory is quadratic in the dim. NaN is above all numbers."""
    rank, size = known_rank(g, self), g.size(self, dim)
    perm = [i for i in range(rank) if i != dim] + [dim]
    keys = g.op("Transpose", _comparable(g, self), perm=perm)
    own_keys, compared_keys = g.op("Unsqueeze", keys, axes=[rank]), g.op("Unsqueeze", keys, axes=[rank - 1])
    above, below = _exceeds(g, compared_keys, own_keys), _exceeds(g, own_keys, compared_keys)
    first, second = (above, below) if largest else (below, above)
    positions = g.call("aten::arange", end=size)
    earlier = g.op("Less", g.op("Unsqueeze", positions, axes=[0]), g.op("Unsqueeze", positions, axes=[1]))
    before = g.op("Or", first, g.op("And", g.op("Not", second), earlier))
    ranks = g.op("ReduceSum", g.cast(before, DataType.INT64), axes=[rank], keepdims=0)
    top_ranks = g.op("Unsqueeze", g.call("aten::arange", end=k), axes=[1])
    is_top = g.op("Equal", g.op("Unsqueeze", ranks, axes=[rank - 1]), top_ranks)
    top_positions = g.op(
        "ReduceSum", g.op("Mul", g.cast(is_top, DataType.INT64), positions), axes=[rank], keepdims=0
    )
    indices = g.op("Transpose", top_positions, perm=[perm.index(i) for i in range(rank)])
    return [g.op("GatherElements", self, indices, axis=dim), indices]


def _comparable(g: GraphContext, self: Value) -> Value:
    """The elements cast to a type that runtimes can compare."""
    if g.dtype(self) == DataType.UINT64:
        raise g.refuse("unsigned 64-bit integers cannot be compared", first_opset=11)
    if g.dtype(self) in (DataType.FLOAT, DataType.DOUBLE, DataType.INT64, None):
        return self
    return g.cast(self, DataType.INT64 if is_integral(g, self) else DataType.FLOAT)


def _exceeds(g: GraphContext, a: Value, b: Value) -> Value:
    """Whether an element sorts after another one; NaN sorts after every number, but not after NaN."""
    above = g.op("Greater", a, b)
    if g.dtype(a) == DataType.INT64:
        return above
    return g.op("Or", above, g.op("And", g.op("IsNaN", a), g.op("Not", g.op("IsNaN", b))))


@onnx_symbolic("aten::sort")
def sort(g: GraphContext, self: Value, dim: int = -1, descending: bool = False) -> list[Value]:
    """TopK of all elements; equal elements keep their order."""
    size = 1 if g.rank(self) == 0 else g.size(self, dim)
    return g.call_outputs("aten::topk", self, size, dim, descending)


@onnx_symbolic("aten::argsort")
def argsort(g: GraphContext, self: Value, dim: int = -1, descending: bool = False) -> Value:
    return g.call_outputs("aten::sort", self, dim, descending)[1]


@onnx_symbolic("aten::msort")
def msort(g: GraphContext, self: Value) -> Value:
    return g.call_outputs("aten::sort", self, 0)[0]


@onnx_symbolic("aten::kthvalue")
def kthvalue(
    g: GraphContext, self: Value, k: int | Value, dim: int = -1, keepdim: bool = False
) -> list[Value]:
    if g.rank(self) == 0:
        return g.call_outputs("aten::topk", self, k, 0, False)
    dimension = axis(g, self, dim)
    smallest = g.call_outputs("aten::topk", self, k, dim, False)
    position = g.op("Sub", k, 1) if isinstance(k, Value) else k - 1
    results = [g.op("Gather", result, g.stack([position]), axis=dimension) for result in smallest]
    return results if keepdim else [g.op("Squeeze", result, axes=[dimension]) for result in results]


@onnx_symbolic("aten::median")
def median_of_all(g: GraphContext, self: Value) -> Value:
    """Without elements NaN, or C++'s conversion of NaN to an integer."""
    count, dtype = product(g, sizes_of(g, self)), g.dtype(self) or DataType.FLOAT
    low, high = (math.nan, math.inf) if dtype in dtypes.FLOATS else dtypes.limits(dtype)
    low = {DataType.BOOL: True, DataType.INT8: 0, DataType.INT16: 0}.get(dtype, low)
    if count == 0:
        return g.constant(low, dtype)
    if isinstance(count, int):
        return g.call_outputs("aten::median.dim", g.op("Reshape", self, [count]), 0)[0]
    wide = dtype if dtype in dtypes.FLOATS else DataType.INT64
    flat = g.cast(g.op("Reshape", self, [-1]), wide)
    middle = compute(g, "max", compute(g, "floordiv", compute(g, "add", count, 1), 2), 1)
    # An appended element, which sorts last, is the result if there are no others.
    result = g.call_outputs(
        "aten::kthvalue", g.op("Concat", flat, g.constant([high], wide), axis=0), middle, 0
    )[0]
    unusable = g.op("Equal", g.constant(count), g.constant(0))
    if dtype in dtypes.FLOATS:
        unusable = g.op("Or", unusable, g.call("aten::any", g.call("aten::isnan", flat)))
    result = g.call("composed::where", condition=unusable, self=g.constant(low, wide), other=result)
    return g.cast(result, dtype)


@onnx_symbolic("aten::median.dim")
def median(g: GraphContext, self: Value, dim: int = -1, keepdim: bool = False) -> list[Value]:
    """The lower one of two middle elements; the first NaN if there is one."""
    size = 1 if g.rank(self) == 0 else g.size(self, dim)
    middle = compute(g, "floordiv", compute(g, "add", size, 1), 2)
    value, index = g.call_outputs("aten::kthvalue", self, middle, dim, keepdim)
    if size == 1 or is_integral(g, self):
        return [value, index]
    missing = g.call("aten::isnan", self)
    any_missing = g.call("aten::any", missing, [dim], keepdim)
    value = g.call(
        "composed::where", condition=any_missing, self=g.constant(math.nan, g.dtype(self)), other=value
    )
    # torch returns the position of the first NaN.
    first = g.op("ArgMax", g.cast(missing, DataType.FLOAT), axis=axis(g, self, dim), keepdims=int(keepdim))
    return [value, g.call("composed::where", condition=any_missing, self=first, other=index)]


def _running(g: GraphContext, self: Value, dim: int, combine: Callable[[Value, Value], Value]) -> Value:
    """A cumulative reduction, from a function that combines a later and an earlier part."""
    if g.rank(self) == 0:
        return self
    return inclusive_scan(
        g, [self], axis(g, self, dim), lambda earlier, element: [combine(element[0], earlier[0])]
    )[0]


@onnx_symbolic("aten::cumsum")
def cumsum(g: GraphContext, self: Value, dim: int, dtype: DataType | None = None) -> Value:
    self = cast_integers_to_int64(g, self) if dtype is None else g.cast(self, dtype)
    return self if g.rank(self) == 0 else g.op("CumSum", self, axis=dim)


@onnx_symbolic("aten::cumprod")
def cumprod(g: GraphContext, self: Value, dim: int, dtype: DataType | None = None) -> Value:
    self = cast_integers_to_int64(g, self) if dtype is None else g.cast(self, dtype)
    return self if g.rank(self) == 0 else g.op("CumProd", self, axis=dim)


@onnx_symbolic("aten::logcumsumexp")
def logcumsumexp(g: GraphContext, self: Value, dim: int) -> Value:
    def combine(total: Value, before: Value) -> Value:
        return g.call("aten::logaddexp", total, before)

    return _running(g, self, dim, combine)


@onnx_symbolic("aten::quantile")
def quantile(
    g: GraphContext,
    self: Value,
    q: float,
    dim: int | None = None,
    keepdim: bool = False,
    interpolation: str = "linear",
) -> Value:
    """Interpolates between two sorted elements; NaN if any element is NaN."""
    if dim is None or g.rank(self) == 0:
        count = product(g, sizes_of(g, self))
        flat = g.op("Reshape", self, [count if isinstance(count, int) else -1])
        result = g.call("aten::quantile", flat, q, 0, False, interpolation)
        return g.op("Reshape", result, [1] * (g.rank(self) or 0)) if keepdim else result
    dimension = axis(g, self, dim)
    size = g.size(self, dimension)
    if isinstance(size, Value):
        fraction = g.constant(q, g.dtype(self))
        return g.call("aten::quantile.default", self, fraction, dim, keepdim, interpolation)
    ordered = g.call_outputs("aten::sort", self, dimension)[0]
    low, high, weight = _quantile_position(q * (size - 1), interpolation)
    below, above = (g.op("Gather", ordered, [position], axis=dimension) for position in (low, high))
    result = below if weight == 0 else g.call("aten::lerp", below, above, weight)
    result = g.op(
        "Where", g.call("aten::any", g.call("aten::isnan", self), [dimension], True), math.nan, result
    )
    return result if keepdim else g.op("Squeeze", result, axes=[dimension])


def _quantile_position(rank: float, interpolation: str) -> tuple[int, int, float]:
    """The ranks below and above a fractional rank, and the fraction between them."""
    low, high = math.floor(rank), math.ceil(rank)
    exact = {"lower": low, "higher": high, "nearest": round(rank)}
    if interpolation in exact:
        return exact[interpolation], high, 0.0
    weight = 0.5 if interpolation == "midpoint" and low != high else rank - low
    return low, high, weight
