"""What changes meaning or reach at opset 7."""

import math

from ...registration import DataType, GraphContext, Number, Value, dtypes, onnx_symbolic


def _extreme(g: GraphContext, op_type: str, self: Value, other: Value | Number) -> Value:
    """Max and Min of this opset take floats of one shape only; with a number they are a clip.

    onnxruntime's Clip of this opset takes no DOUBLE.
    """
    if not isinstance(other, Value) and g.dtype(self) in dtypes.FLOATS - {DataType.DOUBLE}:
        low, high = (float(other), math.inf) if op_type == "Max" else (-math.inf, float(other))
        return g.op("Clip", self, min=low, max=high)
    other = g.constant(other, g.dtype(self))
    if g.dtype(self) == DataType.BOOL:
        return g.op("Or" if op_type == "Max" else "And", self, other)
    return g.call(f"composed::broadcast_{op_type.lower()}", self, other)


@onnx_symbolic("aten::maximum", opset=7)
@onnx_symbolic("aten::max.other", opset=7)
def maximum(g: GraphContext, self: Value, other: Value | Number) -> Value:
    """At 7: without broadcasting, and of floats."""
    return _extreme(g, "Max", self, other)


@onnx_symbolic("aten::minimum", opset=7)
@onnx_symbolic("aten::min.other", opset=7)
def minimum(g: GraphContext, self: Value, other: Value | Number) -> Value:
    """At 7: without broadcasting, and of floats."""
    return _extreme(g, "Min", self, other)


@onnx_symbolic("composed::expand", opset=7)
def expand(g: GraphContext, self: Value, target: list[int | Value]) -> Value:
    """At 7: what is known to have size 1 is tiled."""
    added = len(target) - (g.rank(self) or 0)
    own = (*[1] * added, *(g.shape(self) or ()))
    if any(mine != 1 and item != 1 for mine, item in zip(own, target, strict=True)):
        return g.op("Expand", self, target)
    raised = g.op("Unsqueeze", self, axes=list(range(added))) if added else self
    return g.op("Tile", raised, g.stack(target))
