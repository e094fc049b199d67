"""GroupQueryAttention, whose queries share keys and values, and the rotation of heads by their positions."""

from ...registration import DataType, GraphContext, Value
from ..compositions.matrices import dtype_of, leading, positions
from ..compositions.size_arithmetic import Size, compute, known_rank
from . import microsoft_symbolic, refuse_arguments
from .attention_heads import compute_scores, lowest_score, merge_heads, split_heads


def _rotate(
    g: GraphContext, heads: Value, position_ids: Value, caches: tuple[Value, Value], interleaved: int
) -> Value:
    """Rotate the first elements of every head, as many as the caches have angles for.

    Args:
        position_ids: [batch, length].
        caches: cosines and sines, of [positions, angles].
    """
    count, size = g.size(caches[0], 1), g.size(heads, 3)
    if not isinstance(count, int):
        raise g.refuse("the number of angles in 'cos_cache' must be known")
    cos, sin = (g.op("Unsqueeze", g.op("Gather", cache, position_ids, axis=0), axes=[1]) for cache in caches)
    # An unknown head size may be larger; the remaining slice is empty if it is not.
    has_rest = size != 2 * count
    rotated = g.op("Slice", heads, starts=[0], ends=[2 * count], axes=[3]) if has_rest else heads
    if interleaved:
        # Slices with steps would need opset 10.
        pairs = g.op("Reshape", rotated, [0, 0, 0, -1, 2])
        real, imaginary = (g.op("Gather", pairs, index, axis=4) for index in (0, 1))
    else:
        real = g.op("Slice", rotated, starts=[0], ends=[count], axes=[3])
        imaginary = g.op("Slice", rotated, starts=[count], ends=[2 * count], axes=[3])
    parts = [
        g.op("Sub", g.op("Mul", real, cos), g.op("Mul", imaginary, sin)),
        g.op("Add", g.op("Mul", real, sin), g.op("Mul", imaginary, cos)),
    ]
    if interleaved:
        pairs = g.op("Concat", *(g.op("Unsqueeze", part, axes=[4]) for part in parts), axis=4)
        parts = [g.op("Reshape", pairs, [0, 0, 0, 2 * count])]
    if has_rest:
        end = 2**31 - 1
        parts.append(g.op("Slice", heads, starts=[2 * count], ends=[end], axes=[3]))
    return g.op("Concat", *parts, axis=3) if len(parts) > 1 else parts[0]


@microsoft_symbolic("RotaryEmbedding")
def rotary_embedding(
    g: GraphContext,
    input: Value,
    position_ids: Value,
    cos_cache: Value,
    sin_cache: Value,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    interleaved: int = 0,
    is_packed_batching: int = 0,
    scale: float = 1.0,
) -> Value:
    """The caches say how many elements of a head rotate, so `rotary_embedding_dim` has no part in it."""
    refuse_arguments(g, is_packed_batching=is_packed_batching)
    if scale != 1:
        raise g.refuse("attribute 'scale' must be 1")
    is_merged = known_rank(g, input) == 3
    heads = input
    if is_merged and num_heads:
        heads = split_heads(g, input, num_heads)
    elif is_merged:
        size = compute(g, "mul", g.size(cos_cache, 1), 2)
        heads = g.op("Transpose", g.op("Reshape", input, g.stack([0, 0, -1, size])), perm=[0, 2, 1, 3])
    if known_rank(g, position_ids) == 1:
        # One number is the position of the first token.
        steps = positions(g, g.size(heads, 2))
        position_ids = g.op("Unsqueeze", g.op("Add", steps, position_ids), axes=[0])
    rotated = _rotate(g, heads, position_ids, (cos_cache, sin_cache), interleaved)
    return merge_heads(g, rotated) if is_merged else rotated


