"""Convolutions and their transposes."""

import math
from collections.abc import Sequence
from typing import Any

from .....registration import DataType, GraphContext, Value, dtypes, onnx_symbolic
from ....compositions.sizes import Size, compute, known_rank, product
from ....compositions.sliding import Slide, masked, taken
from ....compositions.windows import is_unbatched, per_dimension


def _same_pads(g: GraphContext, weight: Value, dilation: list[int]) -> list[Size]:
    """The pads of padding="same" (ATen's `_convolution_same`): an odd total has one more on the right."""
    totals = [
        compute(g, "mul", compute(g, "sub", g.size(weight, 2 + i), 1), step)
        for i, step in enumerate(dilation)
    ]
    begins = [compute(g, "floordiv", total, 2) for total in totals]
    return begins + [compute(g, "sub", *both) for both in zip(totals, begins, strict=True)]


def _pads(g: GraphContext, weight: Value, padding: Sequence[int] | str, dilation: list[int]) -> list[Size]:
    if isinstance(padding, str):
        if padding == "same":
            return _same_pads(g, weight, dilation)
        if padding == "valid":
            return [0] * (2 * len(dilation))
        raise g.refuse(f'padding="{padding}" is neither "same" nor "valid"')
    return [*per_dimension(padding, len(dilation)) * 2]


def _padded(g: GraphContext, input: Value, pads: list[Size]) -> Value:
    """The input with zeros added around its spatial dimensions."""
    dimensions = len(pads) // 2
    others: list[Size] = [0] * (known_rank(g, input) - dimensions)
    begins, ends = others + pads[:dimensions], others + pads[dimensions:]
    return g.call("composed::pad", self=input, begins=begins, ends=ends, value=0)


def _convolved(
    g: GraphContext, op_type: str, input: Value, weight: Value, bias: Value | None, **attributes: Any
) -> Value:
    """Conv or ConvTranspose, also for an input without a batch."""
    unbatched = is_unbatched(g, input, len(attributes["dilations"]))
    if unbatched:
        input = g.op("Unsqueeze", input, axes=[0])
    shape = g.shape(weight)
    if op_type == "Conv" and g.dtype(input) in dtypes.INTEGERS:
        result = _of_integers(g, input, weight, bias, **attributes)
    else:
        if shape is not None and all(isinstance(size, int) for size in shape[2:]):
            attributes["kernel_shape"] = list(shape[2:])
        result = g.op(op_type, input, weight, bias, **attributes)
    return g.op("Squeeze", result, axes=[0]) if unbatched else result


def _grown(
    g: GraphContext, input: Value, padding: list[int], extra: list[int], strides: list[int]
) -> tuple[Value, list[int], list[int]]:
    """The input and the end pads that replace an output padding, which ONNX limits to less than the stride.

    Output padding first reduces the padding; zeros after the input give the rest, a stride for each.
    """
    left = [more - pad for more, pad in zip(extra, padding, strict=True)]
    zeros = [max(-(-more // step), 0) for more, step in zip(left, strides, strict=True)]
    if any(zeros):
        rank = known_rank(g, input)
        after = [0] * (rank - len(zeros)) + zeros
        input = g.op("Pad", input, pads=[*[0] * rank, *after], mode="constant", value=0.0)
    ends = [count * step - more for count, step, more in zip(zeros, strides, left, strict=True)]
    return input, ends, [0] * len(extra)


def _register(dimensions: int) -> None:
    @onnx_symbolic(f"aten::conv{dimensions}d")
    def conv(
        g: GraphContext,
        input: Value,
        weight: Value,
        bias: Value | None = None,
        stride: Sequence[int] = (1,),
        padding: Sequence[int] | str = (0,),
        dilation: Sequence[int] = (1,),
        groups: int = 1,
    ) -> Value:
        dilation = per_dimension(dilation, dimensions)
        pads = _pads(g, weight, padding, dilation)
        if not all(isinstance(pad, int) for pad in pads):
            input, pads = _padded(g, input, pads), [0] * len(pads)
        strides = per_dimension(stride, dimensions)
        attributes = {"dilations": dilation, "group": groups, "pads": pads, "strides": strides}
        return _convolved(g, "Conv", input, weight, bias, **attributes)

    @onnx_symbolic(f"aten::conv_transpose{dimensions}d")
    def conv_transpose(
        g: GraphContext,
        input: Value,
        weight: Value,
        bias: Value | None = None,
        stride: Sequence[int] = (1,),
        padding: Sequence[int] = (0,),
        output_padding: Sequence[int] = (0,),
        groups: int = 1,
        dilation: Sequence[int] = (1,),
    ) -> Value:
        begins = per_dimension(padding, dimensions)
        strides = per_dimension(stride, dimensions)
        extra = per_dimension(output_padding, dimensions)
        ends = list(begins)
        if any(more >= step for more, step in zip(extra, strides, strict=True)):
            input, ends, extra = _grown(g, input, begins, extra, strides)
        return _convolved(
            g,
            "ConvTranspose",
            input,
            weight,
            bias,
            dilations=per_dimension(dilation, dimensions),
            group=groups,
            output_padding=extra if any(extra) else None,
            pads=[*begins, *ends],
            strides=strides,
        )


for _dimensions in (1, 2, 3):
    _register(_dimensions)


@onnx_symbolic(["aten::convolution", "aten::_convolution"])
def convolution(
    g: GraphContext,
    input: Value,
    weight: Value,
    bias: Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Value:
    rank = g.rank(weight)
    dimensions = rank - 2 if rank is not None else max(map(len, (stride, padding, dilation)))
    if not transposed:
        return g.call(f"aten::conv{dimensions}d", input, weight, bias, stride, padding, dilation, groups)
    name = f"aten::conv_transpose{dimensions}d"
    return g.call(name, input, weight, bias, stride, padding, output_padding, groups, dilation)


def _of_integers(
    g: GraphContext,
    input: Value,
    weight: Value,
    bias: Value | None,
    dilations: list[int],
    group: int,
    pads: list[int],
    strides: list[int],
) -> Value:
    """Integer products of windows of `[N, C, spatial...]` and kernels `[O, C / groups, kernel...]`, summed.

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
    windows = masked(g, taken(g, input, [slide.clipped(g) for slide in slides]), slides)
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
