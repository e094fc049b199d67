"""Reading by index tensors: embedding, gather, index, index_select, take_along_dim, diagonal."""

from collections.abc import Sequence

import numpy as np

from .....registration import DataType, GraphContext, Value, onnx_symbolic
from ....compositions.size_arithmetic import (
    Size,
    axis,
    compute,
    known_rank,
    product,
    same_size,
    sizes_of,
    where_true,
)
from ..shapes.shape import broadcast_sizes


@onnx_symbolic("aten::embedding")
def embedding(g: GraphContext, weight: Value, indices: Value, padding_idx: int | Value = -1) -> Value:
    """The padding index only affects gradients."""
    return g.op("Gather", weight, indices)


@onnx_symbolic("aten::index_select")
def index_select(g: GraphContext, self: Value, dim: int, index: Value) -> Value:
    positions = g.op("Reshape", index, [-1]) if g.rank(index) != 1 else index
    if known_rank(g, self) == 0:
        return self
    return g.op("Gather", self, positions, axis=axis(g, self, dim))


@onnx_symbolic("aten::take")
def take(g: GraphContext, self: Value, index: Value) -> Value:
    return g.op_of_any_data("Gather", g.op("Reshape", self, [-1]), index)


@onnx_symbolic("aten::gather")
def gather(g: GraphContext, self: Value, dim: int, index: Value) -> Value:
    is_of_other_rank = known_rank(g, self) != known_rank(g, index)  # a scalar, or no index
    if is_of_other_rank or known_rank(g, self) == 0:
        return g.op("Gather", g.op("Reshape", self, [-1]), index)
    return g.op("GatherElements", self, index, axis=axis(g, self, dim))


@onnx_symbolic("composed::flat_positions")
def flat_positions(g: GraphContext, self: Value, dim: int, index: Value) -> Value:
    """The flattened positions of the elements that `index` selects along a dimension."""
    sizes, counts = sizes_of(g, self), sizes_of(g, index)
    positions = _times(g, g.cast(index, DataType.INT64), product(g, sizes[dim + 1 :]))
    for dimension, count in enumerate(counts):
        if dimension == dim or (isinstance(count, int) and count == 1):
            continue
        along = _times(g, g.call("sym::range", start=0, end=count), product(g, sizes[dimension + 1 :]))
        remaining_axes = [i for i in range(len(sizes)) if i != dimension]
        positions = g.op("Add", positions, g.op("Unsqueeze", along, axes=remaining_axes))
    return positions


def _times(g: GraphContext, positions: Value, stride: Size) -> Value:
    return positions if isinstance(stride, int) and stride == 1 else g.op("Mul", positions, stride)


def _modulo(g: GraphContext, index: Value, size: Size) -> Value:
    """Reduce positions modulo the size of the dimension, as `take_along_dim` does."""
    if isinstance(size, int) and size == 0:
        return index
    # Below opset 9 `aten::remainder` would need a Where.
    if g.has("Where"):
        return g.call("aten::remainder", self=index, other=size)
    multiple = g.op("Mul", g.op("Div", index, size), size)
    return g.call("composed::wrap", index=g.op("Sub", index, multiple), size=size)


@onnx_symbolic("aten::take_along_dim")
def take_along_dim(g: GraphContext, self: Value, indices: Value, dim: int | None = None) -> Value:
    """Sizes other than the dimension's broadcast."""
    if dim is None:
        return g.call(
            "aten::gather", self=g.op("Reshape", self, [-1]), dim=0, index=g.op("Reshape", indices, [-1])
        )
    dimension = axis(g, self, dim)
    indices = _modulo(g, indices, g.size(self, dimension))
    sizes, index_sizes = sizes_of(g, self), sizes_of(g, indices)
    shared = [b if isinstance(a, int) and a == 1 else a for a, b in zip(sizes, index_sizes, strict=True)]
    data = g.call("aten::expand", self=self, size=[*shared[:dimension], -1, *shared[dimension + 1 :]])
    index = g.call("aten::expand", self=indices, size=[*shared[:dimension], -1, *shared[dimension + 1 :]])
    return g.call("aten::gather", self=data, dim=dimension, index=index)


@onnx_symbolic(["aten::index", "aten::_unsafe_index"])
def index(g: GraphContext, self: Value, indices: list[Value | None]) -> Value:
    """Index tensors broadcast; if their dimensions are not adjacent, the broadcast dimensions come first."""
    data, positions = without_masks(g, self, indices)
    dims = sorted(positions)
    if not dims:
        return data
    if len(dims) == 1:
        return g.op_of_any_data("Gather", data, positions[dims[0]], axis=dims[0])
    repeated = _index_repeated(g, data, positions)
    if repeated is not None:
        return repeated
    # As in NumPy, index tensors that are not adjacent put their dimensions first.
    first = dims[0] if are_adjacent(dims) else 0
    if not are_adjacent(dims):
        data = g.call(
            "aten::permute",
            self=data,
            dims=[*dims, *(dim for dim in range(known_rank(g, data)) if dim not in dims)],
        )
    sizes = sizes_of(g, data)[first : first + len(dims)]
    index_of_merged = linear_positions(g, [positions[dimension] for dimension in dims], sizes)
    return g.op("Gather", merge_dims(g, data, first, len(dims)), index_of_merged, axis=first)


