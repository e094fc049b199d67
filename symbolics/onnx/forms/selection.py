"""Gather, ScatterElements, Expand, CumSum, TopK and others as operators that more consumers read."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....registration import DataType, GraphContext, Value, onnx_symbolic
from ....registration.dtypes import FLOATS
from ..support import integers
from .sizes import is_stored, static_shape

_EXACT = (DataType.FLOAT, DataType.DOUBLE)
_MULTIPLIED = (*_EXACT, DataType.INT32, DataType.INT64)
MAXIMUM_PARTS = 64
"""The operands of a Concat."""
MAXIMUM_SUMMANDS = 1 << 11
"""The elements of a row whose sums are a product with a matrix."""
MAXIMUM_ROWS = 1 << 17
"""The rows of a table that are selected by a product."""
MAXIMUM_ELEMENTS = 1 << 22
"""The elements of a matrix that selects constant positions."""


@onnx_symbolic("form::TopK.arg_max")
def top_k_arg_max(
    g: GraphContext, X: Value, K: Value, axis: int = -1, largest: int = 1, sorted: int = 1
) -> list[Value]:
    """Of one element: the extreme value and its position."""
    if integers(g, K) != [1]:
        raise g.refuse("K is not 1")
    extreme, position = ("ReduceMax", "ArgMax") if largest else ("ReduceMin", "ArgMin")
    return [g.op(extreme, X, axes=[axis], keepdims=1), g.op(position, X, axis=axis, keepdims=1)]


@onnx_symbolic("form::Unsqueeze.single")
def unsqueeze_single(g: GraphContext, data: Value, axes: Value | list[int]) -> Value:
    """An Unsqueeze for each dimension."""
    rank, listed = g.rank(data), integers(g, axes)
    if rank is None or listed is None:
        raise g.refuse("the axes or the rank are unknown")
    if len(listed) < 2:
        raise g.refuse("there is one axis")
    for axis in sorted(axis % (rank + len(listed)) for axis in listed):
        data = g.op("Unsqueeze", data, axes=[axis])
    return data


@onnx_symbolic("form::Squeeze.sum")
def squeeze_to_a_number(g: GraphContext, data: Value, axes: Value | list[int] | None = None) -> Value:
    """A Squeeze to rank 0 as the sum of the only element."""
    rank, listed = g.rank(data), integers(g, axes) if axes is not None else None
    if not rank or listed is None or len(listed) != rank or g.dtype(data) not in _MULTIPLIED:
        raise g.refuse("the result is not a number, or is not of a type that is summed")
    return g.op("ReduceSum", data, axes=listed, keepdims=0)


@onnx_symbolic("form::Gather.sum")
def gather_a_number(g: GraphContext, data: Value, indices: Value, axis: int = 0) -> Value:
    """One element of a vector as the sum of a slice, for consumers without tensors of rank 0."""
    position = g.constant_value(indices)
    if g.rank(data) != 1 or position is None or position.ndim or g.dtype(data) not in _MULTIPLIED:
        raise g.refuse("the result is not a number, or is not of a type that is summed")
    start = int(position)
    # A Slice up to the end has no position behind the last element in counts from the end.
    end = start + 1 if start != -1 else np.iinfo(np.int64).max
    element = g.op("Slice", data, starts=[start], ends=[end], axes=[0])
    return g.op("ReduceSum", element, axes=[0], keepdims=0)


@onnx_symbolic("form::Gather.slices")
def gather_slices(g: GraphContext, data: Value, indices: Value, axis: int = 0) -> Value:
    """A Slice for each run of constant positions, and their concatenation."""
    positions, sizes = g.constant_value(indices), static_shape(g, data)
    if positions is None:
        raise g.refuse("the positions are computed")
    if positions.size < 2 or g.constant_value(data) is not None:
        raise g.refuse("there is one position, or the data are constant")
    axis %= len(sizes)
    runs: list[list[int]] = []
    for position in (int(number) % sizes[axis] for number in positions.reshape(-1)):
        if runs and position == runs[-1][-1] + 1:
            runs[-1].append(position)
        else:
            runs.append([position])
    if len(runs) > MAXIMUM_PARTS:
        raise g.refuse(f"the positions have more than {MAXIMUM_PARTS} runs")
    parts = [
        data
        if len(run) == sizes[axis]
        else g.op("Slice", data, starts=[run[0]], ends=[run[-1] + 1], axes=[axis])
        for run in runs
    ]
    selected = parts[0] if len(parts) == 1 else g.op("Concat", *parts, axis=axis)
    if positions.ndim == 1:
        return g.op("Identity", selected) if selected is data else selected
    return g.op("Reshape", selected, [*sizes[:axis], *positions.shape, *sizes[axis + 1 :]])


@onnx_symbolic("form::Gather.product")
def gather_product(g: GraphContext, data: Value, indices: Value, axis: int = 0) -> Value:
    """Two or more constant positions by a product with a matrix of zeros and ones, of finite numbers."""
    positions, shape, dtype = g.constant_value(indices), g.shape(data), g.dtype(data)
    if positions is None or positions.ndim != 1 or positions.size < 2 or is_stored(data):
        raise g.refuse("the positions are no constant vector of two or more, or the data are constant")
    if shape is None or dtype is None or dtype not in FLOATS:
        raise g.refuse("the rank is unknown, or the data are not floating-point numbers")
    axis = g.axis(axis, len(shape))
    size = shape[axis]
    if not isinstance(size, int) or size * positions.size > MAXIMUM_ELEMENTS:
        raise g.refuse(f"a size is unknown, or the matrix has more than {MAXIMUM_ELEMENTS} elements")
    matrix = g.constant(np.eye(size, dtype=np.float32)[:, positions], dtype)
    if axis == len(shape) - 1:
        return g.op("MatMul", data, matrix)
    perm = list(range(len(shape)))
    perm[axis], perm[-1] = perm[-1], perm[axis]
    return g.op("Transpose", g.op("MatMul", g.op("Transpose", data, perm=perm), matrix), perm=perm)


@onnx_symbolic("form::Expand.concat")
def expand_concat(g: GraphContext, input: Value, shape: Value | list[int]) -> Value:
    """Copies of the data, of static sizes."""
    requested, sizes = integers(g, shape), static_shape(g, input)
    if requested is None:
        raise g.refuse("a size is unknown")
    rank = max(len(sizes), len(requested))
    sizes_before = [1] * (rank - len(sizes)) + sizes
    sizes_after = np.broadcast_shapes(tuple(sizes_before), tuple(requested))
    copies = [after // before for before, after in zip(sizes_before, sizes_after, strict=True)]
    if sum(copies) - rank > MAXIMUM_PARTS:
        raise g.refuse(f"there are more than {MAXIMUM_PARTS} copies")
    result = input if rank == len(sizes) else g.op("Reshape", input, sizes_before)
    for axis, count in enumerate(copies):
        if count > 1:
            result = g.op("Concat", *[result] * count, axis=axis)
    return g.op("Identity", input) if result is input else result


@onnx_symbolic("form::Expand.mul")
def expand_mul(g: GraphContext, input: Value, shape: Value | list[int]) -> Value:
    """The product with ones: the result of arithmetic, which no runtime merges with its readers."""
    requested, sizes = integers(g, shape), static_shape(g, input)
    if requested is None or g.dtype(input) not in _MULTIPLIED:
        raise g.refuse("a size is unknown, or the elements are not numbers of 32 or 64 bits")
    before = [1] * (len(requested) - len(sizes)) + sizes
    after = np.broadcast_shapes(tuple(before), tuple(requested))
    # Ones of the broadcast dimensions are enough.
    factor_shape = [new if new != old else 1 for old, new in zip(before, after, strict=True)]
    return g.op("Mul", input, g.constant(np.ones(factor_shape), g.dtype(input)))


@onnx_symbolic("form::CumSum.int32")
def cum_sum_int32(
    g: GraphContext, x: Value, axis: Value | int, exclusive: int = 0, reverse: int = 0
) -> Value:
    """Counts of the true elements of a mask: they are below 2**31, because no dimension is larger."""
    mask: Value | None = x
    while mask is not None and (producer := mask.producer()) is not None and producer.op_type == "Cast":
        mask = producer.inputs[0]
    if g.dtype(x) is not DataType.INT64 or mask is None or g.dtype(mask) is not DataType.BOOL:
        raise g.refuse("it does not sum a mask")
    counts = g.op("CumSum", g.cast(mask, DataType.INT32), axis, exclusive=exclusive, reverse=reverse)
    return g.cast(counts, DataType.INT64)


@onnx_symbolic("form::CumSum.product")
def cum_sum_product(
    g: GraphContext, x: Value, axis: Value | int, exclusive: int = 0, reverse: int = 0
) -> Value:
    """The product with a triangular matrix of ones, of floats along the last dimension."""
    listed, shape = integers(g, axis) if isinstance(axis, Value) else [axis], g.shape(x)
    size = shape[-1] if shape else None
    if not isinstance(size, int) or size > MAXIMUM_SUMMANDS or g.dtype(x) not in _EXACT or shape is None:
        raise g.refuse(f"it is not of floats, or of more than {MAXIMUM_SUMMANDS}")
    if not listed or listed[0] % len(shape) != len(shape) - 1:
        raise g.refuse("it is not along the last dimension")
    is_summed = np.triu(np.ones((size, size), np.float32), 1 if exclusive else 0)
    return g.op("MatMul", x, g.constant(is_summed.T if reverse else is_summed, g.dtype(x)))


@onnx_symbolic("form::Gather.one_hot")
def gather_one_hot(g: GraphContext, data: Value, indices: Value, axis: int = 0) -> Value:
    """The product of one-hot rows and a constant table, of at most `MAXIMUM_ROWS` rows."""
    table, shape, dtype = g.constant_value(data), g.shape(data), g.dtype(data)
    # 16-bit floats do not have every position.
    if table is None or shape is None or len(shape) != 2 or axis % 2 or dtype not in _EXACT:
        raise g.refuse("the table is computed, no matrix, or not of FLOAT or DOUBLE")
    if is_stored(indices):
        raise g.refuse("the positions are constant")
    if table.shape[0] > MAXIMUM_ROWS:
        raise g.refuse(f"the table has more than {MAXIMUM_ROWS} rows")
    return one_hot_product(g, data, g.cast(indices, dtype), static_shape(g, indices))


def one_hot_product(g: GraphContext, table: Value, number: Value, lengths: list[int]) -> Value:
    """The rows of a table at positions, which are floats and may be negative."""
    array, dtype = g.constant_value(table), g.dtype(table)
    assert array is not None
    assert dtype is not None
    rows, columns = array.shape
    number = g.op("Reshape", number, [math.prod(lengths), 1])
    # 1 for negative positions, which count from the end, and 0 for others.
    opposite = g.op("Mul", number, -1.0)
    is_negative = g.op("Sub", g.op("Relu", opposite), g.op("Relu", g.op("Add", opposite, -1.0)))
    position = g.op("Add", number, g.op("Mul", is_negative, float(rows)))
    column_of_ones, numbers = (array.astype(dtype.numpy()) for array in (np.ones((1, rows)), np.arange(rows)))
    distance = g.op("Add", g.op("MatMul", position, column_of_ones), -numbers)
    one_hot = g.op("Relu", g.op("Add", g.op("Mul", g.op("Abs", distance), -1.0), 1.0))
    return g.op("Reshape", g.op("MatMul", one_hot, table), [*lengths, columns])


@onnx_symbolic("form::Gather.slices_or_one_hot")
def gather_slices_or_one_hot(g: GraphContext, data: Value, indices: Value, axis: int = 0) -> Value:
    """The form of constant positions, or that of a constant table."""
    form = gather_one_hot if g.constant_value(indices) is None else gather_slices
    return form(g, data, indices, axis)


def _smaller_sizes(g: GraphContext, data: Value, indices: Value, axis: int) -> dict[int, tuple[int, int]]:
    """The sizes of the indices and of the data along the axes beside `axis` where they differ."""
    sizes, counts = static_shape(g, data), static_shape(g, indices)
    differing = {
        dim: (count, size)
        for dim, (count, size) in enumerate(zip(counts, sizes, strict=True))
        if dim != axis and count != size
    }
    if not differing:
        raise g.refuse("the indices have the sizes of the data")
    return differing


@onnx_symbolic("form::GatherElements.equal_sizes")
def gather_from_part(g: GraphContext, data: Value, indices: Value, axis: int = 0) -> Value:
    """Reads the part of the data that the indices are about."""
    dim = g.axis(axis, g.rank(data) or 0)
    part = data
    for side, (count, _) in _smaller_sizes(g, data, indices, dim).items():
        # OpenVINO 2026.4 removes a Slice here.
        part = g.op("Gather", part, np.arange(count, dtype=np.int64), axis=side)
    return g.op("GatherElements", part, indices, axis=dim)


@onnx_symbolic("form::ScatterElements.equal_sizes")
def scatter_into_part(
    g: GraphContext, data: Value, indices: Value, updates: Value, axis: int = 0, **arguments: Any
) -> Value:
    """Writes into the part of the data that the indices are about, and joins it with the other parts."""
    dim = g.axis(axis, g.rank(data) or 0)
    others: list[tuple[int, Value]] = []
    part = data
    for side, (count, size) in _smaller_sizes(g, data, indices, dim).items():
        others.append((side, g.op("Slice", part, starts=[count], ends=[size], axes=[side])))
        part = g.op("Slice", part, starts=[0], ends=[count], axes=[side])
    part = g.op("ScatterElements", part, indices, updates, axis=dim, **arguments)
    for side, rest_of_data in reversed(others):
        part = g.op("Concat", part, rest_of_data, axis=side)
    return part