def _join_past(g: GraphContext, past: Value, heads: Value, past_counts: Value, total: Value) -> Value:
    """Past heads with the new ones behind the valid past of every entry, and zeros behind these.

    Args:
        past_counts: how many past positions are valid, [batch, 1].
        total: the length of the result, if past heads are not longer, of one element.
    """
    length = g.op("Unsqueeze", g.constant(g.size(past, 2), DataType.INT64), axes=[0])
    count = g.op("Squeeze", g.op("Max", length, total), axes=[0])
    new = g.size(heads, 2)
    steps = positions(g, count)
    # A valid position at or after the past reads the new heads, which follow the whole buffer in `both`.
    offsets = g.op("Sub", steps, past_counts)
    ends = g.op("Add", past_counts, new)
    is_valid = g.op("Less", steps, ends)
    behind = g.op("Add", g.op("Where", is_valid, offsets, g.constant(0)), length)
    sources = g.op("Where", g.op("Less", steps, past_counts), steps, behind)
    both = g.op("Concat", past, heads, axis=2)
    # Gather exists at every opset, and GatherElements from 11 on.
    if g.size(past, 0) == 1:
        joined = g.op("Gather", both, g.op("Squeeze", sources, axes=[0]), axis=2)
    else:
        sizes = g.stack([g.size(past, 0), g.size(past, 1), count, g.size(past, 3)])
        joined = g.op("GatherElements", both, g.op("Expand", _over_heads(g, sources), sizes), axis=2)
    # The kernel clears what follows the valid positions.
    return g.op("Mul", joined, g.cast(_over_heads(g, is_valid), dtype_of(g, joined)))


def _over_heads(g: GraphContext, rows: Value) -> Value:
    """Rows of [batch, length], to broadcast over [batch, heads, length, head size]."""
    return g.op("Unsqueeze", rows, axes=[1, 3])


