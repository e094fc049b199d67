"""What changes meaning or reach at opset 18."""

from typing import Any

from ...registration import GraphContext, Value, onnx_symbolic


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
