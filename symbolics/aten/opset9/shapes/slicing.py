"""Operators on parts of a dimension: slice, select, split, chunk, unbind, roll, flip, unfold."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from .....registration import DataType, GraphContext, Value, onnx_symbolic
from .....registration.functions.results import as_list
from .....registration.size_algebra.dimensions import same_size
from ....compositions.size_arithmetic import (
    Size,
    axis,
    compute,
    fold_size,
    is_non_negative,
    known_rank,
    sizes_of,
    static_size,
)

END = 2**63 - 1
"""torch's value for the end of a slice without end."""


@onnx_symbolic("aten::slice")
def slice_(
    g: GraphContext,
    self: Value,
    dim: int = 0,
    start: int | Value | None = None,
    end: int | Value | None = None,
    step: int | Value = 1,
) -> Value:
    """Bounds beyond the tensor are clamped, in ONNX as in ATen."""
    dimension = axis(g, self, dim)
    start = fold_size(g, start) if start is not None else 0
    end = fold_size(g, end) if end is not None else END
    step = fold_size(g, step)
    size = static_size(g, self, dimension)
    if isinstance(size, int):
        # Normalized bounds, so that a slice of everything is recognised and left out.
        start = start if not isinstance(start, int) else slice(start, None).indices(size)[0]
        end = end if not isinstance(end, int) else slice(None, end).indices(size)[1]
    if _covers(start, end, size if isinstance(size, int) else END) and step == 1:
        return self
    length = None
    if all(isinstance(bound, int) for bound in (size, start, end, step)):
        length = len(range(start, end, step))  # type: ignore[arg-type]
    source = _repeated_operand(g, self, dimension) if length else None
    if source is not None and length is not None:
        sizes = [*sizes_of(g, self)]
        sizes[dimension] = length
        return g.call("aten::expand", self=source, size=sizes)
    result = g.call("composed::slice", self=self, dim=dimension, start=start, end=end, step=step)
    if result.producer() is not None and self.shape is not None:
        result.shape = ir.Shape([*self.shape[:dimension], length, *self.shape[dimension + 1 :]])
    return result


def _covers(start: Size, end: Size, size: int) -> bool:
    return isinstance(start, int) and isinstance(end, int) and start == 0 and end >= size


@onnx_symbolic("composed::slice")
def composed_slice(
    g: GraphContext, self: Value, dim: int, start: int | Value, end: int | Value, step: int | Value
) -> Value:
    """Slice with normalized bounds.

    Before opset 10 the bounds are attributes and the step is 1; other slices gather positions.
    """
    if g.has("Slice", "steps"):
        steps = None if isinstance(step, int) and step == 1 else [step]
        return g.op("Slice", self, starts=[start], ends=[end], axes=[dim], steps=steps)
    if not isinstance(step, int):
        raise g.refuse("the step of a slice must be constant", first_opset=10)
    if isinstance(start, int) and isinstance(end, int) and step == 1:
        return g.op("Slice", self, starts=[start], ends=[end], axes=[dim])
    size = g.size(self, dim)
    if isinstance(size, int) and isinstance(start, int) and isinstance(end, int):
        return g.op("Gather", self, list(range(size)[start:end:step]), axis=dim)
    first = _clamp_bound(g, start, size)
    positions = g.call("sym::range", start=first, end=_clamp_bound(g, end, size), step=step)
    return g.op("Gather", self, positions, axis=dim)


def _clamp_bound(g: GraphContext, bound: Size, size: Size) -> Size:
    """Clamp a bound of a slice to a position from 0 to the size."""
    if isinstance(bound, int) and bound == END:
        return size
    if isinstance(bound, int) and bound == 0:
        return bound
    if not is_non_negative(bound):
        if isinstance(bound, int):
            return compute(g, "max", compute(g, "add", bound, size), 0)
        bound = compute(g, "max", g.call("composed::wrap", index=bound, size=size), 0)
    return compute(g, "min", bound, size)


