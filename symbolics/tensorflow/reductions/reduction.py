"""Reductions whose axes are an operand: sums, extremes, moments, logic, positions of extremes."""

import math

import numpy as np

from ....registration import DataType, GraphContext, Value, dtypes, onnx_symbolic
from ...compositions.integers import widen_integers
from ...compositions.size_arithmetic import axis, known_rank, product, sizes_of
from .._common import (
    constant_integer,
    flatten,
    integers,
    is_integral,
    restore_dtype,
    set_shape,
    traced_elements,
    without_axis,
)
from ..computed_axis import ComputedAxis

_NARROW = (DataType.INT8, DataType.INT16, DataType.UINT8, DataType.UINT16, DataType.UINT32)


def _reduce(g: GraphContext, op_type: str, value: Value, axes: Value, keep_dims: bool) -> Value:
    """Emit a reduction; an empty list of axes leaves the tensor unchanged."""
    constant_axes = integers(g, axes)
    if constant_axes is None:
        vector = g.op("Reshape", g.cast(axes, DataType.INT64), [-1]) if g.rank(axes) != 1 else axes
        vector = g.cast(vector, DataType.INT64)
        # Computed axes may be empty, which TensorFlow takes as no reduction at all.
        result = g.op(op_type, value, axes=vector, keepdims=int(keep_dims), noop_with_empty_axes=1)
        rank, shape = g.rank(value), g.shape(axes) or ()
        counts = [size for size in shape if isinstance(size, int)]
        if rank is None or g.rank(axes) is None or len(counts) < len(shape):
            return result
        return set_shape(result, [None] * (rank if keep_dims else rank - math.prod(counts)))
    if not constant_axes:
        return value
    rank = g.rank(value)
    normalized_axes = constant_axes if rank is None else sorted({g.axis(dim, rank) for dim in constant_axes})
    return g.op(op_type, value, axes=normalized_axes, keepdims=int(keep_dims))


@onnx_symbolic("tf::Sum")
def sum_(g: GraphContext, input: Value, reduction_indices: Value, keep_dims: bool = False) -> Value:
    # Runtimes have ReduceSum for INT32 and INT64 only, among integers.
    result = _reduce(g, "ReduceSum", widen_integers(g, input), reduction_indices, keep_dims)
    return restore_dtype(g, result, g.dtype(input))


def _may_be_empty(g: GraphContext, value: Value) -> bool:
    """Whether a tensor is not known to have elements."""
    shape = g.shape(value)
    return shape is None or not all(isinstance(size, int) and size > 0 for size in shape)


def _register_extreme(name: str, limit: str) -> None:
    @onnx_symbolic(f"tf::{name}")
    def extreme(g: GraphContext, input: Value, reduction_indices: Value, keep_dims: bool = False) -> Value:
        """A maximum or minimum; of no elements it is the lowest or highest number of the element type."""
        dtype = g.dtype(input)
        result = _reduce(g, f"Reduce{name}", widen_integers(g, input), reduction_indices, keep_dims)
        if _may_be_empty(g, input) and dtype in _NARROW:
            # Without elements the reduction returns the limit of the wider type.
            bound = getattr(np.iinfo(dtype.numpy()), limit)
            result = g.op(name, result, g.constant(bound, g.dtype(result)))
        return restore_dtype(g, result, dtype)


_register_extreme("Max", "min")
_register_extreme("Min", "max")


@onnx_symbolic("tf::Mean")
def mean(g: GraphContext, input: Value, reduction_indices: Value, keep_dims: bool = False) -> Value:
    """The mean of integers is rounded towards zero. The mean of no floats is NaN, of no integers 0."""
    axes = integers(g, reduction_indices)
    if is_integral(g, input):
        wide_input = widen_integers(g, input)
        unit_tensor = g.call("aten::ones_like", wide_input)
        count = _reduce(g, "ReduceSum", unit_tensor, reduction_indices, keep_dims)
        if _may_be_empty(g, input):
            count = g.op("Max", count, g.constant(1, g.dtype(count)))
        total = _reduce(g, "ReduceSum", wide_input, reduction_indices, keep_dims)
        return restore_dtype(g, g.op("Div", total, count), g.dtype(input))
    if axes and g.rank(input):
        return g.call("aten::mean", input, axes, keep_dims)
    return _reduce(g, "ReduceMean", input, reduction_indices, keep_dims)


@onnx_symbolic("tf::Prod")
def prod(g: GraphContext, input: Value, reduction_indices: Value, keep_dims: bool = False) -> Value:
    """Products of integers wrap around."""
    if not is_integral(g, input):
        return _reduce(g, "ReduceProd", input, reduction_indices, keep_dims)
    axes = integers(g, reduction_indices)
    # The product of known sizes, such as a number of elements, stays a constant.
    factors = traced_elements(g, input) if g.rank(input) == 1 and axes in ([0], [-1]) else None
    if factors is not None:
        element_product = g.constant(product(g, factors))
        return restore_dtype(
            g, g.op("Unsqueeze", element_product, axes=[0]) if keep_dims else element_product, g.dtype(input)
        )
    if axes is None:
        raise g.refuse("the axes of a product of integers must be constant")
    result = g.cast(input, DataType.INT64)
    for dim in sorted({axis(g, input, item) for item in axes}, reverse=True):
        result = g.call("aten::prod", self=result, dim=dim, keepdim=keep_dims)
    return restore_dtype(g, result, g.dtype(input))


@onnx_symbolic("tf::EuclideanNorm")
def euclidean_norm(g: GraphContext, input: Value, reduction_indices: Value, keep_dims: bool = False) -> Value:
    return g.op("Sqrt", _reduce(g, "ReduceSum", g.op("Mul", input, input), reduction_indices, keep_dims))


