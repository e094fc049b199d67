"""Shapes as values, and operators that reshape or transpose."""

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from ....registration import DataType, GraphContext, Value, onnx_symbolic
from ...compositions.size_arithmetic import Size, known_rank, product
from .._common import (
    constant_integers,
    elements,
    front_axis,
    integers,
    known_elements,
    number,
    set_shape,
    sizes,
)
from ..computed_axis import ComputedAxis


@onnx_symbolic("tf::Shape")
def shape(g: GraphContext, input: Value, out_type: DataType = DataType.INT32) -> Value:
    return g.cast(g.op("Shape", input), out_type)


@onnx_symbolic("tf::ShapeN")
def shape_n(g: GraphContext, input: list[Value], out_type: DataType = DataType.INT32) -> list[Value]:
    return [g.cast(g.op("Shape", item), out_type) for item in input]


@onnx_symbolic("tf::Size")
def size(g: GraphContext, input: Value, out_type: DataType = DataType.INT32) -> Value:
    return g.cast(g.constant(g.call("aten::numel", self=input)), out_type)


@onnx_symbolic("tf::Rank")
def rank(g: GraphContext, input: Value) -> Value:
    known_rank_value = g.rank(input)
    if known_rank_value is not None:
        return g.constant(known_rank_value, DataType.INT32)
    return g.cast(g.op("Size", g.op("Shape", input)), DataType.INT32)


@onnx_symbolic("tf::Reshape")
def reshape(g: GraphContext, tensor: Value, shape: Value) -> Value:
    requested = elements(g, shape)
    current = g.shape(tensor)
    if requested is not None and current is not None:
        _check_count(g, requested, current)
    return g.call("aten::reshape", self=tensor, shape=sizes(g, shape) if requested is None else requested)


def _check_count(g: GraphContext, requested: Sequence[Size], current: Sequence[int | ir.SymbolicDim]) -> None:
    """Refuse to reshape a tensor to another number of elements, if all sizes are known."""
    sizes = [size for size in requested if isinstance(size, int)]
    current_sizes = [size for size in current if isinstance(size, int)]
    if len(sizes) != len(requested) or len(current_sizes) != len(current):
        return
    count, requested_count = math.prod(current_sizes), math.prod(size for size in sizes if size != -1)
    fits = requested_count and count % requested_count == 0 if -1 in sizes else count == requested_count
    if min(sizes, default=0) < -1 or sizes.count(-1) > 1 or not fits:
        raise g.refuse(f"{count} elements cannot have the shape {sizes}")


@onnx_symbolic("tf::Squeeze")
def squeeze(g: GraphContext, input: Value, squeeze_dims: list[int] = []) -> Value:  # noqa: B006
    """Without axes, all dimensions of size 1 are removed."""
    known_shape = g.shape(input)
    if squeeze_dims:
        axes = [front_axis(g, axis, input) for axis in squeeze_dims]
        return g.op("Squeeze", input, axes=sorted(set(axes)))
    # Squeeze without axes finds the sizes of 1 at run time.
    if known_shape is None or not all(isinstance(item, int) for item in known_shape):
        return g.op("Squeeze", input)
    unit_axes = [axis for axis, item in enumerate(known_shape) if item == 1]
    return g.op("Squeeze", input, axes=unit_axes) if unit_axes else input


@onnx_symbolic("tf::ExpandDims")
def expand_dims(g: GraphContext, input: Value, dim: Value) -> Value:
    constant_axis = number(g, dim)
    if not isinstance(constant_axis, Value):
        return g.op("Unsqueeze", input, axes=[front_axis(g, constant_axis, input, added=1)])
    sizes = g.op("Shape", input)
    count = known_rank(g, input) + 1
    axis = g.call("sym::mod", a=g.call("sym::add", a=constant_axis, b=count), b=count)
    positions = g.constant(np.arange(count), DataType.INT64)
    unit = g.constant([1], DataType.INT64)
    # Sizes before the new axis keep their positions, and those behind it move by one.
    shape = g.op(
        "Where",
        g.op("Less", positions, axis),
        g.op("Concat", sizes, unit, axis=0),
        g.op("Where", g.op("Equal", positions, axis), unit, g.op("Concat", unit, sizes, axis=0)),
    )
    return set_shape(g.call("aten::reshape", self=input, shape=shape), [None] * count)


