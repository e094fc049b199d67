"""Layouts of views: results that share the memory of the first argument."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterator, Sequence

import torch

from ...operators.overloads import Args
from ...symbolic_numbers import decide_condition
from .layout import (
    Rule,
    Size,
    TensorLayout,
    are_fixed,
    axis_of,
    has_single,
    holds_with_guard,
    is_above_1,
    is_contiguous,
    is_positive,
    is_same,
    new_layout,
    number,
    product,
    view_layout,
)

_END = (1 << 63) - 1
"""The `end` by which torch marks a slice up to the end of the axis."""


def _permute(x: torch.Tensor, dims: Sequence[int]) -> TensorLayout | None:
    axes = [axis_of(x, dim) for dim in dims]
    # The kernel raises the error for repeated or missing axes.
    if sorted(axis for axis in axes if axis is not None) != list(range(x.dim())):
        return None
    return view_layout(x, [x.shape[axis] for axis in axes], [x.stride()[axis] for axis in axes])  # type: ignore[index]


def _transpose(x: torch.Tensor, dim0: int, dim1: int) -> TensorLayout | None:
    first, second = axis_of(x, dim0), axis_of(x, dim1)
    if first is None or second is None:
        return None
    axes = list(range(x.dim()))
    axes[first], axes[second] = second, first
    return _permute(x, axes)


def _unsqueeze(x: torch.Tensor, dim: int) -> TensorLayout | None:
    axis = axis_of(x, dim, more=1)
    if axis is None:
        return None
    shape, stride = list(x.shape), list(x.stride())
    # torch gives the new axis the stride that a contiguous tensor would have there.
    stride.insert(axis, 1 if axis == x.dim() else shape[axis] * stride[axis])
    shape.insert(axis, 1)
    return view_layout(x, shape, stride)


def _select(x: torch.Tensor, dim: int, index: object) -> TensorLayout | None:
    axis = axis_of(x, dim)
    # A symbolic index may be out of range for some sizes.
    if axis is None or type(index) is not int:
        return None
    size = x.shape[axis]
    is_inside = -size <= index < size if type(size) is int else index in (0, -1) and is_positive(size)
    if not is_inside:
        return None
    shape, stride = list(x.shape), list(x.stride())
    del shape[axis], stride[axis]
    position = size + index if index < 0 else index
    return view_layout(x, shape, stride, x.storage_offset() + position * x.stride()[axis])


def _slice(
    x: torch.Tensor, dim: int = 0, start: Size | None = None, end: Size | None = None, step: int = 1
) -> TensorLayout | None:
    axis = axis_of(x, dim)
    if axis is None or type(step) is not int or step < 1:
        return None
    size = x.shape[axis]
    # A symbolic start may come from a tensor, and then `not start` below has no answer.
    if isinstance(start, torch.SymInt):
        return None
    if isinstance(end, torch.SymInt):
        return _first_elements(x, axis, end) if not start and step == 1 else None
    if not start and step == 1 and (end is None or end == _END):
        return view_layout(x, x.shape, x.stride())
    # The ends of a slice are clipped to the size, which gives a Min of symbols.
    if type(size) is not int:
        return None
    covered = range(size)[start:end:step]
    if not covered:
        return None
    shape, stride = list(x.shape), list(x.stride())
    offset = x.storage_offset() + covered.start * stride[axis]
    shape[axis], stride[axis] = len(covered), stride[axis] * step
    return view_layout(x, shape, stride, offset)


def _first_elements(x: torch.Tensor, axis: int, count: Size) -> TensorLayout | None:
    """The layout of `x[:count]` along an axis; adds the kernel's guard that the axis is long enough."""
    if not is_positive(count) or not holds_with_guard(count <= x.shape[axis]):
        return None
    return view_layout(x, [*x.shape[:axis], count, *x.shape[axis + 1 :]], x.stride())


def _expand(x: torch.Tensor, size: Sequence[Size], implicit: bool = False) -> TensorLayout | None:
    added = len(size) - x.dim()
    if added < 0:
        return None
    shape, stride = list(size), list(x.stride())
    for axis, source_size in enumerate(x.shape):
        requested = size[axis + added]
        if (type(requested) is int and requested == -1) or is_same(source_size, requested):
            shape[axis + added] = source_size
        elif type(source_size) is int and source_size == 1 and is_above_1(requested):
            stride[axis] = 0
        else:
            return None
    return view_layout(x, shape, [0] * added + stride) if all(map(is_above_1, size[:added])) else None


VIEWS_OF_SIZE = frozenset({torch.ops.aten.view.default, torch.ops.aten.reshape.default})


def with_resolved_size(args: Args) -> Args:
    """Return the arguments of a view, with -1 replaced where torch would divide by a size that may be 0.

    In `rows.view(len(rows), -1)`, where the number of rows depends on data, -1 becomes the product of the
    other sizes of `rows`.
    """
    x, size, *_ = args
    unknown = [axis for axis, item in enumerate(size) if type(item) is int and item == -1]
    requested_sizes = [item for axis, item in enumerate(size) if axis not in unknown]
    depends_on_data = any(
        isinstance(item, torch.SymInt) and not item.node.has_hint() for item in requested_sizes
    )
    if len(unknown) != 1 or not depends_on_data:
        return args
    remaining = list(x.shape)
    for item in requested_sizes:
        position = next((axis for axis, source in enumerate(remaining) if is_same(source, item)), None)
        if position is None:
            return args
        del remaining[position]
    return x, [product(remaining) if axis in unknown else item for axis, item in enumerate(size)]


