"""What changes meaning or reach at opset 11."""

from typing import Any

import onnx_ir as ir

from ...registration import DataType, GraphContext, Number, Value, dtypes, onnx_symbolic, schemas
from ..compositions.computed_resampling import by_computation
from ..compositions.resampling import agrees, axes, by_constants, float_scale


@onnx_symbolic("aten::eq", opset=11)
def eq(g: GraphContext, self: Value, other: Value | Number) -> Value:
    """From 11: floats too."""
    return g.op("Equal", self, other)


@onnx_symbolic("aten::round", opset=11)
@onnx_symbolic("aten::special_round", opset=11)
def round(g: GraphContext, self: Value, decimals: int = 0) -> Value:
    """From 11: Round, half to even."""
    if g.dtype(self) in dtypes.INTEGERS:
        return self
    if not decimals:
        return g.op("Round", self)
    scale = 10.0 ** abs(decimals)
    there, back = ("Mul", "Div") if decimals > 0 else ("Div", "Mul")
    return g.op(back, g.op("Round", g.op(there, self, scale)), scale)


@onnx_symbolic("aten::topk", opset=11)
def topk(
    g: GraphContext,
    self: Value,
    k: int | Value,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,
) -> list[Value]:
    """From 11: the smallest, integers, and dims counted from the end. Sorted, which unsorted ones may be."""
    if g.rank(self) == 0:
        results = g.op("TopK", g.op("Unsqueeze", self, axes=[0]), k=[k], largest=int(largest), outputs=2)
        return [g.op("Squeeze", result, axes=[0]) for result in results]
    return g.op("TopK", self, k=[k], axis=dim, largest=int(largest), outputs=2)


@onnx_symbolic("aten::cumsum", opset=11)
def cumsum(g: GraphContext, self: Value, dim: int, dtype: DataType | None = None) -> Value:
    """From 11: CumSum, along a dim of any size."""
    if dtype is None and (g.dtype(self) in dtypes.INTEGERS or g.dtype(self) == DataType.BOOL):
        dtype = DataType.INT64
    self = self if dtype is None else g.cast(self, dtype)
    return self if g.rank(self) == 0 else g.op("CumSum", self, axis=dim)


@onnx_symbolic("composed::resize", opset=11)
def resize(
    g: GraphContext,
    input: Value,
    scales: list[float] | None,
    sizes: list[int | Value] | None,
    modes: dict[str, Any],
) -> Value:
    """Resize by factors of the spatial axes or to their sizes; at 11 the absent inputs are empty."""
    if scales is not None:
        return g.op("Resize", input, roi=[], scales=[1.0, 1.0, *scales], **modes)
    full = [g.size(input, 0), g.size(input, 1), *(sizes or [])]
    return g.op("Resize", input, roi=[], scales=[], sizes=full, **modes)


@onnx_symbolic("composed::resample", opset=11)
def resample(
    g: GraphContext,
    input: Value,
    dimensions: int,
    mode: str,
    sizes: list[int | Value] | None,
    scales: list[Number | None] | None,
    align_corners: bool = False,
    antialias: bool = False,
) -> Value:
    """From 11: Resize, which has the coordinates of ATen."""
    spatial = axes(g, input, dimensions, sizes, scales, mode, antialias)
    is_nearest = mode.startswith("nearest")
    exact = mode == "nearest_exact"
    unlike = antialias or (is_nearest and not all(agrees(axis, exact) for axis in spatial))
    if unlike or g.dtype(input) == DataType.DOUBLE:
        constant = by_constants(g, input, spatial, mode, align_corners, antialias)
        if constant is not None:
            return constant
    factors = [float_scale(axis) for axis in spatial]
    by_factors = all(factor is not None for factor in factors)
    by_sizes = sizes is not None and all(axis.scale is None for axis in spatial)
    says = (by_factors or by_sizes) and all(axis.is_settled for axis in spatial)
    if antialias:
        says = says and not align_corners and _has_antialiasing(g)
    if not says or g.dtype(input) == DataType.DOUBLE:
        return by_computation(g, input, spatial, mode, align_corners, antialias)
    modes: dict[str, Any] = {
        "mode": "nearest" if is_nearest else mode,
        "coordinate_transformation_mode": "half_pixel",
        "antialias": 1 if antialias else None,
        "exclude_outside": 1 if antialias else None,
    }
    if is_nearest:
        modes["nearest_mode"] = "round_prefer_ceil" if exact else "floor"
    if mode == "cubic":
        modes["cubic_coeff_a"] = -0.5 if antialias else -0.75
    if align_corners:
        modes["coordinate_transformation_mode"] = "align_corners"
    elif mode == "nearest":
        modes["coordinate_transformation_mode"] = "asymmetric"
    if by_factors:
        return g.call("composed::resize", input, factors, None, modes)
    return g.call("composed::resize", input, None, sizes, modes)


def _has_antialiasing(g: GraphContext) -> bool:
    schema = schemas.operator_schema("Resize", g.opset)
    return schema is not None and "antialias" in schema.attributes


@onnx_symbolic("composed::gather", opset=11)
def gather(g: GraphContext, self: Value, dim: int, index: Value) -> Value:
    """From 11: Gather takes positions counted from the end."""
    return g.op("Gather", self, index, axis=dim)


@onnx_symbolic("composed::gather_elements", opset=11)
def gather_elements(g: GraphContext, self: Value, dim: int, index: Value) -> Value:
    """From 11: GatherElements."""
    return g.op("GatherElements", self, index, axis=dim)


@onnx_symbolic("composed::scatter", opset=11)
def scatter(g: GraphContext, self: Value, dim: int, index: Value, src: Value) -> Value:
    """From 11: ScatterElements."""
    return g.op("ScatterElements", self, index, src, axis=dim)


@onnx_symbolic("composed::write_rows", opset=11)
def write_rows(g: GraphContext, self: Value, index: Value, values: Value) -> Value:
    """From 11: ScatterND."""
    return g.op("ScatterND", self, g.op("Unsqueeze", index, axes=[1]), values)


@onnx_symbolic("composed::pad", opset=11)
def pad(
    g: GraphContext, self: Value, begins: list[int | Value], ends: list[int | Value], value: Number
) -> Value:
    """From 11: any number type, and computed amounts."""
    dtype = g.dtype(self)
    filler = value if dtype is None else g.constant(value, dtype)
    return g.op("Pad", self, mode="constant", pads=[*begins, *ends], constant_value=filler)


@onnx_symbolic("composed::depth_to_space", opset=11)
def depth_to_space(g: GraphContext, self: Value, channels: int, blocksize: int) -> Value:
    """From 11: DepthToSpace takes channels outermost."""
    return g.op("DepthToSpace", self, blocksize=blocksize, mode="CRD")


@onnx_symbolic("composed::determinant", opset=11)
def determinant(g: GraphContext, A: Value) -> Value:
    """From 11: Det, which onnxruntime lacks for DOUBLE."""
    return g.call("aten::_linalg_det", A)[0] if g.dtype(A) == DataType.DOUBLE else g.op("Det", A)


@onnx_symbolic("composed::unique", opset=11)
def unique(g: GraphContext, self: Value) -> list[Value]:
    """From 11: Unique."""
    values, _, inverse, counts = g.op("Unique", self, sorted=1, outputs=4)
    for result in (values, inverse, counts):
        result.shape = ir.Shape([None]) if result is not inverse else self.shape
    return [values, inverse, counts]
