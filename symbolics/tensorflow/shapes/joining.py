"""Operators that join or split tensors."""

from collections.abc import Sequence

import onnx_ir as ir

from ....registration import DataType, GraphContext, Value, onnx_symbolic
from ...compositions.size_arithmetic import Size, compute, static_size
from .._common import constant_integer, front_axis, integers, known_elements, traced_elements
from ..computed_axis import ComputedAxis


def _concatenate(g: GraphContext, values: Sequence[Value], axis: Value) -> Value:
    if len(values) == 1:
        return values[0]
    if integers(g, axis) is None:
        like = next((value for value in values if g.rank(value) is not None), values[0])
        computed = ComputedAxis.of(g, axis, like)
        return computed.restore(g.op("Concat", *map(computed.view, values), axis=1), values[0])
    dim = front_axis(g, constant_integer(g, axis, "axis"), *values)
    return g.op("Concat", *values, axis=dim)


@onnx_symbolic("tf::ConcatV2")
def concat_v2(g: GraphContext, values: list[Value], axis: Value) -> Value:
    return _concatenate(g, values, axis)


@onnx_symbolic("tf::Concat")
def concat(g: GraphContext, concat_dim: Value, values: list[Value]) -> Value:
    return _concatenate(g, values, concat_dim)


@onnx_symbolic("tf::ConcatOffset")
def concat_offset(g: GraphContext, concat_dim: Value, shape: list[Value]) -> list[Value]:
    """The offset of each part in a concatenation."""
    dim = constant_integer(g, concat_dim, "concat_dim")
    offset_vectors, start = [], g.constant(0)
    for item in shape:
        item_sizes = known_elements(g, item)
        offsets: list[Size] = [0] * len(item_sizes)
        offsets[dim] = start
        offset_vectors.append(g.cast(g.stack(offsets), g.dtype(item) or DataType.INT32))
        start = g.constant(compute(g, "add", start, item_sizes[dim]))
    return offset_vectors


@onnx_symbolic(["tf::Pack"])
def pack(g: GraphContext, values: list[Value], axis: int = 0) -> Value:
    """Stack tensors along a new dimension."""
    new_axis = front_axis(g, axis, *values, added=1)
    unsqueezed = [g.op("Unsqueeze", value, axes=[new_axis]) for value in values]
    return unsqueezed[0] if len(unsqueezed) == 1 else g.op("Concat", *unsqueezed, axis=new_axis)


def _split(g: GraphContext, value: Value, dim: int, count: int) -> list[Value]:
    """Split into parts of the same size."""
    if count < 1:
        raise g.refuse(f"it has {count} parts")
    if count == 1:
        return [value]
    size = static_size(g, value, dim) if dim >= 0 else None
    if size is not None and size % count:
        raise g.refuse(f"{size} elements cannot be split into {count} parts of the same size")
    if size is None:
        parts = g.op("Split", value, axis=dim, num_outputs=count, outputs=count)
    else:
        parts = g.op("Split", value, axis=dim, split=[size // count] * count, outputs=count)
    return _set_part_shapes(g, parts, value, dim, [None if size is None else size // count] * count)


def _set_part_shapes(
    g: GraphContext, parts: Sequence[Value], value: Value, dim: int, counts: Sequence[int | None]
) -> list[Value]:
    """Set the shapes of the parts of a value."""
    shape = g.shape(value)
    for part, count in zip(parts, counts, strict=True):
        if shape is not None:
            part.shape = ir.Shape([*shape[:dim], count, *shape[dim + 1 :]])
    return list(parts)


@onnx_symbolic("tf::Unpack")
def unpack(g: GraphContext, value: Value, num: int, axis: int = 0) -> list[Value]:
    dim = front_axis(g, axis, value)
    if num == 0:
        return []
    if g.rank(value) == 1:
        # Sizes that are known one by one need no Split, and stay constants.
        known_elements = traced_elements(g, value)
        if known_elements is not None and len(known_elements) == num:
            return [g.cast(g.constant(item), g.dtype(value) or DataType.INT32) for item in known_elements]
    parts = [value] if num == 1 else g.op("Split", value, axis=dim, split=[1] * num, outputs=num)
    if num > 1:
        _set_part_shapes(g, parts, value, dim, [1] * num)
    return [g.op("Squeeze", part, axes=[dim]) for part in parts]


@onnx_symbolic("tf::Split")
def split(g: GraphContext, split_dim: Value, value: Value, num_split: int) -> list[Value]:
    if integers(g, split_dim) is None:
        axis = ComputedAxis.of(g, split_dim, value)
        return [axis.restore(part, value) for part in _split(g, axis.view(value), 1, num_split)]
    return _split(g, value, front_axis(g, constant_integer(g, split_dim, "split_dim"), value), num_split)


@onnx_symbolic("tf::SplitV")
def split_v(
    g: GraphContext, value: Value, size_splits: Value, split_dim: Value, num_split: int
) -> list[Value]:
    """Split into parts of the sizes in `size_splits`, where -1 is the remaining size."""
    if integers(g, split_dim) is None:
        axis = ComputedAxis.of(g, split_dim, value)
        parts = g.call_outputs("tf::SplitV", axis.view(value), size_splits, g.constant(1), num_split)
        return [axis.restore(part, value) for part in parts]
    dim = front_axis(g, constant_integer(g, split_dim, "split_dim"), value)
    counts = known_elements(g, size_splits, num_split)
    if len(counts) != num_split:
        raise g.refuse(f"it has {len(counts)} sizes for {num_split} parts")
    if len(counts) == 1:
        return [value]
    if integers(g, size_splits) is None and dim < 0:
        raise g.refuse("the rank of its input is unknown")
    if -1 in [count for count in counts if isinstance(count, int)]:
        unknown_index = counts.index(-1)
        counts[unknown_index] = 0
        known_total: Size = 0
        for count in counts:
            known_total = compute(g, "add", known_total, count)
        counts[unknown_index] = compute(g, "sub", g.size(value, dim), known_total)
    elif any(isinstance(count, Value) for count in counts):
        counts = _fill_unknown_count(g, counts, g.size(value, dim))
    parts = g.call_outputs("aten::split_with_sizes", self=value, split_sizes=counts, dim=dim)
    return _set_part_shapes(
        g, parts, value, dim, [count if isinstance(count, int) else None for count in counts]
    )


def _fill_unknown_count(g: GraphContext, counts: Sequence[Size], size: Size) -> list[Size]:
    """Replace -1 in computed sizes of a split by the remaining size of the axis."""
    total: Size = 0
    for count in counts:
        total = compute(g, "add", total, count)
    # The total contains the -1 itself.
    remainder = compute(g, "sub", compute(g, "sub", size, total), 1)
    filled: list[Size] = []
    for count in counts:
        if isinstance(count, Value):
            count = g.call("sym::ite", cond=g.call("sym::lt", a=count, b=0), a=remainder, b=count)
        filled.append(count)
    return filled


@onnx_symbolic("tf::ParallelConcat")
def parallel_concat(g: GraphContext, values: list[Value], shape: list[int] | None = None) -> Value:
    return values[0] if len(values) == 1 else g.op("Concat", *values, axis=0)