def _index_repeated(g: GraphContext, data: Value, positions: dict[int, Value]) -> Value | None:
    """The elements at several indices, some of which select in dimensions of equal elements; else None.

    An index of a dimension of size 1, or of one that an Expand repeats, adds only sizes to the result.
    """
    node, dims = data.producer(), sorted(positions)
    source, after = data, g.shape(data) or ()
    if node is not None and node.op_type == "Expand" and not node.domain and node.inputs[0] is not None:
        before = g.shape(node.inputs[0]) or ()
        are_indexed = len(before) == len(after) and all(
            dim in dims or same_size(size, after[dim]) for dim, size in enumerate(before)
        )
        # A dimension that is not indexed would stay repeated.
        source = node.inputs[0] if are_indexed else data
    repeated = [dim for dim, size in enumerate(g.shape(source) or ()) if size == 1 and dim in dims]
    kept = [dim for dim in dims if dim not in repeated]
    if not repeated or not kept or not are_adjacent(dims):
        return None
    sizes = broadcast_sizes(g, list(positions.values()))
    source_sizes = sizes_of(g, source)
    source = g.op("Squeeze", source, axes=repeated)
    first = dims[0]
    added = [len(sizes) - known_rank(g, positions[dim]) for dim in kept]
    aligned = [
        g.op("Unsqueeze", positions[dim], axes=[*range(count)]) if count else positions[dim]
        for dim, count in zip(kept, added, strict=True)
    ]
    result = g.call("aten::index", self=source, indices=[None] * first + aligned)
    return g.call(
        "aten::expand", self=result, size=[*source_sizes[:first], *sizes, *source_sizes[dims[-1] + 1 :]]
    )


def are_adjacent(dims: Sequence[int]) -> bool:
    """Whether indexed dimensions are adjacent."""
    return dims[-1] - dims[0] == len(dims) - 1


def merge_dims(g: GraphContext, data: Value, first: int, count: int) -> Value:
    """The value with consecutive dimensions merged into one."""
    return g.call("aten::flatten", self=data, start_dim=first, end_dim=first + count - 1)


def linear_positions(g: GraphContext, positions: Sequence[Value], sizes: Sequence[Size]) -> Value:
    """One index tensor for merged dimensions, computed from an index tensor for each."""
    total: Value | None = None
    for i, index in enumerate(positions):
        front = g.cast(g.call("composed::wrap", index=index, size=sizes[i]), DataType.INT64)
        term = _times(g, front, product(g, sizes[i + 1 :]))
        total = term if total is None else g.op("Add", total, term)
    assert total is not None
    return total


def without_masks(
    g: GraphContext, self: Value, indices: Sequence[Value | None]
) -> tuple[Value, dict[int, Value]]:
    """The value and its index tensors by dimension, with masks replaced by the positions of true elements.

    A mask of several dimensions merges them. UINT8 tensors are masks too.
    """
    positions: dict[int, Value] = {}
    dimension = 0
    for item in indices:
        if item is None:
            dimension += 1
            continue
        if g.dtype(item) not in (DataType.BOOL, DataType.UINT8):
            positions[dimension] = item
            dimension += 1
            continue
        rank = known_rank(g, item)
        mask = g.cast(item, DataType.BOOL)
        if rank == 0:
            self, mask = g.op("Unsqueeze", self, axes=[dimension]), g.op("Unsqueeze", mask, axes=[0])
        elif rank > 1:
            self, mask = merge_dims(g, self, dimension, rank), g.op("Reshape", mask, [-1])
        positions[dimension] = where_true(g, mask)
        dimension += 1
    return self, positions


@onnx_symbolic("aten::diagonal")
def diagonal(g: GraphContext, self: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """The diagonal of two dimensions, as the last dimension."""
    rows, columns = axis(g, self, dim1), axis(g, self, dim2)
    data = g.call("aten::movedim", self=self, source=[rows, columns], destination=[-2, -1])
    rank = known_rank(g, data)
    height, width = sizes_of(g, data)[-2:]
    down, right = max(-offset, 0), max(offset, 0)
    length = compute(g, "min", compute(g, "sub", height, down), compute(g, "sub", width, right))
    length = compute(g, "max", length, 0)
    # In the flattened matrix neighbours on a diagonal are one row and one column apart.
    start = compute(g, "add", compute(g, "mul", width, down), right)
    stride = compute(g, "add", width, 1)
    if isinstance(length, int) and isinstance(start, int) and isinstance(stride, int):
        g.reserve(length)
        diagonal_index = g.constant(start + stride * np.arange(length, dtype=np.int64))
    else:
        diagonal_index = g.op("Mul", g.call("sym::range", start=0, end=length), stride)
        diagonal_index = g.op("Add", diagonal_index, start)
    return g.op("Gather", merge_dims(g, data, rank - 2, 2), diagonal_index, axis=rank - 2)


@onnx_symbolic("aten::trace")
def trace(g: GraphContext, self: Value) -> Value:
    return g.call("aten::sum", self=g.call("aten::diagonal", self=self))
