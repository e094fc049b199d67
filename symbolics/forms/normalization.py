"""Normalization in the ranks that a consumer knows."""

from ...registration import GraphContext, Value, onnx_symbolic


@onnx_symbolic("form::InstanceNormalization_four_dimensions")
def instance_normalization(
    g: GraphContext, input: Value, scale: Value, B: Value, epsilon: float = 1e-5
) -> Value:
    """Sequences of channels as images of one column."""
    if g.rank(input) != 3:
        raise g.refuse("only three dimensions become four")
    image = g.op("Unsqueeze", input, axes=[3])
    return g.op("Squeeze", g.op("InstanceNormalization", image, scale, B, epsilon=epsilon), axes=[3])
