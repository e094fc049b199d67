"""Layer normalization with the sums and embeddings that are fused into it."""

from ...registration import DataType, GraphContext, Value
from ..compositions.matrices import positions
from . import microsoft_symbolic

_EPSILON = 1e-12
"""The default of onnxruntime's fused normalizations, not that of ONNX's operators."""


def _add_residual(g: GraphContext, input: Value, skip: Value, bias: Value | None) -> Value:
    total = g.op("Add", input, skip)
    return total if bias is None else g.op("Add", total, bias)


@microsoft_symbolic("SkipLayerNormalization")
def skip_layer_normalization(
    g: GraphContext,
    input: Value,
    skip: Value,
    gamma: Value,
    beta: Value | None = None,
    bias: Value | None = None,
    epsilon: float = _EPSILON,
) -> list[Value | None]:
    """Without the second and third output, which only training reads."""
    total = _add_residual(g, input, skip, bias)
    return [g.op("LayerNormalization", total, gamma, beta, axis=-1, epsilon=epsilon), None, None, total]


@microsoft_symbolic("SkipSimplifiedLayerNormalization")
def skip_simplified_layer_normalization(
    g: GraphContext,
    input: Value,
    skip: Value,
    gamma: Value,
    bias: Value | None = None,
    epsilon: float = _EPSILON,
) -> list[Value | None]:
    """Without the second and third output, which only training reads."""
    total = _add_residual(g, input, skip, bias)
    return [g.op("RMSNormalization", total, gamma, axis=-1, epsilon=epsilon), None, None, total]


@microsoft_symbolic("EmbedLayerNormalization")
def embed_layer_normalization(
    g: GraphContext,
    input_ids: Value,
    segment_ids: Value | None,
    word_embedding: Value,
    position_embedding: Value,
    segment_embedding: Value | None,
    gamma: Value,
    beta: Value,
    mask: Value | None = None,
    position_ids: Value | None = None,
    epsilon: float = _EPSILON,
    mask_index_type: int = 0,
) -> list[Value]:
    """The second output counts the ones in each row of the mask; without a mask it is 0."""
    if position_ids is None:
        position_ids = positions(g, g.size(input_ids, 1))
    # The embeddings are added in the order of the kernel, which rounds after each.
    total = g.op("Gather", word_embedding, input_ids, axis=0)
    total = g.op("Add", total, g.op("Gather", position_embedding, position_ids, axis=0))
    if segment_ids is not None and segment_embedding is not None:
        total = g.op("Add", total, g.op("Gather", segment_embedding, segment_ids, axis=0))
    if mask is None:
        # The kernel returns zeros for every row, so that graphs may read the output in any case.
        is_counted = g.op("Mul", g.cast(input_ids, DataType.INT32), 0)
    else:
        is_counted = g.cast(g.op("Equal", mask, 1), DataType.INT32)
    counts = g.op("ReduceSum", is_counted, axes=[1], keepdims=0)
    normalised = g.op("LayerNormalization", total, gamma, beta, axis=-1, epsilon=epsilon)
    return [normalised, counts, total]


@microsoft_symbolic("QEmbedLayerNormalization")
def quantized_embed_layer_normalization(
    g: GraphContext,
    input_ids: Value,
    segment_ids: Value | None,
    word_embedding_quant: Value,
    position_embedding_quant: Value,
    segment_embedding: Value | None,
    gamma_quant: Value,
    beta_quant: Value,
    mask: Value | None,
    word_embedding_scale: Value,
    position_embedding_scale: Value,
    segment_embedding_scale: Value | None,
    gamma_scale: Value,
    beta_scale: Value,
    word_embedding_zero_point: Value,
    position_embedding_zero_point: Value,
    segment_embedding_zero_point: Value | None,
    gamma_zero_point: Value,
    beta_zero_point: Value,
    epsilon: float = _EPSILON,
) -> list[Value]:
    """The tables and parameters are quantized; the normalization is computed in float."""
    quantized = [word_embedding_quant, position_embedding_quant, segment_embedding, gamma_quant, beta_quant]
    scales = [
        word_embedding_scale,
        position_embedding_scale,
        segment_embedding_scale,
        gamma_scale,
        beta_scale,
    ]
    zero_points = [
        word_embedding_zero_point,
        position_embedding_zero_point,
        segment_embedding_zero_point,
        gamma_zero_point,
        beta_zero_point,
    ]
    tables = [
        None if values is None else g.op("DequantizeLinear", values, scale, zero_point)
        for values, scale, zero_point in zip(quantized, scales, zero_points, strict=True)
    ]
    name, arguments = "com.microsoft::EmbedLayerNormalization", (input_ids, segment_ids, *tables, mask)
    return g.call_outputs(name, *arguments, epsilon=epsilon)[:2]
