"""Gradients of convolutions and of their transposes."""

from collections.abc import Sequence

from .....registration import GraphContext, Value, onnx_symbolic
from ....compositions.size_arithmetic import known_rank
from ....compositions.spatial.windows import per_dimension, spatial_sizes


@onnx_symbolic("aten::convolution_backward")
def convolution_backward(
    g: GraphContext,
    grad_output: Value,
    input: Value,
    weight: Value,
    bias_sizes: list[int | Value] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> list[Value]:
    """The gradients of input, weight and bias that the mask selects.

    That of the input is the transposed operator. That of the weight is a convolution of the input by the
    gradient, with batch and channels swapped, and strides and dilations too.
    """
    dimensions = known_rank(g, weight) - 2
    strides, pads, steps = (per_dimension(argument, dimensions) for argument in (stride, padding, dilation))
    of_input = of_weight = of_bias = None
    if output_mask[0]:
        of_input = (
            g.call(f"aten::conv{dimensions}d", grad_output, weight, None, strides, pads, steps, groups)
            if transposed
            else transpose_convolution_to(g, grad_output, weight, input, strides, pads, steps, groups)
        )
    if output_mask[1]:
        data, kernel = (grad_output, input) if transposed else (input, grad_output)
        of_weight = _of_weight(g, data, kernel, weight, strides, pads, steps, groups)
    if output_mask[2]:
        axes = [0, *range(2, 2 + dimensions)]
        of_bias = g.op("ReduceSum", grad_output, axes=axes, keepdims=0)
    return [value for value in (of_input, of_weight, of_bias) if value is not None]


def transpose_convolution_to(
    g: GraphContext,
    input: Value,
    weight: Value,
    like: Value,
    strides: list[int],
    pads: list[int],
    dilations: list[int],
    groups: int,
) -> Value:
    """A transposed convolution whose result has the spatial sizes of `like`.

    If sizes are unknown, it computes the largest possible result and crops the end.
    """
    dimensions = len(strides)
    sizes, kernel, counts = (spatial_sizes(g, value, dimensions) for value in (like, weight, input))
    if sizes is None or kernel is None or counts is None:
        # Several input sizes give the same output size; the largest of them is cropped.
        extra, is_cut = [stride - 1 for stride in strides], any(stride > 1 for stride in strides)
    else:
        numbers = zip(sizes, kernel, counts, strides, pads, dilations, strict=True)
        extra = [
            size - ((count - 1) * stride - 2 * pad + step * (length - 1) + 1)
            for size, length, count, stride, pad, step in numbers
        ]
        is_cut = False
    name = f"aten::conv_transpose{dimensions}d"
    result = g.call(name, input, weight, None, strides, pads, extra, groups, dilations)
    return _crop_like(g, result, like) if is_cut else result


def _crop_like(g: GraphContext, value: Value, like: Value) -> Value:
    """Crop each spatial dimension to the size of another value."""
    for axis in range(2, known_rank(g, like)):
        value = g.call("aten::slice", self=value, dim=axis, start=0, end=g.size(like, axis))
    return value


def _of_weight(
    g: GraphContext,
    input: Value,
    gradient: Value,
    weight: Value,
    strides: list[int],
    pads: list[int],
    dilations: list[int],
    groups: int,
) -> Value:
    """The gradient of `[O, C / groups, kernel...]` by `[N, C, spatial...]` and `[N, O, places...]`."""
    dimensions = len(strides)
    swapped = [1, 0, *range(2, 2 + dimensions)]
    if groups == 1:
        data = g.op("Transpose", input, perm=swapped)
    else:
        # Batch and group become the channels of a convolution in as many groups.
        spatial = [g.size(input, 2 + i) for i in range(dimensions)]
        split = g.op("Reshape", input, g.stack([g.size(input, 0), groups, -1, *spatial]))
        data = g.op("Transpose", split, perm=[2, 1, 0, *range(3, 3 + dimensions)])
        data = g.op("Reshape", data, g.stack([g.size(weight, 1), -1, *spatial]))
    kernel = g.op("Transpose", gradient, perm=swapped)
    # Strides and dilations change their roles: the gradient slides over the input in steps of the dilation.
    result = g.call(f"aten::conv{dimensions}d", data, kernel, None, dilations, pads, strides, groups)
    lengths, sizes, counts = (spatial_sizes(g, value, dimensions) for value in (weight, input, gradient))
    if lengths is not None and sizes is not None and counts is not None:
        numbers = zip(sizes, counts, strides, pads, dilations, strict=True)
        covered = [
            (size + 2 * pad - stride * (count - 1) - 1) // step + 1
            for size, count, stride, pad, step in numbers
        ]
    else:
        covered = None
    if covered != lengths or lengths is None:
        # Elements that no window reaches make the result longer than the kernel.
        result = _crop_like(g, result, weight)
    return g.op("Transpose", result, perm=swapped)
