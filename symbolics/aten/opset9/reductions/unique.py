"""Unique elements: of a tensor, of consecutive elements, of slices along a dim."""

import onnx_ir as ir

from .....registration import DataType, GraphContext, Value, dtypes, onnx_symbolic
from ....compositions.operands import is_integral
from ....compositions.size_arithmetic import axis, compute, known_rank, sizes_of, where_true

_NOTHING: list[int] = []


def _comparable(g: GraphContext, self: Value) -> Value:
    """The elements in a type that runtimes compare and sort: integers as INT64, half precision as FLOAT."""
    if g.dtype(self) == DataType.UINT64:
        raise g.refuse("unsigned 64-bit integers cannot be compared")
    if is_integral(g, self):
        return g.cast(self, DataType.INT64)
    return g.cast(self, DataType.FLOAT) if g.dtype(self) in dtypes.HALVES else self


def _results(g: GraphContext, values: Value, inverse: Value | None, counts: Value | None) -> list[Value]:
    """Outputs that are not requested are empty, as in ATen."""
    empty = g.constant(_NOTHING, DataType.INT64)
    return [values, empty if inverse is None else inverse, empty if counts is None else counts]


def _runs(g: GraphContext, rows: Value) -> tuple[Value, Value, Value]:
    """Runs of equal rows: the start of each run, the run of each row, and the length of each run."""
    rank = known_rank(g, rows)
    after = g.call("aten::slice", self=rows, dim=0, start=1)
    before = g.call("aten::slice", self=rows, dim=0, end=-1)
    differs = g.call("aten::ne", after, before)
    if rank > 1:
        differs = g.call("aten::any", differs, list(range(1, rank)))
    # The first row starts a run, if there are rows.
    all_true = g.call("aten::ones_like", g.call("sym::range", start=0, end=g.size(rows, 0)), DataType.BOOL)
    first = g.call("aten::slice", self=all_true, dim=0, end=1)
    starts = g.op("Concat", first, differs, axis=0)
    run_starts = where_true(g, starts)
    run = g.op("Sub", g.call("aten::cumsum", g.cast(starts, DataType.INT64), 0), 1)
    ends = g.op(
        "Concat", g.call("aten::slice", self=run_starts, dim=0, start=1), g.stack([g.size(rows, 0)]), axis=0
    )
    # Without rows there is one end too many.
    ends = g.call("aten::slice", self=ends, dim=0, start=0, end=g.size(run_starts, 0))
    return run_starts, run, g.op("Sub", ends, run_starts)


@onnx_symbolic("composed::unique")
def unique(g: GraphContext, self: Value) -> list[Value]:
    """The sorted unique elements of a one-dimensional tensor, the position of each element, and the counts.

    Unique begins at opset 11. Below, the elements are sorted and their runs counted.
    """
    if g.has("Unique"):
        values, _, inverse, counts = g.op("Unique", self, sorted=1, outputs=4)
        for result in (values, inverse, counts):
            result.shape = ir.Shape([None]) if result is not inverse else self.shape
        return [values, inverse, counts]
    ordered, order = g.call_outputs("aten::sort", self, 0)
    run_starts, run, counts = _runs(g, ordered)
    values = g.op("Gather", ordered, run_starts)
    inverse = g.op("ScatterElements", run, order, run, axis=0)
    return [values, inverse, counts]


