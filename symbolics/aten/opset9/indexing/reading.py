"""Reading by index tensors: embedding, gather, index, index_select, take_along_dim, diagonal."""

from collections.abc import Sequence

import numpy as np

from .....registration import DataType, GraphContext, Value, onnx_symbolic
from ....compositions.sizes import Size, axis, compute, known_rank, product, sizes_of, where_true


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
    for place, count in enumerate(counts):
        if place == dim or (isinstance(count, int) and count == 1):
            continue
        along = _times(g, g.call("sym::range", start=0, end=count), product(g, sizes[place + 1 :]))
        others = [at for at in range(len(sizes)) if at != place]
        positions = g.op("Add", positions, g.op("Unsqueeze", along, axes=others))
    return positions


def _times(g: GraphContext, positions: Value, stride: Size) -> Value:
    return positions if isinstance(stride, int) and stride == 1 else g.op("Mul", positions, stride)


def _modulo(g: GraphContext, index: Value, size: Size) -> Value:
    """Reduce positions modulo the size of the dimension, as `take_along_dim` does."""
    if isinstance(size, int) and size == 0:
        return index
    if g.has("Where"):
        return g.call("aten::remainder", self=index, other=size)
    taken = g.op("Mul", g.op("Div", index, size), size)
    return g.call("composed::wrap", index=g.op("Sub", index, taken), size=size)


@onnx_symbolic("aten::take_along_dim")
def take_along_dim(g: GraphContext, self: Value, indices: Value, dim: int | None = None) -> Value:
    """Sizes other than the dimension's broadcast."""
    if dim is None:
        return g.call(
            "aten::gather", self=g.op("Reshape", self, [-1]), dim=0, index=g.op("Reshape", indices, [-1])
        )
    at = axis(g, self, dim)
    indices = _modulo(g, indices, g.size(self, at))
    own, wanted = sizes_of(g, self), sizes_of(g, indices)
    shared = [b if isinstance(a, int) and a == 1 else a for a, b in zip(own, wanted, strict=True)]
    data = g.call("aten::expand", self=self, size=[*shared[:at], -1, *shared[at + 1 :]])
    index = g.call("aten::expand", self=indices, size=[*shared[:at], -1, *shared[at + 1 :]])
    return g.call("aten::gather", self=data, dim=at, index=index)


@onnx_symbolic(["aten::index", "aten::_unsafe_index"])
def index(g: GraphContext, self: Value, indices: list[Value | None]) -> Value:
    """Index tensors broadcast; if their dimensions are not adjacent, the broadcast dimensions come first."""
    data, positions = without_masks(g, self, indices)
    places = sorted(positions)
    if not places:
        return data
    if len(places) == 1:
        return g.op_of_any_data("Gather", data, positions[places[0]], axis=places[0])
    first = places[0] if are_adjacent(places) else 0
    if not are_adjacent(places):
        data = g.call("aten::permute", self=data, dims=[*places, *_others(g, data, places)])
    sizes = sizes_of(g, data)[first : first + len(places)]
    picked = linear_positions(g, [positions[place] for place in places], sizes)
    return g.op("Gather", merged(g, data, first, len(places)), picked, axis=first)


def _others(g: GraphContext, data: Value, places: Sequence[int]) -> list[int]:
    return [place for place in range(known_rank(g, data)) if place not in places]


def are_adjacent(places: Sequence[int]) -> bool:
    """Whether indexed dimensions are adjacent."""
    return places[-1] - places[0] == len(places) - 1


def merged(g: GraphContext, data: Value, first: int, count: int) -> Value:
    """The value with consecutive dimensions merged into one."""
    return g.call("aten::flatten", self=data, start_dim=first, end_dim=first + count - 1)


def linear_positions(g: GraphContext, positions: Sequence[Value], sizes: Sequence[Size]) -> Value:
    """One index tensor for merged dimensions, computed from an index tensor for each."""
    total: Value | None = None
    for place, index in enumerate(positions):
        front = g.cast(g.call("composed::wrap", index=index, size=sizes[place]), DataType.INT64)
        term = _times(g, front, product(g, sizes[place + 1 :]))
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
    place = 0
    for item in indices:
        if item is None:
            place += 1
            continue
        if g.dtype(item) not in (DataType.BOOL, DataType.UINT8):
            positions[place] = item
            place += 1
            continue
        rank = known_rank(g, item)
        mask = g.cast(item, DataType.BOOL)
        if rank == 0:
            self, mask = g.op("Unsqueeze", self, axes=[place]), g.op("Unsqueeze", mask, axes=[0])
        elif rank > 1:
            self, mask = merged(g, self, place, rank), g.op("Reshape", mask, [-1])
        positions[place] = where_true(g, mask)
        place += 1
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
    start = compute(g, "add", compute(g, "mul", width, down), right)
    stride = compute(g, "add", width, 1)
    if isinstance(length, int) and isinstance(start, int) and isinstance(stride, int):
        g.reserve(length)
        picked = g.constant(start + stride * np.arange(length, dtype=np.int64))
    else:
        picked = g.op("Mul", g.call("sym::range", start=0, end=length), stride)
        picked = g.op("Add", picked, start)
    return g.op("Gather", merged(g, data, rank - 2, 2), picked, axis=rank - 2)


@onnx_symbolic("aten::trace")
def trace(g: GraphContext, self: Value) -> Value:
    return g.call("aten::sum", self=g.call("aten::diagonal", self=self))
