"""Conversions between the forms that state the rows of a ragged tensor: splits, lengths and row numbers.

All are INT64 vectors. `splits` [rows + 1] begins with 0 and has the end of each row; `row_ids` has the row of
each value.
"""

import onnx_ir as ir

from ...registration import DataType, GraphContext, Value
from .size_arithmetic import Size, compute

_END = 2**63 - 1


def _vector(value: Value) -> Value:
    """Set the shape of a vector if emission did not infer it."""
    if value.shape is None:
        value.shape = ir.Shape([None])
    return value


def all_but_first(g: GraphContext, values: Value) -> Value:
    return _vector(g.op("Slice", values, starts=[1], ends=[_END], axes=[0]))


def all_but_last(g: GraphContext, values: Value) -> Value:
    return _vector(g.op("Slice", values, starts=[0], ends=[-1], axes=[0]))


def lengths_of(g: GraphContext, splits: Value) -> Value:
    """The length of each row."""
    return g.op("Sub", all_but_first(g, splits), all_but_last(g, splits))


def splits_of(g: GraphContext, lengths: Value) -> Value:
    """The splits of rows with these lengths."""
    ends = g.call("aten::cumsum", self=lengths, dim=0)
    return _vector(g.op("Concat", g.constant([0]), ends, axis=0))


def count_per_row(g: GraphContext, row_ids: Value, rows: Size) -> Value:
    """How often each row occurs in row numbers."""
    zeros = g.call("composed::full", size=[rows], fill_value=0, dtype=DataType.INT64)
    units = g.call("composed::full", size=[g.size(row_ids, 0)], fill_value=1, dtype=DataType.INT64)
    return _vector(g.call("composed::accumulate_rows", zeros, row_ids, units))


def row_ids_of(g: GraphContext, splits: Value, count: Size) -> Value:
    """The row of each of `count` values."""
    # A row begins where the number of ends up to there grows. An end may be that of the last value.
    ends = count_per_row(g, all_but_first(g, splits), compute(g, "add", count, 1))
    passed = g.call("aten::cumsum", self=ends, dim=0)
    return all_but_last(g, passed)


def positions_in_rows(g: GraphContext, splits: Value, row_ids: Value) -> Value:
    """The position of each value within its row."""
    count = g.size(row_ids, 0)
    return g.op(
        "Sub", g.constant(g.call("sym::range", start=0, end=count)), g.op("Gather", splits, row_ids, axis=0)
    )


def longest(g: GraphContext, lengths: Value) -> Value:
    """The length of the longest row, a scalar; 0 without rows."""
    padded = g.op("Concat", g.constant([0]), lengths, axis=0)
    return g.op("ReduceMax", padded, axes=[0], keepdims=0)


def last_of(g: GraphContext, splits: Value) -> Value:
    """The number of values, a scalar."""
    last = g.op("Slice", splits, starts=[-1], ends=[_END], axes=[0])
    return g.op("Reshape", last, g.constant([], DataType.INT64))
