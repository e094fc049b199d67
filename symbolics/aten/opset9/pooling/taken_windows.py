"""Averages and convolutions of windows that are taken out of the input: of integers, and of unknown sizes.

Semantics: aten/src/ATen/native/cpu/AvgPoolKernel.cpp; integers are multiplied, added and divided as integers.
"""

import functools
import math
from collections.abc import Sequence

from .....registration import DataType, GraphContext, Value, onnx_symbolic
from ....compositions.sizes import compute, product
from ....compositions.sliding import Slide, masked, spread_out, taken


@onnx_symbolic("composed::windowed_average")
def windowed_average(
    g: GraphContext,
    input: Value,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None = None,
) -> Value:
    """Sums of windows of `[N, C, spatial...]` over their number of elements; of integers rounded to zero."""
    dimensions = len(kernel)
    slides = []
    for index, (k, s, p) in enumerate(zip(kernel, stride, padding, strict=True)):
        size = g.size(input, 2 + index)
        slides.append(Slide.pooling(g, size, k, s, p, 1, ceil_mode))
    windows, mask = masked(g, taken(g, input, [slide.clipped(g) for slide in slides]), slides)
    axes = list(range(2 + dimensions, 2 + 2 * dimensions))
    total = g.op("ReduceSum", windows, axes=axes, keepdims=0)
    if divisor_override is not None:
        return g.op("Div", total, divisor_override)
    if mask is None:
        return g.op("Div", total, math.prod(kernel))
    counts = _counted(g, slides) if count_include_pad else mask
    axes = list(range(dimensions, 2 * dimensions))
    number = g.op("ReduceSum", g.cast(counts, DataType.INT64), axes=axes, keepdims=0)
    return g.op("Div", total, g.cast(number, g.dtype(total) or DataType.INT64))


def _counted(g: GraphContext, slides: Sequence[Slide]) -> Value:
    """What counts with padding counted: all of a window but what is beyond the padding on the right."""
    parts = []
    for index, slide in enumerate(slides):
        end = compute(g, "add", slide.size, slide.padding)
        part = g.op("Less", slide.positions(g), g.constant(end))
        parts.append(spread_out(g, part, index, len(slides)))
    return functools.reduce(lambda a, b: g.op("And", a, b), parts)


@onnx_symbolic("composed::integer_convolution")
def integer_convolution(
    g: GraphContext,
    input: Value,
    weight: Value,
    bias: Value | None,
    dilations: list[int],
    group: int,
    pads: list[int],
    strides: list[int],
) -> Value:
    """Products of windows of `[N, C, spatial...]` and kernels `[O, C / groups, kernel...]`, summed.

    Args:
        pads: of all dimensions before, then behind.
    """
    shape = g.shape(weight)
    if shape is None or not all(isinstance(size, int) for size in shape):
        raise g.refuse("a convolution of integers needs the shape of its weight to be known")
    outputs, channels, *kernel = (int(size) for size in shape)  # type: ignore[arg-type]
    kind = g.dtype(input) or DataType.INT64
    wide = kind if kind in (DataType.INT64, DataType.UINT64) else DataType.INT32
    input, weight = g.cast(input, wide), g.cast(weight, wide)
    dimensions = len(kernel)
    slides = []
    for i in range(dimensions):
        around = pads[i], pads[dimensions + i]
        slides.append(Slide.over(g, g.size(input, 2 + i), kernel[i], strides[i], around, dilations[i]))
    windows, _ = masked(g, taken(g, input, [slide.clipped(g) for slide in slides]), slides)
    first, behind = range(2, 2 + dimensions), range(2 + dimensions, 2 + 2 * dimensions)
    columns = g.op("Transpose", windows, perm=[0, 1, *behind, *first])
    depth, counts = channels * math.prod(kernel), [slide.count for slide in slides]
    batch = g.size(input, 0)
    columns = g.op("Reshape", columns, [batch, group, depth, product(g, counts)])
    rows = g.op("Reshape", weight, [group, outputs // group, depth])
    result = g.op("Reshape", g.op("MatMul", rows, columns), [batch, outputs, *counts])
    if bias is not None:
        result = g.op("Add", result, g.op("Reshape", g.cast(bias, wide), [outputs, *[1] * dimensions]))
    return g.cast(result, kind)