@onnx_symbolic("aten::_unique2")
def _unique2(
    g: GraphContext,
    self: Value,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> list[Value]:
    """The result is always sorted, which `sorted=False` allows."""
    dtype = g.dtype(self)
    flat = g.op("Reshape", _comparable(g, self), [-1])
    values, inverse, counts = g.call_outputs("composed::unique", flat)
    if return_inverse and g.rank(self) != 1:
        inverse = g.call("aten::reshape", inverse, sizes_of(g, self))
    values = values if dtype is None else g.cast(values, dtype)
    return _results(g, values, inverse if return_inverse else None, counts if return_counts else None)


@onnx_symbolic("aten::_unique")
def _unique(g: GraphContext, self: Value, sorted: bool = True, return_inverse: bool = False) -> list[Value]:
    return g.call_outputs("aten::_unique2", self, sorted, return_inverse)[:2]


@onnx_symbolic(["aten::unique_consecutive", "aten::unique_dim_consecutive"])
def unique_consecutive(
    g: GraphContext,
    self: Value,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> list[Value]:
    if dim is None:
        rows = g.op("Reshape", self, [-1])
    elif g.rank(self) == 0:
        raise g.refuse("dim is not supported for a zero-dimensional tensor")
    else:
        rows = g.call("aten::movedim", self=self, source=axis(g, self, dim), destination=0)
    run_starts, run, counts = _runs(g, _comparable(g, rows))
    values = g.op("Gather", rows, run_starts)
    if dim is not None:
        values = g.call("aten::movedim", self=values, source=0, destination=axis(g, self, dim))
    elif return_inverse and g.rank(self) != 1:
        run = g.call("aten::reshape", run, sizes_of(g, self))
    return _results(g, values, run if return_inverse else None, counts if return_counts else None)


@onnx_symbolic("aten::unique_dim")
def unique_dim(
    g: GraphContext,
    self: Value,
    dim: int,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> list[Value]:
    """Unique slices in lexicographic order."""
    rank, dimension = known_rank(g, self), axis(g, self, dim)
    rows = (
        g.call("aten::movedim", self=self, source=dimension, destination=0)
        if rank
        else g.op("Reshape", self, [1])
    )
    keys = _comparable(g, rows)
    order = _lexicographic(g, keys)
    run_starts, run, counts = _runs(g, g.op("Gather", keys, order))
    values = g.op("Gather", rows, g.op("Gather", order, run_starts))
    inverse = g.op("ScatterElements", run, order, run, axis=0)
    if rank > 1:
        values = g.call("aten::movedim", self=values, source=0, destination=dimension)
    return _results(g, values, inverse if return_inverse else None, counts if return_counts else None)


def _lexicographic(g: GraphContext, rows: Value) -> Value:
    """The lexicographic order of rows, from a comparison of all pairs of rows.

    A row is less than another one if the first differing element is less.
    """
    count = g.size(rows, 0)
    width = 1
    for size in sizes_of(g, rows)[1:]:
        width = compute(g, "mul", width, size)  # type: ignore[assignment]
    flat = g.op("Reshape", rows, [count if isinstance(count, int) else -1, width])
    own_elements, compared_elements = g.op("Unsqueeze", flat, axes=[1]), g.op("Unsqueeze", flat, axes=[0])
    above, below = (
        g.op("Greater", own_elements, compared_elements),
        g.op("Less", own_elements, compared_elements),
    )
    sign = g.op("Sub", g.cast(above, DataType.INT32), g.cast(below, DataType.INT32))
    differs = g.cast(g.op("Or", above, below), DataType.INT64)
    first = g.op("Equal", g.op("Mul", g.call("aten::cumsum", differs, 2), differs), 1)
    comparison = g.op("ReduceSum", g.op("Mul", sign, g.cast(first, DataType.INT32)), axes=[2], keepdims=0)
    positions = g.call("sym::range", start=0, end=count)
    earlier = g.op("Less", g.op("Unsqueeze", positions, axes=[0]), g.op("Unsqueeze", positions, axes=[1]))
    tied = g.op("And", g.op("Equal", comparison, 0), earlier)
    before = g.op("Or", g.op("Greater", comparison, 0), tied)
    # The rank of a row is the number of rows before it; equal rows keep their order.
    rank = g.op("ReduceSum", g.cast(before, DataType.INT64), axes=[1], keepdims=0)
    return g.op("ScatterElements", positions, rank, positions, axis=0)
