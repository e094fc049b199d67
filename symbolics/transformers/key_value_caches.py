"""Writes to caches of keys and values, whose length may be fixed."""

from ...registration import DataType, GraphContext, Value, onnx_symbolic


@onnx_symbolic("opsetta::write_to_cache")
def write_to_cache(g: GraphContext, past: Value, update: Value, positions: Value) -> Value:
    """Write consecutive positions of all texts of a batch."""
    first = g.op("Slice", positions, starts=[0], ends=[1], axes=[0])
    begins = g.op("Expand", first, g.stack([g.size(past, 0)]))
    return g.op("TensorScatter", past, update, begins, axis=2)


@onnx_symbolic("opsetta::group_query_attention")
def group_query_attention(
    g: GraphContext,
    query: Value,
    key: Value,
    value: Value,
    past_key: Value,
    past_value: Value,
    attention_mask: Value,
    head_sink: Value | None,
    scale: float,
    window: int,
    softcap: float,
) -> list[Value]:
    """Attention of onnxruntime's domain, with one buffer for the past and the present cache.

    The operator counts the tokens of a text by its mask, so padding cannot be on the left.
    """
    heads, key_heads, channels = (g.size(*axis) for axis in ((query, 1), (key, 1), (query, 3)))
    if not (isinstance(heads, int) and isinstance(key_heads, int) and isinstance(channels, int)):
        raise g.refuse("the number of heads and their size must be constant")
    packed = [
        g.op("Reshape", g.op("Transpose", tensor, perm=[0, 2, 1, 3]), [0, 0, count * channels])
        for tensor, count in ((query, heads), (key, key_heads), (value, key_heads))
    ]
    last = g.op("Sub", g.op("ReduceSum", attention_mask, axes=[1], keepdims=0), 1)
    total = g.constant(g.size(attention_mask, 1), DataType.INT64)
    output, present_key, present_value = g.op(
        "com.microsoft::GroupQueryAttention",
        *packed,
        past_key,
        past_value,
        g.cast(last, DataType.INT32),
        g.cast(total, DataType.INT32),
        *([] if head_sink is None else [None, None, None, None, head_sink]),
        num_heads=heads,
        kv_num_heads=key_heads,
        scale=scale,
        local_window_size=window,
        softcap=softcap,
        outputs=3,
    )
    split = g.op("Reshape", output, [0, 0, heads, channels])
    return [g.op("Transpose", split, perm=[0, 2, 1, 3]), present_key, present_value]
