"""Normalization in the ranks and the operators that a consumer knows."""

import math
from typing import Any

import numpy as np

from ....registration import DataType, GraphContext, Value, onnx_symbolic
from ....registration.functions.results import as_list
from .sizes import static_shape


@onnx_symbolic("form::InstanceNormalization.four_dimensions")
def instance_normalization(
    g: GraphContext, input: Value, scale: Value, B: Value, epsilon: float = 1e-5
) -> Value:
    """Sequences of channels as images of one column; groups of the channels of an image stay."""
    if g.rank(input) != 3:
        raise g.refuse("only three dimensions become four")
    producer = input.producer()
    data, sizes = None, None
    if producer is not None and producer.op_type == "Reshape" and "allowzero" not in producer.attributes:
        data, sizes = producer.inputs
    numbers = None if sizes is None else g.constant_value(sizes)
    if data is None or numbers is None:
        image = g.op("Unsqueeze", input, axes=[3])
    elif g.rank(data) == 3:
        # The Reshape of group normalization writes the fourth dimension itself, which saves a node.
        image = g.op("Reshape", data, [*map(int, numbers), 1])
    else:
        raise g.refuse("it is one of groups of the channels of an image")
    return g.op("Squeeze", g.op("InstanceNormalization", image, scale, B, epsilon=epsilon), axes=[3])


@onnx_symbolic("form::InstanceNormalization.moments")
def instance_moments(g: GraphContext, input: Value, scale: Value, B: Value, epsilon: float = 1e-5) -> Value:
    """By the mean and the deviation over the spatial dimensions."""
    rank = g.rank(input)
    if rank is None or rank < 3:
        raise g.refuse("the rank of the input must be known")
    axes = list(range(2, rank))
    centred = g.op("Sub", input, g.op("ReduceMean", input, axes=axes, keepdims=1))
    variance = g.op("ReduceMean", g.op("Mul", centred, centred), axes=axes, keepdims=1)
    normalised = g.op("Div", centred, g.op("Sqrt", g.op("Add", variance, epsilon)))
    shape = [-1, *[1] * (rank - 2)]
    weight, bias = (
        g.op("Reshape", value, shape) if array is None else g.constant(array.reshape(shape))
        for value, array in ((value, g.constant_value(value)) for value in (scale, B))
    )
    return g.op("Add", g.op("Mul", normalised, weight), bias)


def _channel_factors(
    g: GraphContext, statistics: list[Value], epsilon: float, is_inference: bool
) -> tuple[np.ndarray, np.ndarray, np.dtype[Any]]:
    """The factor and the offset of each channel in float64, and the type of constant statistics."""
    arrays = [g.constant_value(value) for value in statistics]
    if not is_inference or any(array is None for array in arrays):
        raise g.refuse("only constant statistics of channels become weights")
    weight, bias, mean, variance = (np.asarray(array, np.float64) for array in arrays)
    factor = weight / np.sqrt(variance + epsilon)
    return factor, bias - mean * factor, np.asarray(arrays[0]).dtype


@onnx_symbolic("form::BatchNormalization.convolution")
def batch_normalization(
    g: GraphContext,
    X: Value,
    scale: Value,
    B: Value,
    input_mean: Value,
    input_var: Value,
    epsilon: float = 1e-5,
    training_mode: int = 0,
    outputs: int = 1,
    **momentum: Any,
) -> Value:
    """A convolution of one element in each channel, in place of constant statistics."""
    rank = g.rank(X)
    if rank is None or rank < 3:
        raise g.refuse("there are no channels of images or sequences")
    factor, offset, dtype = _channel_factors(
        g, [scale, B, input_mean, input_var], epsilon, not training_mode and outputs == 1
    )
    kernel = factor.reshape(-1, *[1] * (rank - 1)).astype(dtype)
    return g.op("Conv", X, g.constant(kernel), g.constant(offset.astype(dtype)), group=len(kernel))


@onnx_symbolic("form::BatchNormalization.arithmetic")
def batch_normalization_of_a_batch(
    g: GraphContext,
    X: Value,
    scale: Value,
    B: Value,
    input_mean: Value,
    input_var: Value,
    epsilon: float = 1e-5,
    training_mode: int = 0,
    outputs: int = 1,
    **momentum: Any,
) -> Value:
    """A factor and an offset for each channel of several images, for consumers without a batch."""
    shape = g.shape(X)
    if not shape or len(shape) < 2 or shape[0] == 1:
        raise g.refuse("the rank is unknown or below 2, or the batch is of one")
    factors = _channel_factors(
        g, [scale, B, input_mean, input_var], epsilon, not training_mode and outputs == 1
    )
    factor, offset = (
        g.constant(array.reshape(-1, *[1] * (len(shape) - 2)).astype(factors[2])) for array in factors[:2]
    )
    return g.op("Add", g.op("Mul", X, factor), offset)


