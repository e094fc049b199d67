"""The fused kernels of `scaled_dot_product_attention` on GPUs: FlashAttention, memory-efficient, cuDNN.

Semantics: `sdp_utils.cpp` and `native/transformers/cuda/attention.cu` in ATen. They differ from the operator
of every device in their arguments, and in where a causal mask begins. Their further results, sums of
exponentials and states of random generators, are for gradients, and not supported.
"""

from collections.abc import Sequence

from .....registration import DataType, GraphContext, Value, onnx_symbolic
from ....compositions.size_arithmetic import compute, dimension, same_size

_SDPA = "aten::scaled_dot_product_attention"


def _attend(
    g: GraphContext,
    tensors: Sequence[Value],
    bias: Value | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
) -> Value:
    """The attention of `[N, heads, length, features]`; query heads may share heads of keys and values."""
    query, key, value = tensors
    if is_causal and bias is not None:
        is_causal, bias = False, g.op("Add", bias, _window(g, query, key, None, 0, aligned_at_end=False))
    heads = {count for tensor in tensors if isinstance(count := g.size(tensor, 1), int)}
    shares_heads = len(heads) > 1
    return g.call(_SDPA, query, key, value, bias, dropout_p, is_causal, scale, shares_heads)


def _window(
    g: GraphContext, query: Value, key: Value, before: int | None, after: int | None, aligned_at_end: bool
) -> Value:
    """A bias of minus infinity for keys outside of a window around the position of the query.

    Args:
        query, key: `[N, heads, length, features]`.
        before, after: the number of keys on each side; None is all.
        aligned_at_end: the last query is at the last key; otherwise the first ones are at the same position.
    """
    lengths = [g.size(tensor, 2) for tensor in (query, key)]
    rows, columns = (g.call("aten::arange", end=length, dtype=DataType.INT64) for length in lengths)
    if aligned_at_end:
        rows = g.op("Add", rows, g.constant(compute(g, "sub", lengths[1], lengths[0])))
    distance = g.op("Sub", g.op("Unsqueeze", columns, axes=[0]), g.op("Unsqueeze", rows, axes=[1]))
    outside = [] if after is None else [g.op("Greater", distance, after)]
    if before is not None:
        outside.append(g.op("Less", distance, -before))
    is_masked = outside[0] if len(outside) == 1 else g.op("Or", *outside)
    dtype = g.dtype(query) or DataType.FLOAT
    return g.op("Where", is_masked, g.constant(-float("inf"), dtype), g.constant(0.0, dtype))


def _causal_from_end(g: GraphContext, query: Value, key: Value, is_causal: bool) -> tuple[Value | None, bool]:
    """FlashAttention's causal mask, which ends at the last key: a bias, or whether it is the usual mask."""
    if not is_causal or same_size(*(dimension(g.size(tensor, 2)) for tensor in (query, key))):
        return None, is_causal
    return _window(g, query, key, None, 0, aligned_at_end=True), False


@onnx_symbolic("aten::_scaled_dot_product_flash_attention.default")
def _scaled_dot_product_flash_attention(
    g: GraphContext,
    query: Value,
    key: Value,
    value: Value,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    scale: float | None = None,
) -> list[Value]:
    bias, is_causal = _causal_from_end(g, query, key, is_causal)
    return [_attend(g, (query, key, value), bias, dropout_p, is_causal, scale)]


@onnx_symbolic(
    [
        "aten::_scaled_dot_product_efficient_attention",
        "aten::_scaled_dot_product_cudnn_attention",
        "aten::_scaled_dot_product_fused_attention_overrideable",
    ]
)
def _scaled_dot_product_cudnn_attention(
    g: GraphContext,
    query: Value,
    key: Value,
    value: Value,
    attn_bias: Value | None = None,
    compute_log_sumexp: bool = False,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    scale: float | None = None,
) -> list[Value]:
    """The causal mask begins at the first key, also beside a bias."""
    return [_attend(g, (query, key, value), attn_bias, dropout_p, is_causal, scale)]


