"""What changes meaning or reach at opset 23."""

import numpy as np

from ...registration import DataType, GraphContext, Value, onnx_symbolic


@onnx_symbolic("aten::rms_norm", opset=23)
def rms_norm(
    g: GraphContext,
    input: Value,
    normalized_shape: list[int | Value],
    weight: Value | None = None,
    eps: float | None = None,
) -> Value:
    """From 23: RMSNormalization. It computes in FLOAT at most, so DOUBLE stays composed."""
    if weight is None and not any(isinstance(size, Value) for size in normalized_shape):
        weight = g.constant(np.ones(normalized_shape), g.dtype(input) or DataType.FLOAT)
    dtypes = {g.dtype(value) for value in (input, weight) if value is not None}
    is_composed = eps is None or 0 in normalized_shape
    if is_composed or weight is None or len(dtypes) > 1 or DataType.DOUBLE in dtypes:
        return g.call("composed::rms_norm", input, normalized_shape, weight, eps)
    return g.op("RMSNormalization", input, weight, axis=-len(normalized_shape), epsilon=eps)


def _fits(g: GraphContext, query: Value, key: Value, value: Value) -> bool:
    """Whether Attention takes them: [N, heads, length, features], of one N, as many keys as values."""
    shapes = [g.shape(tensor) for tensor in (query, key, value)]
    if any(shape is None or len(shape) != 4 for shape in shapes) or g.dtype(query) == DataType.BFLOAT16:
        return False
    q, k, v = shapes
    differing = [(q[0], k[0]), (k[0], v[0]), (k[1], v[1])]  # type: ignore[index]
    return not any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in differing)


def _full_mask(g: GraphContext, mask: Value, query: Value, key: Value) -> Value | None:
    """The mask with its last two dimensions at their full sizes, None where they cannot be told.

    onnxruntime's Attention broadcasts the others only.
    """
    shape = g.shape(mask)
    if shape is None or len(shape) < 2:
        return None
    wanted: list[int | Value] = []
    for size, tensor in ((shape[-2], query), (shape[-1], key)):
        full = g.shape(tensor)[2]  # type: ignore[index]
        if size == full and (isinstance(size, int) or size.value is not None):
            wanted.append(1)
        elif size == 1:
            wanted.append(g.size(tensor, 2))
        else:
            return None
    return mask if wanted == [1, 1] else g.op("Expand", mask, wanted)


@onnx_symbolic("aten::scaled_dot_product_attention", opset=23)
def scaled_dot_product_attention(
    g: GraphContext,
    query: Value,
    key: Value,
    value: Value,
    attn_mask: Value | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Value:
    """From 23: Attention. Without a cache its causal mask is aligned at the top left, as ATen's is."""
    positive = scale is None or scale > 0
    mask = attn_mask
    if positive and not dropout_p and not (is_causal and mask is not None) and _fits(g, query, key, value):
        mask = None if attn_mask is None else _full_mask(g, attn_mask, query, key)
        if attn_mask is None or mask is not None:
            return g.op("Attention", query, key, value, mask, is_causal=int(is_causal) or None, scale=scale)
    return g.call(
        "composed::scaled_dot_product_attention",
        query,
        key,
        value,
        attn_mask,
        dropout_p,
        is_causal,
        scale,
        enable_gqa,
    )
