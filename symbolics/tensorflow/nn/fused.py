"""Operators that TensorFlow's graph optimizer fuses, such as `_FusedConv2D` and `_FusedMatMul`.

`fused_ops` lists the operators that follow the first one; each takes its operands from `args`, in order.
"""

from collections.abc import Callable, Iterator, Sequence

from ....registration import GraphContext, Value, onnx_symbolic
from ...compositions.operator_tables import register_variant
from .convolutions import convolve
from .layout import DataLayout

_ACTIVATIONS: dict[str, str] = {
    "Relu": "aten::relu",
    "Relu6": "aten::relu6",
    "Elu": "aten::elu",
    "_FusedHardSwish": "aten::hardswish",
    "_MklSwish": "aten::silu",
    "_FusedSwish": "aten::silu",
}
_ARGUMENTS = {"Add": 1, "BiasAdd": 1, "FusedBatchNorm": 4}
"""The number of operands that fused operators take from `args`; the others take none."""


def _apply_fused_operators(
    g: GraphContext,
    result: Value,
    args: Sequence[Value],
    fused_ops: Sequence[str],
    data_format: str,
    epsilon: float,
    alpha: float,
) -> Value:
    """Apply the fused operators to the result of the first operator."""
    operand_count = sum(_ARGUMENTS.get(name, 0) for name in fused_ops)
    if operand_count != len(args):
        raise g.refuse(f"fused_ops={list(fused_ops)} do not take {len(args)} operands, but {operand_count}")
    # All operators take from one iterator, in the order of `fused_ops`.
    remaining_args: Iterator[Value] = iter(args)

    def norm(value: Value) -> Value:
        statistics = [next(remaining_args) for _ in range(4)]
        options = {"epsilon": epsilon, "data_format": data_format, "is_training": False}
        return g.call_outputs("tf::FusedBatchNormV3", value, *statistics, **options)[0]

    operators: dict[str, Callable[[Value], Value]] = {
        "BiasAdd": lambda value: g.call("tf::BiasAdd", value, next(remaining_args), data_format),
        "Add": lambda value: g.op("Add", value, next(remaining_args)),
        "FusedBatchNorm": norm,
        "LeakyRelu": lambda value: g.call("aten::leaky_relu", value, alpha),
        "Sigmoid": lambda value: g.op("Sigmoid", value),
        "Tanh": lambda value: g.op("Tanh", value),
        "GeluExact": lambda value: g.call("aten::gelu", value),
        "GeluApproximate": lambda value: g.call("aten::gelu", value, "tanh"),
    }
    for name in fused_ops:
        if name in operators:
            result = operators[name](result)
        elif name in _ACTIVATIONS:
            result = g.call(_ACTIVATIONS[name], result)
        else:
            raise g.refuse(f"fused operator '{name}' is not supported")
    return result


def fused_conv2d(
    g: GraphContext,
    input: Value,
    filter: Value,
    args: list[Value],
    num_args: int,
    strides: Sequence[int],
    padding: str,
    host_args: Sequence[Value] = (),
    num_host_args: int = 0,
    explicit_paddings: Sequence[int] = (),
    data_format: str = "NHWC",
    filter_format: str = "HWIO",
    dilations: Sequence[int] = (),
    fused_ops: Sequence[str] = (),
    epsilon: float = 1e-4,
    leakyrelu_alpha: float = 0.2,
    depthwise: bool = False,
) -> Value:
    if filter_format not in ("HWIO", "OIHW"):
        raise g.refuse(f"filter_format '{filter_format}' is not supported")
    if filter_format == "OIHW":
        filter = g.op("Transpose", filter, perm=[2, 3, 1, 0])
    if host_args:
        raise g.refuse("scales of quantized operands are not supported")
    layout = DataLayout.of(g, data_format)
    result = convolve(g, layout, input, filter, strides, padding, explicit_paddings, dilations, depthwise)
    return _apply_fused_operators(g, result, args, fused_ops, data_format, epsilon, leakyrelu_alpha)


register_variant("tf::_FusedConv2D", fused_conv2d, depthwise=False)
register_variant(
    "tf::_FusedDepthwiseConv2dNative",
    fused_conv2d,
    host_args=[],
    num_host_args=0,
    explicit_paddings=(),
    filter_format="HWIO",
    depthwise=True,
)


@onnx_symbolic("tf::_FusedMatMul")
def fused_mat_mul(
    g: GraphContext,
    a: Value,
    b: Value,
    args: list[Value],
    num_args: int,
    transpose_a: bool = False,
    transpose_b: bool = False,
    fused_ops: Sequence[str] = (),
    epsilon: float = 1e-4,
    leakyrelu_alpha: float = 0.2,
) -> Value:
    a, b = (
        g.op("Transpose", matrix, perm=[1, 0]) if is_transposed else matrix
        for matrix, is_transposed in ((a, transpose_a), (b, transpose_b))
    )
    return _apply_fused_operators(g, g.op("MatMul", a, b), args, fused_ops, "NHWC", epsilon, leakyrelu_alpha)


@onnx_symbolic("tf::_FusedBatchNormEx")
def fused_batch_norm_ex(
    g: GraphContext,
    x: Value,
    scale: Value,
    offset: Value,
    mean: Value,
    variance: Value,
    side_input: list[Value],
    num_side_inputs: int = 0,
    epsilon: float = 1e-4,
    exponential_avg_factor: float = 1.0,
    activation_mode: str = "Identity",
    data_format: str = "NHWC",
    is_training: bool = True,
) -> list[Value | None]:
    options = (epsilon, exponential_avg_factor, data_format, is_training)
    result, *statistics = g.call_outputs("tf::FusedBatchNormV3", x, scale, offset, mean, variance, *options)
    for side in side_input:
        result = g.op("Add", result, side)
    if activation_mode not in ("Identity", "Relu"):
        raise g.refuse(f"activation_mode '{activation_mode}' is not supported")
    return [g.op("Relu", result) if activation_mode == "Relu" else result, *statistics]


@onnx_symbolic("tf::FusedPadConv2D")
def fused_pad_conv2d(
    g: GraphContext, input: Value, paddings: Value, filter: Value, mode: str, strides: list[int], padding: str
) -> Value:
    """A convolution of mirrored pixels, as the tool `optimize_for_inference` of TensorFlow 1 writes it."""
    mirrored = g.call("tf::MirrorPad", input, paddings, mode)
    return g.call("tf::Conv2D", mirrored, filter, strides=strides, padding=padding)


@onnx_symbolic("tf::FusedResizeAndPadConv2D")
def fused_resize_and_pad_conv2d(
    g: GraphContext,
    input: Value,
    size: Value,
    paddings: Value,
    filter: Value,
    mode: str,
    strides: list[int],
    padding: str,
    resize_align_corners: bool = False,
) -> Value:
    resized = g.call("tf::ResizeBilinear", input, size, resize_align_corners)
    return g.call("tf::FusedPadConv2D", resized, paddings, filter, mode, strides, padding)
