"""Moves blocks of neighbouring elements to the batch or to the channels, and back."""

from collections.abc import Sequence

from ....registration import DataType, GraphContext, Value, onnx_symbolic
from ...compositions.size_arithmetic import Size, compute, sizes_of
from .._common import known_elements, set_shape


def _pairs(g: GraphContext, value: Value, count: int) -> list[tuple[Size, Size]]:
    """The rows of a tensor `[count, 2]`."""
    amounts = known_elements(g, g.op("Reshape", value, [-1]), 2 * count)
    return list(zip(amounts[::2], amounts[1::2], strict=True))


def _block(g: GraphContext, block_shape: Value) -> list[Size]:
    """The sizes of blocks."""
    block = known_elements(g, block_shape)
    if min((length for length in block if isinstance(length, int)), default=1) < 1:
        raise g.refuse(f"the sizes of its blocks {block} are not all positive")
    return block


def _move_blocks_to_batch(g: GraphContext, input: Value, block: Sequence[Size], paddings: Value) -> Value:
    batch, *spatial = sizes_of(g, input)
    count = len(block)
    pads = _pairs(g, paddings, count)
    if any(amount != 0 for pair in pads for amount in pair):
        unpadded = [0] * (len(spatial) - count)
        begins, ends = [pair[0] for pair in pads], [pair[1] for pair in pads]
        input = g.op("Pad", input, pads=[0, *begins, *unpadded, 0, *ends, *unpadded], mode="constant")
    sizes: list[Size] = [batch]
    for size, pair, length in zip(spatial, pads, block, strict=False):
        padded_size = compute(g, "add", size, compute(g, "add", *pair))
        sizes += [compute(g, "floordiv", padded_size, length), length]
    rest_sizes = spatial[count:]
    split = g.call("aten::reshape", self=input, shape=[*sizes, *rest_sizes])
    last = 1 + 2 * count
    # The positions within a block vary slowest, then the batch, then the blocks.
    order = [*range(2, last, 2), 0, *range(1, last, 2), *range(last, last + len(rest_sizes))]
    transposed = g.op("Transpose", split, perm=order)
    new_batch = batch
    for length in block:
        new_batch = compute(g, "mul", new_batch, length)
    return g.call("aten::reshape", self=transposed, shape=[new_batch, *sizes[1::2], *rest_sizes])


def _move_batch_to_space(g: GraphContext, input: Value, block: Sequence[Size], crops: Value) -> Value:
    batch, *spatial = sizes_of(g, input)
    count = len(block)
    new_batch = batch
    for length in block:
        new_batch = compute(g, "floordiv", new_batch, length)
    unblocked = spatial[count:]
    split = g.call("aten::reshape", self=input, shape=[*block, new_batch, *spatial])
    order = [count]
    # The position within a block follows its block again.
    for dim in range(count):
        order += [count + 1 + dim, dim]
    order += range(2 * count + 1, 2 * count + 1 + len(unblocked))
    transposed = g.op("Transpose", split, perm=order)
    grown_sizes = [compute(g, "mul", size, length) for size, length in zip(spatial, block, strict=False)]
    result = g.call("aten::reshape", self=transposed, shape=[new_batch, *grown_sizes, *unblocked])
    for dim, (first, last) in enumerate(_pairs(g, crops, count)):
        if first == 0 and last == 0:
            continue
        end = compute(g, "sub", grown_sizes[dim], last)
        result = g.call("aten::slice", self=result, dim=dim + 1, start=first, end=end)
    return result


@onnx_symbolic("tf::SpaceToBatchND")
def space_to_batch_nd(g: GraphContext, input: Value, block_shape: Value, paddings: Value) -> Value:
    return _move_blocks_to_batch(g, input, _block(g, block_shape), paddings)


@onnx_symbolic("tf::SpaceToBatch")
def space_to_batch(g: GraphContext, input: Value, paddings: Value, block_size: int) -> Value:
    return _move_blocks_to_batch(g, input, [block_size, block_size], paddings)


@onnx_symbolic("tf::BatchToSpaceND")
def batch_to_space_nd(g: GraphContext, input: Value, block_shape: Value, crops: Value) -> Value:
    return _move_batch_to_space(g, input, _block(g, block_shape), crops)


@onnx_symbolic("tf::BatchToSpace")
def batch_to_space(g: GraphContext, input: Value, crops: Value, block_size: int) -> Value:
    return _move_batch_to_space(g, input, [block_size, block_size], crops)


def _with_channels_first(g: GraphContext, op_type: str, input: Value, block_size: int, layout: str) -> Value:
    if layout not in ("NHWC", "NCHW"):
        raise g.refuse(f"data_format {layout} is not supported")
    dtype = g.dtype(input)
    if not g.has_kernel(op_type, input):
        if dtype in (DataType.INT64, DataType.UINT64, DataType.UINT32):
            raise g.refuse(
                f"{op_type} of {dtype.name} is not supported, because FLOAT does not represent it exactly"
            )
        # The float type must represent all values of the integer type.
        wide_type = DataType.DOUBLE if dtype == DataType.INT32 else DataType.FLOAT
        result = _with_channels_first(g, op_type, g.cast(input, wide_type), block_size, layout)
        return g.cast(result, dtype or DataType.FLOAT)
    if layout == "NCHW":
        return set_shape(g.op(op_type, input, blocksize=block_size), [None] * 4)
    result = g.op(op_type, g.op("Transpose", input, perm=[0, 3, 1, 2]), blocksize=block_size)
    set_shape(result, [None] * 4)
    return g.op("Transpose", result, perm=[0, 2, 3, 1])


@onnx_symbolic("tf::SpaceToDepth")
def space_to_depth(g: GraphContext, input: Value, block_size: int, data_format: str = "NHWC") -> Value:
    return _with_channels_first(g, "SpaceToDepth", input, block_size, data_format)


@onnx_symbolic("tf::DepthToSpace")
def depth_to_space(g: GraphContext, input: Value, block_size: int, data_format: str = "NHWC") -> Value:
    return _with_channels_first(g, "DepthToSpace", input, block_size, data_format)
