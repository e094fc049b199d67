"""Reads and writes by positions, below the opsets at which the operators or their arguments begin."""

import numpy as np

from ...registration import DataType, GraphContext, Value, onnx_symbolic
from ..compositions.size_arithmetic import Size, known_rank, product, sizes_of
from ..compositions.size_arithmetic import axis as front
from .support import below, integers


@below("Gather", 11, any_data=True)
def gather(g: GraphContext, data: Value, indices: Value, axis: int = 0) -> Value:
    """Below 11 positions may not be negative."""
    dim = front(g, data, axis) if axis < 0 else axis
    array = g.constant_value(indices)
    if array is None or np.any(array < 0):
        indices = g.call("composed::wrap", index=indices, size=g.size(data, dim))
    return g.op("Gather", data, indices, axis=dim)


@below("GatherElements", 11, any_data=True)
def gather_elements_from_front(g: GraphContext, data: Value, indices: Value, axis: int = 0) -> Value:
    """Below 11 positions may not be negative."""
    dim = front(g, data, axis)
    index = g.call("composed::wrap", index=indices, size=g.size(data, dim))
    return g.op("GatherElements", data, index, axis=dim)


@onnx_symbolic("onnx::GatherElements")
def gather_elements(g: GraphContext, data: Value, indices: Value, axis: int = 0) -> Value:
    """Below 11: Gather from the flattened tensor."""
    dim = front(g, data, axis)
    return g.op("Gather", g.op("Reshape", data, [-1]), g.call("composed::flat_positions", data, dim, indices))


@below("ScatterElements", 11, any_data=True)
def scatter_elements_from_front(
    g: GraphContext, data: Value, indices: Value, updates: Value, axis: int = 0, reduction: str = "none"
) -> Value:
    """Below 11 positions may not be negative."""
    dim = front(g, data, axis)
    index = g.call("composed::wrap", index=indices, size=g.size(data, dim))
    return g.op("ScatterElements", data, index, updates, axis=dim, reduction=reduction)


@onnx_symbolic("onnx::ScatterElements")
def scatter_elements(
    g: GraphContext, data: Value, indices: Value, updates: Value, axis: int = 0, reduction: str = "none"
) -> Value:
    """Below 11: Scatter. With a reduction below 16, or max and min below 18: slice after slice."""
    dim = front(g, data, axis)
    if reduction != "none":
        return g.call("composed::scatter_slices", data, dim, indices, updates, reduction)
    result = g.op("Scatter", data, indices, updates, axis=dim)
    result.shape = data.shape
    return result


def _row_positions(g: GraphContext, sizes: list[Size], indices: Value, depth: int) -> Value:
    """The row number of each index tuple in the last dimension, for rows over the first dimensions."""
    total: Value | None = None
    last = known_rank(g, indices) - 1
    for dim in range(depth):
        part = g.op("Gather", indices, dim, axis=last)
        part = g.call("composed::wrap", index=part, size=sizes[dim])
        total = part if total is None else g.op("Add", g.op("Mul", total, sizes[dim]), part)
    assert total is not None
    return total


def _depth(g: GraphContext, indices: Value) -> int | None:
    """The number of dimensions that an index tuple selects from; None if it is computed."""
    shape = g.shape(indices)
    depth = None if shape is None else shape[-1]
    if depth == 0:
        raise g.refuse("its index tuples are empty")
    return depth if isinstance(depth, int) else None


def _element_positions(g: GraphContext, sizes: list[Size], indices: Value) -> tuple[Value, Value]:
    """Where the elements of each row lie in the flattened data, for index tuples of a computed length.

    Args:
        sizes: of the data.

    Returns:
        The positions, with the elements of a row as a new last dimension, and the length of the tuples.
    """
    last = known_rank(g, indices) - 1
    depth = g.constant(g.size(indices, last))
    dims = g.call("sym::range", start=0, end=depth)
    # The numbers of elements behind each dimension; the first one is that of all elements.
    counts = g.stack([product(g, sizes[dim:]) for dim in range(len(sizes) + 1)])
    index = g.call("composed::wrap", index=indices, size=g.op("Gather", g.stack(sizes), dims))
    steps = g.op("Mul", index, g.op("Gather", counts, g.op("Add", dims, 1)))
    starts = g.op("ReduceSum", steps, axes=[last], keepdims=1)
    within = g.call("sym::range", start=0, end=g.op("Gather", counts, depth))
    return g.op("Add", starts, within), depth


def _gather_by_computed_depth(g: GraphContext, data: Value, indices: Value) -> Value:
    """Gather single elements of the flattened data; the rank of the result is computed, too."""
    sizes = sizes_of(g, data)
    positions, depth = _element_positions(g, sizes, indices)
    row_dims = g.call("sym::range", start=depth, end=len(sizes))
    row_shape = g.op("Gather", g.stack(sizes), row_dims)
    tuples = [g.size(indices, dim) for dim in range(known_rank(g, indices) - 1)]
    shape = g.op("Concat", g.stack(tuples), row_shape, axis=0) if tuples else row_shape
    elements = g.op("Gather", g.op("Reshape", data, [-1]), positions)
    return g.call("aten::reshape", self=elements, shape=shape)


