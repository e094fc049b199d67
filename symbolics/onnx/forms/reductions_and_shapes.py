"""Forms of reductions, of normalization, and of operators that select or move elements."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from ....registration import DataType, GraphContext, Value, onnx_symbolic
from ....registration.dtypes import FLOATS
from ..support import integers

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
    positions, shape = g.constant_value(indices), g.shape(data)
    if positions is None or shape is None or not all_static(shape):
        raise g.refuse("the positions are computed, or a size is unknown")
    if positions.size < 2 or g.constant_value(data) is not None:
        raise g.refuse("there is one position, or the data are constant")
    sizes = [size for size in shape if isinstance(size, int)]
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
    requested, sizes = integers(g, shape), g.shape(input)
    if requested is None or sizes is None or not all_static(sizes):
        raise g.refuse("a size is unknown")
    static_sizes = [size for size in sizes if isinstance(size, int)]
    rank = max(len(static_sizes), len(requested))
    sizes_before = [1] * (rank - len(static_sizes)) + static_sizes
    sizes_after = np.broadcast_shapes(tuple(sizes_before), tuple(requested))
    copies = [after // before for before, after in zip(sizes_before, sizes_after, strict=True)]
    if sum(copies) - rank > MAXIMUM_PARTS:
        raise g.refuse(f"there are more than {MAXIMUM_PARTS} copies")
    result = input if rank == len(static_sizes) else g.op("Reshape", input, sizes_before)
    for axis, count in enumerate(copies):
        if count > 1:
            result = g.op("Concat", *[result] * count, axis=axis)
    return g.op("Identity", input) if result is input else result


@onnx_symbolic("form::Expand.mul")
def expand_mul(g: GraphContext, input: Value, shape: Value | list[int]) -> Value:
    """The product with ones: the result of arithmetic, which no runtime merges with its readers."""
    requested, sizes = integers(g, shape), g.shape(input)
    if requested is None or sizes is None or not all_static(sizes) or g.dtype(input) not in _MULTIPLIED:
        raise g.refuse("a size is unknown, or the elements are not numbers of 32 or 64 bits")
    static_sizes = [size for size in sizes if isinstance(size, int)]
    before = [1] * (len(requested) - len(static_sizes)) + static_sizes
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
    table, shape, sizes, dtype = g.constant_value(data), g.shape(data), g.shape(indices), g.dtype(data)
    # 16-bit floats do not have every position.
    if table is None or shape is None or len(shape) != 2 or axis % 2 or dtype not in _EXACT:
        raise g.refuse("the table is computed, no matrix, or not of FLOAT or DOUBLE")
    if sizes is None or not all_static(sizes) or is_stored(indices):
        raise g.refuse("the number of positions is unknown, or they are constant")
    if table.shape[0] > MAXIMUM_ROWS:
        raise g.refuse(f"the table has more than {MAXIMUM_ROWS} rows")
    lengths = [size for size in sizes if isinstance(size, int)]
    return one_hot_product(g, data, g.cast(indices, dtype), lengths)


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
    result: Value = g.op("Reshape", g.op("MatMul", one_hot, table), [*lengths, columns])
    return result


@onnx_symbolic("form::Gather.slices_or_one_hot")
def gather_slices_or_one_hot(g: GraphContext, data: Value, indices: Value, axis: int = 0) -> Value:
    """The form of constant positions, or that of a constant table."""
    form = gather_one_hot if g.constant_value(indices) is None else gather_slices
    return form(g, data, indices, axis)


def _register_single_reduction(op_type: str) -> None:
    @onnx_symbolic(f"form::{op_type}.single")
    def reduce_one_by_one(
        g: GraphContext,
        data: Value,
        axes: Value | list[int] | None = None,
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> Value:
        """A reduction for each dimension, unless the dimensions are the last ones."""
        rank, listed = g.rank(data), integers(g, axes)
        if rank is None or not listed or len(listed) < 2:
            raise g.refuse("the axes or the rank are unknown, or there is one axis")
        ordered = sorted(axis % rank for axis in listed)
        if ordered == list(range(rank - len(ordered), rank)):
            raise g.refuse("the dimensions are the last ones")
        for axis in reversed(ordered):
            data = g.op(op_type, data, axes=[axis], keepdims=keepdims)
        return data


for _op_type in ("ReduceMax", "ReduceMean", "ReduceMin"):
    _register_single_reduction(_op_type)


@onnx_symbolic("form::ReduceSum.mean")
def reduce_sum(
    g: GraphContext,
    data: Value,
    axes: Value | list[int] | None = None,
    keepdims: int = 1,
    noop_with_empty_axes: int = 0,
) -> Value:
    """The mean along one axis, times the number of its elements."""
    listed = integers(g, axes)
    size = g.size(data, listed[0]) if listed and len(listed) == 1 else None
    if not isinstance(size, int) or size < 1 or g.dtype(data) not in FLOATS:
        raise g.refuse("it is not a sum of floats along one axis of known size")
    return g.op("Mul", g.op("ReduceMean", data, axes=listed, keepdims=keepdims), float(size))


@onnx_symbolic("form::ReduceMean.last")
def reduce_mean_last(
    g: GraphContext,
    data: Value,
    axes: Value | list[int] | None = None,
    keepdims: int = 1,
    noop_with_empty_axes: int = 0,
) -> Value:
    """ReduceMean of the last dimensions, behind a Transpose that moves the dimensions there."""
    rank, listed = g.rank(data), integers(g, axes)
    if rank is None or not listed:
        raise g.refuse("the axes or the rank are unknown")
    reduced = sorted(axis % rank for axis in listed)
    unreduced = [axis for axis in range(rank) if axis not in reduced]
    if [*unreduced, *reduced] == list(range(rank)):
        raise g.refuse("the dimensions are the last ones")
    moved = g.op("Transpose", data, perm=[*unreduced, *reduced])
    result = g.op("ReduceMean", moved, axes=list(range(len(unreduced), rank)), keepdims=0)
    return g.op("Unsqueeze", result, axes=reduced) if keepdims else result


@onnx_symbolic("form::ReduceMean.products")
def mean_of_products(
    g: GraphContext,
    data: Value,
    axes: Value | list[int] | None = None,
    keepdims: int = 1,
    noop_with_empty_axes: int = 0,
) -> Value:
    """The mean of squares that a Pow computes, with products as squares, unless it is along the last axis.

    Consumers that recognize a normalization by this Pow take it for one along the last axis.
    """
    rank, listed, squares = g.rank(data), integers(g, axes), data.producer()
    if rank is not None and listed is not None and [axis % rank for axis in listed] == [rank - 1]:
        raise g.refuse("the axis is the last one")
    if squares is None or squares.op_type != "Pow" or squares.domain or None in squares.inputs:
        raise g.refuse("the data are no powers")
    base, exponent = squares.inputs
    if base is None or exponent is None or g.constant_value(exponent) != 2:
        raise g.refuse("the exponent is not 2")
    return g.op("ReduceMean", g.op("Mul", base, base), axes=axes, keepdims=keepdims)


def _register_merged_dimensions(op_type: str) -> None:
    @onnx_symbolic(f"form::{op_type}.merged_dimensions")
    def reduce_merged_dimensions(
        g: GraphContext,
        data: Value,
        axes: Value | list[int] | None = None,
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> Value:
        """Dimensions before, along and behind neighbouring axes as one each; a batch of one stays first."""
        shape, listed = g.shape(data), integers(g, axes)
        if shape is None or not listed or not all_static(shape) or 0 in shape:
            raise g.refuse("the axes or the sizes are unknown")
        sizes = [size for size in shape if isinstance(size, int)]
        reduced = sorted(axis % len(sizes) for axis in listed)
        first, end = reduced[0], reduced[-1] + 1
        batch = [1] * (sizes[0] == 1 and first > 0)
        parts = (sizes[len(batch) : first], sizes[first:end], sizes[end:])
        merged = [*batch, *map(math.prod, parts)]
        if reduced != list(range(first, end)) or len(merged) >= len(sizes):
            raise g.refuse("the axes are no neighbours, or there are as few dimensions")
        result = g.op(op_type, g.op("Reshape", data, merged), axes=[len(batch) + 1], keepdims=0)
        return g.op("Reshape", result, [*sizes[:first], *[1] * (keepdims * len(reduced)), *sizes[end:]])


for _op_type in ("ReduceMax", "ReduceMean", "ReduceMin"):
    _register_merged_dimensions(_op_type)


def _register_product(op_type: str, is_mean: bool) -> None:
    @onnx_symbolic(f"form::{op_type}.product")
    def reduce_by_product(
        g: GraphContext,
        data: Value,
        axes: Value | list[int] | None = None,
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
        result_shape: list[int] | None = None,
    ) -> Value:
        """A product of the matrix of the reduced elements with a vector of equal weights."""
        shape, listed, dtype = g.shape(data), integers(g, axes), g.dtype(data)
        sizes = [size for size in shape or () if isinstance(size, int)]
        if not listed or shape is None or len(sizes) < len(shape) or result_shape is None or 0 in sizes:
            raise g.refuse("the axes or the sizes are unknown")
        if dtype not in FLOATS:
            raise g.refuse("it is not of floats")
        reduced = sorted({axis % len(sizes) for axis in listed})
        order = [*(axis for axis in range(len(sizes)) if axis not in reduced), *reduced]
        count = math.prod(sizes[axis] for axis in reduced)
        moved = data if order == sorted(order) else g.op("Transpose", data, perm=order)
        rows = g.op("Reshape", moved, [math.prod(sizes) // count, count])
        weights = g.constant(np.full((count, 1), 1 / count if is_mean else 1, np.float32), dtype)
        result: Value = g.op("Reshape", g.op("MatMul", rows, weights), result_shape)
        return result


_register_product("ReduceMean", True)
_register_product("ReduceSum", False)


@onnx_symbolic("form::LayerNormalization.instance_normalization")
def layer_normalization(
    g: GraphContext,
    X: Value,
    Scale: Value,
    B: Value | None = None,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    outputs: int = 1,
) -> list[Value]:
    """InstanceNormalization of an image with a channel for each row; of static shapes, in FLOAT."""
    shape = g.shape(X)
    if shape is None or outputs > 1 or g.dtype(X) is not DataType.FLOAT or not all_static(shape):
        raise g.refuse("the shape is dynamic, the numbers are not FLOAT, or the mean is an output")
    sizes = [size for size in shape if isinstance(size, int)]
    axis %= len(sizes)
    rows, features = math.prod(sizes[:axis]), math.prod(sizes[axis:])
    image = g.op("Reshape", X, [1, rows, features, 1])
    scales, zeros = np.ones(rows, np.float32), np.zeros(rows, np.float32)
    normal = g.op("InstanceNormalization", image, scales, zeros, epsilon=epsilon)
    result = g.op("Reshape", normal, [rows, features])
    for op_type, parameter in (("Mul", Scale), ("Add", B)):
        if parameter is not None:
            row = parameter if g.rank(parameter) == 1 else g.op("Reshape", parameter, [features])
            result = g.op(op_type, result, row)
    return [g.op("Reshape", result, sizes)]


def is_stored(value: Value | None, depth: int = 8) -> bool:
    """Whether a value is computed from stored tensors only, at most so many nodes away."""
    if value is None or value.const_value is not None:
        return True
    producer = value.producer()
    if producer is None or not depth:
        return False
    return all(is_stored(operand, depth - 1) for operand in producer.inputs)


def static_shape(g: GraphContext, value: Value) -> list[int]:
    """The sizes of a value; the form is refused if one is not known."""
    shape = g.shape(value)
    if shape is None or not all_static(shape):
        raise g.refuse("the sizes must be known")
    return [size for size in shape if isinstance(size, int)]


def all_static(shape: Iterable[object]) -> bool:
    """Whether every size of a shape is a number above 0."""
    return all(isinstance(size, int) and size > 0 for size in shape)
