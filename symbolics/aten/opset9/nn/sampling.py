"""Sampling at computed coordinates, and blocks of columns as images."""

from typing import Any

from .....registration import GraphContext, Value, onnx_symbolic


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
