"""Writes by index: index_put, scatter, and functional writes to a slice, a row or a diagonal."""

from collections.abc import Sequence

import numpy as np

from .....registration import DataType, GraphContext, Number, Value, onnx_symbolic
from ....compositions.size_arithmetic import Size, axis, compute, fold_size, known_rank, sizes_of
from ..shapes.shape import broadcast_sizes
from .gathering import are_adjacent, linear_positions, merge_dims, without_masks

_REDUCTIONS = {"add": "add", "sum": "add", "multiply": "mul", "prod": "mul", "amax": "max", "amin": "min"}


@onnx_symbolic(["aten::index_put", "aten::_unsafe_index_put"])
def index_put(
    g: GraphContext, self: Value, indices: list[Value | None], values: Value, accumulate: bool = False
) -> Value:
    """A single number under a mask becomes Where; other writes go to rows of the merged dimensions."""
    index_tensors = [tensor for tensor in indices if tensor is not None]
    if not index_tensors:
        expanded = g.call("aten::expand", self=values, size=sizes_of(g, self))
        return g.op("Add", self, expanded) if accumulate else expanded
    if len(index_tensors) == 1 and g.dtype(index_tensors[0]) == DataType.BOOL and _is_single(g, values):
        return _write_under_mask(
            g, self, index_tensors[0], indices.index(index_tensors[0]), values, accumulate
        )
    data, positions = without_masks(g, self, indices)
    dims = sorted(positions)
    rank = known_rank(g, data)
    # Indexed dimensions come first and are merged, so that one index selects a row.
    order = [*dims, *(dimension for dimension in range(rank) if dimension not in dims)]
    front = g.call("aten::permute", self=data, dims=order)
    sizes = sizes_of(g, front)
    tensors = [positions[dimension] for dimension in dims]
    index_of_merged = linear_positions(g, tensors, sizes[: len(dims)])
    shape = broadcast_sizes(g, tensors)
    updates = _updates(g, values, shape, sizes[len(dims) :], dims)
    rows = merge_dims(g, front, 0, len(dims))
    row_sizes = sizes[len(dims) :]
    if len(shape) != 1:
        # Reshape cannot infer the number of rows beside a size of 0, so none is written where not needed.
        updates = g.call("aten::reshape", self=updates, shape=[-1, *row_sizes])
    name = "composed::accumulate_rows" if accumulate else "composed::write_rows"
    written = g.call(name, self=rows, index=g.op("Reshape", index_of_merged, [-1]), values=updates)
    restored = g.call("aten::reshape", self=written, shape=sizes)
    # argsort of a permutation is its inverse.
    restored = g.call("aten::permute", self=restored, dims=np.argsort(order).tolist())
    return (
        restored if g.rank(self) == rank else g.call("aten::reshape", self=restored, shape=sizes_of(g, self))
    )


def _is_single(g: GraphContext, values: Value) -> bool:
    shape = g.shape(values)
    return shape is not None and all(dim == 1 for dim in shape)


def _write_under_mask(
    g: GraphContext, self: Value, mask: Value, first_dim: int, value: Value, accumulate: bool
) -> Value:
    rank = known_rank(g, self)
    after = rank - first_dim - known_rank(g, mask)
    mask = g.op("Unsqueeze", mask, axes=[known_rank(g, mask) + i for i in range(after)]) if after else mask
    value = g.op("Reshape", value, [1] * rank) if g.rank(value) else value
    return g.call(
        "aten::where", condition=mask, self=g.op("Add", self, value) if accumulate else value, other=self
    )


def _updates(
    g: GraphContext, values: Value, shape: Sequence[Size], row_sizes: Sequence[Size], dims: Sequence[int]
) -> Value:
    """The values expanded to the shape of the indexed part, with the index tensors' dimensions first."""
    before = dims[0] if are_adjacent(dims) else 0
    expanded = g.call("aten::expand", self=values, size=[*row_sizes[:before], *shape, *row_sizes[before:]])
    count = len(shape)
    order = [*range(before, before + count), *range(before), *range(before + count, count + len(row_sizes))]
    return g.call("aten::permute", self=expanded, dims=order)


@onnx_symbolic("composed::write_rows")
def write_rows(g: GraphContext, self: Value, index: Value, values: Value) -> Value:
    """Replace rows of `self`. Before opset 11 with Scatter and an index for every element."""
    if g.has("ScatterND"):
        return g.op("ScatterND", self, g.op("Unsqueeze", index, axes=[1]), values)
    rank = known_rank(g, values)
    if rank > 1:
        index = g.op("Expand", g.op("Unsqueeze", index, axes=list(range(1, rank))), g.op("Shape", values))
    return g.op("ScatterElements", self, index, values, axis=0)


