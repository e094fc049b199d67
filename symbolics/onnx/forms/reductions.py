"""Reductions by other operators, along fewer axes, or of fewer dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ....registration import GraphContext, Value, onnx_symbolic
from ....registration.dtypes import FLOATS
from ..reductions import REDUCTIONS_BY_OTHERS
from ..support import integers
from .sizes import static_shape

Reduction = Callable[[GraphContext, str, Value, "Value | list[int] | None", int], Value]
"""Takes an operator's name, the data, the axes (None for all) and `keepdims`."""


def reduction_form(form: str, op_types: str) -> Callable[[Reduction], Reduction]:
    """Register a function as a form of each of these operators, which must reduce something."""

    def register(reduce: Reduction) -> Reduction:
        for op_type in op_types.split():
            _register_reduction(f"form::{op_type}.{form}", op_type, reduce)
        return reduce

    return register


def _register_reduction(name: str, op_type: str, reduce: Reduction) -> None:
    @onnx_symbolic(name)
    def write_form(
        g: GraphContext,
        data: Value,
        axes: Value | list[int] | None = None,
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> Value:
        if noop_with_empty_axes and not integers(g, axes):
            raise g.refuse("without axes nothing may be reduced")
        return reduce(g, op_type, data, axes, keepdims)


@reduction_form("sum", "ReduceL1 ReduceL2 ReduceLogSum ReduceSumSquare")
def reduce_by_sum(
    g: GraphContext, op_type: str, data: Value, axes: Value | list[int] | None, keepdims: int
) -> Value:
    """A sum of functions of the elements, of which another function may follow."""
    before, reduction, after = REDUCTIONS_BY_OTHERS[op_type]
    return after(g, g.op(reduction, before(g, data), axes=axes, keepdims=keepdims))


@reduction_form("sum_square", "ReduceL2")
def reduce_by_squares(
    g: GraphContext, op_type: str, data: Value, axes: Value | list[int] | None, keepdims: int
) -> Value:
    """The square root of ReduceSumSquare."""
    return g.op("Sqrt", g.op("ReduceSumSquare", data, axes=axes, keepdims=keepdims))


@reduction_form("sum", "ReduceLogSumExp")
def reduce_log_sum_exp(
    g: GraphContext, op_type: str, data: Value, axes: Value | list[int] | None, keepdims: int
) -> Value:
    """The logarithm of the sum of exponentials of the differences from the largest element."""
    limit = float(np.finfo(np.float32).max)
    # The difference of two infinities is NaN.
    largest = g.op("Clip", g.op("ReduceMax", data, axes=axes, keepdims=1), min=-limit, max=limit)
    exponentials = g.op("Exp", g.op("Sub", data, largest))
    total = g.op("Add", g.op("Log", g.op("ReduceSum", exponentials, axes=axes, keepdims=1)), largest)
    return total if keepdims else g.op("Squeeze", total, axes=axes)


@reduction_form(
    "merged_axes",
    "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum "
    "ReduceSumSquare",
)
def reduce_merged_axes(
    g: GraphContext, op_type: str, data: Value, axes: Value | list[int] | None, keepdims: int
) -> Value:
    """Three or more dimensions as one, behind a Transpose where they are no neighbours."""
    sizes, listed = static_shape(g, data), integers(g, axes)
    if listed is None and axes is not None:
        raise g.refuse("the axes are unknown")
    reduced = sorted(axis % len(sizes) for axis in listed or range(len(sizes)))
    if len(reduced) < 3:
        raise g.refuse("fewer than three dimensions are reduced")
    if len(reduced) == len(sizes) and not keepdims:
        # Consumers without tensors of rank 0 do not read a Reshape to one; some fail at one to a vector.
        total = g.op(op_type, g.op("Reshape", data, [1, -1]), axes=[1], keepdims=0)
        return g.op("ReduceSum", total, axes=[0], keepdims=0)
    first, end = reduced[0], reduced[-1] + 1
    before, after = math.prod(sizes[:first]), math.prod(sizes[end:])
    if reduced != list(range(first, end)):
        other_axes = [axis for axis in range(len(sizes)) if axis not in reduced]
        data = g.op("Transpose", data, perm=[*other_axes, *reduced])
        before, after = math.prod(sizes[axis] for axis in other_axes), 1
    count = math.prod(sizes[axis] for axis in reduced)
    result = g.op(op_type, g.op("Reshape", data, [before, count, after]), axes=[1], keepdims=0)
    shape_of_result = [1 if axis in reduced else size for axis, size in enumerate(sizes)]
    if not keepdims:
        shape_of_result = [size for axis, size in enumerate(sizes) if axis not in reduced]
    return g.op("Reshape", result, g.constant(np.array(shape_of_result, np.int64)))


def _known_axes(g: GraphContext, data: Value, axes: Value | list[int] | None) -> tuple[int, list[int]]:
    """The rank of the data, and the axes in order, counted from the first dimension."""
    rank, listed = g.rank(data), integers(g, axes)
    if rank is None or not listed:
        raise g.refuse("the axes or the rank are unknown")
    return rank, sorted(axis % rank for axis in listed)


@reduction_form("single", "ReduceMax ReduceMean ReduceMin")
def reduce_one_by_one(
    g: GraphContext, op_type: str, data: Value, axes: Value | list[int] | None, keepdims: int
) -> Value:
    """A reduction for each dimension, unless the dimensions are the last ones."""
    rank, reduced = _known_axes(g, data, axes)
    if reduced == list(range(rank - len(reduced), rank)):
        raise g.refuse("the dimensions are the last ones")
    return reduce_each_axis(g, op_type, data, axes, keepdims)


@reduction_form("each_axis", "ReduceMax ReduceMin")
def reduce_each_axis(
    g: GraphContext, op_type: str, data: Value, axes: Value | list[int] | None, keepdims: int
) -> Value:
    """A reduction for each dimension."""
    _, reduced = _known_axes(g, data, axes)
    if len(reduced) < 2:
        raise g.refuse("there is one axis")
    for axis in reversed(reduced):
        data = g.op(op_type, data, axes=[axis], keepdims=keepdims)
    return data


@reduction_form("mean", "ReduceSum")
def reduce_sum_by_mean(
    g: GraphContext, op_type: str, data: Value, axes: Value | list[int] | None, keepdims: int
) -> Value:
    """The mean along one axis, times the number of its elements."""
    listed = integers(g, axes)
    size = g.size(data, listed[0]) if listed and len(listed) == 1 else None
    if not isinstance(size, int) or size < 1 or g.dtype(data) not in FLOATS:
        raise g.refuse("it is not a sum of floats along one axis of known size")
    return g.op("Mul", g.op("ReduceMean", data, axes=listed, keepdims=keepdims), float(size))


@reduction_form("last", "ReduceMean")
def reduce_last_dimensions(
    g: GraphContext, op_type: str, data: Value, axes: Value | list[int] | None, keepdims: int
) -> Value:
    """ReduceMean of the last dimensions, behind a Transpose that moves the dimensions there."""
    rank, reduced = _known_axes(g, data, axes)
    unreduced = [axis for axis in range(rank) if axis not in reduced]
    if [*unreduced, *reduced] == list(range(rank)):
        raise g.refuse("the dimensions are the last ones")
    moved = g.op("Transpose", data, perm=[*unreduced, *reduced])
    result = g.op(op_type, moved, axes=list(range(len(unreduced), rank)), keepdims=0)
    return g.op("Unsqueeze", result, axes=reduced) if keepdims else result


@reduction_form("products", "ReduceMean")
def mean_of_products(
    g: GraphContext, op_type: str, data: Value, axes: Value | list[int] | None, keepdims: int
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
    return g.op(op_type, g.op("Mul", base, base), axes=axes, keepdims=keepdims)


@reduction_form("merged_dimensions", "ReduceMax ReduceMean ReduceMin")
def reduce_merged_dimensions(
    g: GraphContext, op_type: str, data: Value, axes: Value | list[int] | None, keepdims: int
) -> Value:
    """Dimensions before, along and behind neighbouring axes as one each; a batch of one stays first."""
    sizes, (_, reduced) = static_shape(g, data), _known_axes(g, data, axes)
    first, end = reduced[0], reduced[-1] + 1
    batch = [1] * (sizes[0] == 1 and first > 0)
    parts = (sizes[len(batch) : first], sizes[first:end], sizes[end:])
    merged = [*batch, *map(math.prod, parts)]
    if reduced != list(range(first, end)) or len(merged) >= len(sizes):
        raise g.refuse("the axes are no neighbours, or there are as few dimensions")
    result = g.op(op_type, g.op("Reshape", data, merged), axes=[len(batch) + 1], keepdims=0)
    return g.op("Reshape", result, [*sizes[:first], *[1] * (keepdims * len(reduced)), *sizes[end:]])


@reduction_form("product", "ReduceMean ReduceSum")
def reduce_by_product(
    g: GraphContext, op_type: str, data: Value, axes: Value | list[int] | None, keepdims: int
) -> Value:
    """A product of the matrix of the reduced elements with a vector of equal weights."""
    sizes, (rank, reduced), dtype = static_shape(g, data), _known_axes(g, data, axes), g.dtype(data)
    if dtype not in FLOATS:
        raise g.refuse("it is not of floats")
    order = [*(axis for axis in range(rank) if axis not in reduced), *reduced]
    count = math.prod(sizes[axis] for axis in reduced)
    moved = data if order == sorted(order) else g.op("Transpose", data, perm=order)
    rows = g.op("Reshape", moved, [math.prod(sizes) // count, count])
    weights = g.constant(np.full((count, 1), 1 / count if op_type == "ReduceMean" else 1, np.float32), dtype)
    kept = dict.fromkeys(reduced, 1) if keepdims else {}
    shape = [kept.get(axis, sizes[axis]) for axis in range(rank) if axis in kept or axis not in reduced]
    return g.op("Reshape", g.op("MatMul", rows, weights), shape)
