"""What changes meaning or reach at opset 7."""

import math

from ...registration import GraphContext, Number, Value, onnx_symbolic


def _extreme(g: GraphContext, op_type: str, self: Value, other: Value | Number) -> Value:
    """Max and Min of this opset take operands of one shape only; with a number they are a clip."""
    if not isinstance(other, Value):
        low, high = (float(other), math.inf) if op_type == "Max" else (-math.inf, float(other))
        return g.op("Clip", self, min=low, max=high)
    if g.shape(self) is None or g.shape(self) != g.shape(other):
        raise g.refuse(f"{op_type} does not broadcast", first_opset=8)
    return g.op(op_type, self, other)


@onnx_symbolic("aten::maximum", opset=7)
@onnx_symbolic("aten::max.other", opset=7)
def maximum(g: GraphContext, self: Value, other: Value | Number) -> Value:
    """At 7: without broadcasting."""
    return _extreme(g, "Max", self, other)


@onnx_symbolic("aten::minimum", opset=7)
@onnx_symbolic("aten::min.other", opset=7)
def minimum(g: GraphContext, self: Value, other: Value | Number) -> Value:
    """At 7: without broadcasting."""
    return _extreme(g, "Min", self, other)


@onnx_symbolic("composed::expand", opset=7)
def expand(g: GraphContext, self: Value, target: list[int | Value]) -> Value:
    """At 7: no Expand, so what has size 1 is tiled."""
    added = len(target) - (g.rank(self) or 0)
    raised = g.op("Unsqueeze", self, axes=list(range(added))) if added else self
    for own, item in zip(g.shape(raised) or (), target, strict=True):
        if own != 1 and not (isinstance(item, int) and item == 1):
            raise g.refuse("whether a computed size expands its dimension is not known", first_opset=8)
    return g.op("Tile", raised, g.stack(target))
