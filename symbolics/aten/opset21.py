"""What changes meaning or reach at opset 21."""

import numpy as np

from ...registration import DataType, GraphContext, Value, onnx_symbolic


@onnx_symbolic("aten::group_norm", opset=21)
def group_norm(
    g: GraphContext,
    input: Value,
    num_groups: int,
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Value:
    """From 21: GroupNormalization, whose scale and bias are per channel from here on."""
    shape = g.shape(input)
    channels = None if shape is None else shape[1]
    if weight is None and isinstance(channels, int):
        weight = g.constant(np.ones(channels), g.dtype(input) or DataType.FLOAT)
    if bias is None and isinstance(channels, int):
        bias = g.constant(np.zeros(channels), g.dtype(input) or DataType.FLOAT)
    dtypes = {g.dtype(value) for value in (input, weight, bias) if value is not None}
    is_composed = weight is None or bias is None or 0 in (shape or ())
    if is_composed or len(dtypes) > 1 or DataType.DOUBLE in dtypes:
        return g.call("composed::group_norm", input, num_groups, weight, bias, eps)
    return g.op("GroupNormalization", input, weight, bias, num_groups=num_groups, epsilon=eps)
