"""Slices: Slice by sizes, StridedSlice with all of its masks, and writes to a strided slice."""

import dataclasses
import functools
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
from .._common import END, as_vector, elements, flatten, integers, known_elements, set_shape, traced_elements


@onnx_symbolic("tf::Slice")
def slice_(g: GraphContext, input: Value, begin: Value, size: Value) -> Value:
    """A size of -1 takes the remaining elements of a dimension."""
    counts = elements(g, size, g.rank(input))
    starts = elements(g, begin, None if counts is None else len(counts))
    if starts is not None and counts is None:
        counts = elements(g, size, len(starts))
    if starts is None or counts is None:
        raise g.refuse("the number of dimensions is unknown")
    slices = [
        _AxisSlice(dim, start, _end(g, start, count))
        for dim, (start, count) in enumerate(zip(starts, counts, strict=True))
    ]
    return _apply_slices(g, input, slices)


def _end(g: GraphContext, start: Size, count: Size) -> Size:
    if not isinstance(count, Value):
        return END if count == -1 else compute(g, "add", start, count)
    end = compute(g, "add", start, count)
    return g.call("sym::ite", cond=g.call("sym::lt", a=count, b=0), a=END, b=end)


@dataclasses.dataclass
class _AxisSlice:
    """A slice of one axis; `step` is positive."""

    axis: int
    start: Size
    end: Size
    step: int = 1


def _apply_slices(g: GraphContext, value: Value, ranges: Sequence[_AxisSlice]) -> Value:
    """Apply slices: those with computed bounds one by one, then those with constant bounds at once."""
    constant: list[_AxisSlice] = []
    for axis_slice in ranges:
        axis_slice.start, axis_slice.end = fold_size(g, axis_slice.start), fold_size(g, axis_slice.end)
        # Slice has steps from opset 10.
        needs_composition = axis_slice.step != 1 and not g.has("Slice", "steps")
        if needs_composition or isinstance(axis_slice.start, Value) or isinstance(axis_slice.end, Value):
            value = g.call(
                "aten::slice",
                self=value,
                dim=axis_slice.axis,
                start=axis_slice.start,
                end=axis_slice.end,
                step=axis_slice.step,
            )
        elif not _covers(static_size(g, value, axis_slice.axis), axis_slice):
            constant.append(axis_slice)
    if not constant:
        return value
    steps = [axis_slice.step for axis_slice in constant]
    return g.op(
        "Slice",
        value,
        starts=[axis_slice.start for axis_slice in constant],
        ends=[axis_slice.end for axis_slice in constant],
        axes=[axis_slice.axis for axis_slice in constant],
        steps=None if set(steps) == {1} else steps,
    )


def _covers(size: int | None, axis_slice: _AxisSlice) -> bool:
    reaches_end = axis_slice.end == END or (
        size is not None and isinstance(axis_slice.end, int) and axis_slice.end >= size
    )
    return axis_slice.start == 0 and axis_slice.step == 1 and reaches_end


@dataclasses.dataclass(frozen=True)
class _Masks:
    """The masks of a strided slice, a bit for each item of its bounds."""

    begin: int
    end: int
    ellipsis: int
    new_axis: int
    shrink_axis: int


@dataclasses.dataclass
class _SlicePlan:
    """The slices of a strided slice along the axes of its input, and the positions of new axes.

    Attributes:
        bound_indices: the index of the bounds in `begin` and `end`, for each sliced axis.
        removed_axes: the axes from which a single element is taken.
        new_axes: the positions of new axes in the result.
    """

    bound_indices: dict[int, int]
    removed_axes: list[int]
    new_axes: list[int]


def _plan_slices(g: GraphContext, input: Value, count: int, masks: _Masks) -> _SlicePlan:
    """Assign the elements of the bounds to axes; the ellipsis covers the remaining axes."""
    ellipsis = next((i for i in range(count) if masks.ellipsis >> i & 1), None)
    axes_after = 0
    if ellipsis is not None:
        # New axes after the ellipsis take no axis of the input.
        axes_after = sum(not masks.new_axis >> i & 1 for i in range(ellipsis + 1, count))
    plan = _SlicePlan({}, [], [])
    axis = new_position = 0
    for index in range(count):
        if index == ellipsis:
            # Only what follows an ellipsis depends on the rank.
            if axes_after or any(masks.new_axis >> i & 1 for i in range(index + 1, count)):
                skipped = known_rank(g, input) - axes_after - axis
                axis, new_position = axis + skipped, new_position + skipped
        elif masks.new_axis >> index & 1:
            plan.new_axes.append(new_position)
            new_position += 1
        else:
            plan.bound_indices[axis] = index
            if masks.shrink_axis >> index & 1:
                plan.removed_axes.append(axis)
            else:
                new_position += 1
            axis += 1
    rank = g.rank(input)
    if rank is not None and axis > rank:
        raise g.refuse(f"it has indices for {axis} dimensions of a tensor with {rank}")
    return plan


def _successor(g: GraphContext, bound: Size) -> Size:
    """The position after a bound. The position after -1, the last element, is the end, not 0."""
    if not isinstance(bound, Value):
        return END if bound == -1 else bound + 1
    following = compute(g, "add", bound, 1)
    return g.call("sym::ite", cond=g.call("sym::eq", a=bound, b=-1), a=END, b=following)


