"""Reshape, Gather and SpaceToDepth as operators that consumers read in more cases."""

import itertools

import numpy as np

from ...registration import GraphContext, Value, onnx_symbolic


def _static_shape(g: GraphContext, value: Value) -> list[int]:
    shape = g.shape(value)
    if shape is None or not all(isinstance(size, int) for size in shape):
        raise g.refuse("the sizes must be known")
    return [size for size in shape if isinstance(size, int)]


@onnx_symbolic("form::Reshape_sizes")
def reshape_to_sizes(
    g: GraphContext, data: Value, shape: Value, allowzero: int = 0, result_shape: list[int] | None = None
) -> Value:
    """Every size as a number, neither 0 nor -1."""
    array = g.constant_value(shape)
    if result_shape is None or array is None or [int(size) for size in array] == result_shape:
        raise g.refuse("the sizes are numbers already, or must be known")
    return g.op("Reshape", data, result_shape)


@onnx_symbolic("form::Reshape_transpose")
def reshape_as_transpose(
    g: GraphContext, data: Value, shape: Value, allowzero: int = 0, result_shape: list[int] | None = None
) -> Value:
    """A Reshape that moves dimensions of size 1, or also removes some, as Squeeze and Transpose."""
    if result_shape is None:
        raise g.refuse("the sizes must be known")
    target, sizes = result_shape, _static_shape(g, data)
    surplus = len(sizes) - len(target)
    units = [axis for axis, size in enumerate(sizes) if size == 1]
    if [size for size in sizes if size != 1] != [size for size in target if size != 1] or surplus < 0:
        raise g.refuse("it moves other dimensions than those of size 1")
    if surplus:
        data = g.op("Squeeze", data, axes=units[:surplus])
        sizes = [size for axis, size in enumerate(sizes) if axis not in units[:surplus]]
    ones, others = (
        [axis for axis, size in enumerate(sizes) if (size == 1) == flag] for flag in (True, False)
    )
    order = [ones.pop(0) if size == 1 else others.pop(0) for size in target]
    return data if order == sorted(order) else g.op("Transpose", data, perm=order)


@onnx_symbolic("form::Gather_slice")
def gather_as_slice(g: GraphContext, data: Value, indices: Value, axis: int = 0) -> Value:
    """Positions at equal distances as a Slice, and one position without a dimension also as a Squeeze."""
    array, sizes = g.constant_value(indices), _static_shape(g, data)
    if array is None or array.ndim > 1 or not array.size:
        raise g.refuse("only constant positions in a row become a Slice")
    axis = g.axis(axis, len(sizes))
    positions = [int(number) + (sizes[axis] if number < 0 else 0) for number in array.reshape(-1)]
    steps = {after - before for before, after in itertools.pairwise(positions)} or {1}
    step = steps.pop()
    if steps or step < 1:
        raise g.refuse("the positions are not at equal distances")
    part = g.op("Slice", data, starts=[positions[0]], ends=[positions[-1] + 1], axes=[axis], steps=[step])
    return part if array.ndim else g.op("Squeeze", part, axes=[axis])


@onnx_symbolic("form::SpaceToDepth_convolution")
def space_to_depth(g: GraphContext, input: Value, blocksize: int) -> Value:
    """A convolution that copies each element of a block into a channel of its own."""
    channels, area = _static_shape(g, input)[1], blocksize * blocksize
    kernel = np.zeros((area * channels, channels, blocksize, blocksize), np.float32)
    for row, column, channel in itertools.product(range(blocksize), range(blocksize), range(channels)):
        kernel[(row * blocksize + column) * channels + channel, channel, row, column] = 1
    return g.op("Conv", input, g.constant(kernel, g.dtype(input)), strides=[blocksize, blocksize])
