"""RoiAlign with half pixels below 16, where the operator does not shift coordinates; RoiAlign below 10."""

import dataclasses

import numpy as np
import onnx_ir as ir

from ....registration import DataType, GraphContext, Value, onnx_symbolic
from ...compositions.branches import choose
from ...compositions.size_arithmetic import Size
from ...compositions.spatial.region_bins import bin_points, pool_bins


@dataclasses.dataclass(frozen=True)
class _Pooling:
    """The attributes of RoiAlign that do not change."""

    mode: str
    height: int
    width: int
    ratio: int


@onnx_symbolic("onnx::RoiAlign")
def sampled_roi_align(
    g: GraphContext,
    X: Value,
    rois: Value,
    batch_indices: Value,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Value:
    """The mean of samples, as torchvision's operator. The maximum of ONNX is not that of the samples."""
    if mode != "avg":
        raise g.refuse("RoiAlign with mode 'max' has no composition", first_opset=10)
    images = g.op("Unsqueeze", g.cast(batch_indices, g.dtype(rois) or DataType.FLOAT), axes=[1])
    return g.call(
        "torchvision::roi_align",
        input=X,
        rois=g.op("Concat", images, rois, axis=1),
        spatial_scale=spatial_scale,
        pooled_height=output_height,
        pooled_width=output_width,
        sampling_ratio=sampling_ratio,
        aligned=coordinate_transformation_mode == "half_pixel",
    )


@onnx_symbolic("onnx::RoiAlign", opset=10)
def roi_align(
    g: GraphContext,
    X: Value,
    rois: Value,
    batch_indices: Value,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Value:
    """Shift the regions by half a pixel.

    The operator extends regions below one pixel to one pixel, but half-pixel mode does not. If such regions
    may occur, each point is sampled with a region of one pixel around it.
    """
    if coordinate_transformation_mode != "half_pixel":
        raise g.refuse("ONNX operator RoiAlign does not support these element types here")
    pooling = _Pooling(mode, output_height, output_width, sampling_ratio)
    shifted_rois = g.op("Sub", g.op("Mul", rois, spatial_scale), 0.5)
    lengths = g.op("Sub", _columns(g, shifted_rois, 2, 4), _columns(g, shifted_rois, 0, 2))

    def by_regions() -> Value:
        return _emit_roi_align(g, X, shifted_rois, batch_indices, pooling)

    def by_points() -> Value:
        return _sample_points(g, X, shifted_rois, lengths, batch_indices, pooling)

    array = g.constant_value(rois)
    if array is not None:
        ends = array * spatial_scale - 0.5
        return by_regions() if np.all(ends[:, 2:] - ends[:, :2] >= 1) else by_points()
    # An additional number, because there may be no regions.
    lengths_and_one = g.op("Concat", g.op("Reshape", lengths, [-1]), g.constant([1.0], g.dtype(rois)), axis=0)
    large = g.op("Not", g.op("Less", g.op("ReduceMin", lengths_and_one, axes=[0], keepdims=0), 1.0))
    shape = ir.Shape([_dimension(g, rois, 0), _dimension(g, X, 1), output_height, output_width])
    [result] = choose(g, large, [lambda: [by_regions()], lambda: [by_points()]], [[shape], [shape]])
    return result


def _dimension(g: GraphContext, value: Value, axis: int) -> int | ir.SymbolicDim | None:
    shape = g.shape(value)
    return None if shape is None else shape[axis]


def _columns(g: GraphContext, rois: Value, start: int, end: int) -> Value:
    return g.op("Slice", rois, starts=[start], ends=[end], axes=[1])


def _emit_roi_align(g: GraphContext, X: Value, rois: Value, batch_indices: Value, pooling: _Pooling) -> Value:
    return g.op(
        "RoiAlign",
        X,
        rois,
        batch_indices,
        coordinate_transformation_mode="output_half_pixel",
        mode=pooling.mode,
        output_height=pooling.height,
        output_width=pooling.width,
        sampling_ratio=pooling.ratio,
    )


def _sample_points(
    g: GraphContext, X: Value, rois: Value, lengths: Value, batch_indices: Value, pooling: _Pooling
) -> Value:
    across, wide, columns = bin_points(
        g, _columns(g, rois, 0, 1), _columns(g, lengths, 0, 1), pooling.width, pooling.ratio
    )
    down, high, rows = bin_points(
        g, _columns(g, rois, 1, 2), _columns(g, lengths, 1, 2), pooling.height, pooling.ratio
    )
    grid: list[Size] = [g.size(rois, 0), pooling.height, high, pooling.width, wide]
    sizes = g.stack(grid)
    x = g.op("Expand", g.op("Unsqueeze", across, axes=[1, 2]), sizes)
    y = g.op("Expand", g.op("Unsqueeze", down, axes=[3, 4]), sizes)
    # A region of one pixel around the point makes the operator sample exactly there.
    edges = [g.op(name, coordinate, 0.5) for name in ("Sub", "Add") for coordinate in (x, y)]
    regions = g.op("Concat", *(g.op("Unsqueeze", edge, axes=[5]) for edge in edges), axis=5)
    images = g.op("Expand", g.op("Unsqueeze", batch_indices, axes=[1, 2, 3, 4]), sizes)
    samples = _emit_roi_align(
        g,
        X,
        g.op("Reshape", regions, [-1, 4]),
        g.op("Reshape", images, [-1]),
        _Pooling(pooling.mode, 1, 1, 1),
    )
    values = g.op("Reshape", samples, g.stack([*grid, g.size(X, 1)]))
    pooled = pool_bins(g, values, pooling.mode, rows, columns, high, wide)
    return g.op("Transpose", pooled, perm=[0, 3, 1, 2])
