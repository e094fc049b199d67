"""Gradients of pooling and of filters of convolutions, in graphs that compute saliency maps or train.

The input is padded before its windows are read, and the gradient of the padded input is cropped.
"""

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from ....registration import DataType, GraphContext, Value, dtypes, onnx_symbolic
from ...compositions.operator_tables import register_variant
from ...compositions.size_arithmetic import compute, product, sizes_of
from .._common import constant_integers, set_shape
from .convolutions import convolve, crop
from .layout import DataLayout, Pads, constant_pads, pad_images, window_pads
from .pooling_and_patches import pool_with_positions
from .size_operands import list_sizes

_VOLUMES = {"data_format": "NDHWC"}


def _pad(g: GraphContext, images: Value, pads: Pads, value: float = 0) -> Value:
    """Pad `[N, C, spatial...]`, with the shape that the gradients of the windows need."""
    batch, channels, *spatial = sizes_of(g, images)
    sizes = [
        compute(g, "add", size, compute(g, "add", *pair)) for size, pair in zip(spatial, pads, strict=True)
    ]
    padded = pad_images(g, images, pads, value)
    if padded is not images:
        # A Pad of computed amounts has no shape of its own.
        padded.shape = ir.Shape([n if isinstance(n, int) else None for n in (batch, channels, *sizes)])
    return padded


def _remove_pads(g: GraphContext, padded: Value, pads: Pads, like: Value) -> Value:
    if constant_pads(pads) == [0] * (2 * len(pads)):
        return padded
    return crop(g, padded, [pair[0] for pair in pads], sizes_of(g, like)[2:])


def max_pool_gradient(
    g: GraphContext,
    orig_input: Value,
    orig_output: Value,
    grad: Value,
    ksize: Sequence[int],
    strides: Sequence[int],
    padding: str,
    explicit_paddings: Sequence[int] = (),
    data_format: str = "NHWC",
) -> Value:
    """The gradient of each output goes to the first maximum of its window."""
    layout = DataLayout.of(g, data_format)
    images = layout.channels_first(g, orig_input)
    kernel, steps = layout.spatial(g, ksize, "ksize"), layout.spatial(g, strides, "strides")
    pads = window_pads(g, layout, images, kernel, steps, padding, explicit_paddings)
    padded = _pad(g, images, pads, dtypes.limits(g.dtype(images) or DataType.FLOAT)[0])
    no_pads, dilations = [0] * layout.dimensions, [1] * layout.dimensions
    _, positions = pool_with_positions(g, padded, {"kernel_shape": kernel, "strides": steps})
    gradients = layout.channels_first(g, grad)
    name = f"aten::max_pool{layout.dimensions}d_with_indices_backward"
    window = (kernel, steps, no_pads, dilations, False)
    gradient = g.call(name, gradients, padded, *window, set_shape(positions, g.shape(gradients)))
    return layout.restore(g, _remove_pads(g, gradient, pads, images))


register_variant("tf::MaxPoolGrad", max_pool_gradient)


@onnx_symbolic("tf::MaxPool3DGrad")
def max_pool_3d_gradient(
    g: GraphContext,
    orig_input: Value,
    orig_output: Value,
    grad: Value,
    ksize: Sequence[int],
    strides: Sequence[int],
    padding: str,
    data_format: str = "NDHWC",
) -> Value:
    """The gradient of each output goes to all elements of its window that equal it, as on the CPU."""
    layout = DataLayout.of(g, data_format)
    volumes = layout.channels_first(g, orig_input)
    kernel, steps = layout.spatial(g, ksize, "ksize"), layout.spatial(g, strides, "strides")
    pads = window_pads(g, layout, volumes, kernel, steps, padding)
    dtype = g.dtype(orig_input) or DataType.FLOAT
    padded = _pad(g, volumes, pads, dtypes.limits(dtype)[0])
    batch, channels, *spatial = sizes_of(g, padded)
    planes = g.op("Reshape", padded, g.stack([-1, *spatial, 1]))
    windows = ([1, *kernel, 1], [1, *steps, 1])
    patches = g.call("tf::ExtractVolumePatches", planes, *windows, "VALID")
    outputs, gradients = (layout.channels_first(g, value) for value in (orig_output, grad))
    counts = sizes_of(g, gradients)[2:]
    maxima, shares = (g.op("Reshape", v, g.stack([-1, *counts, 1])) for v in (outputs, gradients))
    selected = g.call("composed::where", condition=g.call("aten::eq", patches, maxima), self=shares, other=0)
    size = math.prod(kernel)
    g.reserve(size, size)
    filter = g.constant(np.eye(size).reshape(*kernel, 1, size), dtype)
    plane_sizes = g.stack([product(g, [batch, channels]), *spatial, 1])
    summed = g.call("tf::Conv3DBackpropInputV2", plane_sizes, filter, selected, windows[1], "VALID")
    summed = set_shape(g.op("Reshape", summed, g.stack([batch, channels, *spatial])), g.shape(padded))
    return layout.restore(g, _remove_pads(g, summed, pads, volumes))