@onnx_symbolic("aten::scatter")
def scatter(
    g: GraphContext,
    self: Value,
    dim: int,
    index: Value,
    src: Value | None = None,
    value: Value | Number | None = None,
    reduce: str | None = None,
) -> Value:
    """If the source is larger than the index, ATen reads only as much of it as the index covers."""
    # Nothing is written, and runtimes refuse an empty index.
    if 0 in (g.shape(index) or ()):
        return g.op("Identity", self)
    if known_rank(g, self) == 0:
        index = g.op("Reshape", index, [-1])
        src = None if src is None else g.op("Reshape", src, [-1])
        vector = g.op("Reshape", self, [1])
        result = g.call("aten::scatter", self=vector, dim=0, index=index, src=src, value=value, reduce=reduce)
        return g.op("Reshape", result, g.constant([], DataType.INT64))
    dtype = g.dtype(self)
    if src is None:
        filler = g.constant(value, dtype) if dtype is not None else g.constant(value)
        updates = g.op("Expand", filler, g.op("Shape", index))
    else:
        updates = src
        pairs = zip(g.shape(src) or (), g.shape(index) or (), strict=True)
        for dimension, (size, count) in enumerate(pairs):
            if not (size == count and (isinstance(size, int) or size.value is not None)):
                end = g.size(index, dimension)
                updates = g.call("aten::slice", self=updates, dim=dimension, start=0, end=end)
    dimension = axis(g, self, dim)
    if reduce is None:
        return g.op("ScatterElements", self, index, updates, axis=dimension)
    if reduce not in _REDUCTIONS:
        raise g.refuse(f"ONNX has no scatter with the reduction '{reduce}'")
    return g.call(
        "composed::scatter_reduce",
        self=self,
        dim=dimension,
        index=index,
        src=updates,
        reduction=_REDUCTIONS[reduce],
    )


@onnx_symbolic("aten::scatter_add")
def scatter_add(g: GraphContext, self: Value, dim: int, index: Value, src: Value) -> Value:
    return g.call("aten::scatter", self=self, dim=dim, index=index, src=src, reduce="add")


@onnx_symbolic("aten::index_add")
def index_add(
    g: GraphContext, self: Value, dim: int, index: Value, source: Value, alpha: Number = 1
) -> Value:
    dimension = axis(g, self, dim)
    scaled = source if alpha == 1 else g.op("Mul", source, alpha)
    return _write_rows(g, "composed::accumulate_rows", self, dimension, index, scaled)


@onnx_symbolic("aten::index_copy")
def index_copy(g: GraphContext, self: Value, dim: int, index: Value, source: Value) -> Value:
    return _write_rows(g, "composed::write_rows", self, axis(g, self, dim), index, source)


def _write_rows(
    g: GraphContext, name: str, self: Value, dimension: int, index: Value, source: Value
) -> Value:
    """Write rows along any dimension. A zero-dim tensor counts as one row, and so does a zero-dim index."""
    if g.rank(index) == 0:
        index = g.op("Unsqueeze", index, axes=[0])
    if g.rank(source) == 0:
        source = g.op("Unsqueeze", source, axes=[0])
    if g.rank(self) == 0:
        written = g.call(name, self=g.op("Unsqueeze", self, axes=[0]), index=index, values=source)
        return g.op("Squeeze", written, axes=[0])
    front = g.call("aten::movedim", self=self, source=dimension, destination=0)
    rows = g.call("aten::movedim", self=source, source=dimension, destination=0)
    written = g.call(name, self=front, index=index, values=rows)
    return g.call("aten::movedim", self=written, source=0, destination=dimension)


@onnx_symbolic("aten::index_fill")
def index_fill(g: GraphContext, self: Value, dim: int, index: Value, value: Value | Number) -> Value:
    dimension = axis(g, self, dim)
    sizes = sizes_of(g, self) or [1]
    sizes[dimension] = g.size(index, 0) if g.rank(index) != 0 else 1
    filler = g.call("aten::expand", self=g.constant(value, g.dtype(self)), size=sizes)
    return _write_rows(g, "composed::write_rows", self, dimension, index, filler)


