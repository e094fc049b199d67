"""Operators that reshape, join, split, slice and transpose."""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from ...registration import DataType, GraphContext, Value, onnx_symbolic
from ..compositions.operator_tables import register_functions
from ..compositions.size_arithmetic import UNKNOWN, axis_from_front, known_rank
from ._layouts import from_channels_first, is_channels_last, set_shape, set_shape_like, to_channels_first
from .matrix_products import flatten_axis, matrix_sizes

_END = int(np.iinfo(np.int64).max)


def _channel_axis(g: GraphContext, axis: int | None, order: str) -> int:
    """The axis of Concat and Split; by default the channel axis of images of rank 4."""
    return axis if axis is not None else 3 if is_channels_last(g, order) else 1


@onnx_symbolic("caffe2::Reshape")
def reshape(
    g: GraphContext, data: Value, new_shape: Value | None = None, shape: Sequence[int] | None = None
) -> list[Value]:
    """A size of 0 copies the input's size, -1 is the remaining size. Also returns the original shape."""
    dtype = DataType.INT64
    if new_shape is not None:
        dtype = g.dtype(new_shape) or dtype
        result = g.op("Reshape", data, g.cast(new_shape, DataType.INT64))
    elif shape is None:
        raise g.refuse("its shape must be given, as an argument or as an input")
    else:
        result = g.op("Reshape", data, g.constant(list(shape), DataType.INT64))
    # Nets may omit the second output.
    return [result, g.cast(g.op("Shape", data), dtype)][: len(g.expected)]


@onnx_symbolic("caffe2::Flatten")
def flatten(g: GraphContext, input: Value, axis: int = 1) -> Value:
    flatten_at = flatten_axis(g, input, axis)
    return set_shape(g.op("Flatten", input, axis=flatten_at), matrix_sizes(g, input, flatten_at))


@onnx_symbolic("caffe2::ResizeLike")
def resize_like(g: GraphContext, data: Value, shape_tensor: Value) -> Value:
    return set_shape_like(g.op("Reshape", data, g.op("Shape", shape_tensor)), shape_tensor)


@onnx_symbolic("caffe2::Squeeze")
def squeeze(g: GraphContext, data: Value, dims: Sequence[int]) -> Value:
    # Caffe2 drops repeated dimensions, which ONNX forbids.
    return g.op("Squeeze", data, axes=sorted(set(dims)))


@onnx_symbolic("caffe2::ExpandDims")
def expand_dims(g: GraphContext, data: Value, dims: Sequence[int]) -> Value:
    return g.op("Unsqueeze", data, axes=sorted(set(dims)))


@onnx_symbolic("caffe2::Transpose")
def transpose(g: GraphContext, X: Value, axes: Sequence[int] = ()) -> Value:
    return g.op("Transpose", X, perm=list(axes) or None)


register_functions(
    "caffe2",
    "data",
    {
        "NHWC2NCHW": lambda g, data: to_channels_first(g, data, "NHWC"),
        "NCHW2NHWC": lambda g, data: from_channels_first(g, data, "NHWC"),
    },
)
register_functions("caffe2", "input", {"FlattenToVec": lambda g, input: g.op("Reshape", input, [-1])})
register_functions(
    "caffe2", "DATA INDICES", {"BatchGather": lambda g, *values: g.op("Gather", *values, axis=1)}
)


@onnx_symbolic("caffe2::ChannelShuffle")
def channel_shuffle(g: GraphContext, X: Value, group: int = 1, order: str = "NCHW") -> Value:
    """Interleave the channels of all groups."""
    if group < 1:
        raise g.refuse(f"it has {group} groups")
    if not is_channels_last(g, order):
        return g.call("aten::channel_shuffle", self=X, groups=group)
    rank = g.rank(X) or 4
    copied_sizes = [0] * (rank - 1)
    parts = g.op("Reshape", X, [*copied_sizes, group, -1])
    # Channel c of group k moves to position c * groups + k.
    interleaved = g.op("Transpose", parts, perm=[*range(rank - 1), rank, rank - 1])
    return set_shape_like(g.op("Reshape", interleaved, [*copied_sizes, -1]), X)