def average_pool_gradient(
    g: GraphContext,
    orig_input_shape: Value,
    grad: Value,
    ksize: Sequence[int],
    strides: Sequence[int],
    padding: str,
    data_format: str = "NHWC",
) -> Value:
    """A transposed convolution of each channel by ones, after a division by the elements of each window."""
    layout = DataLayout.of(g, data_format)
    kernel, steps = layout.spatial(g, ksize, "ksize"), [1, *layout.spatial(g, strides, "strides"), 1]
    g.reserve(*kernel)
    dtype = g.dtype(grad) or DataType.FLOAT
    filter = g.constant(np.ones((*kernel, 1, 1)), dtype)
    input_sizes = list_sizes(g, orig_input_shape, layout.dimensions + 2)
    spatial = [input_sizes[layout.axis(i)] for i in range(layout.dimensions)]
    gradients = layout.channels_first(g, grad)
    batch, channels, *counts = sizes_of(g, gradients)
    planes = DataLayout(layout.dimensions, True)
    unit_image = g.call("composed::full", size=[1, *spatial, 1], fill_value=1, dtype=dtype)
    # Padding has no element, so that the sum of a window of ones is its number of elements.
    elements = convolve(g, planes, unit_image, filter, steps, padding, (), ())
    shares = g.op("Div", g.op("Reshape", gradients, g.stack([-1, *counts, 1])), elements)
    plane_sizes = g.stack([product(g, [batch, channels]), *spatial, 1])
    name = "tf::Conv2DBackpropInput" if layout.dimensions == 2 else "tf::Conv3DBackpropInputV2"
    summed = g.call(name, plane_sizes, filter, shares, steps, padding)
    return layout.restore(g, g.op("Reshape", summed, g.stack([batch, channels, *spatial])))


register_variant("tf::AvgPoolGrad", average_pool_gradient)
register_variant("tf::AvgPool3DGrad", average_pool_gradient, _VOLUMES)


def filter_gradient(
    g: GraphContext,
    input: Value,
    filter_sizes: Value,
    out_backprop: Value,
    strides: Sequence[int],
    padding: str,
    explicit_paddings: Sequence[int] = (),
    data_format: str = "NHWC",
    dilations: Sequence[int] = (),
    depthwise: bool = False,
) -> Value:
    """The gradient of a convolution with respect to its filter, whose sizes must be constant."""
    layout = DataLayout.of(g, data_format)
    *kernel, depth, count = constant_integers(g, filter_sizes, "filter_sizes")
    if len(kernel) != layout.dimensions:
        raise g.refuse(f"filter_sizes must have {layout.dimensions + 2} numbers, not {len(kernel) + 2}")
    steps = layout.spatial(g, strides, "strides")
    rates = layout.spatial(g, dilations, "dilations") if dilations else [1] * layout.dimensions
    extents = [rate * (size - 1) + 1 for rate, size in zip(rates, kernel, strict=True)]
    images = layout.channels_first(g, input)
    pads = window_pads(g, layout, images, extents, steps, padding, explicit_paddings)
    channels = g.size(images, 1)
    if not depthwise and channels != depth and not isinstance(channels, int):
        raise g.refuse("the number of channels is unknown")
    groups = depth if depthwise or not isinstance(channels, int) else channels // depth
    weight_sizes = [depth * count, 1, *kernel] if depthwise else [count, depth, *kernel]
    weight = g.call("aten::zeros", size=weight_sizes, dtype=g.dtype(input))
    no_pads = [0] * layout.dimensions
    [gradient] = g.call_outputs(
        "aten::convolution_backward",
        layout.channels_first(g, out_backprop),
        _pad(g, images, pads),
        weight,
        None,
        steps,
        no_pads,
        rates,
        False,
        no_pads,
        groups,
        [False, True, False],
    )
    if depthwise:
        gradient, order = g.op("Reshape", gradient, [depth, count, *kernel]), [2, 3, 0, 1]
    else:
        order = [*range(2, 2 + layout.dimensions), 1, 0]
    return set_shape(g.op("Transpose", gradient, perm=order), [*kernel, depth, count])


register_variant("tf::Conv2DBackpropFilter", filter_gradient, depthwise=False)
register_variant("tf::DepthwiseConv2dNativeBackpropFilter", filter_gradient, depthwise=True)
register_variant(
    "tf::Conv3DBackpropFilterV2", filter_gradient, _VOLUMES, explicit_paddings=(), depthwise=False
)