@microsoft_symbolic("GroupQueryAttention")
def group_query_attention(
    g: GraphContext,
    query: Value,
    key: Value | None,
    value: Value | None,
    past_key: Value | None,
    past_value: Value | None,
    seqlens_k: Value,
    total_sequence_length: Value,
    cos_cache: Value | None = None,
    sin_cache: Value | None = None,
    position_ids: Value | None = None,
    attention_bias: Value | None = None,
    head_sink: Value | None = None,
    num_heads: int = 1,
    kv_num_heads: int = 1,
    scale: float | None = None,
    do_rotary: int = 0,
    rotary_interleaved: int = 0,
    local_window_size: int = -1,
    softcap: float = 0.0,
    smooth_softmax: int = 0,
    causal: int = 1,
    qk_output: int = 0,
    sliding_window_cache: int = 0,
    kv_cache_bit_width: int = 0,
    k_quant_type: str = "NONE",
    v_quant_type: str = "NONE",
    q_norm_epsilon: float = 0.0,
    k_norm_epsilon: float = 0.0,
    qk_norm_epsilon: float = 0.0,
) -> list[Value]:
    """Sequences may have several lengths: their padding is on the right, and gets other results."""
    refuse_arguments(
        g,
        position_ids=position_ids,
        qk_output=qk_output,
        sliding_window_cache=sliding_window_cache,
        kv_cache_bit_width=kv_cache_bit_width,
        acausal=1 - causal,
    )
    if k_quant_type != "NONE" or v_quant_type != "NONE":
        raise g.refuse("quantized past keys and values are not supported")
    query, key, value = _heads_of(g, query, key, value, num_heads, kv_num_heads)
    rows, past_counts, total = _positions_of(g, g.size(query, 2), past_key, seqlens_k, total_sequence_length)
    if do_rotary:
        if cos_cache is None or sin_cache is None:
            raise g.refuse("inputs 'cos_cache' and 'sin_cache' are missing")
        query = _rotate(g, query, rows, (cos_cache, sin_cache), rotary_interleaved)
        key = _rotate(g, key, rows, (cos_cache, sin_cache), rotary_interleaved)
    if past_counts is not None and past_key is not None and past_value is not None:
        key = _join_past(g, past_key, key, past_counts, total)
        value = _join_past(g, past_value, value, past_counts, total)
    present = [key, value]
    if past_counts is not None and attention_bias is not None:
        # A buffer of past keys may be longer than all sequences, which the bias is for.
        axis = g.constant([2])
        key, value = (g.op("Slice", heads, starts=[0], ends=total, axes=axis) for heads in present)
    if num_heads != kv_num_heads:
        # A matrix product with broadcast heads would need five dimensions, which many devices lack.
        owners = [head * kv_num_heads // num_heads for head in range(num_heads)]
        key, value = (g.op("Gather", heads, owners, axis=1) for heads in (key, value))
    scores = compute_scores(g, query, key, scale)
    if softcap:
        scores = g.op("Mul", g.op("Tanh", g.op("Div", scores, softcap)), softcap)
    if attention_bias is not None:
        scores = g.op("Add", scores, attention_bias)
    scores = _mask_outside_window(g, scores, rows, local_window_size)
    weights = _softmax_with_sink(g, scores, head_sink, smooth_softmax)
    return [merge_heads(g, g.op("MatMul", weights, value)), *present]


def _positions_of(
    g: GraphContext, count: Size, past_key: Value | None, seqlens_k: Value, total_sequence_length: Value
) -> tuple[Value, Value | None, Value]:
    """The positions of queries, [batch, count]; the numbers of past positions, if any; the total length."""
    total = g.cast(g.op("Reshape", total_sequence_length, [1]), DataType.INT64)
    steps = positions(g, count)
    if past_key is None or g.size(past_key, 2) == 0:
        return g.op("Unsqueeze", steps, axes=[0]), None, total
    ends = g.op("Add", g.cast(g.op("Reshape", seqlens_k, [-1, 1]), DataType.INT64), 1)
    # A first prompt has no past, also where its entries are shorter than their padded length.
    is_prompt = g.op("Equal", total, count)
    past_counts = g.op("Where", is_prompt, g.constant([[0]]), g.op("Sub", ends, count))
    return g.op("Add", steps, past_counts), past_counts, total


def _heads_of(
    g: GraphContext, query: Value, key: Value | None, value: Value | None, count: int, kv_count: int
) -> list[Value]:
    """The heads of queries, keys and values, which may be packed in one tensor."""
    if key is None or value is None:
        packed = split_heads(g, query, count + 2 * kv_count)
        return g.op("Split", packed, axis=1, split=[count, kv_count, kv_count], outputs=3)
    return [split_heads(g, query, count), *(split_heads(g, tensor, kv_count) for tensor in (key, value))]


def _mask_outside_window(g: GraphContext, scores: Value, rows: Value, window: int) -> Value:
    """Give keys after the query, and those too far before it, the lowest score.

    Args:
        rows: the positions of the queries, [batch, length].
        window: how many keys a query attends to; -1 for all before it.
    """
    keys, position = positions(g, g.size(scores, 3)), g.op("Unsqueeze", rows, axes=[1, 3])
    masked = g.op("Greater", keys, position)
    if window > 0:
        masked = g.op("Or", masked, g.op("Less", keys, g.op("Sub", position, window - 1)))
    return g.op("Where", masked, lowest_score(g, scores), scores)


def _softmax_with_sink(g: GraphContext, scores: Value, head_sink: Value | None, smooth: int) -> Value:
    """Softmax with a further score for every head in its denominator, 0 if it is smooth without one."""
    if head_sink is None and not smooth:
        return g.op("Softmax", scores, axis=-1)
    # A product with 0 has the sizes of the scores, also where these are dynamic; all scores are finite.
    column = g.op("Mul", leading(g, scores, 1), 0.0)
    if head_sink is not None:
        column = g.op("Add", column, g.op("Reshape", head_sink, [-1, 1, 1]))
    weights = g.op("Softmax", g.op("Concat", scores, column, axis=3), axis=-1)
    return leading(g, weights, g.size(scores, 3))
