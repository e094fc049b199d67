"""Sampling at computed coordinates, and blocks of columns as images."""

from typing import Any

from .....registration import DataType, GraphContext, Value, onnx_symbolic
from ....compositions.size_arithmetic import compute, fold_size


@onnx_symbolic(["aten::grid_sampler", "aten::grid_sampler_2d", "aten::grid_sampler_3d"])
def grid_sampler(
    g: GraphContext,
    input: Value,
    grid: Value,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
) -> Value:
    mode = ("linear", "nearest", "cubic")[interpolation_mode]
    padding = ("zeros", "border", "reflection")[padding_mode]
    return g.op("GridSample", input, grid, mode=mode, padding_mode=padding, align_corners=int(align_corners))


@onnx_symbolic("aten::affine_grid_generator")
def affine_grid_generator(
    g: GraphContext, theta: Value, size: list[int | Value], align_corners: bool
) -> Value:
    """The positions, from -1 to 1, of the elements of images or volumes; each item has an affine map.

    Without `align_corners`, -1 and 1 are the outer edges of the first and the last element, not their
    centres. An only element is at 0. Torch decomposes the operator only for sizes that are numbers.
    """
    dtype = g.dtype(theta) or DataType.FLOAT
    batch, spatial = size[0], [fold_size(g, dim_size) for dim_size in size[2:]]
    columns: list[Value] = []
    for axis, steps in enumerate(spatial):
        centres = g.call("aten::linspace", start=-1.0, end=1.0, steps=steps, dtype=dtype)
        gaps = compute(g, "sub", steps, 1)
        # A single element has no gap, and its scale of 0 puts it in the middle.
        if align_corners:
            scale = g.constant(compute(g, "min", gaps, 1), dtype)
        else:
            scale = g.op("Div", g.constant(gaps, dtype), g.constant(steps, dtype))
        coordinates = g.op("Mul", centres, scale)
        broadcast_axes = [i for i in range(len(spatial) + 1) if i != axis]
        columns.insert(0, g.op("Expand", g.op("Unsqueeze", coordinates, axes=broadcast_axes), [*spatial, 1]))
    homogeneous = g.call("composed::full", [*spatial, 1], 1.0, dtype)
    points = g.op("Reshape", g.op("Concat", *columns, homogeneous, axis=-1), [-1, len(spatial) + 1])
    grid = g.op("MatMul", points, g.op("Transpose", theta, perm=[0, 2, 1]))
    return g.op("Reshape", grid, [batch, *spatial, len(spatial)])


@onnx_symbolic("aten::col2im")
def col2im(
    g: GraphContext,
    self: Value,
    output_size: list[int | Value],
    kernel_size: list[int],
    dilation: list[int],
    padding: list[int],
    stride: list[int],
) -> Value:
    batched = g.op("Unsqueeze", self, axes=[0]) if g.rank(self) == 2 else self
    arguments: dict[str, Any] = {"dilations": dilation, "pads": padding * 2, "strides": stride}
    if g.has_kernel("Col2Im", self):
        result = g.op("Col2Im", batched, output_size, kernel_size, **arguments)
    else:
        result = g.call("onnx::Col2Im", batched, output_size, kernel_size, **arguments)
    return g.op("Squeeze", result, axes=[0]) if batched is not self else result
