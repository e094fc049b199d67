"""Convolutions over images and volumes, depthwise convolutions, and transposed convolutions.

A filter is `[spatial..., in, out]`, a depthwise one `[h, w, in, multiplier]`, and that of a transposed
convolution `[spatial..., out, in]`.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ....registration import GraphContext, Value, dtypes, onnx_symbolic
from ...compositions.operator_tables import register_variant
from ...compositions.size_arithmetic import Size, compute, known_rank, static_size
from .layout import DataLayout, constant_pads, pad_images, set_rank, split_pad, window_pads
from .size_operands import list_sizes


def channels_first_filter(g: GraphContext, filter: Value, dimensions: int) -> Value:
    """`[spatial..., a, b]` as `[b, a, spatial...]`."""
    return g.op("Transpose", filter, perm=[dimensions + 1, dimensions, *range(dimensions)])


def _depthwise_filter(g: GraphContext, filter: Value) -> Value:
    """`[h, w, in, multiplier]` as `[in * multiplier, 1, h, w]`."""
    return channels_first_filter(g, g.op("Reshape", filter, [0, 0, 1, -1]), 2)


def kernel_sizes(g: GraphContext, filter: Value, dimensions: int) -> list[int]:
    """The spatial sizes of a filter."""
    sizes = (static_size(g, filter, dim) for dim in range(dimensions if g.rank(filter) is not None else 0))
    known_sizes = [size for size in sizes if size is not None]
    if len(known_sizes) < dimensions:
        raise g.refuse("the shape of its filter is unknown")
    return known_sizes


def _groups(g: GraphContext, layout: DataLayout, input: Value, filter: Value) -> int:
    """The number of groups: the channels of the input divided by those of the filter; 1 if unknown."""
    input_channels = None if g.rank(input) is None else static_size(g, input, layout.channel)
    filter_channels = static_size(g, filter, layout.dimensions)
    if not input_channels or not filter_channels or input_channels % filter_channels:
        return 1
    return input_channels // filter_channels


def convolve(
    g: GraphContext,
    layout: DataLayout,
    input: Value,
    filter: Value,
    strides: Sequence[int],
    padding: str,
    explicit_paddings: Sequence[int],
    dilations: Sequence[int],
    depthwise: bool = False,
) -> Value:
    """Convolve, with the result in the data format of the input.

    SAME padding with a stride depends on the sizes. If they are unknown, it is `auto_pad`, or a Pad by
    computed amounts if the window is dilated, smaller than its stride, or of unknown size.
    """
    set_rank(g, filter, layout.dimensions + 2)
    kernel = [g.size(filter, dim) for dim in range(layout.dimensions)]
    known_kernel = [size for size in kernel if isinstance(size, int)]
    steps = layout.spatial(g, strides, "strides")
    rates = layout.spatial(g, dilations, "dilations") if dilations else [1] * layout.dimensions
    extents = [
        compute(g, "add", compute(g, "mul", compute(g, "sub", size, 1), step), 1)
        for step, size in zip(rates, kernel, strict=True)
    ]
    if depthwise:
        # A depthwise convolution has a group for each input channel.
        group = static_size(g, filter, 2) or static_size(g, input, layout.channel)
        if group is None:
            raise g.refuse("the number of channels is unknown")
        weight = _depthwise_filter(g, filter)
    else:
        group = _groups(g, layout, input, filter)
        weight = channels_first_filter(g, filter, layout.dimensions)
    images = layout.channels_first(g, input)
    unknown = padding == "SAME" and any(
        extent != 1 and stride > 1 and isinstance(g.size(images, 2 + i), Value)
        for i, (extent, stride) in enumerate(zip(extents, steps, strict=True))
    )
    is_integer = g.dtype(input) in dtypes.INTEGERS
    # For a window smaller than its stride auto_pad may compute negative pads.
    fits = len(known_kernel) == len(kernel) and all(
        size > 1 and size >= step for size, step in zip(known_kernel, steps, strict=True)
    )
    # Without the attribute, the sizes are those of the filter.
    shape: dict[str, Any] = {"kernel_shape": known_kernel} if len(known_kernel) == len(kernel) else {}
    if unknown and not is_integer and fits and set(rates) == {1}:
        result = g.op(
            "Conv", images, weight, outputs=1, **shape, strides=steps, group=group, auto_pad="SAME_UPPER"
        )
        return layout.restore(g, result)
    pads = window_pads(g, layout, images, extents, steps, padding, explicit_paddings)
    pad_list = constant_pads(pads)
    if pad_list is None or is_integer:
        images, pad_list = pad_images(g, images, pads), [0] * (2 * layout.dimensions)
    # ONNX's Conv takes floats only.
    if is_integer:
        no_pads = [0] * layout.dimensions
        result = g.call(
            "aten::convolution", images, weight, None, steps, no_pads, rates, False, no_pads, group
        )
    else:
        attributes: dict[str, Any] = {**shape, "strides": steps, "dilations": rates}
        result = g.op("Conv", images, weight, outputs=1, **attributes, group=group, pads=pad_list)
    return layout.restore(g, result)


def convolution(
    g: GraphContext,
    input: Value,
    filter: Value,
    strides: Sequence[int],
    padding: str,
    explicit_paddings: Sequence[int] = (),
    data_format: str = "NHWC",
    dilations: Sequence[int] = (),
    depthwise: bool = False,
) -> Value:
    layout = DataLayout.of(g, data_format)
    return convolve(g, layout, input, filter, strides, padding, explicit_paddings, dilations, depthwise)


_VOLUMES = {"data_format": "NDHWC"}
register_variant("tf::Conv2D", convolution, depthwise=False)
register_variant("tf::DepthwiseConv2dNative", convolution, depthwise=True)
register_variant("tf::Conv3D", convolution, _VOLUMES, explicit_paddings=(), depthwise=False)


@onnx_symbolic("tf::Conv")
def conv(
    g: GraphContext,
    input: Value,
    filter: Value,
    strides: Sequence[int],
    padding: str,
    explicit_paddings: Sequence[int] = (),
    data_format: str = "CHANNELS_LAST",
    dilations: Sequence[int] = (),
    batch_dims: int = 1,
    groups: int = 1,
) -> Value:
    """A convolution over two or three dimensions, by the rank of the filter."""
    if batch_dims != 1 or data_format not in ("CHANNELS_LAST", "CHANNELS_FIRST"):
        raise g.refuse(f"batch_dims={batch_dims} or data_format '{data_format}' is not supported")
    layout = DataLayout(known_rank(g, filter) - 2, data_format == "CHANNELS_LAST")
    # The groups follow from the channels of input and filter; the attribute only confirms them.
    if groups > 1 and _groups(g, layout, input, filter) != groups:
        raise g.refuse("the number of channels of a grouped convolution is unknown")
    return convolve(g, layout, input, filter, strides, padding, explicit_paddings, dilations)


def transposed_convolution(
    g: GraphContext,
    input_sizes: Value,
    filter: Value,
    out_backprop: Value,
    strides: Sequence[int],
    padding: str,
    explicit_paddings: Sequence[int] = (),
    data_format: str = "NHWC",
    dilations: Sequence[int] = (),
    depthwise: bool = False,
) -> Value:
    """The gradient of a convolution with respect to its input, which is a transposed convolution.

    If the sizes are known, pads and output padding are numbers. Otherwise the result is computed without
    padding, and cropped by a Slice.
    """
    layout = DataLayout.of(g, data_format)
    kernel = kernel_sizes(g, filter, layout.dimensions)
    steps = layout.spatial(g, strides, "strides")
    rates = layout.spatial(g, dilations, "dilations") if dilations else [1] * layout.dimensions
    extents = [step * (size - 1) + 1 for step, size in zip(rates, kernel, strict=True)]
    weight, group = _transposed_filter(g, layout, filter, depthwise)
    requested_sizes = list_sizes(g, input_sizes, layout.dimensions + 2)
    sizes = [requested_sizes[layout.axis(i)] for i in range(layout.dimensions)]
    images = layout.channels_first(g, out_backprop)
    if padding == "EXPLICIT":
        pads = window_pads(g, layout, images, extents, steps, padding, explicit_paddings)
    elif padding in ("SAME", "VALID"):
        pads = [(0, 0)] * layout.dimensions
    else:
        raise g.refuse(f"padding '{padding}' is not supported")
    counts: list[Size] = []
    for i, (size, extent, step, pair) in enumerate(zip(sizes, extents, steps, pads, strict=True)):
        if isinstance(size, Value):
            counts.append(g.size(images, 2 + i))
        else:
            # As many windows as the forward convolution has over the requested size.
            covered = size - 1 if padding == "SAME" else size + sum(pair) - extent
            counts.append(covered // step + 1)
    full_sizes = [
        compute(g, "add", compute(g, "mul", compute(g, "sub", count, 1), step), extent)
        for count, step, extent in zip(counts, steps, extents, strict=True)
    ]
    if padding == "SAME":
        totals = (compute(g, "sub", full, size) for full, size in zip(full_sizes, sizes, strict=True))
        pads = [split_pad(g, compute(g, "max", total, 0)) for total in totals]
    missing_sizes = [
        compute(g, "sub", compute(g, "add", size, compute(g, "add", *pair)), full)
        for full, size, pair in zip(full_sizes, sizes, pads, strict=True)
    ]
    window = {"kernel_shape": kernel, "strides": steps, "dilations": rates}
    convolve = functools.partial(g.op, "ConvTranspose", images, weight, **window, group=group)
    pad_list = constant_pads(pads)
    known_missing = [missing_size for missing_size in missing_sizes if isinstance(missing_size, int)]
    if pad_list is None or len(known_missing) < layout.dimensions:
        return layout.restore(g, _convolve_and_crop(g, convolve, steps, pads, sizes))
    # Missing elements at the end become output padding, or reduce the padding.
    ends = [
        end + max(-missing_size, 0)
        for end, missing_size in zip(pad_list[layout.dimensions :], known_missing, strict=True)
    ]
    output_padding = [max(missing_size, 0) for missing_size in known_missing]
    result = convolve(
        pads=pad_list[: layout.dimensions] + ends,
        output_padding=output_padding if any(output_padding) else None,
    )
    return layout.restore(g, result)


def _transposed_filter(
    g: GraphContext, layout: DataLayout, filter: Value, depthwise: bool
) -> tuple[Value, int]:
    """The filter of a transposed convolution in ONNX's layout, and the number of groups."""
    if not depthwise:
        return channels_first_filter(g, filter, layout.dimensions), 1
    group = static_size(g, filter, 2)
    if group is None:
        raise g.refuse("the number of channels is unknown")
    return _depthwise_filter(g, filter), group