@onnx_symbolic("aten::select_scatter")
def select_scatter(g: GraphContext, self: Value, src: Value, dim: int, index: int | Value) -> Value:
    dimension = axis(g, self, dim)
    row = g.op("Unsqueeze", src, axes=[dimension])
    index = fold_size(g, index)
    if isinstance(index, int):
        return g.call(
            "aten::slice_scatter", self=self, src=row, dim=dimension, start=index, end=index + 1 or None
        )
    size = g.size(self, dimension)
    positions = g.call("sym::range", start=0, end=size)
    is_row = g.op("Equal", positions, g.call("composed::wrap", index=index, size=size))
    after = known_rank(g, self) - dimension - 1
    is_row = g.op("Unsqueeze", is_row, axes=list(range(1, after + 1))) if after else is_row
    return g.op("Where", is_row, row, self)


@onnx_symbolic("aten::slice_scatter")
def slice_scatter(
    g: GraphContext,
    self: Value,
    src: Value,
    dim: int = 0,
    start: int | Value | None = None,
    end: int | Value | None = None,
    step: int = 1,
) -> Value:
    """Concatenates the part before the slice, the new part, and the part after it."""
    dimension = axis(g, self, dim)
    size = g.size(self, dimension)
    start = fold_size(g, start) if start is not None else 0
    end = fold_size(g, end) if end is not None else size
    if isinstance(size, int) and isinstance(start, int) and isinstance(end, int):
        return _static_scatter(g, self, src, dimension, range(size)[start:end:step], size)
    if step == 1:
        pieces = (
            []
            if isinstance(start, int) and start == 0
            else [g.call("aten::slice", self=self, dim=dimension, end=start)]
        )
        pieces.append(src)
        if end is not size:
            # The rest begins after the replaced part, not at `end`: an empty slice may end before it starts.
            past = compute(
                g, "add", g.size(pieces[0], dimension), g.size(src, dimension) if len(pieces) > 1 else 0
            )
            pieces.append(g.call("aten::slice", self=self, dim=dimension, start=past))
        return g.op("Concat", *pieces, axis=dimension) if len(pieces) > 1 else src
    positions = g.call(
        "aten::slice", self=g.call("sym::range", start=0, end=size), start=start, end=end, step=step
    )
    return _write_rows(g, "composed::write_rows", self, dimension, positions, src)


def _static_scatter(
    g: GraphContext, self: Value, src: Value, dimension: int, positions: range, size: int
) -> Value:
    if len(positions) == size:
        return src
    if len(positions) == 0:
        return self
    if positions.step == 1:
        before, after = positions[0], positions[-1] + 1
        pieces = [g.call("aten::slice", self=self, dim=dimension, end=before)] if before else []
        pieces.append(src)
        if after < size:
            pieces.append(g.call("aten::slice", self=self, dim=dimension, start=after))
        return g.op("Concat", *pieces, axis=dimension)
    g.reserve(size)
    order = np.arange(size, dtype=np.int64)
    # Positions behind the old elements are those of the new ones.
    order[list(positions)] = size + np.arange(len(positions))
    return g.op("Gather", g.op("Concat", self, src, axis=dimension), order, axis=dimension)


@onnx_symbolic("aten::diagonal_scatter")
def diagonal_scatter(
    g: GraphContext, self: Value, src: Value, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Value:
    if 0 in (g.shape(src) or ()):
        return g.op("Identity", self)
    dims = [axis(g, self, dim1), axis(g, self, dim2)]
    data = g.call("aten::movedim", self=self, source=dims, destination=[-2, -1])
    height, width = sizes_of(g, data)[-2:]
    rows = g.call("sym::range", start=0, end=height)
    columns = g.call("sym::range", start=0, end=width)
    down = max(-offset, 0)
    is_diagonal = g.op("Equal", g.op("Unsqueeze", g.op("Add", rows, offset), axes=[1]), columns)
    # The diagonal's element of each row; rows without one take any element, which is not selected.
    last = compute(g, "max", compute(g, "sub", g.size(src, -1), 1), 0)
    element = g.op("Sub", rows, down) if down else rows
    element = g.call("sym::max", a=g.call("sym::min", a=element, b=last), b=0)
    written = g.op(
        "Unsqueeze", g.op("Gather", src, element, axis=known_rank(g, src) - 1), axes=[known_rank(g, src)]
    )
    result = g.call("aten::where", condition=is_diagonal, self=written, other=data)
    return g.call("aten::movedim", self=result, source=[-2, -1], destination=dims)