def _concatenated_shape(g: GraphContext, inputs: Sequence[Value], axis: int) -> ir.Shape | None:
    """The shape of concatenated inputs; None if a rank is unknown."""
    shapes = [g.shape(item) for item in inputs]
    if any(shape is None or len(shape) <= axis for shape in shapes):
        return None
    dims = list(shapes[0] or ())
    sizes = [shape[axis] for shape in shapes if shape is not None]
    dims[axis] = sum(sizes) if all(isinstance(size, int) for size in sizes) else UNKNOWN
    return ir.Shape(dims)


@onnx_symbolic(["caffe2::Concat", "caffe2::DepthConcat"])
def concat(
    g: GraphContext, inputs: list[Value], axis: int | None = None, add_axis: int = 0, order: str = "NCHW"
) -> list[Value]:
    """Also returns the size of each input along the axis. With `add_axis` the inputs are stacked."""
    # A stacked result has one dimension more, from whose end a negative axis counts.
    dim = axis_from_front(g, inputs[0], _channel_axis(g, axis, order), 1 if add_axis else 0)
    results = []
    if add_axis:
        results.append(g.op("Concat", *[g.op("Unsqueeze", item, axes=[dim]) for item in inputs], axis=dim))
    else:
        results.append(g.op("Concat", *inputs, axis=dim))
        results[0].shape = results[0].shape or _concatenated_shape(g, inputs, dim)
    if len(g.expected) > 1:
        sizes = [1 if add_axis else g.size(item, dim) for item in inputs]
        results.append(g.constant(sizes, DataType.INT32))
    return results