def _register_logical(name: str) -> None:
    @onnx_symbolic(f"tf::{name}")
    def logical(g: GraphContext, input: Value, reduction_indices: Value, keep_dims: bool = False) -> Value:
        """All are true if none is false; any is true if the number of true elements is not 0."""
        truth = g.op("Not", input) if name == "All" else input
        count = _reduce(g, "ReduceSum", g.cast(truth, DataType.INT32), reduction_indices, keep_dims)
        result = g.cast(count, DataType.BOOL)
        return g.op("Not", result) if name == "All" else result


_register_logical("Any")
_register_logical("All")


def _register_position(name: str) -> None:
    @onnx_symbolic(f"tf::{name}")
    def position(
        g: GraphContext, input: Value, dimension: Value, output_type: DataType = DataType.INT64
    ) -> Value:
        if integers(g, dimension) is None:
            axis = ComputedAxis.of(g, dimension, input)
            positions = g.call(f"tf::{name}", axis.view(input), g.constant(1), output_type)
            return axis.restore_without_axis(positions, input)
        dim = constant_integer(g, dimension, "dimension")
        rank = g.rank(input)
        dim = dim if rank is None else g.axis(dim, rank)
        if g.dtype(input) == DataType.BOOL:
            input = g.cast(input, DataType.INT32)
        if is_integral(g, input) and g.dtype(input) != DataType.INT32:
            # INT32 does not hold these types, and runtimes have TopK, but no ArgMax, for INT64.
            if g.dtype(input) in (DataType.INT64, DataType.UINT32, DataType.UINT64):
                wide_input = widen_integers(g, input)
                positions = g.call_outputs("aten::topk", wide_input, 1, dim, name == "ArgMax")[1]
                result = set_shape(g.op("Squeeze", positions, axes=[dim]), without_axis(g, input, dim))
                return g.cast(result, output_type)
            input = g.cast(input, DataType.INT32)
        position_values = set_shape(g.op(name, input, axis=dim, keepdims=0), without_axis(g, input, dim))
        return g.cast(position_values, output_type)


_register_position("ArgMax")
_register_position("ArgMin")


@onnx_symbolic("tf::Bincount")
def bincount(g: GraphContext, arr: Value, size: Value, weights: Value) -> Value:
    return g.call("tf::DenseBincount", input=flatten(g, arr), size=size, weights=weights)


@onnx_symbolic("tf::DenseBincount")
def dense_bincount(
    g: GraphContext, input: Value, size: Value, weights: Value, binary_output: bool = False
) -> Value:
    """The count of each number, or the sum of its weights; numbers beyond the size are ignored."""
    dtype = g.dtype(weights) or DataType.FLOAT
    rank = known_rank(g, input)
    numbers = g.call("aten::arange", end=_count(g, size))
    is_number = g.op("Equal", g.op("Unsqueeze", g.cast(input, DataType.INT64), axes=[rank]), numbers)
    weights_of_numbers = g.cast(is_number, dtype)
    if binary_output:
        occurrence_count = g.op("ReduceSum", g.cast(is_number, DataType.INT32), axes=[rank - 1], keepdims=0)
        return g.cast(g.cast(occurrence_count, DataType.BOOL), dtype)
    shape = g.shape(weights)
    if shape is None or not all(isinstance(size, int) for size in shape):
        flat, has_weights = flatten(g, weights), g.op("Min", g.op("Size", weights), 1)
        positions = g.call("aten::arange", end=product(g, sizes_of(g, input)))
        # Without weights, each position is 0 and selects the 1 behind them.
        chosen = g.op(
            "Gather",
            g.op("Concat", flat, g.constant([1], dtype), axis=0),
            g.op("Mul", positions, has_weights),
        )
        weights = g.call("aten::reshape", self=chosen, shape=sizes_of(g, input))
    # Empty weights mean that each number counts once.
    if shape is None or 0 not in shape:
        weights = g.op("Reshape", weights, [-1]) if rank == 1 else weights
        weights_of_numbers = g.op("Mul", weights_of_numbers, g.op("Unsqueeze", weights, axes=[rank]))
    return g.op("ReduceSum", weights_of_numbers, axes=[rank - 1], keepdims=0)


def _count(g: GraphContext, size: Value) -> int | Value:
    constant_size = integers(g, size)
    if constant_size:
        return constant_size[0]
    return g.op("Reshape", g.cast(size, DataType.INT64), g.constant([], DataType.INT64))


@onnx_symbolic("tf::HistogramFixedWidth")
def histogram_fixed_width(
    g: GraphContext, values: Value, value_range: Value, nbins: Value, dtype: DataType = DataType.INT32
) -> Value:
    """Bins of the same width; values outside of the range count in the first and the last bin."""
    count = g.cast(nbins, DataType.DOUBLE)
    low, high = (g.cast(g.op("Gather", value_range, i, axis=0), DataType.DOUBLE) for i in (0, 1))
    step = g.op("Div", g.op("Sub", high, low), count)
    bin_position = g.op("Div", g.op("Sub", g.cast(values, DataType.DOUBLE), low), step)
    bin_position = g.call("aten::maximum", bin_position, g.constant(0.0, DataType.DOUBLE))
    bin_position = g.call("aten::minimum", bin_position, g.op("Sub", count, g.constant(1.0, DataType.DOUBLE)))
    bins = flatten(g, g.cast(g.op("Floor", bin_position), DataType.INT32))
    unweighted = g.constant([], DataType.INT64)
    counts = g.call("tf::DenseBincount", input=bins, size=nbins, weights=unweighted)
    return g.cast(counts, dtype if dtype in dtypes.INTEGERS else DataType.INT32)