@onnx_symbolic(["tf::Transpose", "tf::ConjugateTranspose"])
def transpose(g: GraphContext, x: Value, perm: Value) -> Value:
    order = integers(g, perm)
    if order is None:
        return _transpose_by_computed_order(g, x, perm)
    # An empty permutation belongs to a scalar.
    return g.call("aten::permute", self=x, dims=order) if order else x


def _transpose_by_computed_order(g: GraphContext, x: Value, perm: Value) -> Value:
    """Gather the elements of the flattened tensor: ONNX's Transpose has a constant order only."""
    known_sizes = g.shape(perm)
    count = g.rank(x)
    if count is None and known_sizes is not None and isinstance(known_sizes[0], int):
        count = known_sizes[0]
    if count is None:
        raise g.refuse("'perm' must be constant, or its size must be known")
    order = g.cast(perm, DataType.INT64)
    sizes = g.op("Shape", x)
    items = [g.op("Gather", sizes, axis, axis=0) for axis in range(count)]
    # The distance of neighbours along each axis in the flattened tensor.
    strides = g.stack([product(g, items[axis + 1 :]) for axis in range(count)])
    shape, steps = (g.op("Gather", vector, order, axis=0) for vector in (sizes, strides))
    positions: Value | None = None
    for axis in range(count):
        size, step = (g.op("Gather", vector, axis, axis=0) for vector in (shape, steps))
        offsets = g.op("Mul", g.constant(g.call("sym::range", start=0, end=size)), step)
        later_axes = list(range(1, count - axis))
        offsets = g.op("Unsqueeze", offsets, axes=later_axes) if later_axes else offsets
        positions = offsets if positions is None else g.op("Add", positions, offsets)
    if positions is None:
        return x
    flat = g.op("Reshape", x, [-1])
    return set_shape(g.op("Gather", flat, positions, axis=0), [None] * count)


@onnx_symbolic("tf::InvertPermutation")
def invert_permutation(g: GraphContext, x: Value) -> Value:
    constant_permutation = integers(g, x)
    if constant_permutation is not None:
        return g.constant(np.argsort(constant_permutation), g.dtype(x))
    positions = g.op("Range", g.constant(0), g.call("aten::numel", self=x), g.constant(1))
    inverse = g.op("ScatterElements", positions, g.cast(x, DataType.INT64), positions, axis=0)
    set_shape(inverse, g.shape(x) or [None])
    return g.cast(inverse, g.dtype(x) or DataType.INT32)


@onnx_symbolic("tf::BroadcastTo")
def broadcast_to(g: GraphContext, input: Value, shape: Value) -> Value:
    requested = elements(g, shape)
    if requested is None or g.rank(input) is None:
        return g.op("Expand", input, sizes(g, shape))
    return g.call("aten::expand", self=input, size=requested)


@onnx_symbolic(["tf::BroadcastArgs"])
def broadcast_args(g: GraphContext, s0: Value, s1: Value) -> Value:
    """The shape to which two shapes broadcast."""
    first, second = elements(g, s0), elements(g, s1)
    if first is None or second is None:
        shapes = [g.cast(value, DataType.INT64) for value in (s0, s1)]
        lengths = [g.op("Shape", shape) for shape in shapes]
        longest = g.op("Max", *lengths)
        # The shorter shape has sizes of 1 in front.
        missing = [g.op("Sub", longest, length) for length in lengths]
        fillers = [g.op("Expand", g.constant([1], DataType.INT64), count) for count in missing]
        rows = [g.op("Concat", filler, shape, axis=0) for filler, shape in zip(fillers, shapes, strict=True)]
    else:
        count = max(len(first), len(second))
        rows = [g.stack([1] * (count - len(row)) + row) for row in (first, second)]
    # A size of 1 gives way to the other one; other sizes must be equal.
    result = g.op("Where", g.op("Equal", rows[0], 1), rows[1], rows[0])
    return g.cast(result, g.dtype(s0) or DataType.INT32)


@onnx_symbolic("tf::Tile")
def tile(g: GraphContext, input: Value, multiples: Value) -> Value:
    counts = integers(g, multiples)
    if counts is not None and all(count == 1 for count in counts):
        return input
    return g.op("Tile", input, sizes(g, multiples))


@onnx_symbolic("tf::ReverseV2")
def reverse_v2(g: GraphContext, tensor: Value, axis: Value) -> Value:
    if integers(g, axis) is None:
        for dim in known_elements(g, axis):
            computed = ComputedAxis.of(g, g.constant(dim), tensor)
            tensor = computed.restore(_reverse_axes(g, computed.view(tensor), [1]), tensor)
        return tensor
    axes = sorted({front_axis(g, dim, tensor) for dim in constant_integers(g, axis, "axis")})
    return _reverse_axes(g, tensor, axes)


