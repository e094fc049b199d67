"""Resizing and padding of images, and regions of interest."""

import math
from collections.abc import Sequence

import onnx_ir as ir

from ...registration import DataType, GraphContext, Value, onnx_symbolic
from ..compositions.size_arithmetic import UNKNOWN
from ._layouts import from_channels_first, is_channels_last, set_shape, to_channels_first


def _scales(g: GraphContext, scales: Value | None, height: float, width: float) -> Value | list[float]:
    """The scales of N, C, height and width; an input with two scales overrides the arguments."""
    if scales is None:
        return [1.0, 1.0, *_check_scales(g, [height, width])]
    constant_scales = g.constant_value(scales)
    if constant_scales is not None:
        return [1.0, 1.0, *_check_scales(g, [float(scale) for scale in constant_scales.reshape(-1)])]
    return g.op("Concat", g.constant([1.0, 1.0], DataType.FLOAT), scales, axis=0)


def _check_scales(g: GraphContext, scales: list[float]) -> list[float]:
    if not all(0 < scale < math.inf for scale in scales):
        raise g.refuse(f"its scales {scales} are not all positive numbers")
    return scales


def _scaled_sizes(value: Value, scales: Value | list[float]) -> list[int | ir.SymbolicDim]:
    """The sizes of [N, C, H, W] after scaling; unknown sizes stay unknown."""
    shape = value.shape.dims if value.shape is not None else (UNKNOWN,) * 4
    if isinstance(scales, Value):
        return [shape[0], shape[1], UNKNOWN, UNKNOWN]
    return [
        int(size * scale) if isinstance(size, int) else size if scale == 1 else UNKNOWN
        for size, scale in zip(shape, scales, strict=True)
    ]


def _register_resize(name: str, mode: str, coordinates: str, nearest_mode: str | None = None) -> None:
    @onnx_symbolic(f"caffe2::{name}")
    def resize(
        g: GraphContext,
        X: Value,
        scales: Value | None = None,
        width_scale: float = 1.0,
        height_scale: float = 1.0,
        order: str = "NCHW",
    ) -> Value:
        data, factors = to_channels_first(g, X, order), _scales(g, scales, height_scale, width_scale)
        result = g.op(
            "Resize",
            data,
            scales=factors,
            mode=mode,
            coordinate_transformation_mode=coordinates,
            nearest_mode=nearest_mode,
        )
        result.shape = ir.Shape(_scaled_sizes(data, factors))
        return from_channels_first(g, result, order)


# Caffe2 selects the pixel floor(output / scale).
_register_resize("ResizeNearest", "nearest", "asymmetric", "floor")
_register_resize("UpsampleBilinear", "linear", "align_corners")


@onnx_symbolic("caffe2::PadImage")
def pad_image(
    g: GraphContext,
    X: Value,
    pads: Sequence[int] = (),
    mode: str = "constant",
    value: float = 0.0,
    order: str = "NCHW",
) -> Value:
    if mode not in ("constant", "reflect", "edge"):
        raise g.refuse(f"its mode must be constant, reflect or edge, not '{mode}'")
    if len(pads) not in (0, 4):
        raise g.refuse(f"it has {len(pads)} pads, not 4")
    top_pad, left_pad, bottom_pad, right_pad = list(pads) or [0] * 4
    begin_pads, end_pads = [top_pad, left_pad], [bottom_pad, right_pad]
    is_last = is_channels_last(g, order)
    all_pads = [0, *begin_pads, 0, 0, *end_pads, 0] if is_last else [0, 0, *begin_pads, 0, 0, *end_pads]
    result = g.op("Pad", X, pads=all_pads, mode=mode, value=value if mode == "constant" else None)
    shape = g.shape(X) or [UNKNOWN] * 4
    padded_sizes = [
        size + first + last if isinstance(size, int) else size if not first + last else UNKNOWN
        for size, first, last in zip(shape, all_pads[:4], all_pads[4:], strict=True)
    ]
    result.shape = ir.Shape(padded_sizes)
    return result


@onnx_symbolic("caffe2::RoIAlign")
def roi_align(
    g: GraphContext,
    X: Value,
    RoIs: Value,
    spatial_scale: float = 1.0,
    pooled_h: int = 1,
    pooled_w: int = 1,
    sampling_ratio: int = -1,
    aligned: int = 0,
    order: str = "NCHW",
) -> Value:
    """A region is [batch, x1, y1, x2, y2], or [x1, y1, x2, y2] for a single image."""
    shape = g.shape(RoIs)
    columns = shape[1] if shape is not None and len(shape) == 2 else None
    if columns not in (4, 5):
        raise g.refuse("the number of columns of RoIs, 4 or 5, is unknown: pass the shape of RoIs")
    if columns == 5:
        batch = g.op("Squeeze", g.op("Slice", RoIs, starts=[0], ends=[1], axes=[1]), axes=[1])
        regions = g.op("Slice", RoIs, starts=[1], ends=[5], axes=[1])
        batch_indices = g.cast(batch, DataType.INT64)
    else:
        count = g.op("Slice", g.op("Shape", RoIs), starts=[0], ends=[1], axes=[0])
        regions, batch_indices = RoIs, g.op("Expand", g.constant([0]), count)
    data = to_channels_first(g, X, order)
    result = g.op(
        "RoiAlign",
        data,
        regions,
        batch_indices,
        mode="avg",
        output_height=pooled_h,
        output_width=pooled_w,
        sampling_ratio=max(sampling_ratio, 0),
        spatial_scale=spatial_scale,
        coordinate_transformation_mode="half_pixel" if aligned else "output_half_pixel",
    )
    channels = g.shape(data)
    set_shape(result, [UNKNOWN, channels[1] if channels is not None else UNKNOWN, pooled_h, pooled_w])
    return from_channels_first(g, result, order)
