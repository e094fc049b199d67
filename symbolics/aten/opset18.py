"""What changes meaning or reach at opset 18."""

import math
from typing import Any

from ...registration import DataType, GraphContext, Value, dtypes, onnx_symbolic


@onnx_symbolic("aten::mish", opset=18)
def mish(g: GraphContext, self: Value) -> Value:
    """From 18: Mish, which onnxruntime lacks for DOUBLE."""
    return g.call("composed::mish", self) if g.dtype(self) == DataType.DOUBLE else g.op("Mish", self)


@onnx_symbolic("aten::bitwise_not", opset=18)
def bitwise_not(g: GraphContext, self: Value) -> Value:
    """From 18: BitwiseNot."""
    return g.op("Not" if g.dtype(self) == DataType.BOOL else "BitwiseNot", self)


@onnx_symbolic("composed::resize", opset=18)
def resize(
    g: GraphContext,
    input: Value,
    scales: list[float] | None,
    sizes: list[int | Value] | None,
    modes: dict[str, Any],
) -> Value:
    """From 18: `axes`, so that the sizes of batch and channels need not be given."""
    if scales is not None:
        return g.op("Resize", input, scales=[1.0, 1.0, *scales], **modes)
    spatial = sizes or []
    return g.op("Resize", input, sizes=spatial, axes=list(range(2, 2 + len(spatial))), **modes)


@onnx_symbolic("composed::scatter_reduce", opset=18)
def scatter_reduce(g: GraphContext, self: Value, dim: int, index: Value, src: Value, reduction: str) -> Value:
    """From 18: maximum and minimum too. onnxruntime loses NaN there, which goes by itself."""
    found = g.call("composed::scatter_elements", self, dim, index, src, reduction)
    dtype = g.dtype(self)
    if reduction not in ("max", "min") or dtype not in dtypes.FLOATS:
        return found
    missing = [g.cast(g.call("aten::isnan", item), DataType.INT32) for item in (self, src)]
    lost = g.call("composed::scatter_elements", missing[0], dim, index, missing[1], "max")
    return g.op("Where", g.cast(lost, DataType.BOOL), math.nan, found)