@onnx_symbolic("onnx::GatherND")
def gather_nd(g: GraphContext, data: Value, indices: Value, batch_dims: int = 0) -> Value:
    """Below 11 (with batch dimensions, 12): Gather rows of the merged dimensions."""
    depth = _depth(g, indices)
    if depth is None:
        if batch_dims:
            raise g.refuse("the number of indexed dimensions must be known", first_opset=12)
        return _gather_by_computed_depth(g, data, indices)
    sizes = sizes_of(g, data)
    row_sizes = sizes[batch_dims + depth :]
    batch = sizes[:batch_dims]
    rows = g.call("aten::reshape", self=data, shape=[product(g, sizes[: batch_dims + depth]), *row_sizes])
    position = _row_positions(g, sizes[batch_dims:], indices, depth)
    if batch_dims:
        count = product(g, sizes[batch_dims : batch_dims + depth])
        numbers = g.call("sym::range", start=0, end=product(g, batch))
        starts = g.call("aten::reshape", self=g.op("Mul", numbers, count), shape=batch)
        after = known_rank(g, position) - batch_dims
        starts = (
            g.op("Unsqueeze", starts, axes=list(range(batch_dims, batch_dims + after))) if after else starts
        )
        position = g.op("Add", position, starts)
    return g.op("Gather", rows, position, axis=0)


@onnx_symbolic("onnx::ScatterND")
def scatter_nd(
    g: GraphContext, data: Value, indices: Value, updates: Value, reduction: str = "none"
) -> Value:
    """Below 11, with a reduction below 16, or max and min below 18: scatter rows of the merged dimensions."""
    depth = _depth(g, indices)
    sizes = sizes_of(g, data)
    flat = g.op("Reshape", data, [-1])
    if depth is None:
        positions, _ = _element_positions(g, sizes, indices)
    else:
        width = product(g, sizes[depth:])
        position = g.op("Reshape", _row_positions(g, sizes, indices, depth), [-1])
        within = g.call("sym::range", start=0, end=width)
        positions = g.op("Add", g.op("Unsqueeze", g.op("Mul", position, width), axes=[1]), within)
    index, source = g.op("Reshape", positions, [-1]), g.op("Reshape", updates, [-1])
    if reduction == "none":
        result = g.op("ScatterElements", flat, index, source, axis=0)
    else:
        result = g.call("composed::scatter_reduce", flat, 0, index, source, reduction)
    return g.op("Reshape", result, g.op("Shape", data))


@onnx_symbolic("onnx::TensorScatter")
def tensor_scatter(
    g: GraphContext,
    past_cache: Value,
    update: Value,
    write_indices: Value | None = None,
    axis: int = -2,
    mode: str = "linear",
) -> Value:
    """Below 24: write each batch's slice at its own position of one dimension."""
    dim = front(g, past_cache, axis)
    rank = known_rank(g, past_cache)
    sizes = sizes_of(g, update)
    begin = g.constant([0]) if write_indices is None else write_indices
    numbers = g.call("sym::range", start=0, end=sizes[dim])
    positions = g.op("Add", g.op("Unsqueeze", begin, axes=[1]), numbers)
    if mode == "circular":
        positions = g.call("sym::mod", a=positions, b=g.size(past_cache, dim))
    # ScatterElements takes one position per element, so the positions of a slice are repeated over its
    # other dimensions.
    between = [i for i in range(1, rank) if i != dim]
    positions = g.op("Unsqueeze", positions, axes=between)
    index = g.op("Expand", positions, g.op("Shape", update))
    return g.op("ScatterElements", past_cache, index, update, axis=dim)


@below("TopK", 11)
def top_k(
    g: GraphContext,
    X: Value,
    K: Value | list[int | Value] | None = None,
    axis: int = -1,
    largest: int = 1,
    sorted: int = 1,
    k: int | None = None,
) -> list[Value]:
    """Below 11 only the largest of floats; below 10 `k` is an attribute and constant."""
    dim = front(g, X, axis)
    number = k if k is not None else _single(g, K)
    return g.call_outputs("composed::top", X, number, dim, bool(largest))[:2]


def _single(g: GraphContext, K: Value | list[int | Value] | None) -> int | Value:
    """The single number of a list."""
    if isinstance(K, list) and len(K) == 1:
        return K[0]
    value = g.constant(K)
    numbers = integers(g, value)
    return numbers[0] if numbers is not None else g.op("Reshape", value, g.constant([], DataType.INT64))