@onnx_symbolic(["caffe2::Split", "caffe2::DepthSplit"])
def split(
    g: GraphContext,
    input: Value,
    split: Value | list[int] | None = None,
    axis: int | None = None,
    add_axis: int = 0,
    order: str = "NCHW",
) -> list[Value]:
    """Without `split` the parts are equal. With `add_axis` they have size 1 along the axis, and lose it."""
    dim = axis_from_front(g, input, _channel_axis(g, axis, order))
    count = len(g.expected)
    if isinstance(split, Value):
        constant_sizes = g.constant_value(split)
        sizes = constant_sizes.tolist() if constant_sizes is not None else g.cast(split, DataType.INT64)
    else:
        sizes = list(split or ())
    if isinstance(sizes, list) and not sizes:
        size = g.size(input, dim)
        if not isinstance(size, int):
            raise g.refuse("the size that it splits into equal parts is unknown: pass the shape of its input")
        if size % count:
            raise g.refuse(
                f"its input has {size} elements along axis {dim}, which cannot be split into {count} equal "
                "parts"
            )
        sizes = [size // count] * count
    if isinstance(sizes, list) and len(sizes) != count:
        raise g.refuse(f"it has {len(sizes)} sizes for {count} parts")
    if count == 1:
        parts = [input]
    else:
        parts = g.op("Split", input, split=sizes, axis=dim, outputs=count)
        shape = g.shape(input)
        for index, part in enumerate(parts if shape is not None else ()):
            dims = list(shape or ())
            dims[dim] = sizes[index] if isinstance(sizes, list) else UNKNOWN
            part.shape = ir.Shape(dims)
    return [g.op("Squeeze", part, axes=[dim]) for part in parts] if add_axis else parts


def _onnx_bounds(g: GraphContext, bounds: Value | Sequence[int]) -> Value | list[int]:
    """Convert bounds of Caffe2's Slice to ONNX: -1 is the end there, and -2 the last element."""
    constant_bounds = (
        g.constant_value(bounds) if isinstance(bounds, Value) else np.asarray(bounds, dtype=np.int64)
    )
    if constant_bounds is not None:
        numbers = [int(bound) for bound in constant_bounds.reshape(-1)]
        return [bound if bound >= 0 else _END if bound == -1 else bound + 1 for bound in numbers]
    assert isinstance(bounds, Value)
    int64_bounds = g.cast(bounds, DataType.INT64)
    from_end = g.call(
        "composed::where",
        condition=g.op("Equal", int64_bounds, -1),
        self=g.constant(_END, DataType.INT64),
        other=g.op("Add", int64_bounds, 1),
    )
    return g.call(
        "composed::where", condition=g.op("Less", int64_bounds, 0), self=from_end, other=int64_bounds
    )


@onnx_symbolic("caffe2::Slice")
def slice(
    g: GraphContext,
    data: Value,
    starts: Value | list[int] | None = None,
    ends: Value | list[int] | None = None,
) -> Value:
    """Slice the first dimensions of a tensor between bounds."""
    if starts is None or ends is None:
        raise g.refuse("it has no starts or no ends")
    first, last = _onnx_bounds(g, starts), _onnx_bounds(g, ends)
    count: int | None = None
    for bounds in (first, last):
        if isinstance(bounds, list):
            count = len(bounds)
        elif count is None and bounds.shape is not None and isinstance(bounds.shape[0], int):
            count = bounds.shape[0]
        if isinstance(bounds, list) and isinstance(first, list) and len(first) != len(bounds):
            raise g.refuse(f"it has {len(first)} starts and {len(bounds)} ends")
    if count is None:
        raise g.refuse("the number of its computed bounds is unknown")
    rank = g.rank(data)
    if rank is not None and count > rank:
        raise g.refuse(f"it has bounds for {count} dimensions of a tensor with {rank}")
    return g.op("Slice", data, starts=first, ends=last, axes=list(range(count)))


@onnx_symbolic("caffe2::Gather")
def gather(
    g: GraphContext, DATA: Value, INDICES: Value, axis: int = 0, wrap_indices: int | None = None
) -> Value:
    """Negative indices are allowed if `wrap_indices` is set, by default only for axis 0."""
    dim = axis_from_front(g, DATA, axis)
    wraps = axis == 0 if wrap_indices is None else bool(wrap_indices)
    # Before opset 11 negative indices cost further operators, so only nets that wrap them pay.
    emit = g.op_of_any_data if wraps else g.op
    return emit("Gather", DATA, INDICES, axis=dim)


@onnx_symbolic("caffe2::Tile")
def tile(
    g: GraphContext, X: Value, tiles: Value | int | None = None, axis: Value | int | None = None
) -> Value:
    """The inputs `tiles` and `axis` override the arguments."""
    if isinstance(axis, Value):
        constant_axis = g.constant_value(axis)
        if constant_axis is None:
            raise g.refuse("its axis must be constant")
        axis = int(constant_axis.reshape(-1)[0])
    if axis is None or tiles is None:
        raise g.refuse("it has no tiles or no axis")
    rank = known_rank(g, X)
    tile_axis = g.axis(axis, rank)
    if isinstance(tiles, int):
        return g.op("Tile", X, [tiles if dim == tile_axis else 1 for dim in range(rank)])
    count = g.op("Reshape", g.cast(tiles, DataType.INT64), [1])
    parts = [g.constant([1] * tile_axis), count, g.constant([1] * (rank - 1 - tile_axis))]
    return g.op("Tile", X, g.op("Concat", *[p for p in parts if p.shape is None or p.shape[0] != 0], axis=0))


@onnx_symbolic("caffe2::Shape")
def shape(g: GraphContext, X: Value, axes: Sequence[int] = ()) -> Value:
    full_shape = g.op("Shape", X)
    return g.op("Gather", full_shape, list(axes), axis=0) if axes else full_shape


@onnx_symbolic("caffe2::ConstantFill")
def constant_fill(
    g: GraphContext,
    input: Value,
    value: float | int = 0,
    dtype: DataType = DataType.FLOAT,
    extra_shape: Sequence[int] = (),
    input_as_shape: int = 0,
) -> Value:
    """A constant with the shape of the input, or with the shape that the input contains."""
    sizes = g.cast(input, DataType.INT64) if input_as_shape else g.op("Shape", input)
    # Caffe2 appends these sizes to those of the input.
    if extra_shape:
        sizes = g.op("Concat", sizes, g.constant(list(extra_shape)), axis=0)
    return g.op("Expand", g.constant(value, dtype), sizes)