def _reverse_axes(g: GraphContext, tensor: Value, axes: list[int]) -> Value:
    """Reverse a tensor along axes."""
    if not axes:
        return tensor
    result = g.call("composed::reverse", self=tensor, dims=axes)
    if result.producer() is not None and tensor.shape is not None:
        result.shape = tensor.shape
    return result


@onnx_symbolic("tf::Reverse")
def reverse(g: GraphContext, tensor: Value, dims: Value) -> Value:
    axes = [dim for dim, is_reversed in enumerate(constant_integers(g, dims, "dims")) if is_reversed]
    return _reverse_axes(g, tensor, axes)


@onnx_symbolic("tf::ReverseSequence")
def reverse_sequence(
    g: GraphContext, input: Value, seq_lengths: Value, seq_dim: int, batch_dim: int = 0
) -> Value:
    """ONNX reverses along the first two dimensions only."""
    lengths = g.cast(seq_lengths, DataType.INT64)
    if {seq_dim, batch_dim} == {0, 1}:
        result = g.op("ReverseSequence", input, lengths, batch_axis=batch_dim, time_axis=seq_dim)
        return set_shape(result, g.shape(input))
    count = known_rank(g, input)
    order = [g.axis(batch_dim, count), g.axis(seq_dim, count)]
    order += [dim for dim in range(count) if dim not in order]
    transposed = g.op("Transpose", input, perm=order)
    result = set_shape(
        g.op("ReverseSequence", transposed, lengths, batch_axis=0, time_axis=1), g.shape(transposed)
    )
    return g.op("Transpose", result, perm=[order.index(dim) for dim in range(count)])


@onnx_symbolic("tf::Roll")
def roll(g: GraphContext, input: Value, shift: Value, axis: Value) -> Value:
    axes = [number(g, axis)] if g.rank(axis) == 0 else known_elements(g, axis)
    count = g.shape(shift)
    if count is not None and isinstance(next(iter(count), 1), int) and next(iter(count), 1) != len(axes):
        raise g.refuse(f"it has {next(iter(count), 1)} shifts for {len(axes)} axes")
    shifts = elements(g, shift, len(axes)) if g.rank(shift) != 0 else None
    if shifts is None:
        shifts = [g.cast(g.op("Reshape", shift, g.constant([], DataType.INT64)), DataType.INT64)]
    if integers(g, axis) is not None:
        return g.call("aten::roll", self=input, shifts=shifts, dims=axes)
    for dim, distance in zip(axes, shifts, strict=True):
        computed = ComputedAxis.of(g, g.constant(dim), input)
        rolled = g.call("aten::roll", self=computed.view(input), shifts=[distance], dims=[1])
        input = computed.restore(rolled, input)
    return input


@onnx_symbolic("tf::DataFormatDimMap")
def data_format_dim_map(
    g: GraphContext, x: Value, src_format: str = "NHWC", dst_format: str = "NCHW"
) -> Value:
    """Map dimensions from one layout to another; negative numbers count from the end."""
    positions = _dimension_positions(g, dst_format, src_format)
    # The positions stand twice, so that x + rank is an index for a negative x too.
    table = g.constant(positions + positions, g.dtype(x))
    return g.op("Gather", table, g.op("Add", g.cast(x, DataType.INT64), len(positions)), axis=0)


@onnx_symbolic("tf::DataFormatVecPermute")
def data_format_vec_permute(
    g: GraphContext, x: Value, src_format: str = "NHWC", dst_format: str = "NCHW"
) -> Value:
    """Permute sizes, or pairs of them, to another layout."""
    size = g.shape(x)
    count = None if size is None else size[0]
    source, target = src_format, dst_format
    if count == 2 and len(source) == 4:
        # Two elements are the spatial dimensions.
        source, target = (text.replace("N", "").replace("C", "") for text in (source, target))
    elif count != len(source):
        raise g.refuse("the number of its elements is unknown")
    return g.op("Gather", x, _dimension_positions(g, source, target), axis=0)


def _dimension_positions(g: GraphContext, layout: str, dimensions: str) -> list[int]:
    """The positions of dimensions in a layout."""
    if sorted(layout) != sorted(dimensions):
        raise g.refuse(f"the layouts '{layout}' and '{dimensions}' do not have the same dimensions")
    return [layout.index(dimension) for dimension in dimensions]
