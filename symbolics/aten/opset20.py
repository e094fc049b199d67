"""What changes meaning or reach at opset 20."""

from ...registration import DataType, GraphContext, Value, onnx_symbolic


@onnx_symbolic("aten::gelu", opset=20)
def gelu(g: GraphContext, self: Value, approximate: str = "none") -> Value:
    """From 20: Gelu, which onnxruntime lacks for DOUBLE."""
    if g.dtype(self) == DataType.DOUBLE:
        return g.call("composed::gelu", self, approximate)
    return g.op("Gelu", self, approximate=approximate)


@onnx_symbolic("aten::grid_sampler", opset=20)
@onnx_symbolic("aten::grid_sampler_2d", opset=20)
@onnx_symbolic("aten::grid_sampler_3d", opset=20)
def grid_sampler(
    g: GraphContext,
    input: Value,
    grid: Value,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
) -> Value:
    """From 20: the modes have other names, and volumes are taken too."""
    mode = ("linear", "nearest", "cubic")[interpolation_mode]
    padding = ("zeros", "border", "reflection")[padding_mode]
    return g.op("GridSample", input, grid, mode=mode, padding_mode=padding, align_corners=int(align_corners))
