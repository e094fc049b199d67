"""What changes meaning or reach at opset 10."""

from ...registration import GraphContext, Value, onnx_symbolic


@onnx_symbolic("composed::enlarge", opset=10)
def enlarge(g: GraphContext, input: Value, factors: list[int]) -> Value:
    """From 10: Resize in place of Upsample."""
    return g.op("Resize", input, mode="nearest", scales=[1.0, 1.0, *map(float, factors)])
