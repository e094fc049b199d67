"""Convolutions of cuDNN and MIOpen, and of single channels, as the operators of every device."""

from collections.abc import Sequence

from .....registration import GraphContext, Number, Value, onnx_symbolic


@onnx_symbolic(["aten::cudnn_convolution", "aten::miopen_convolution", "aten::miopen_depthwise_convolution"])
def cudnn_convolution(
    g: GraphContext,
    self: Value,
    weight: Value,
    padding: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int | Value,
    bias: Value | None = None,
) -> Value:
    arguments = (stride, padding, dilation, False, [0] * len(stride), groups)
    return g.call("aten::convolution", self, weight, bias, *arguments)


@onnx_symbolic(["aten::cudnn_convolution_transpose", "aten::miopen_convolution_transpose"])
def cudnn_convolution_transpose(
    g: GraphContext,
    self: Value,
    weight: Value,
    padding: Sequence[int],
    output_padding: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int | Value,
    bias: Value | None = None,
) -> Value:
    arguments = (stride, padding, dilation, True, output_padding, groups)
    return g.call("aten::convolution", self, weight, bias, *arguments)


@onnx_symbolic(["aten::cudnn_convolution_relu", "aten::miopen_convolution_relu"])
def cudnn_convolution_relu(
    g: GraphContext,
    self: Value,
    weight: Value,
    bias: Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int | Value,
) -> Value:
    return g.op("Relu", cudnn_convolution(g, self, weight, padding, stride, dilation, groups, bias))


@onnx_symbolic(["aten::cudnn_convolution_add_relu", "aten::miopen_convolution_add_relu"])
def cudnn_convolution_add_relu(
    g: GraphContext,
    self: Value,
    weight: Value,
    z: Value,
    alpha: Number | None,
    bias: Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int | Value,
) -> Value:
    convolved = cudnn_convolution(g, self, weight, padding, stride, dilation, groups, bias)
    added = z if alpha is None or alpha == 1 else g.op("Mul", z, float(alpha))
    return g.op("Relu", g.op("Add", convolved, added))


@onnx_symbolic(["aten::_conv_depthwise2d", "aten::conv_depthwise3d"])
def _conv_depthwise2d(
    g: GraphContext,
    self: Value,
    weight: Value,
    kernel_size: Sequence[int],
    bias: Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Value:
    """A group for each channel of the input; a channel may have several outputs."""
    return cudnn_convolution(g, self, weight, padding, stride, dilation, g.size(self, 1), bias)
