"""Operators that onnxruntime had before ONNX had them."""

from ...registration import GraphContext, Value
from . import microsoft_symbolic


@microsoft_symbolic("Trilu")
def trilu(g: GraphContext, X: Value, k: Value | None = None, upper: int = 1) -> Value:
    return g.op("Trilu", X, k, upper=upper)


@microsoft_symbolic("ExpandDims")
def expand_dims(g: GraphContext, X: Value, axis: int) -> Value:
    return g.op("Unsqueeze", X, axes=[axis])


@microsoft_symbolic("GatherND")
def gather_nd(g: GraphContext, data: Value, indices: Value) -> Value:
    return g.op("GatherND", data, indices)


@microsoft_symbolic("Range")
def arithmetic_progression(g: GraphContext, start: Value, limit: Value, delta: Value | None = None) -> Value:
    return g.op("Range", start, limit, 1 if delta is None else delta)


@microsoft_symbolic("GridSample")
def grid_sample(
    g: GraphContext,
    X: Value,
    Grid: Value,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: int = 0,
) -> Value:
    return g.op(
        "GridSample",
        X,
        Grid,
        # ONNX has had these words from opset 20 on.
        mode={"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode),
        padding_mode=padding_mode,
        align_corners=align_corners,
    )
