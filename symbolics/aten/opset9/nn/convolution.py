"""Convolutions and their transposes."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from .....registration import DataType, GraphContext, Value, dtypes, onnx_symbolic
from ....compositions.size_arithmetic import Size, compute, fold_size, known_rank, product
from ....compositions.spatial.sliding import Slide, gather_windows, mask_padding
from ....compositions.spatial.windows import is_unbatched, per_dimension


def _same_pads(g: GraphContext, weight: Value, dilation: list[int]) -> list[Size]:
    """The pads of padding="same" (ATen's `_convolution_same`): an odd total has one more on the right."""
    totals = [
        compute(g, "mul", compute(g, "sub", g.size(weight, 2 + i), 1), step)
        for i, step in enumerate(dilation)
    ]
    begins = [compute(g, "floordiv", total, 2) for total in totals]
    return begins + [compute(g, "sub", *pair) for pair in zip(totals, begins, strict=True)]


def _pads(g: GraphContext, weight: Value, padding: Sequence[int] | str, dilation: list[int]) -> list[Size]:
    if isinstance(padding, str):
        if padding == "same":
            return _same_pads(g, weight, dilation)
        if padding == "valid":
            return [0] * (2 * len(dilation))
        raise g.refuse(f'padding="{padding}" is neither "same" nor "valid"')
    return [*per_dimension(padding, len(dilation)) * 2]


def _pad_with_zeros(g: GraphContext, input: Value, pads: list[Size]) -> Value:
    """The input with zeros added around its spatial dimensions."""
    dimensions = len(pads) // 2
    leading: list[Size] = [0] * (known_rank(g, input) - dimensions)
    begins, ends = leading + pads[:dimensions], leading + pads[dimensions:]
    return g.call("composed::pad", self=input, begins=begins, ends=ends, value=0)


def _convolve(
    g: GraphContext, op_type: str, input: Value, weight: Value, bias: Value | None, **attributes: Any
) -> Value:
    """Conv or ConvTranspose, also for an input without a batch."""
    unbatched = is_unbatched(g, input, len(attributes["dilations"]))
    if unbatched:
        input = g.op("Unsqueeze", input, axes=[0])
    shape = g.shape(weight)
    has_computed_groups = not isinstance(attributes["group"], int)
    if op_type == "Conv" and (has_computed_groups or g.dtype(input) in dtypes.INTEGERS):
        result = _by_windows(g, input, weight, bias, **attributes)
    elif has_computed_groups:
        result = _transpose_by_windows(g, input, weight, bias, **attributes)
    else:
        # Optional in ONNX; with it, no runtime must infer the size from the weight.
        if shape is not None and all(isinstance(size, int) for size in shape[2:]):
            attributes["kernel_shape"] = list(shape[2:])
        result = g.op(op_type, input, weight, bias, **attributes)
    return g.op("Squeeze", result, axes=[0]) if unbatched else result


def _extend_input(
    g: GraphContext, input: Value, padding: list[int], extra: list[int], strides: list[int]
) -> tuple[Value, list[int], list[int]]:
    """The input and the end pads that replace an output padding, which ONNX limits to less than the stride.

    Output padding first reduces the end pads; then zeros after the input add one stride each.
    """
    excess = [amount - pad for amount, pad in zip(extra, padding, strict=True)]
    zeros = [max(-(-amount // step), 0) for amount, step in zip(excess, strides, strict=True)]
    if any(zeros):
        rank = known_rank(g, input)
        after = [0] * (rank - len(zeros)) + zeros
        input = g.op("Pad", input, pads=[*[0] * rank, *after], mode="constant", value=0.0)
    ends = [count * step - amount for count, step, amount in zip(zeros, strides, excess, strict=True)]
    return input, ends, [0] * len(extra)


def _transposed_length(
    g: GraphContext,
    operands: tuple[Value, Value],
    axis: int,
    strides: list[int],
    padding: list[int],
    dilations: list[int],
    output_padding: Size,
) -> Size:
    """The length of a transposed convolution along an axis, which is counted from the end.

    Args:
        operands: the input and the weight.
    """
    length, kernel = (compute(g, "sub", g.size(operand, axis), 1) for operand in operands)
    dilated = compute(g, "mul", length, strides[axis])
    reach = compute(g, "mul", kernel, dilations[axis])
    total = compute(g, "add", compute(g, "add", dilated, reach), 1 - 2 * padding[axis])
    return compute(g, "add", total, output_padding)


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
        groups: int | Value = 1,
    ) -> Value:
        dilation = per_dimension(dilation, dimensions)
        pads = _pads(g, weight, padding, dilation)
        groups = fold_size(g, groups)
        if not isinstance(groups, int) or not all(isinstance(pad, int) for pad in pads):
            input, pads = _pad_with_zeros(g, input, pads), [0] * len(pads)
        strides = per_dimension(stride, dimensions)
        attributes = {"dilations": dilation, "group": groups, "pads": pads, "strides": strides}
        return _convolve(g, "Conv", input, weight, bias, **attributes)

    @onnx_symbolic(f"aten::conv_transpose{dimensions}d")
    def conv_transpose(
        g: GraphContext,
        input: Value,
        weight: Value,
        bias: Value | None = None,
        stride: Sequence[int] = (1,),
        padding: Sequence[int] = (0,),
        output_padding: Sequence[int | Value] = (0,),
        groups: int | Value = 1,
        dilation: Sequence[int] = (1,),
    ) -> Value:
        groups = fold_size(g, groups)
        begins = per_dimension(padding, dimensions)
        strides = per_dimension(stride, dimensions)
        dilations = per_dimension(dilation, dimensions)
        requested = [fold_size(g, amount) for amount in per_dimension(output_padding, dimensions)]
        # torch limits the output padding to less than the stride or the dilation.
        extra = [
            amount if isinstance(amount, int) else max(step, spacing) - 1
            for amount, step, spacing in zip(requested, strides, dilations, strict=True)
        ]
        cuts = {
            axis: _transposed_length(
                g, (input, weight), axis - dimensions, strides, begins, dilations, amount
            )
            for axis, amount in enumerate(requested)
            if not isinstance(amount, int)
        }
        ends = list(begins)
        has_rest = any(more >= step for more, step in zip(extra, strides, strict=True))
        if has_rest and isinstance(groups, int):
            input, ends, extra = _extend_input(g, input, begins, extra, strides)
        result = _convolve(
            g,
            "ConvTranspose",
            input,
            weight,
            bias,
            dilations=dilations,
            group=groups,
            output_padding=extra if any(extra) else None,
            pads=[*begins, *ends],
            strides=strides,
        )
        if cuts and result.shape is None:
            result.shape = ir.Shape([None] * known_rank(g, input))
        for axis, length in cuts.items():
            result = g.call("aten::slice", result, axis - dimensions, 0, length)
        return result


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
    groups: int | Value,
) -> Value:
    rank = g.rank(weight)
    dimensions = rank - 2 if rank is not None else max(map(len, (stride, padding, dilation)))
    if not transposed:
        return g.call(f"aten::conv{dimensions}d", input, weight, bias, stride, padding, dilation, groups)
    name = f"aten::conv_transpose{dimensions}d"
    return g.call(name, input, weight, bias, stride, padding, output_padding, groups, dilation)


def _by_windows(
    g: GraphContext,
    input: Value,
    weight: Value,
    bias: Value | None,
    dilations: list[int],
    group: Size,
    pads: list[int],
    strides: list[int],
) -> Value:
    """Products of windows of `[N, C, spatial...]` and kernels `[O, C / groups, kernel...]`, summed.

    For what Conv does not take: integers, and a number of groups that is computed from sizes.

    Args:
        pads: of all dimensions before, then behind; only integers may have any.
    """
    kernel = _kernel(g, weight)
    outputs, channels = g.size(weight, 0), g.size(weight, 1)
    dtype = g.dtype(input)
    if dtype in dtypes.INTEGERS:
        wide = dtype if dtype in (DataType.INT64, DataType.UINT64) else DataType.INT32
        input, weight = g.cast(input, wide), g.cast(weight, wide)
        bias = bias if bias is None else g.cast(bias, wide)
    dimensions = len(kernel)
    slides = []
    for i in range(dimensions):
        axis_pads = pads[i], pads[dimensions + i]
        slides.append(Slide.over(g, g.size(input, 2 + i), kernel[i], strides[i], axis_pads, dilations[i]))
    windows = mask_padding(g, gather_windows(g, input, [slide.clip_positions(g) for slide in slides]), slides)
    count_axes, kernel_axes = range(2, 2 + dimensions), range(2 + dimensions, 2 + 2 * dimensions)
    columns = g.op("Transpose", windows, perm=[0, 1, *kernel_axes, *count_axes])
    depth, counts = compute(g, "mul", channels, math.prod(kernel)), [slide.count for slide in slides]
    batch = g.size(input, 0)
    columns = g.op("Reshape", columns, [batch, group, depth, product(g, counts)])
    rows = g.op("Reshape", weight, [group, compute(g, "floordiv", outputs, group), depth])
    result = g.op("Reshape", g.op("MatMul", rows, columns), [batch, outputs, *counts])
    if bias is not None:
        result = g.op("Add", result, g.op("Reshape", bias, [outputs, *[1] * dimensions]))
    return g.cast(result, dtype) if dtype in dtypes.INTEGERS else result


def _transpose_by_windows(
    g: GraphContext,
    input: Value,
    weight: Value,
    bias: Value | None,
    dilations: list[int],
    group: Size,
    pads: list[int],
    strides: list[int],
    output_padding: list[int] | None,
) -> Value:
    """A transposed convolution with kernels `[C, O / groups, kernel...]`, whose number of groups is computed.

    It is the convolution of the input, with zeros between its elements, and the reversed kernels.
    """
    kernel = _kernel(g, weight)
    dimensions = len(kernel)
    extra = output_padding or [0] * dimensions
    begins: list[Size] = []
    ends: list[Size] = []
    for i in range(dimensions):
        reach = dilations[i] * (kernel[i] - 1)
        begins.append(reach - pads[i])
        # Zeros follow the last element, too.
        ends.append(reach - pads[dimensions + i] + extra[i] - (strides[i] - 1))
    input = _pad_with_zeros(g, _dilate_input(g, input, strides), [*begins, *ends])
    for i, length in enumerate(kernel):
        # Slice has no negative steps before opset 10.
        weight = g.op("Gather", weight, np.arange(length)[::-1].copy(), axis=2 + i)
    shape = [compute(g, "floordiv", g.size(weight, 0), group), g.size(weight, 1), *kernel]
    weight = g.op("Reshape", weight, [group, *shape])
    weight = g.op("Transpose", weight, perm=[0, 2, 1, *range(3, 3 + dimensions)])
    weight = g.op("Reshape", weight, [compute(g, "mul", group, shape[1]), shape[0], *kernel])
    # The channels are computed; the sizes of the kernel must stay known.
    weight.shape = ir.Shape([None, None, *kernel])
    unit_steps, zeros = [1] * dimensions, [0] * (2 * dimensions)
    return _by_windows(g, input, weight, bias, dilations, group, zeros, unit_steps)


def _dilate_input(g: GraphContext, input: Value, strides: list[int]) -> Value:
    """The input with zeros behind each element, so that it takes up as many elements as its stride."""
    if all(step == 1 for step in strides):
        return input
    dimensions = len(strides)
    sizes = [g.size(input, dim) for dim in range(2)]
    lengths = [compute(g, "mul", g.size(input, 2 + i), step) for i, step in enumerate(strides)]
    # A new dimension behind each spatial one is padded with zeros and merged with it.
    single = g.op("Unsqueeze", input, axes=[3 + 2 * i for i in range(dimensions)])
    ends = [0, 0, *(end for step in strides for end in (0, step - 1))]
    padded = g.call("composed::pad", self=single, begins=[0] * len(ends), ends=ends, value=0)
    return g.op("Reshape", padded, [*sizes, *lengths])


def _kernel(g: GraphContext, weight: Value) -> list[int]:
    """The sizes of a kernel `[O, C, kernel...]`."""
    shape = g.shape(weight)
    kernel = [] if shape is None else [size for size in shape[2:] if isinstance(size, int)]
    if shape is None or len(kernel) != len(shape) - 2:
        raise g.refuse(
            "a convolution of integers, or of computed groups, needs the kernel's sizes to be known"
        )
    return kernel
