"""Slices: Slice by sizes, StridedSlice with all of its masks, and writes to a strided slice."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ....registration import DataType, GraphContext, Value, onnx_symbolic
from ...compositions.size_arithmetic import (
    Size,
    compute,
    fold_size,
    known_rank,
    product,
    sizes_of,
    static_size,
)
from .._common import as_vector, constant_integers, elements, flattened, integers, joined

END = 2**63 - 1
"""The end of a slice without end."""


@onnx_symbolic("tf::Slice")
def slice_(g: GraphContext, input: Value, begin: Value, size: Value) -> Value:
    """A size of -1 takes the rest of a dimension."""
    counts = elements(g, size, g.rank(input))
    starts = elements(g, begin, None if counts is None else len(counts))
    if starts is not None and counts is None:
        counts = elements(g, size, len(starts))
    if starts is None or counts is None:
        raise g.refuse("the number of dimensions is unknown")
    whole = [
        _Range(at, start, _end(g, start, count))
        for at, (start, count) in enumerate(zip(starts, counts, strict=True))
    ]
    return _cut(g, input, whole)


def _end(g: GraphContext, start: Size, count: Size) -> Size:
    if not isinstance(count, Value):
        return END if count == -1 else compute(g, "add", start, count)
    end = compute(g, "add", start, count)
    return g.call("sym::ite", cond=g.call("sym::lt", a=count, b=0), a=END, b=end)


@dataclasses.dataclass
class _Range:
    """A slice of one axis; `step` is positive."""

    axis: int
    start: Size
    end: Size
    step: int = 1


def _cut(g: GraphContext, value: Value, ranges: Sequence[_Range]) -> Value:
    """Apply all slices with constant bounds at once, then the others."""
    constant: list[_Range] = []
    for item in ranges:
        item.start, item.end = fold_size(g, item.start), fold_size(g, item.end)
        stepped = item.step != 1 and not g.has("Slice", "steps")
        if stepped or isinstance(item.start, Value) or isinstance(item.end, Value):
            value = g.call(
                "aten::slice", self=value, dim=item.axis, start=item.start, end=item.end, step=item.step
            )
        elif not _covers(static_size(g, value, item.axis), item):
            constant.append(item)
    if not constant:
        return value
    steps = [item.step for item in constant]
    return g.op(
        "Slice",
        value,
        starts=[item.start for item in constant],
        ends=[item.end for item in constant],
        axes=[item.axis for item in constant],
        steps=None if set(steps) == {1} else steps,
    )


def _covers(size: int | None, item: _Range) -> bool:
    whole = item.end == END or (size is not None and isinstance(item.end, int) and item.end >= size)
    return item.start == 0 and item.step == 1 and whole


@dataclasses.dataclass(frozen=True)
class _Masks:
    """The masks of a strided slice, a bit for each item of its bounds."""

    begin: int
    end: int
    ellipsis: int
    new_axis: int
    shrink_axis: int


@dataclasses.dataclass
class _Plan:
    """The slices of a strided slice along the axes of its input, and the positions of new axes.

    Attributes:
        items: for each indexed axis the position of its bounds.
        shrunk: the axes that one element is taken of.
        added: the positions of new axes in the result.
    """

    items: dict[int, int]
    shrunk: list[int]
    added: list[int]


def _plan(g: GraphContext, input: Value, count: int, masks: _Masks) -> _Plan:
    """Assign the items of the bounds to axes; the ellipsis covers the remaining axes."""
    ellipsis = next((i for i in range(count) if masks.ellipsis >> i & 1), None)
    after = 0
    if ellipsis is not None:
        after = sum(not masks.new_axis >> i & 1 for i in range(ellipsis + 1, count))
    plan = _Plan({}, [], [])
    axis = place = 0
    for item in range(count):
        if item == ellipsis:
            if after or any(masks.new_axis >> i & 1 for i in range(item + 1, count)):
                skipped = known_rank(g, input) - after - axis
                axis, place = axis + skipped, place + skipped
        elif masks.new_axis >> item & 1:
            plan.added.append(place)
            place += 1
        else:
            plan.items[axis] = item
            if masks.shrink_axis >> item & 1:
                plan.shrunk.append(axis)
            else:
                place += 1
            axis += 1
    rank = g.rank(input)
    if rank is not None and axis > rank:
        raise g.refuse(f"it has indices for {axis} dimensions of a tensor with {rank}")
    return plan


def _successor(g: GraphContext, bound: Size) -> Size:
    """The position after a bound; after the last element, which -1 counts, the slice ends."""
    if not isinstance(bound, Value):
        return END if bound == -1 else bound + 1
    following = compute(g, "add", bound, 1)
    return g.call("sym::ite", cond=g.call("sym::eq", a=bound, b=-1), a=END, b=following)


def _sliced(g: GraphContext, input: Value, begin: Value, end: Value, strides: Value, masks: _Masks) -> Value:
    steps = constant_integers(g, strides, "strides")
    starts, ends = elements(g, begin, len(steps)), elements(g, end, len(steps))
    assert starts is not None
    assert ends is not None
    plan = _plan(g, input, len(steps), masks)
    ranges: list[_Range] = []
    backwards: list[tuple[int, int]] = []
    for axis, item in plan.items.items():
        if axis in plan.shrunk:
            continue
        start = None if masks.begin >> item & 1 else starts[item]
        stop = None if masks.end >> item & 1 else ends[item]
        if steps[item] > 0:
            first, last = 0 if start is None else start, END if stop is None else stop
            ranges.append(_Range(axis, first, last, steps[item]))
            continue
        # Slice between the bounds, then step backwards from the end.
        first, last = (
            0 if stop is None else _successor(g, stop),
            END if start is None else _successor(g, start),
        )
        ranges.append(_Range(axis, first, last))
        backwards.append((axis, steps[item]))
    value = _reversed_axes(g, _cut(g, input, ranges), backwards)
    for axis in sorted(plan.shrunk, reverse=True):
        value = g.call("aten::select", self=value, dim=axis, index=starts[plan.items[axis]])
    return g.op("Unsqueeze", value, axes=plan.added) if plan.added else value


def _reversed_axes(g: GraphContext, value: Value, axes: Sequence[tuple[int, int]]) -> Value:
    if not axes:
        return value
    value = g.call("composed::reverse", self=value, dims=[axis for axis, _ in axes])
    return _cut(g, value, [_Range(axis, 0, END, -step) for axis, step in axes if step != -1])


def _of_sizes(
    g: GraphContext, input: Value, begin: Value, end: Value, strides: Value, masks: _Masks
) -> Value | None:
    """Slice a vector of known sizes, folded to constants; None if the vector is something else."""
    if g.rank(input) != 1 or masks.new_axis or masks.ellipsis:
        return None
    bounds = [integers(g, item) for item in (begin, end, strides)]
    if any(item is None or len(item) != 1 for item in bounds):
        return None
    first, last, step = (item[0] for item in bounds if item)
    known_sizes = joined(g, input)
    if known_sizes is None:
        return None
    if not masks.shrink_axis:
        chosen = slice(None if masks.begin else first, None if masks.end else last, step)
        return as_vector(g, known_sizes[chosen], input)
    if not -len(known_sizes) <= first < len(known_sizes):
        return None
    return g.cast(g.constant(known_sizes[first]), g.dtype(input) or DataType.INT32)


@onnx_symbolic("tf::StridedSlice")
def strided_slice(
    g: GraphContext,
    input: Value,
    begin: Value,
    end: Value,
    strides: Value,
    begin_mask: int = 0,
    end_mask: int = 0,
    ellipsis_mask: int = 0,
    new_axis_mask: int = 0,
    shrink_axis_mask: int = 0,
) -> Value:
    """Python's slices; an ellipsis takes precedence over a new axis, and that over a removed axis."""
    new_axis_mask &= ~ellipsis_mask
    masks = _Masks(begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask & ~new_axis_mask)
    found = _of_sizes(g, input, begin, end, strides, masks)
    return found if found is not None else _sliced(g, input, begin, end, strides, masks)


@onnx_symbolic("tf::TensorStridedSliceUpdate")
def tensor_strided_slice_update(
    g: GraphContext,
    input: Value,
    begin: Value,
    end: Value,
    strides: Value,
    value: Value,
    begin_mask: int = 0,
    end_mask: int = 0,
    ellipsis_mask: int = 0,
    new_axis_mask: int = 0,
    shrink_axis_mask: int = 0,
) -> Value:
    """Slice the positions of the elements in the same way, and write to those."""
    own = sizes_of(g, input)
    numbers = g.call("sym::range", start=0, end=product(g, own))
    places = g.call(
        "tf::StridedSlice",
        g.call("aten::reshape", self=numbers, shape=own),
        begin,
        end,
        strides,
        begin_mask,
        end_mask,
        ellipsis_mask,
        new_axis_mask,
        shrink_axis_mask,
    )
    written = g.op("Expand", value, g.op("Shape", places))
    result = g.call(
        "composed::write_rows",
        self=flattened(g, input),
        index=flattened(g, places),
        values=flattened(g, written),
    )
    return g.call("aten::reshape", self=result, shape=own)
