"""Max and average pooling."""

import math
from collections.abc import Sequence
from typing import Any

from ...registration import GraphContext, Value
from ..compositions.operator_tables import register_variant
from ..compositions.size_arithmetic import UNKNOWN
from ..compositions.spatial.windows import spatial_sizes
from ._layouts import from_channels_first, set_shape, to_channels_first
from ._windows import CAFFE_LEGACY_POOLING, SlidingWindow


def _set_pooled_shape(g: GraphContext, result: Value, data: Value, sizes: Sequence[Any]) -> Value:
    shape = g.shape(data)
    batch, channels = shape[:2] if shape is not None else (UNKNOWN, UNKNOWN)
    return set_shape(result, [batch, channels, *sizes])


def _pool_globally(g: GraphContext, op_type: str, X: Value, window: Sequence[int], order: str) -> Value:
    """Pool over the whole image; the result has size 1 in each spatial dimension."""
    data = to_channels_first(g, X, order, len(window) + 2 if window else 4)
    result = g.op(op_type, data)
    rank = g.rank(data)
    if rank is not None:
        _set_pooled_shape(g, result, data, [1] * (rank - 2))
    return from_channels_first(g, result, order)


def _ceil_mode_arguments(g: GraphContext, window: SlidingWindow) -> dict[str, Any]:
    """The arguments of ATen's pooling with `ceil_mode`, which counts windows as Caffe does.

    One case differs and is refused: without pads Caffe2 keeps a window that begins beyond the input, which
    occurs if the stride is larger than the kernel.
    """
    for kernel, stride, pad in zip(window.kernels, window.strides, window.begin_pads, strict=True):
        if stride > kernel and not pad:
            raise g.refuse("CAFFE_LEGACY_POOLING with a stride above the kernel size has empty windows")
    sizes = {"kernel_size": window.kernels, "stride": window.strides, "padding": window.begin_pads}
    return {**sizes, "ceil_mode": True}


def _pool(
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
    op_type: str = "MaxPool",
) -> Value:
    """At an edge, an average divides by the elements inside, or with `count_include_pad` by all elements."""
    if global_pooling:
        return _pool_globally(g, f"Global{op_type}", X, kernels, order)
    window = SlidingWindow.of(g, kernels, strides, pads, dilations, legacy_pad)
    if set(window.dilations) != {1}:
        raise g.refuse("dilations are not supported, and Caffe2 does not support them either")
    if any(pad >= kernel for pad, kernel in zip(window.pads, window.kernels * 2, strict=True)):
        raise g.refuse("its pads must be smaller than its kernel")
    data = to_channels_first(g, X, order, window.count + 2)
    arguments: dict[str, Any] = {}
    if legacy_pad == CAFFE_LEGACY_POOLING:
        input_sizes = spatial_sizes(g, data, window.count)
        end_pads = None if input_sizes is None else window.legacy_end_pads(input_sizes)
        sizes = window.output_sizes(input_sizes, None if end_pads is None else window.begin_pads + end_pads)
        function = f"aten::{'max' if op_type == 'MaxPool' else 'avg'}_pool{window.count}d"
        arguments = _ceil_mode_arguments(g, window)
        if op_type == "AveragePool":
            arguments["count_include_pad"] = False
        # ATen's avg_pool1d has no divisor_override.
        if count_include_pad and window.count == 1:
            raise g.refuse("count_include_pad is not supported for one-dimensional CAFFE_LEGACY_POOLING")
        if count_include_pad:
            arguments["divisor_override"] = math.prod(window.kernels)
        result = g.call(function, self=data, **arguments)
    else:
        padded, padding, sizes = window.pad_input(g, data)
        if count_include_pad:
            # By default ONNX's AveragePool divides by the elements inside of the input.
            arguments = {"count_include_pad": 1}
        result = g.op(op_type, padded, outputs=1, **window.attributes, **padding, **arguments)
    return from_channels_first(g, _set_pooled_shape(g, result, data, sizes), order, window.count + 2)


_SUFFIXES = ("", "1D", "2D", "3D")
register_variant(
    [f"caffe2::MaxPool{suffix}" for suffix in _SUFFIXES], _pool, count_include_pad=0, op_type="MaxPool"
)
register_variant([f"caffe2::AveragePool{suffix}" for suffix in _SUFFIXES], _pool, op_type="AveragePool")