def _convolve_and_crop(
    g: GraphContext,
    convolve: Callable[..., Value],
    steps: Sequence[int],
    pads: Sequence[tuple[Size, Size]],
    sizes: Sequence[Size],
) -> Value:
    """Convolve without padding, and crop the result to the sizes by a Slice."""
    output_padding = [step - 1 for step in steps]
    # Without output padding the result may lack up to stride - 1 elements at the end.
    result = convolve(output_padding=output_padding if any(output_padding) else None)
    return crop(g, result, [pair[0] for pair in pads], sizes)


def crop(g: GraphContext, images: Value, begins: Sequence[Size], sizes: Sequence[Size]) -> Value:
    """The part of `[N, C, spatial...]` that begins there and has these sizes."""
    for axis, (begin, size) in enumerate(zip(begins, sizes, strict=True), 2):
        end = compute(g, "add", begin, size)
        # Unlike Slice, this takes computed bounds below opset 10.
        images = g.call("aten::slice", self=images, dim=axis, start=begin, end=end)
    return images


register_variant("tf::Conv2DBackpropInput", transposed_convolution, depthwise=False)
register_variant("tf::DepthwiseConv2dNativeBackpropInput", transposed_convolution, depthwise=True)
register_variant(
    "tf::Conv3DBackpropInputV2", transposed_convolution, _VOLUMES, explicit_paddings=(), depthwise=False
)


@onnx_symbolic("tf::Conv2DBackpropInputV2")
def conv2d_backprop_input_v2(
    g: GraphContext,
    input: Value,
    filter: Value,
    out_backprop: Value,
    strides: Sequence[int],
    padding: str,
    explicit_paddings: Sequence[int] = (),
    data_format: str = "NHWC",
    dilations: Sequence[int] = (),
) -> Value:
    """The result has the sizes of `input`."""
    options = (strides, padding, explicit_paddings, data_format, dilations)
    return g.call("tf::Conv2DBackpropInput", g.op("Shape", input), filter, out_backprop, *options)