def _slice_by_computed_steps(
    g: GraphContext, input: Value, begin: Value, end: Value, strides: Value, masks: _Masks
) -> Value:
    """Slice where the sign of a step is not known: the bounds that a mask leaves out depend on it."""
    operands = begin, end, strides
    # One operand of known length says the length of all.
    count = next((len(items) for items in map(functools.partial(elements, g), operands) if items), None)
    starts, ends, steps = (known_elements(g, operand, count) for operand in operands)
    plan = _plan_slices(g, input, len(steps), masks)
    sliced = {axis: index for axis, index in plan.bound_indices.items() if axis not in plan.removed_axes}
    first: list[Size] = []
    last: list[Size] = []
    for index in sliced.values():
        is_backward = g.call("sym::lt", a=steps[index], b=0)
        # Slice clamps bounds that are out of range, as TensorFlow does.
        for bounds, bound, mask, limits in (
            (first, starts, masks.begin, (END, 0)),
            (last, ends, masks.end, (-END, END)),
        ):
            limit = g.call("sym::ite", cond=is_backward, a=limits[0], b=limits[1])
            bounds.append(limit if mask >> index & 1 else bound[index])
    value = input
    if sliced:
        value = g.op(
            "Slice",
            input,
            starts=g.stack(first),
            ends=g.stack(last),
            axes=list(sliced),
            steps=g.stack([steps[index] for index in sliced.values()]),
        )
        set_shape(value, None if g.rank(input) is None else [None] * known_rank(g, input))
    for axis in sorted(plan.removed_axes, reverse=True):
        value = g.call("aten::select", self=value, dim=axis, index=starts[plan.bound_indices[axis]])
    return g.op("Unsqueeze", value, axes=plan.new_axes) if plan.new_axes else value


def _slice_strided(
    g: GraphContext, input: Value, begin: Value, end: Value, strides: Value, masks: _Masks
) -> Value:
    step_sizes = elements(g, strides)
    steps = [step for step in step_sizes or () if isinstance(step, int)]
    if step_sizes is None or len(steps) < len(step_sizes):
        return _slice_by_computed_steps(g, input, begin, end, strides, masks)
    starts, ends = known_elements(g, begin, len(steps)), known_elements(g, end, len(steps))
    plan = _plan_slices(g, input, len(steps), masks)
    ranges: list[_AxisSlice] = []
    backwards: list[tuple[int, int]] = []
    for axis, index in plan.bound_indices.items():
        if axis in plan.removed_axes:
            continue
        start = None if masks.begin >> index & 1 else starts[index]
        stop = None if masks.end >> index & 1 else ends[index]
        if steps[index] > 0:
            first, last = 0 if start is None else start, END if stop is None else stop
            ranges.append(_AxisSlice(axis, first, last, steps[index]))
            continue
        # Slice between the bounds, then step backwards from the end.
        first = 0 if stop is None else _successor(g, stop)
        last = END if start is None else _successor(g, start)
        ranges.append(_AxisSlice(axis, first, last))
        backwards.append((axis, steps[index]))
    value = _apply_slices(g, input, ranges)
    if backwards:
        value = g.call("composed::reverse", self=value, dims=[axis for axis, _ in backwards])
        skips = [_AxisSlice(axis, 0, END, -step) for axis, step in backwards if step != -1]
        value = _apply_slices(g, value, skips)
    # From the last axis on, so that the other axes keep their numbers.
    for axis in sorted(plan.removed_axes, reverse=True):
        value = g.call("aten::select", self=value, dim=axis, index=starts[plan.bound_indices[axis]])
    return g.op("Unsqueeze", value, axes=plan.new_axes) if plan.new_axes else value


def _slice_known_sizes(
    g: GraphContext, input: Value, begin: Value, end: Value, strides: Value, masks: _Masks
) -> Value | None:
    """Slice a vector of known sizes, folded to constants; None if the vector is something else."""
    if g.rank(input) != 1 or masks.new_axis or masks.ellipsis:
        return None
    bounds = [integers(g, item) for item in (begin, end, strides)]
    if any(item is None or len(item) != 1 for item in bounds):
        return None
    first, last, step = (item[0] for item in bounds if item)
    known_sizes = traced_elements(g, input)
    if known_sizes is None:
        return None
    if not masks.shrink_axis:
        selection = slice(None if masks.begin else first, None if masks.end else last, step)
        return as_vector(g, known_sizes[selection], input)
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
    folded = _slice_known_sizes(g, input, begin, end, strides, masks)
    return folded if folded is not None else _slice_strided(g, input, begin, end, strides, masks)


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
    """Slice the positions of the elements by the same bounds, and write to these positions."""
    input_sizes = sizes_of(g, input)
    numbers = g.call("sym::range", start=0, end=product(g, input_sizes))
    positions = g.call(
        "tf::StridedSlice",
        g.call("aten::reshape", self=numbers, shape=input_sizes),
        begin,
        end,
        strides,
        begin_mask,
        end_mask,
        ellipsis_mask,
        new_axis_mask,
        shrink_axis_mask,
    )
    expanded_value = g.op("Expand", value, g.op("Shape", positions))
    result = g.call(
        "composed::write_rows",
        self=flatten(g, input),
        index=flatten(g, positions),
        values=flatten(g, expanded_value),
    )
    return g.call("aten::reshape", self=result, shape=input_sizes)


@onnx_symbolic("tf::StridedSliceGrad")
def strided_slice_grad(
    g: GraphContext,
    shape: Value,
    begin: Value,
    end: Value,
    strides: Value,
    dy: Value,
    begin_mask: int = 0,
    end_mask: int = 0,
    ellipsis_mask: int = 0,
    new_axis_mask: int = 0,
    shrink_axis_mask: int = 0,
) -> Value:
    """The gradient of a slice: `dy` at the positions of the slice, and 0 elsewhere."""
    zeros = g.call("tf::Fill", shape, g.constant(0, g.dtype(dy)))
    masks = (begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask)
    return g.call("tf::TensorStridedSliceUpdate", zeros, begin, end, strides, dy, *masks)
