"""Operators that join or split tensors."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from ....registration import DataType, GraphContext, Value, onnx_symbolic
from ...compositions.size_arithmetic import Size, compute, static_size
from .._common import constant_integer, elements, front, integers, joined


def _joined(g: GraphContext, values: Sequence[Value], axis: Value) -> Value:
    if len(values) == 1:
        return values[0]
    at = front(g, constant_integer(g, axis, "axis"), *values)
    return g.op("Concat", *values, axis=at)


@onnx_symbolic("tf::ConcatV2")
def concat_v2(g: GraphContext, values: list[Value], axis: Value) -> Value:
    return _joined(g, values, axis)


@onnx_symbolic("tf::Concat")
def concat(g: GraphContext, concat_dim: Value, values: list[Value]) -> Value:
    return _joined(g, values, concat_dim)


@onnx_symbolic("tf::ConcatOffset")
def concat_offset(g: GraphContext, concat_dim: Value, shape: list[Value]) -> list[Value]:
    """The start of each part of a concatenation."""
    at = constant_integer(g, concat_dim, "concat_dim")
    found, start = [], g.constant(0)
    for item in shape:
        parts = elements(g, item)
        if parts is None:
            raise g.refuse("the number of dimensions is unknown")
        offsets: list[Size] = [0] * len(parts)
        offsets[at] = start
        found.append(g.cast(g.stack(offsets), g.dtype(item) or DataType.INT32))
        start = g.constant(compute(g, "add", start, parts[at]))
    return found


@onnx_symbolic(["tf::Pack"])
def pack(g: GraphContext, values: list[Value], axis: int = 0) -> Value:
    """Tensors along a new dimension."""
    at = front(g, axis, *values, added=1)
    raised = [g.op("Unsqueeze", value, axes=[at]) for value in values]
    return raised[0] if len(raised) == 1 else g.op("Concat", *raised, axis=at)


def _split(g: GraphContext, value: Value, at: int, count: int) -> list[Value]:
    """Parts of the same size."""
    if count < 1:
        raise g.refuse(f"it has {count} parts")
    if count == 1:
        return [value]
    size = static_size(g, value, at) if at >= 0 else None
    if size is not None and size % count:
        raise g.refuse(f"{size} elements cannot be split into {count} parts of the same size")
    if size is None:
        parts = g.op("Split", value, axis=at, num_outputs=count, outputs=count)
    else:
        parts = g.op("Split", value, axis=at, split=[size // count] * count, outputs=count)
    return _sized(g, parts, value, at, [None if size is None else size // count] * count)


def _sized(
    g: GraphContext, parts: Sequence[Value], value: Value, at: int, counts: Sequence[int | None]
) -> list[Value]:
    """Parts of a value, with their shapes."""
    shape = g.shape(value)
    for part, count in zip(parts, counts, strict=True):
        if shape is not None:
            part.shape = ir.Shape([*shape[:at], count, *shape[at + 1 :]])
    return list(parts)


@onnx_symbolic("tf::Unpack")
def unpack(g: GraphContext, value: Value, num: int, axis: int = 0) -> list[Value]:
    at = front(g, axis, value)
    if num == 0:
        return []
    if g.rank(value) == 1:
        known = joined(g, value)
        if known is not None and len(known) == num:
            return [g.cast(g.constant(item), g.dtype(value) or DataType.INT32) for item in known]
    parts = [value] if num == 1 else g.op("Split", value, axis=at, split=[1] * num, outputs=num)
    if num > 1:
        _sized(g, parts, value, at, [1] * num)
    return [g.op("Squeeze", part, axes=[at]) for part in parts]


@onnx_symbolic("tf::Split")
def split(g: GraphContext, split_dim: Value, value: Value, num_split: int) -> list[Value]:
    return _split(g, value, front(g, constant_integer(g, split_dim, "split_dim"), value), num_split)


@onnx_symbolic("tf::SplitV")
def split_v(
    g: GraphContext, value: Value, size_splits: Value, split_dim: Value, num_split: int
) -> list[Value]:
    """Split into parts of given sizes; one may be -1, the remaining size."""
    at = front(g, constant_integer(g, split_dim, "split_dim"), value)
    counts = elements(g, size_splits, num_split)
    assert counts is not None
    if len(counts) != num_split:
        raise g.refuse(f"it has {len(counts)} sizes for {num_split} parts")
    if len(counts) == 1:
        return [value]
    if integers(g, size_splits) is None and at < 0:
        raise g.refuse("the rank of its input is unknown")
    if -1 in [count for count in counts if isinstance(count, int)]:
        place = counts.index(-1)
        counts[place] = 0
        given: Size = 0
        for count in counts:
            given = compute(g, "add", given, count)
        counts[place] = compute(g, "sub", g.size(value, at), given)
    elif any(isinstance(count, Value) for count in counts):
        counts = _with_rest(g, counts, g.size(value, at))
    parts = g.call_outputs("aten::split_with_sizes", self=value, split_sizes=counts, dim=at)
    return _sized(g, parts, value, at, [count if isinstance(count, int) else None for count in counts])


def _with_rest(g: GraphContext, counts: Sequence[Size], size: Size) -> list[Size]:
    """Replace -1 in the sizes of a split by the rest of the axis."""
    total: Size = 0
    for count in counts:
        total = compute(g, "add", total, count)
    rest = compute(g, "sub", compute(g, "sub", size, total), 1)
    found: list[Size] = []
    for count in counts:
        if isinstance(count, Value):
            count = g.call("sym::ite", cond=g.call("sym::lt", a=count, b=0), a=rest, b=count)
        found.append(count)
    return found


@onnx_symbolic("tf::ParallelConcat")
def parallel_concat(g: GraphContext, values: list[Value], shape: list[int] | None = None) -> Value:
    return values[0] if len(values) == 1 else g.op("Concat", *values, axis=0)