@onnx_symbolic("aten::select")
def select(g: GraphContext, self: Value, dim: int, index: int | Value) -> Value:
    dimension = axis(g, self, dim)
    index = fold_size(g, index)
    size = static_size(g, self, dimension)
    if isinstance(index, int) and index < 0:
        if isinstance(size, int):
            index += size
        else:
            # -1 + 1 would be 0, the start of the dimension.
            end = index + 1 if index != -1 else END
            part = g.call("aten::slice", self=self, dim=dimension, start=index, end=end)
            return g.op("Squeeze", part, axes=[dimension])
    if isinstance(index, int) and isinstance(size, int) and 0 <= index < size:
        source = _repeated_operand(g, self, dimension)
        if source is not None:
            sizes = [size for axis, size in enumerate(sizes_of(g, self)) if axis != dimension]
            return g.call("aten::expand", self=g.op("Squeeze", source, axes=[dimension]), size=sizes)
    return g.op_of_any_data("Gather", self, g.constant(index), axis=dimension)


def _repeated_operand(g: GraphContext, self: Value, dimension: int) -> Value | None:
    """The operand of an Expand that repeats a dimension, of which all parts are equal; None for others."""
    node = self.producer()
    source = node.inputs[0] if node is not None and node.op_type == "Expand" and not node.domain else None
    before, after = () if source is None else g.shape(source) or (), g.shape(self) or ()
    if len(before) != len(after) or before[dimension] != 1 or same_size(after[dimension], 1):
        return None
    return source


@onnx_symbolic("composed::wrap")
def wrap(g: GraphContext, index: Value, size: int | Value) -> Value:
    """Convert positions that may be negative to non-negative ones."""
    if is_non_negative(index):
        return index
    index = g.cast(index, DataType.INT64)
    return g.op("Where", g.op("Less", index, 0), g.op("Add", index, size), index)


@onnx_symbolic("aten::narrow")
def narrow(g: GraphContext, self: Value, dim: int, start: int | Value, length: int | Value) -> Value:
    start = fold_size(g, start)
    if isinstance(start, Value) and known_rank(g, start) == 1:
        start = g.op("Squeeze", start, axes=[0])
    if not is_non_negative(start):
        if isinstance(start, int):
            start = compute(g, "add", start, g.size(self, dim))
        else:
            start = g.call("composed::wrap", index=start, size=g.size(self, dim))
    return g.call("aten::slice", self=self, dim=dim, start=start, end=compute(g, "add", start, length))


def _parts(g: GraphContext, self: Value, dimension: int, sizes: Sequence[Size]) -> list[Value]:
    """Consecutive parts of a dimension. Computed sizes use Slice, because Split takes them from opset 13."""
    sizes = [fold_size(g, size) for size in sizes]
    if len(sizes) == 1 and isinstance(sizes[0], int) and static_size(g, self, dimension) == sizes[0]:
        return [self]
    if all(isinstance(size, int) for size in sizes):
        return as_list(g.op("Split", self, axis=dimension, split=sizes, outputs=len(sizes)))
    start: Size = 0
    parts = []
    for position, size in enumerate(sizes):
        end = compute(g, "add", start, size)
        last = position == len(sizes) - 1
        parts.append(g.call("aten::slice", self=self, dim=dimension, start=start, end=END if last else end))
        start = end
    return parts


@onnx_symbolic(["aten::split", "aten::unsafe_split"])
def split(
    g: GraphContext, self: Value, split_size: int | Value | list[int | Value], dim: int = 0
) -> list[Value]:
    dimension = axis(g, self, dim)
    if isinstance(split_size, list):
        return _parts(g, self, dimension, split_size)
    split_size = fold_size(g, split_size)
    size = g.size(self, dimension)
    if isinstance(size, int) and isinstance(split_size, int):
        if size == 0 or split_size == 0:
            return _parts(g, self, dimension, [size])
        return _parts(
            g, self, dimension, [min(split_size, size - start) for start in range(0, size, split_size)]
        )
    count = _number_of_results(g, "split", "unsafe_split")
    return _parts(g, self, dimension, [split_size] * (count - 1) + [size])


