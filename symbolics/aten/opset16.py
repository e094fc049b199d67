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
        return g.call("composed::grid_sampler", input, grid, interpolation_mode, padding_mode, align_corners)
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
        return g.call("composed::scatter_slices", self, dim, index, src, reduction)
    return g.call("composed::scatter_elements", self, dim, index, src, reduction)


@onnx_symbolic("composed::scatter_elements", opset=16)
def scatter_elements(
    g: GraphContext, self: Value, dim: int, index: Value, src: Value, reduction: str
) -> Value:
    """ScatterElements with a reduction, of FLOAT and wider, for onnxruntime has no other floats there."""
    dtype = g.dtype(self)
    if dtype == DataType.BOOL:
        whole = [g.cast(item, DataType.INT32) for item in (self, src)]
        reduction = {"add": "max", "mul": "min"}.get(reduction, reduction)
        return g.cast(g.call("composed::scatter_reduce", whole[0], dim, index, whole[1], reduction), dtype)
    if dtype in HALVES:
        self, src = g.cast(self, DataType.FLOAT), g.cast(src, DataType.FLOAT)
    result = g.op("ScatterElements", self, index, src, axis=dim, reduction=reduction)
    return g.cast(result, dtype) if dtype in HALVES else result