def _shape_of_view(x: torch.Tensor, size: Sequence[Size]) -> list[Size] | None:
    """Return the shape of a view, with -1 replaced; None if the number of elements may not match."""
    unknown = [axis for axis, item in enumerate(size) if type(item) is int and item == -1]
    fixed_sizes = [item for axis, item in enumerate(size) if axis not in unknown]
    if len(unknown) > 1 or not all(holds_with_guard(item > 0) for item in (*fixed_sizes, *x.shape)):
        return None
    shape = list(size)
    total, fixed_total = product(x.shape), product(fixed_sizes)
    if unknown:
        shape[unknown[0]] = number(total // fixed_total)
    # Without this guard the kernel would compute the sizes as other expressions, such as `h // (h // 4)`.
    fits = is_same(product(shape), total) or holds_with_guard(
        operator.mod(total, fixed_total) == 0 if unknown else product(shape) == total
    )
    return shape if fits else None


def _view(x: torch.Tensor, size: Sequence[Size]) -> TensorLayout | None:
    """The layout of `view`; None also if the strides do not allow a view: the kernel raises the error."""
    shape = _shape_of_view(x, size)
    stride = None if shape is None else _strides_of_view(x, shape)
    return _whole_view(x, shape, stride) if shape is not None and stride else None


def _reshape(x: torch.Tensor, shape: Sequence[Size]) -> TensorLayout | None:
    """The layout of `reshape`: a view, or a copy if the strides do not allow a view."""
    view_shape = _shape_of_view(x, shape)
    stride = None if view_shape is None else _strides_of_view(x, view_shape)
    if view_shape is None or stride is None:
        return None
    return _whole_view(x, view_shape, stride) if stride else new_layout(x, view_shape)


def _whole_view(x: torch.Tensor, shape: Sequence[Size], stride: Sequence[Size]) -> TensorLayout:
    return dataclasses.replace(view_layout(x, shape, stride), is_whole=True)


def _strides_of_view(x: torch.Tensor, shape: Sequence[Size]) -> Sequence[Size] | None:
    """Return the strides of a view of `x` with another shape.

    Empty if no such view exists, so that `reshape` copies; None if that depends on the symbolic sizes.
    """
    if x.dim() == 0 or not shape:
        return None
    if is_contiguous(x):
        # No size is 0: torch has special strides for such tensors.
        return [product(shape[axis + 1 :]) for axis in range(len(shape))]
    if has_single(x.shape) or has_single(shape):
        return None
    strides: list[Size] = []
    remaining = list(shape)
    for count, step in _contiguous_blocks(x):
        if count is None:
            return None
        consumed: Size = 1
        while not is_same(consumed, count):
            if not holds_with_guard(consumed != count):
                return None
            if not remaining:
                return ()
            strides.append(consumed * step)
            consumed = _multiply(consumed, remaining.pop(), count)
    return strides[::-1] if not remaining else None


def _multiply(consumed: Size, size: Size, count: Size) -> Size:
    """Return `size * consumed`, as `count` if a guard makes them equal: `2 * (n // 2)` is n for an even n."""
    combined = size * consumed
    if type(size) is int or is_same(combined, count) or not is_same(number(count // consumed), size):
        return combined
    return count if holds_with_guard(operator.mod(count, consumed) == 0) else combined


def _contiguous_blocks(x: torch.Tensor) -> Iterator[tuple[Size | None, Size]]:
    """Yield the element count and stride of each block of axes that are contiguous together, innermost first.

    The count is None, and the last, if the sizes decide which axes form the block.
    """
    sizes, strides = x.shape, x.stride()
    count, step = sizes[-1], strides[-1]
    for axis in reversed(range(x.dim() - 1)):
        is_one = decide_condition(strides[axis] == count * step)
        if not (is_one or holds_with_guard(strides[axis] != count * step)) or not holds_with_guard(
            sizes[axis] > 1
        ):
            yield None, step
            return
        if is_one:
            count = count * sizes[axis]
        else:
            yield count, step
            count, step = sizes[axis], strides[axis]
    yield count, step


def _flatten(x: torch.Tensor, start_dim: int = 0, end_dim: int = -1) -> TensorLayout | None:
    first, last = axis_of(x, start_dim), axis_of(x, end_dim)
    if first is None or last is None or first >= last:
        return None
    return _reshape(x, [*x.shape[:first], product(x.shape[first : last + 1]), *x.shape[last + 1 :]])


def _t(x: torch.Tensor) -> TensorLayout | None:
    return _transpose(x, 0, 1) if x.dim() == 2 else None


def _squeeze(x: torch.Tensor, dim: int) -> TensorLayout | None:
    axis = axis_of(x, dim)
    # A symbolic size might be 1 for some inputs only.
    if axis is None or not are_fixed(x.shape[axis : axis + 1]):
        return None
    remaining_axes = [index for index in range(x.dim()) if index != axis or x.shape[axis] != 1]
    return view_layout(
        x, [x.shape[index] for index in remaining_axes], [x.stride()[index] for index in remaining_axes]
    )


RULES: dict[str, Rule] = {
    "aten::expand": _expand,
    "aten::flatten.using_ints": _flatten,
    "aten::permute": _permute,
    "aten::reshape": _reshape,
    "aten::select.int": _select,
    "aten::slice.Tensor": _slice,
    "aten::squeeze.dim": _squeeze,
    "aten::t": _t,
    "aten::transpose.int": _transpose,
    "aten::unsqueeze": _unsqueeze,
    "aten::view": _view,
}