def _number_of_results(g: GraphContext, *names: str) -> int:
    if g.node is None or g.node.op_type not in names:
        raise g.refuse("the number of parts must be known")
    return len(g.expected)


@onnx_symbolic(["aten::split_with_sizes", "aten::unsafe_split_with_sizes", "aten::split_with_sizes_copy"])
def split_with_sizes(
    g: GraphContext, self: Value, split_sizes: list[int | Value], dim: int = 0
) -> list[Value]:
    return _parts(g, self, axis(g, self, dim), split_sizes)


@onnx_symbolic(["aten::chunk", "aten::unsafe_chunk"])
def chunk(g: GraphContext, self: Value, chunks: int, dim: int = 0) -> list[Value]:
    """Parts of the rounded-up size; there may be fewer than requested."""
    dimension = axis(g, self, dim)
    size = g.size(self, dimension)
    if isinstance(size, int):
        part = -(-size // chunks)
        sizes = [min(part, size - start) for start in range(0, size, part)] if part else [0] * chunks
        return _parts(g, self, dimension, sizes)
    # The captured graph tells how many parts there are, even where sizes are symbolic.
    computed = compute(g, "floordiv", compute(g, "add", size, chunks - 1), chunks)
    count = _number_of_results(g, "chunk", "unsafe_chunk")
    return _parts(g, self, dimension, [computed] * (count - 1) + [size])


def _sections_or_indices(g: GraphContext, argument: Value) -> tuple[int | None, list[int | Value] | None]:
    """The number of parts, or the positions between them; a computed number is not supported."""
    array, shape = g.constant_value(argument), g.shape(argument)
    if array is not None:
        return (int(array), None) if array.ndim == 0 else (None, [int(position) for position in array])
    if shape is None or len(shape) != 1 or not isinstance(shape[0], int):
        raise g.refuse("the number of parts of tensor_split must be known")
    return None, [g.op("Gather", argument, i, axis=0) for i in range(shape[0])]


@onnx_symbolic("aten::tensor_split")
def tensor_split(
    g: GraphContext,
    self: Value,
    sections: int | None = None,
    indices: list[int | Value] | None = None,
    dim: int = 0,
    tensor_indices_or_sections: Value | None = None,
) -> list[Value]:
    """Split at positions, or into parts whose sizes differ by at most one, larger ones first."""
    dimension = axis(g, self, dim)
    size = g.size(self, dimension)
    if tensor_indices_or_sections is not None:
        sections, indices = _sections_or_indices(g, tensor_indices_or_sections)
    if indices is None:
        count = sections or 1
        if isinstance(size, int):
            return _parts(
                g, self, dimension, [size // count + (part < size % count) for part in range(count)]
            )
        least, longer_count = compute(g, "floordiv", size, count), compute(g, "mod", size, count)
        indices = [
            compute(g, "add", compute(g, "mul", least, i), compute(g, "min", longer_count, i))
            for i in range(1, count)
        ]
    bounds = [0, *indices, END]
    return [
        g.call("aten::slice", self=self, dim=dimension, start=start, end=end)
        for start, end in itertools.pairwise(bounds)
    ]


def _register_split_of_axis(name: str, of_vectors: int, of_others: int) -> None:
    @onnx_symbolic(f"aten::{name}")
    def split_of_axis(g: GraphContext, self: Value, **parts: Any) -> list[Value]:
        dim = of_vectors if known_rank(g, self) == 1 else of_others
        return g.call_outputs("aten::tensor_split", self, dim=dim, **parts)


_register_split_of_axis("hsplit", 0, 1)
_register_split_of_axis("vsplit", 0, 0)
_register_split_of_axis("dsplit", 2, 2)


@onnx_symbolic("aten::unbind")
def unbind(g: GraphContext, self: Value, dim: int = 0) -> list[Value]:
    dimension = axis(g, self, dim)
    size = g.size(self, dimension)
    count = size if isinstance(size, int) else _number_of_results(g, "unbind")
    if count == 0:
        return []
    return [g.op("Squeeze", part, axes=[dimension]) for part in _parts(g, self, dimension, [1] * count)]


@onnx_symbolic("aten::roll")
def roll(g: GraphContext, self: Value, shifts: list[int | Value], dims: list[int] = []) -> Value:  # noqa: B006
    """Without dims, the elements roll in row-major order."""
    if known_rank(g, self) == 0:
        return self
    if not dims:
        rolled = g.call("aten::roll", self=g.call("aten::flatten", self=self), shifts=shifts, dims=[0])
        return g.call("aten::reshape", self=rolled, shape=sizes_of(g, self))
    for shift, dim in zip(shifts, dims, strict=True):
        dimension = axis(g, self, dim)
        size = g.size(self, dimension)
        if isinstance(size, int) and size == 0:
            continue
        # A symbolic size may be 0 at run time; avoid a remainder by 0.
        split = compute(g, "mod", compute(g, "mul", shift, -1), compute(g, "max", size, 1))
        if isinstance(split, int) and split == 0:
            continue
        tail = g.call("aten::slice", self=self, dim=dimension, start=split)
        shape = self.shape
        self = g.op(
            "Concat", tail, g.call("aten::slice", self=self, dim=dimension, end=split), axis=dimension
        )
        self.shape = shape
    return self


@onnx_symbolic("aten::flip")
def flip(g: GraphContext, self: Value, dims: list[int]) -> Value:
    axes = [axis(g, self, dim) for dim in dims] if known_rank(g, self) else []
    return g.call("composed::reverse", self=self, dims=axes) if axes else self


@onnx_symbolic("composed::reverse")
def reverse(g: GraphContext, self: Value, dims: list[int]) -> Value:
    """Reverse dimensions. Before opset 10 Slice has no steps, so the positions are gathered."""
    if g.has("Slice", "steps"):
        minus_ones = [-1] * len(dims)
        return g.op(
            "Slice", self, starts=minus_ones, ends=[-(2**63) + 1] * len(dims), axes=dims, steps=minus_ones
        )
    for dimension in dims:
        size = g.size(self, dimension)
        if isinstance(size, int):
            g.reserve(size)
            backwards = g.constant(np.arange(size, dtype=np.int64)[::-1])
        else:
            last = compute(g, "sub", size, 1)
            backwards = g.op("Sub", last, g.call("sym::range", start=0, end=size))
        self = g.op("Gather", self, backwards, axis=dimension)
    return self


@onnx_symbolic("aten::unfold")
def unfold(g: GraphContext, self: Value, dimension: int, size: int, step: int) -> Value:
    """Windows of a dimension, which becomes the window index; a new last dimension has the contents."""
    if known_rank(g, self) == 0:
        return g.op("Reshape", self, [size])
    unfolded_dim = axis(g, self, dimension)
    length = g.size(self, unfolded_dim)
    g.reserve(size)
    within = np.arange(size, dtype=np.int64)
    if isinstance(length, int):
        g.reserve(max(0, length - size + step) // step, size)
        starts = np.arange(0, length - size + 1, step, dtype=np.int64)
        windows = g.constant(starts[:, None] + within)
    else:
        end = compute(g, "sub", length, size - 1)
        windows = g.op(
            "Add", g.op("Unsqueeze", g.call("sym::range", start=0, end=end, step=step), axes=[1]), within
        )
    gathered = g.op("Gather", self, windows, axis=unfolded_dim)
    return g.call("aten::movedim", self=gathered, source=unfolded_dim + 1, destination=-1)
