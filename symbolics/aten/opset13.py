"""What changes meaning or reach at opset 13."""

from typing import Any

from ...registration import GraphContext, Value, onnx_symbolic


@onnx_symbolic("composed::resize", opset=13)
def resize(
    g: GraphContext,
    input: Value,
    scales: list[float] | None,
    sizes: list[int | Value] | None,
    modes: dict[str, Any],
) -> Value:
    """From 13: absent inputs are left out."""
    if scales is not None:
        return g.op("Resize", input, scales=[1.0, 1.0, *scales], **modes)
    return g.op("Resize", input, sizes=[g.size(input, 0), g.size(input, 1), *(sizes or [])], **modes)