@onnx_symbolic("form::LayerNormalization.zero_bias")
def layer_normalization(
    g: GraphContext, X: Value, Scale: Value, B: Value | None = None, outputs: int = 1, **attributes: Any
) -> list[Value]:
    """A bias of zeros where there is none."""
    sizes = g.shape(Scale)
    if B is not None or sizes is None or not all(isinstance(size, int) for size in sizes):
        raise g.refuse("it has a bias, or the sizes of the scale are unknown")
    zeros = g.constant(np.zeros([size for size in sizes if isinstance(size, int)]), g.dtype(Scale))
    return as_list(g.op("LayerNormalization", X, Scale, zeros, **attributes, outputs=outputs))


@onnx_symbolic("form::LayerNormalization.instance_normalization")
def layer_normalization_by_rows(
    g: GraphContext,
    X: Value,
    Scale: Value,
    B: Value | None = None,
    axis: int = -1,
    epsilon: float = 1e-5,
    outputs: int = 1,
    **stash_type: int,
) -> list[Value]:
    """InstanceNormalization of an image with a channel for each row; of static shapes, in FLOAT."""
    sizes = static_shape(g, X)
    if outputs > 1 or g.dtype(X) is not DataType.FLOAT:
        raise g.refuse("the numbers are not FLOAT, or the mean is an output")
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


@onnx_symbolic("form::LayerNormalization.batch_first")
def layer_normalization_of_steps(
    g: GraphContext, X: Value, Scale: Value, axis: int = -1, outputs: int = 1, **arguments: Any
) -> list[Value]:
    """Steps of a batch of one, as the batch of one with its steps."""
    shape = g.shape(X)
    sizes = [size for size in shape or () if isinstance(size, int)]
    is_first = shape is not None and len(sizes) == len(shape) >= 3 and sizes[0] > 1 == sizes[1]
    if not is_first or outputs > 1 or g.axis(axis, len(sizes)) < 2:
        raise g.refuse("the first sizes are not those of steps and a batch of one")
    rows = g.op("Reshape", X, [1, sizes[0], *sizes[2:]])
    normal = g.op("LayerNormalization", rows, Scale, axis=axis, **arguments)
    return [g.op("Reshape", normal, sizes)]


def _register_last(op_type: str) -> None:
    # Before opset 13 the operator is over all dimensions from the axis on.
    @onnx_symbolic(f"form::{op_type}.last", opset=13)
    def normalize_last(g: GraphContext, input: Value, axis: int = -1) -> Value:
        """Over the last dimension, between two Transpose that exchange it with the other one."""
        rank = g.rank(input)
        if rank is None or axis % rank == rank - 1:
            raise g.refuse("the rank is unknown, or the dimension is the last one")
        order = list(range(rank))
        order[axis], order[-1] = order[-1], order[axis]
        normal = g.op(op_type, g.op("Transpose", input, perm=order), axis=-1)
        return g.op("Transpose", normal, perm=order)

    @onnx_symbolic(f"form::{op_type}.axis_from_front", opset=13)
    def count_axis_from_front(g: GraphContext, input: Value, axis: int = -1) -> Value:
        """The axis as a number from 0 on: consumers that move a Transpose search its permutation for it."""
        rank = g.rank(input)
        if rank is None or axis >= 0:
            raise g.refuse("the rank is unknown, or the axis counts from the first dimension")
        return g.op(op_type, input, axis=axis + rank)


for _op_type in ("LogSoftmax", "Softmax"):
    _register_last(_op_type)


@onnx_symbolic("form::Softmax.three_dimensions")
def softmax_in_three_dimensions(g: GraphContext, input: Value, axis: int = -1) -> Value:
    """Softmax over the last dimension of several matrices of several windows, as one batch of matrices.

    Also of one window to which one row of a mask is added: consumers that fuse attention read a row for each.
    """
    shape = g.shape(input)
    if shape is None or len(shape) < 4 or not all(isinstance(size, int) and size > 0 for size in shape):
        raise g.refuse("the sizes are unknown, or there are at most three dimensions")
    sizes = [size for size in shape if isinstance(size, int)]
    producer = input.producer()
    operands = () if producer is None or producer.op_type != "Add" else producer.inputs
    masks = [operand.shape for operand in operands if operand is not None and operand.shape is not None]
    has_shared_row = sizes[-2] > 1 and any(len(mask) < 2 or mask[-2] == 1 for mask in masks)
    if g.axis(axis, len(sizes)) != len(sizes) - 1 or (sizes[0] == 1 and not has_shared_row):
        raise g.refuse("it is not over the last dimension, or of one window with a row of a mask for each")
    rows = math.prod(sizes[1:-1])
    matrix_shape = [1, rows, sizes[-1]] if sizes[0] == 1 else [math.prod(sizes[:-2]), *sizes[-2:]]
    matrices = g.op("Reshape", input, matrix_shape)
    return g.op("Reshape", g.op("Softmax", matrices, axis=2), sizes)
