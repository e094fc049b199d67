"""What changes meaning or reach at opset 17."""

import numpy as np

from ...registration import DataType, GraphContext, Value, onnx_symbolic


@onnx_symbolic("aten::layer_norm", opset=17)
def layer_norm(
    g: GraphContext,
    input: Value,
    normalized_shape: list[int | Value],
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Value:
    """From 17: LayerNormalization. It computes in FLOAT at most, so DOUBLE stays composed."""
    if weight is None and not any(isinstance(size, Value) for size in normalized_shape):
        weight = g.constant(np.ones(normalized_shape), g.dtype(input) or DataType.FLOAT)
    dtypes = {g.dtype(value) for value in (input, weight, bias) if value is not None}
    if weight is None or len(dtypes) > 1 or DataType.DOUBLE in dtypes or 0 in normalized_shape:
        return g.call("composed::layer_norm", input, normalized_shape, weight, bias, eps)
    return g.op("LayerNormalization", input, weight, bias, axis=-len(normalized_shape), epsilon=eps)
