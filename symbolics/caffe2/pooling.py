"""Max and average pooling."""

import math
from collections.abc import Sequence
from typing import Any

from ...registration import GraphContext, Value, onnx_symbolic
from ..compositions.size_arithmetic import UNKNOWN
from ..compositions.spatial.windows import spatial_sizes
from ._layouts import from_channels_first, shaped, to_channels_first
from ._windows import CAFFE_LEGACY_POOLING, Window


def _names(name: str) -> list[str]:
    return [f"caffe2::{name}{suffix}" for suffix in ("", "1D", "2D", "3D")]


def _shaped(g: GraphContext, result: Value, data: Value, sizes: Sequence[Any]) -> Value:
    shape = g.shape(data)
    batch, channels = shape[:2] if shape is not None else (UNKNOWN, UNKNOWN)
    return shaped(result, [batch, channels, *sizes])


def _global(g: GraphContext, op_type: str, X: Value, window: Sequence[int], order: str) -> Value:
    """Pooling over everything, with one size of 1 for each spatial dimension."""
    data = to_channels_first(g, X, order, len(window) + 2 if window else 4)
    result = g.op(op_type, data)
    rank = g.rank(data)
    if rank is not None:
        _shaped(g, result, data, [1] * (rank - 2))
    return from_channels_first(g, result, order)


def _rounded_up(g: GraphContext, window: Window) -> dict[str, Any]:
    """The arguments of ATen's pooling with `ceil_mode`, which is Caffe's.

    Without pads Caffe2 keeps windows that begin beyond the input, which a stride above the kernel size has.
    """
    for kernel, stride, pad in zip(window.kernels, window.strides, window.heads, strict=True):
        if stride > kernel and not pad:
            raise g.refuse("CAFFE_LEGACY_POOLING with a stride above the kernel size has empty windows")
    return {
        "kernel_size": window.kernels,
        "stride": window.strides,
        "padding": window.heads,
        "ceil_mode": True,
    }


def _pool_sizes(g: GraphContext, data: Value, window: Window) -> list[int | None]:
    sizes = spatial_sizes(g, data, window.count)
    return window.output_sizes(sizes, None if sizes is None else window.heads + window.legacy_tails(sizes))


def _checked(g: GraphContext, window: Window) -> Window:
    if set(window.dilations) != {1}:
        raise g.refuse("dilations are not supported, and Caffe2 does not support them either")
    if any(pad >= kernel for pad, kernel in zip(window.pads, window.kernels * 2, strict=True)):
        raise g.refuse("its pads must be smaller than its kernel")
    return window


@onnx_symbolic(_names("MaxPool"))
def max_pool(
    g: GraphContext,
    X: Value,
    kernels: Sequence[int] = (),
    strides: Sequence[int] = (),
    pads: Sequence[int] = (),
    dilations: Sequence[int] = (),
    legacy_pad: int = 0,
    global_pooling: int = 0,
    order: str = "NCHW",
) -> Value:
    if global_pooling:
        return _global(g, "GlobalMaxPool", X, kernels, order)
    window = _checked(g, Window.of(g, kernels, strides, pads, dilations, legacy_pad))
    data = to_channels_first(g, X, order, window.count + 2)
    if legacy_pad == CAFFE_LEGACY_POOLING:
        sizes = _pool_sizes(g, data, window)
        result = g.call(f"aten::max_pool{window.count}d", self=data, **_rounded_up(g, window))
    else:
        placed, padding, sizes = window.placed(g, data)
        result = g.op("MaxPool", placed, **window.attributes, **padding)
    return from_channels_first(g, _shaped(g, result, data, sizes), order, window.count + 2)


@onnx_symbolic(_names("AveragePool"))
def average_pool(
    g: GraphContext,
    X: Value,
    kernels: Sequence[int] = (),
    strides: Sequence[int] = (),
    pads: Sequence[int] = (),
    dilations: Sequence[int] = (),
    legacy_pad: int = 0,
    global_pooling: int = 0,
    count_include_pad: int = 0,
    order: str = "NCHW",
) -> Value:
    """A window over the edge divides by what it covers, or with `count_include_pad` by the kernel's size."""
    if global_pooling:
        return _global(g, "GlobalAveragePool", X, kernels, order)
    window = _checked(g, Window.of(g, kernels, strides, pads, dilations, legacy_pad))
    data = to_channels_first(g, X, order, window.count + 2)
    if legacy_pad == CAFFE_LEGACY_POOLING:
        sizes = _pool_sizes(g, data, window)
        arguments: dict[str, Any] = {**_rounded_up(g, window), "count_include_pad": False}
        if count_include_pad and window.count > 1:
            arguments["divisor_override"] = math.prod(window.kernels)
        elif count_include_pad:
            raise g.refuse("count_include_pad is not supported for one-dimensional CAFFE_LEGACY_POOLING")
        result = g.call(f"aten::avg_pool{window.count}d", self=data, **arguments)
    else:
        placed, padding, sizes = window.placed(g, data)
        result = g.op(
            "AveragePool",
            placed,
            **window.attributes,
            **padding,
            count_include_pad=1 if count_include_pad else None,
        )
    return from_channels_first(g, _shaped(g, result, data, sizes), order, window.count + 2)
