"""What changes meaning or reach at opset 16."""

from ...registration import DataType, GraphContext, Value, onnx_symbolic

HALVES = frozenset({DataType.FLOAT16, DataType.BFLOAT16})


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


@onnx_symbolic("composed::accumulate_rows", opset=16)
def accumulate_rows(g: GraphContext, self: Value, index: Value, values: Value) -> Value:
    """From 16: ScatterND adds; onnxruntime adds FLOAT and wider."""
    dtype = g.dtype(self)
    if dtype in HALVES:
        self, values = g.cast(self, DataType.FLOAT), g.cast(values, DataType.FLOAT)
    result = g.op("ScatterND", self, g.op("Unsqueeze", index, axes=[1]), values, reduction="add")
    return g.cast(result, dtype) if dtype in HALVES else result


@onnx_symbolic("composed::scatter_reduce", opset=16)
def scatter_reduce(g: GraphContext, self: Value, dim: int, index: Value, src: Value, reduction: str) -> Value:
    """From 16: ScatterElements adds and multiplies."""
    if reduction in ("max", "min"):
        raise g.refuse(f"ScatterElements has no reduction '{reduction}'", first_opset=18)
    return g.call("composed::scatter_elements", self, dim, index, src, reduction)


@onnx_symbolic("composed::scatter_elements", opset=16)
def scatter_elements(
    g: GraphContext, self: Value, dim: int, index: Value, src: Value, reduction: str
) -> Value:
    """ScatterElements with a reduction, of FLOAT and wider, for onnxruntime has no other floats there."""
    dtype = g.dtype(self)
    if dtype in HALVES:
        self, src = g.cast(self, DataType.FLOAT), g.cast(src, DataType.FLOAT)
    result = g.op("ScatterElements", self, index, src, axis=dim, reduction=reduction)
    return g.cast(result, dtype) if dtype in HALVES else result
