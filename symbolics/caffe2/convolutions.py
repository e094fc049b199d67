"""Convolutions and transposed convolutions."""

from collections.abc import Sequence

from ...registration import GraphContext, Value, onnx_symbolic
from ..compositions.size_arithmetic import UNKNOWN
from ._layouts import from_channels_first, set_shape, to_channels_first
from ._windows import CAFFE_LEGACY_POOLING, NOTSET, VALID, SlidingWindow


@onnx_symbolic(["caffe2::Conv", "caffe2::Conv1D", "caffe2::Conv2D", "caffe2::Conv3D"])
def conv(
    g: GraphContext,
    X: Value,
    filter: Value,
    bias: Value | None = None,
    kernels: Sequence[int] = (),
    strides: Sequence[int] = (),
    pads: Sequence[int] = (),
    dilations: Sequence[int] = (),
    legacy_pad: int = 0,
    group: int = 1,
    order: str = "NCHW",
) -> Value:
    """A filter in NHWC order has the shape [M, spatial..., C / group]."""
    window = SlidingWindow.of(g, kernels, strides, pads, dilations, legacy_pad)
    rank = window.count + 2
    data, weight = to_channels_first(g, X, order, rank), to_channels_first(g, filter, order, rank)
    shape = g.shape(data)
    if shape is not None and len(shape) != rank:
        raise g.refuse(
            f"its input has {len(shape)} dimensions, but a kernel of {window.count} dimensions needs {rank}"
        )
    data, padding, sizes = window.pad_input(g, data)
    result = g.op("Conv", data, weight, bias, group=group, **window.attributes, **padding)
    channels = g.shape(weight)
    batch = shape[0] if shape is not None else UNKNOWN
    set_shape(result, [batch, channels[0] if channels is not None else UNKNOWN, *sizes])
    return from_channels_first(g, result, order, rank)


@onnx_symbolic("caffe2::ConvRelu")
def conv_relu(
    g: GraphContext,
    X: Value,
    filter: Value,
    bias: Value | None = None,
    kernels: Sequence[int] = (),
    strides: Sequence[int] = (),
    pads: Sequence[int] = (),
    dilations: Sequence[int] = (),
    legacy_pad: int = 0,
    group: int = 1,
    order: str = "NCHW",
) -> Value:
    result = conv(g, X, filter, bias, kernels, strides, pads, dilations, legacy_pad, group, order)
    return g.op("Relu", result)


@onnx_symbolic("caffe2::ConvTranspose")
def conv_transpose(
    g: GraphContext,
    X: Value,
    filter: Value,
    bias: Value | None = None,
    kernels: Sequence[int] = (),
    strides: Sequence[int] = (),
    pads: Sequence[int] = (),
    adjs: Sequence[int] = (),
    legacy_pad: int = 0,
    group: int = 1,
    order: str = "NCHW",
) -> Value:
    """A filter in NHWC order is [C, spatial..., M / group]. VALID and SAME both mean no padding."""
    if legacy_pad == CAFFE_LEGACY_POOLING:
        raise g.refuse("legacy_pad CAFFE_LEGACY_POOLING is not supported, and Caffe2 does not have it either")
    window = SlidingWindow.of(g, kernels, strides, pads, (), VALID if legacy_pad else NOTSET)
    rank = window.count + 2
    output_padding = list(adjs) or [0] * window.count
    data, weight = to_channels_first(g, X, order, rank), to_channels_first(g, filter, order, rank)
    result = g.op(
        "ConvTranspose",
        data,
        weight,
        bias,
        group=group,
        pads=window.pads,
        output_padding=output_padding if any(output_padding) else None,
        **window.attributes,
    )
    shape, channels = g.shape(data), g.shape(weight)
    output_channels = (
        channels[1] * group if channels is not None and isinstance(channels[1], int) else UNKNOWN
    )
    set_shape(
        result, [shape[0] if shape is not None else UNKNOWN, output_channels, *[UNKNOWN] * window.count]
    )
    return from_channels_first(g, result, order, rank)
