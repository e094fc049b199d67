"""What changes meaning or reach at opset 16."""

from ...registration import GraphContext, Value, onnx_symbolic


@onnx_symbolic("aten::grid_sampler", opset=16)
@onnx_symbolic("aten::grid_sampler_2d", opset=16)
def grid_sampler(
    g: GraphContext,
    input: Value,
    grid: Value,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
) -> Value:
    """From 16: GridSample, of images."""
    if g.rank(input) != 4:
        raise g.refuse("grid sampling of anything but [N, C, H, W]", first_opset=20)
    mode = ("bilinear", "nearest", "bicubic")[interpolation_mode]
    padding = ("zeros", "border", "reflection")[padding_mode]
    return g.op("GridSample", input, grid, mode=mode, padding_mode=padding, align_corners=int(align_corners))