@onnx_symbolic("onnx::OneHot", opset=8)
@below("OneHot", 11, any_data=True)
def one_hot(g: GraphContext, indices: Value, depth: Value, values: Value, axis: int = -1) -> Value:
    """Below 11 positions may not be negative."""
    number = g.cast(depth, DataType.INT64)
    if g.rank(number) != 0:
        number = g.op("Reshape", number, g.constant([], DataType.INT64))
    positions = g.cast(indices, DataType.INT64)
    classes = g.op("Where", g.op("Less", positions, 0), g.op("Add", positions, number), positions)
    rank = known_rank(g, indices) + 1
    dim = axis + rank if axis < 0 else axis
    # Not with OneHot, because runtimes differ for positions out of range.
    expanded = g.op("Unsqueeze", classes, axes=[dim])
    numbers = g.call("sym::range", start=0, end=number)
    after = rank - dim - 1
    numbers = g.op("Unsqueeze", numbers, axes=list(range(1, after + 1))) if after else numbers
    is_hot = g.op("Equal", expanded, numbers)
    off, on = (g.op("Gather", values, i, axis=0) for i in (0, 1))
    return g.call("composed::where", condition=is_hot, self=on, other=off)


@onnx_symbolic("onnx::ReverseSequence")
def reverse_sequence(
    g: GraphContext, input: Value, sequence_lens: Value, batch_axis: int = 1, time_axis: int = 0
) -> Value:
    """Below 10: Gather with reversed positions inside of each sequence."""
    rank = known_rank(g, input)
    sizes = sizes_of(g, input)
    steps = g.call("sym::range", start=0, end=sizes[time_axis])
    lengths = g.cast(sequence_lens, DataType.INT64)
    steps, lengths = (
        g.op("Unsqueeze", steps, axes=[1 - time_axis]),
        g.op("Unsqueeze", lengths, axes=[1 - batch_axis]),
    )
    backwards = g.op("Sub", g.op("Sub", lengths, 1), steps)
    positions = g.op(
        "Where", g.op("Less", steps, lengths), backwards, g.op("Add", steps, g.op("Mul", lengths, 0))
    )
    positions = g.op("Unsqueeze", positions, axes=list(range(2, rank))) if rank > 2 else positions
    index = g.op("Expand", positions, g.stack(sizes))
    return g.op("GatherElements", input, index, axis=time_axis)


@onnx_symbolic("onnx::DepthToSpace")
def depth_to_space(g: GraphContext, input: Value, blocksize: int, mode: str = "DCR") -> Value:
    """Below 11 the operator has channels last (DCR)."""
    if mode == "DCR":
        return g.op("DepthToSpace", input, blocksize=blocksize)
    channels = g.size(input, 1)
    if not isinstance(channels, int):
        raise g.refuse("the number of channels must be known", first_opset=11)
    if blocksize < 1 or channels % blocksize**2:
        raise g.refuse(f"{channels} channels cannot be split into blocks of {blocksize} by {blocksize}")
    g.reserve(channels)
    # CRD has the channels of a pixel first: reorder them as the operator of these opsets expects them.
    order = np.arange(channels).reshape(-1, blocksize, blocksize).transpose(1, 2, 0).reshape(-1)
    return g.op("DepthToSpace", g.op("Gather", input, order.tolist(), axis=1), blocksize=blocksize)


@onnx_symbolic("onnx::Unique")
def unique(
    g: GraphContext, X: Value, axis: int | None = None, sorted: int = 1, outputs: int = 1
) -> list[Value]:
    """Below 11: only sorted unique elements of the whole tensor."""
    if axis is not None and known_rank(g, X) != 1:
        raise g.refuse("unique slices along an axis are not supported", first_opset=11)
    flat = g.op("Reshape", X, [-1])
    values, inverse, counts = g.call_outputs("composed::unique", flat)
    count = g.size(flat, 0)
    length = g.size(values, 0)
    firsts = _first_positions(g, inverse, length, count)
    if sorted:
        return [values, firsts, inverse, counts][:outputs]
    # Unsorted means in the order of first occurrence.
    order = g.call("aten::argsort", self=firsts)
    rank = g.call("aten::argsort", self=order)
    return [
        g.op("Gather", values, order),
        g.op("Gather", firsts, order),
        g.op("Gather", rank, inverse),
        g.op("Gather", counts, order),
    ][:outputs]


def _first_positions(g: GraphContext, inverse: Value, length: Size, count: Size) -> Value:
    """The first position of each unique element."""
    numbers = g.call("sym::range", start=0, end=count)
    rows = g.op("Unsqueeze", g.call("sym::range", start=0, end=length), axes=[1])
    is_equal = g.op("Equal", rows, g.op("Unsqueeze", inverse, axes=[0]))
    # Other elements get a position beyond the last one, so that the minimum ignores them.
    candidates = g.op("Where", is_equal, numbers, g.constant(count, DataType.INT64))
    return g.call("aten::amin", candidates, [1], False)


@onnx_symbolic("before11::Scatter")
def scatter(g: GraphContext, data: Value, indices: Value, updates: Value, axis: int = 0) -> Value:
    """ScatterElements since 11."""
    return g.op("ScatterElements", data, indices, updates, axis=axis)