def _heads_first(g: GraphContext, *tensors: Value) -> list[Value]:
    """`[N, length, heads, features]` as `[N, heads, length, features]`, or the reverse."""
    return [g.op("Transpose", tensor, perm=[0, 2, 1, 3]) for tensor in tensors]


@onnx_symbolic("aten::_flash_attention_forward.default")
def _flash_attention_forward(
    g: GraphContext,
    query: Value,
    key: Value,
    value: Value,
    cum_seq_q: Value | None,
    cum_seq_k: Value | None,
    max_q: int | Value,
    max_k: int | Value,
    dropout_p: float,
    is_causal: bool,
    return_debug_mask: bool,
    scale: float | None = None,
    window_size_left: int | None = None,
    window_size_right: int | None = None,
    seqused_k: Value | None = None,
    alibi_slopes: Value | None = None,
    block_table: Value | None = None,
    num_splits: int | None = None,
) -> list[Value]:
    """Of tensors `[N, length, heads, features]`. A negative window is unlimited."""
    unsupported = {
        "cum_seq_q": cum_seq_q,
        "cum_seq_k": cum_seq_k,
        "seqused_k": seqused_k,
        "alibi_slopes": alibi_slopes,
        "block_table": block_table,
    }
    names = [name for name, argument in unsupported.items() if argument is not None]
    if names:
        raise g.refuse(f"its argument {names[0]} is not supported: pad the sequences, or use a nested tensor")
    tensors = _heads_first(g, query, key, value)
    sides = [None if size is None or size < 0 else size for size in (window_size_left, window_size_right)]
    bias, is_masked = _causal_from_end(g, tensors[0], tensors[1], is_causal)
    if sides != [None, None]:
        # A causal mask is a window without later keys.
        before, after = sides[0], 0 if is_causal else sides[1]
        bias, is_masked = _window(g, tensors[0], tensors[1], before, after, aligned_at_end=True), False
    output = _attend(g, tensors, bias, dropout_p, is_masked, scale)
    return _heads_first(g, output)


@onnx_symbolic("aten::_efficient_attention_forward")
def _efficient_attention_forward(
    g: GraphContext,
    query: Value,
    key: Value,
    value: Value,
    bias: Value | None,
    cu_seqlens_q: Value | None,
    cu_seqlens_k: Value | None,
    max_seqlen_q: int | Value | None,
    max_seqlen_k: int | Value | None,
    dropout_p: float,
    custom_mask_type: int,
    compute_log_sumexp: bool = False,
    scale: float | None = None,
    seqlen_k: Value | None = None,
    window_size: int | None = None,
) -> list[Value]:
    """Of tensors `[N, length, heads, features]`. Mask type 1 is causal from the first key, 2 to the last."""
    if cu_seqlens_q is not None or seqlen_k is not None or window_size is not None:
        raise g.refuse("sequences of several lengths, and windows, are not supported: pad the sequences")
    tensors = _heads_first(g, query, key, value)
    if custom_mask_type == 2:
        window = _window(g, tensors[0], tensors[1], None, 0, aligned_at_end=True)
        bias = window if bias is None else g.op("Add", bias, window)
    output = _attend(g, tensors, bias, dropout_p, custom_mask_type == 1, scale)
    return _heads_first(g, output)


@onnx_symbolic("aten::_cudnn_attention_forward")
def _cudnn_attention_forward(
    g: GraphContext,
    query: Value,
    key: Value,
    value: Value,
    attn_bias: Value | None,
    cum_seq_q: Value | None,
    cum_seq_k: Value | None,
    max_q: int | Value,
    max_k: int | Value,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    scale: float | None = None,
) -> list[Value]:
    """Of tensors `[N, heads, length, features]`."""
    if cum_seq_q is not None or cum_seq_k is not None:
        raise g.refuse("sequences of several lengths are not supported: pad the sequences")
    return [_attend(g, (query, key, value), attn_bias, dropout_p, is_causal, scale)]
