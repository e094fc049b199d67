"""Attention with projection, also of quantized tensors, and MultiHeadAttention."""

from ...registration import GraphContext, Value
from ..compositions.size_arithmetic import known_rank
from . import microsoft_symbolic, refuse_arguments
from .attention_heads import MASK_FILTER, append_to_past, attend, past_length, split_heads
from .quantized_products import multiply_to_float


@microsoft_symbolic("Attention")
def attention(
    g: GraphContext,
    input: Value,
    weights: Value,
    bias: Value | None = None,
    mask_index: Value | None = None,
    past: Value | None = None,
    attention_bias: Value | None = None,
    past_sequence_length: Value | None = None,
    num_heads: int = 1,
    unidirectional: int = 0,
    scale: float | None = None,
    mask_filter_value: float = MASK_FILTER,
    qkv_hidden_sizes: list[int] | None = None,
    do_rotary: int = 0,
    rotary_embedding_dim: int = 0,
    past_present_share_buffer: int = 0,
) -> list[Value]:
    refuse_arguments(
        g,
        past_sequence_length=past_sequence_length,
        do_rotary=do_rotary,
        past_present_share_buffer=past_present_share_buffer,
    )
    projected = g.op("MatMul", input, weights)
    if bias is not None:
        projected = g.op("Add", projected, bias)
    parameters = num_heads, unidirectional, scale, mask_filter_value, qkv_hidden_sizes
    return _attend_projected(g, projected, mask_index, past, attention_bias, *parameters)


@microsoft_symbolic("QAttention")
def quantized_attention(
    g: GraphContext,
    input: Value,
    weight: Value,
    bias: Value,
    input_scale: Value,
    weight_scale: Value,
    mask_index: Value | None = None,
    input_zero_point: Value | None = None,
    weight_zero_point: Value | None = None,
    past: Value | None = None,
    num_heads: int = 1,
    unidirectional: int = 0,
    scale: float | None = None,
    mask_filter_value: float = MASK_FILTER,
    do_rotary: int = 0,
    past_present_share_buffer: int = 0,
) -> list[Value]:
    refuse_arguments(g, do_rotary=do_rotary, past_present_share_buffer=past_present_share_buffer)
    scales, zero_points = (input_scale, weight_scale), (input_zero_point, weight_zero_point)
    projected = multiply_to_float(g, input, weight, scales, zero_points, bias)
    parameters = num_heads, unidirectional, scale, mask_filter_value, None
    return _attend_projected(g, projected, mask_index, past, None, *parameters)


def _attend_projected(
    g: GraphContext,
    projected: Value,
    mask: Value | None,
    past: Value | None,
    bias: Value | None,
    num_heads: int,
    unidirectional: int,
    scale: float | None,
    filter_value: float,
    sizes: list[int] | None,
) -> list[Value]:
    """The outputs of Attention for queries, keys and values side by side; past ones are stacked."""
    thirds = g.op("Split", projected, axis=2, split=sizes, num_outputs=None if sizes else 3, outputs=3)
    query, key, value = (split_heads(g, part, num_heads) for part in thirds)
    if past is not None:
        past_key, past_value = (g.op("Gather", past, index, axis=0) for index in (0, 1))
        key, value = append_to_past(g, past_key, key), append_to_past(g, past_value, value)
    first = past_length(g, past, unidirectional)
    result, _ = attend(g, query, key, value, mask, bias, past=first, scale=scale, filter_value=filter_value)
    # Keys and values of two sizes cannot be stacked, and the operator has no present state then.
    if sizes is not None and sizes[1] != sizes[2]:
        return [result]
    present = [g.op("Unsqueeze", heads, axes=[0]) for heads in (key, value)]
    return [result, g.op("Concat", *present, axis=0)]


def _unpack_heads(g: GraphContext, packed: Value, count: int) -> list[Value]:
    """The heads of a tensor of [batch, length, heads, count, head size], `count` times."""
    parts = [g.op("Gather", packed, index, axis=3) for index in range(count)]
    return [g.op("Transpose", part, perm=[0, 2, 1, 3]) for part in parts]


@microsoft_symbolic("MultiHeadAttention")
def multi_head_attention(
    g: GraphContext,
    query: Value,
    key: Value | None = None,
    value: Value | None = None,
    bias: Value | None = None,
    key_padding_mask: Value | None = None,
    attention_bias: Value | None = None,
    past_key: Value | None = None,
    past_value: Value | None = None,
    past_sequence_length: Value | None = None,
    cache_indirection: Value | None = None,
    num_heads: int = 1,
    unidirectional: int = 0,
    scale: float | None = None,
    mask_filter_value: float = MASK_FILTER,
) -> list[Value]:
    """Queries, keys and values may be packed, and keys and values split into heads."""
    refuse_arguments(g, past_sequence_length=past_sequence_length, cache_indirection=cache_indirection)
    is_packed = known_rank(g, query) == 5 or (key is not None and known_rank(g, key) == 5)
    # The order of a bias of packed tensors is not stated, and the kernel for CPUs has none of them.
    if bias is not None and is_packed:
        raise g.refuse("argument 'bias' is not supported with packed queries, keys and values")
    if known_rank(g, query) == 5:
        heads = _unpack_heads(g, query, 3)
    elif key is not None and is_packed:
        heads = [split_heads(g, query, num_heads), *_unpack_heads(g, key, 2)]
    elif key is None or value is None:
        raise g.refuse("inputs 'key' and 'value' are missing")
    else:
        tensors = [query, key, value]
        for position, part in enumerate(_split_bias(g, bias, tensors)):
            tensors[position] = g.op("Add", tensors[position], part)
        heads = [t if known_rank(g, t) == 4 else split_heads(g, t, num_heads) for t in tensors]
    query, key, value = heads
    key, value = append_to_past(g, past_key, key), append_to_past(g, past_value, value)
    first = past_length(g, past_key, unidirectional)
    result, weights = attend(
        g,
        query,
        key,
        value,
        key_padding_mask,
        attention_bias,
        past=first,
        scale=scale,
        filter_value=mask_filter_value,
    )
    return [result, key, value, weights]


def _split_bias(g: GraphContext, bias: Value | None, tensors: list[Value]) -> list[Value]:
    """The bias of queries, and those of keys and values if these are not split into heads."""
    if bias is None:
        return []
    hidden, size = g.size(tensors[0], 2), (g.shape(bias) or [None])[0]
    if not isinstance(hidden, int) or not isinstance(size, int):
        raise g.refuse("the hidden size and the size of the bias must be known")
    parts = g.op("Split", bias, axis=0, split=[hidden, hidden, size - 2 * hidden], outputs=3)
    # Keys that are split into heads come from another projection, which has added its bias.
    return parts[:1] if known_rank(g, tensors[1]) == 4 else parts
