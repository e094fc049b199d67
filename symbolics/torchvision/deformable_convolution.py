"""Deformable convolution, with or without modulation.

Semantics: torchvision/csrc/ops/cpu/deform_conv2d_kernel.cpp; Deformable ConvNets v2, arXiv:1811.11168.
"""

import numpy as np

from ...registration import DataType, GraphContext, Value, onnx_symbolic
from ..compositions.size_arithmetic import Size, compute, product, sizes_of
from ..compositions.spatial.bilinear import neighbours_in_zeros, sample_pixels


def _coordinates(
    g: GraphContext, offset: Value, axis: int, kernel: int, stride: int, pad: int, dilation: int
) -> Value:
    """The coordinates along one axis of every sample, `[n, offset groups, kh, kw, h, w]`.

    Args:
        offset: the offsets along the axis, of that shape.
        axis: 0 for the height, 1 for the width.
    """
    dtype = g.dtype(offset) or DataType.FLOAT
    taps = np.arange(kernel).reshape([-1 if i == axis else 1 for i in range(4)]) * dilation - pad
    outputs = g.call("sym::range", start=0, end=g.size(offset, 4 + axis))
    outputs = g.op("Mul", g.cast(outputs, dtype), float(stride))
    outputs = g.op("Unsqueeze", outputs, axes=[1]) if axis == 0 else outputs
    return g.op("Add", g.op("Add", g.constant(taps, dtype), outputs), offset)


@onnx_symbolic("torchvision::deform_conv2d")
def sampled_deform_conv2d(
    g: GraphContext,
    input: Value,
    weight: Value,
    offset: Value,
    mask: Value,
    bias: Value,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    groups: int,
    offset_groups: int,
    use_mask: bool,
) -> Value:
    """Bilinear samples of the input in the place of unfolded windows, then a product with the weight."""
    n, channels, height, width = sizes_of(g, input)
    out_channels, _, kernel_h, kernel_w = sizes_of(g, weight)
    if not isinstance(kernel_h, int) or not isinstance(kernel_w, int):
        raise g.refuse("the size of the kernel is unknown")
    out_h, out_w = sizes_of(g, offset)[2:]
    taps: list[Size] = [n, offset_groups, kernel_h, kernel_w]
    split = g.op("Reshape", offset, g.stack([*taps, 2, out_h, out_w]))
    along_y, along_x = (
        g.op("Squeeze", g.op("Slice", split, starts=[i], ends=[i + 1], axes=[4]), axes=[4]) for i in (0, 1)
    )
    y = _coordinates(g, along_y, 0, kernel_h, stride_h, pad_h, dilation_h)
    x = _coordinates(g, along_x, 1, kernel_w, stride_w, pad_w, dilation_w)
    group_channels = compute(g, "floordiv", channels, offset_groups)
    area = compute(g, "mul", height, width)
    pixels = g.op("Reshape", input, g.stack([n, offset_groups, group_channels, area]))
    pixels = g.op("Reshape", g.op("Transpose", pixels, perm=[0, 1, 3, 2]), g.stack([-1, group_channels]))
    images = g.call("sym::range", start=0, end=compute(g, "mul", n, offset_groups))
    first = g.op("Mul", images, g.constant(area))
    first = g.op("Reshape", first, g.stack([n, offset_groups, 1, 1, 1, 1]))
    samples = sample_pixels(
        g, pixels, first, neighbours_in_zeros(g, y, height), neighbours_in_zeros(g, x, width), width, rank=6
    )
    if use_mask:
        factors = g.op("Reshape", mask, g.stack([*taps, out_h, out_w, 1]))
        samples = g.op("Mul", samples, factors)
    # To [n, groups, channels and taps of a group, h * w].
    columns = g.op("Transpose", samples, perm=[0, 1, 6, 2, 3, 4, 5])
    area_out = compute(g, "mul", out_h, out_w)
    inner = product(g, [compute(g, "floordiv", channels, groups), kernel_h, kernel_w])
    columns = g.op("Reshape", columns, g.stack([n, groups, inner, area_out]))
    rows = g.op("Reshape", weight, g.stack([groups, compute(g, "floordiv", out_channels, groups), inner]))
    result = g.op("Reshape", g.op("MatMul", rows, columns), g.stack([n, out_channels, out_h, out_w]))
    return g.op("Add", result, g.op("Reshape", bias, g.stack([1, out_channels, 1, 1])))


@onnx_symbolic("torchvision::deform_conv2d", opset=19)
def deform_conv2d(
    g: GraphContext,
    input: Value,
    weight: Value,
    offset: Value,
    mask: Value,
    bias: Value,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    groups: int,
    offset_groups: int,
    use_mask: bool,
) -> Value:
    """From 19: DeformConv."""
    return g.op(
        "DeformConv",
        input,
        weight,
        offset,
        bias,
        mask if use_mask else None,
        dilations=[dilation_h, dilation_w],
        group=groups,
        kernel_shape=[size for size in sizes_of(g, weight)[2:] if isinstance(size, int)] or None,
        offset_group=offset_groups,
        pads=[pad_h, pad_w, pad_h, pad_w],
        strides=[stride_h, stride_w],
    )
