"""Reductions as sums, and of three or more dimensions as one of a merged dimension."""

from __future__ import annotations

import math

import numpy as np

from ....registration import GraphContext, Value, onnx_symbolic
from ..support import integers
from .reductions_and_shapes import all_static


@onnx_symbolic("form::ReduceL2.sum_square")
def reduce_l2_sum_square(
    g: GraphContext,
    data: Value,
    axes: Value | list[int] | None = None,
    keepdims: int = 1,
    noop_with_empty_axes: int = 0,
) -> Value:
    """The square root of ReduceSumSquare."""
    _need_axes(g, axes, noop_with_empty_axes)
    return g.op("Sqrt", g.op("ReduceSumSquare", data, axes=axes, keepdims=keepdims))


@onnx_symbolic("form::ReduceL2.sum")
def reduce_l2_sum(
    g: GraphContext,
    data: Value,
    axes: Value | list[int] | None = None,
    keepdims: int = 1,
    noop_with_empty_axes: int = 0,
) -> Value:
    """The square root of the sum of squares."""
    _need_axes(g, axes, noop_with_empty_axes)
    return g.op("Sqrt", g.op("ReduceSum", g.op("Mul", data, data), axes=axes, keepdims=keepdims))


@onnx_symbolic("form::ReduceSumSquare.sum")
def reduce_sum_square(
    g: GraphContext,
    data: Value,
    axes: Value | list[int] | None = None,
    keepdims: int = 1,
    noop_with_empty_axes: int = 0,
) -> Value:
    """The sum of squares."""
    _need_axes(g, axes, noop_with_empty_axes)
    return g.op("ReduceSum", g.op("Mul", data, data), axes=axes, keepdims=keepdims)


@onnx_symbolic("form::ReduceL1.sum")
def reduce_l1(
    g: GraphContext,
    data: Value,
    axes: Value | list[int] | None = None,
    keepdims: int = 1,
    noop_with_empty_axes: int = 0,
) -> Value:
    """The sum of absolute values."""
    _need_axes(g, axes, noop_with_empty_axes)
    return g.op("ReduceSum", g.op("Abs", data), axes=axes, keepdims=keepdims)


@onnx_symbolic("form::ReduceLogSum.sum")
def reduce_log_sum(
    g: GraphContext,
    data: Value,
    axes: Value | list[int] | None = None,
    keepdims: int = 1,
    noop_with_empty_axes: int = 0,
) -> Value:
    """The logarithm of the sum."""
    _need_axes(g, axes, noop_with_empty_axes)
    return g.op("Log", g.op("ReduceSum", data, axes=axes, keepdims=keepdims))


@onnx_symbolic("form::ReduceLogSumExp.sum")
def reduce_log_sum_exp(
    g: GraphContext,
    data: Value,
    axes: Value | list[int] | None = None,
    keepdims: int = 1,
    noop_with_empty_axes: int = 0,
) -> Value:
    """The logarithm of the sum of exponentials of the differences from the largest element."""
    _need_axes(g, axes, noop_with_empty_axes)
    limit = float(np.finfo(np.float32).max)
    # The difference of two infinities is NaN.
    largest = g.op("Clip", g.op("ReduceMax", data, axes=axes, keepdims=1), min=-limit, max=limit)
    exponentials = g.op("Exp", g.op("Sub", data, largest))
    total = g.op("Add", g.op("Log", g.op("ReduceSum", exponentials, axes=axes, keepdims=1)), largest)
    return total if keepdims else g.op("Squeeze", total, axes=axes)


def _need_axes(g: GraphContext, axes: Value | list[int] | None, noop_with_empty_axes: int) -> None:
    if noop_with_empty_axes and not integers(g, axes):
        raise g.refuse("without axes nothing may be reduced")


def _register_merged_axes(op_type: str) -> None:
    @onnx_symbolic(f"form::{op_type}.merged_axes")
    def reduce_merged_axes(
        g: GraphContext,
        data: Value,
        axes: Value | list[int] | None = None,
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> Value:
        """Three or more dimensions as one, behind a Transpose where they are no neighbours."""
        shape, listed = g.shape(data), None if axes is None else integers(g, axes)
        if shape is None or not all_static(shape) or 0 in shape or (listed is None and axes is not None):
            raise g.refuse("the axes or the sizes are unknown")
        sizes = [size for size in shape if isinstance(size, int)]
        if not listed and noop_with_empty_axes:
            raise g.refuse("nothing is reduced")
        reduced = sorted(axis % len(sizes) for axis in listed or range(len(sizes)))
        if len(reduced) < 3:
            raise g.refuse("fewer than three dimensions are reduced")
        if len(reduced) == len(sizes) and not keepdims:
            # Consumers without tensors of rank 0 do not read a Reshape to one.
            return g.op(op_type, g.op("Reshape", data, [-1]), axes=[0], keepdims=0)
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


for _op_type in (
    "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum "
    "ReduceSumSquare"
).split():
    _register_merged_axes(_op_type)
