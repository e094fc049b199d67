"""Convolutions of cuDNN and MIOpen, and of single channels, as the operators of every device."""

from collections.abc import Sequence
from typing import Any

from .....registration import GraphContext, Number, Value, onnx_symbolic


@onnx_symbolic(
    [
        *("aten::cudnn_convolution", "aten::miopen_convolution", "aten::miopen_depthwise_convolution"),
        *("aten::cudnn_convolution_transpose", "aten::miopen_convolution_transpose"),
    ]
)
def cudnn_convolution(
    g: GraphContext,
    self: Value,
    weight: Value,
    padding: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int | Value,
    bias: Value | None = None,
    output_padding: Sequence[int] | None = None,
) -> Value:
    """Only transposed convolutions have output padding."""
    is_transposed = output_padding is not None
    arguments = (stride, padding, dilation, is_transposed, output_padding or [0] * len(stride), groups)
    return g.call("aten::convolution", self, weight, bias, *arguments)


@onnx_symbolic(["aten::cudnn_convolution_relu", "aten::miopen_convolution_relu"])
def cudnn_convolution_relu(g: GraphContext, **arguments: Any) -> Value:
    return g.op("Relu", g.call("aten::cudnn_convolution", **arguments))


@onnx_symbolic(["aten::cudnn_convolution_add_relu", "aten::miopen_convolution_add_relu"])
def cudnn_convolution_add_relu(g: GraphContext, z: Value, alpha: Number | None, **arguments: Any) -> Value:
    convolved = g.call("aten::cudnn_convolution", **arguments)
    added = z if alpha is None or alpha == 1 else g.op("Mul", z, float(alpha))
    return g.op("Relu", g.op("Add", convolved, added))


@onnx_symbolic(["aten::_conv_depthwise2d", "aten::conv_depthwise3d"])
def _conv_depthwise2d(g: GraphContext, self: Value, kernel_size: Sequence[int], **arguments: Any) -> Value:
    """A group for each channel of the input; a channel may have several outputs."""
    return g.call("aten::cudnn_convolution", self, groups=g.size(self, 1), **arguments)
