"""Scaled dot-product attention, composed from matrix products and Softmax."""

import math

from .....registration import DataType, GraphContext, Value, onnx_symbolic
from .....registration.dtypes import limits


def _scale_query(g: GraphContext, query: Value, scale: float | None) -> Value:
    """The query times `scale`, by default one over the square root of its last size."""
    if scale is None:
        features = g.size(query, -1)
        if isinstance(features, Value):
            dtype = g.dtype(query) or DataType.FLOAT
            return g.op("Div", query, g.op("Sqrt", g.cast(features, dtype)))
        scale = 1 / math.sqrt(features)
    return g.op("Mul", query, scale)


def _causal_bias(g: GraphContext, query: Value, key: Value, dtype: DataType) -> Value:
    """A bias of minus infinity for keys after the query, with both counted from the first (top-left)."""
    rows, columns = (
        g.call("aten::arange", end=g.size(value, -2), dtype=DataType.INT64) for value in (query, key)
    )
    later = g.op("Less", g.op("Unsqueeze", rows, axes=[1]), g.op("Unsqueeze", columns, axes=[0]))
    return _bias(g, later, -math.inf, 0.0, dtype)


def _bias(g: GraphContext, condition: Value, true: float, false: float, dtype: DataType) -> Value:
    return g.op("Where", condition, g.constant(true, dtype), g.constant(false, dtype))


def _repeat_heads(g: GraphContext, value: Value, heads: int, group: int) -> Value:
    """Repeat each head (third dimension from the end) `group` times in a row."""
    rank = g.rank(value)
    if rank is None:
        raise g.refuse("the ranks of query, key and value must be known")
    features = g.size(value, -1)
    tail = [-1, features] if isinstance(features, int) else [g.size(value, -2), features]
    # A new dimension after the heads is expanded and merged with them, which repeats each head in place.
    copies = g.op("Expand", g.op("Unsqueeze", value, axes=[rank - 2]), [group, 1, 1])
    return g.op("Reshape", copies, [*[0] * (rank - 3), heads, *tail])


def _match_heads(g: GraphContext, query: Value, key: Value, value: Value) -> tuple[Value, Value]:
    """Keys and values with the number of heads of the query, for grouped-query attention."""
    heads = g.size(query, -3)
    if not isinstance(heads, int):
        raise g.refuse("the number of query heads must be known for enable_gqa")
    matched = []
    for tensor in (key, value):
        tensor_heads = g.size(tensor, -3)
        if not isinstance(tensor_heads, int):
            raise g.refuse("the number of key and value heads must be known for enable_gqa")
        matched.append(
            tensor if tensor_heads == heads else _repeat_heads(g, tensor, heads, heads // tensor_heads)
        )
    return matched[0], matched[1]


def _mask_bias(g: GraphContext, mask: Value, dtype: DataType) -> tuple[Value, Value]:
    """The mask as a bias on the scores, and whether a row is masked completely."""
    bias = _bias(g, mask, 0.0, -math.inf, dtype) if g.dtype(mask) == DataType.BOOL else g.cast(mask, dtype)
    rank = g.rank(bias)
    axis = -1 if rank is None else rank - 1
    highest = g.op("ReduceMax", bias, axes=[axis], keepdims=1)
    # Below the lowest finite number there is only minus infinity.
    return bias, g.op("Less", highest, limits(dtype)[0])


def _fits(g: GraphContext, query: Value, key: Value, value: Value) -> bool:
    """Whether Attention supports the shapes: [N, heads, length, features], as many keys as values."""
    shapes = [g.shape(tensor) for tensor in (query, key, value)]
    if any(shape is None or len(shape) != 4 for shape in shapes) or g.dtype(query) == DataType.BFLOAT16:
        return False
    q, k, v = shapes
    differing = [(q[0], k[0]), (k[0], v[0]), (k[1], v[1])]  # type: ignore[index]
    return not any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in differing)


def _full_mask(g: GraphContext, mask: Value, query: Value, key: Value) -> Value | None:
    """Expand the last two dimensions of the mask, which onnxruntime's Attention does not broadcast.

    None if their sizes are unknown.
    """
    shape = g.shape(mask)
    if shape is None or len(shape) < 2:
        return None
    target: list[int | Value] = []
    for size, tensor in ((shape[-2], query), (shape[-1], key)):
        full = g.shape(tensor)[2]  # type: ignore[index]
        if size == full and (isinstance(size, int) or size.value is not None):
            target.append(1)
        elif size == 1:
            target.append(g.size(tensor, 2))
        else:
            return None
    return mask if target == [1, 1] else g.op("Expand", mask, target)


@onnx_symbolic("aten::scaled_dot_product_attention")
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
    """ATen's math path: a completely masked row gives zeros (`_safe_softmax`); dropout acts on the weights.

    Attention is written where onnxruntime has its kernel: without a cache its causal mask is aligned at the
    top left, as in ATen.
    """
    if is_causal and attn_mask is not None:
        raise g.refuse("attn_mask and is_causal exclude each other")
    positive = scale is None or scale > 0
    has_operator = g.has("Attention") and g.has_kernel("Attention", query)
    if has_operator and positive and not dropout_p and _fits(g, query, key, value):
        mask = None if attn_mask is None else _full_mask(g, attn_mask, query, key)
        if attn_mask is None or mask is not None:
            return g.op("Attention", query, key, value, mask, is_causal=int(is_causal) or None, scale=scale)
    rank = g.rank(key)
    if rank is None:
        raise g.refuse("the rank of the key must be known")
    if enable_gqa:
        key, value = _match_heads(g, query, key, value)
    transposed = g.op("Transpose", key, perm=[*range(rank - 2), rank - 1, rank - 2])
    scores = g.op("MatMul", _scale_query(g, query, scale), transposed)
    dtype = g.dtype(query) or DataType.FLOAT
    empty = None
    if is_causal:
        scores = g.op("Add", scores, _causal_bias(g, query, key, dtype))
    elif attn_mask is not None:
        bias, empty = _mask_bias(g, attn_mask, dtype)
        scores = g.op("Add", scores, bias)
    weights = g.op("Softmax", scores, axis=rank - 1)
    if dropout_p:
        weights = g.call("aten::dropout", input=weights, p=dropout_p, train=True)
    result = g.op("MatMul", weights, value)
    return result if empty is None else g.op("Where", empty, g.constant(0.0, dtype), result)


@onnx_symbolic("aten::_scaled_dot_product_flash_attention_for_cpu")
def _scaled_dot_product_flash_attention_for_cpu(
    g: GraphContext,
    query: Value,
    key: Value,
    value: Value,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    attn_mask: Value | None = None,
    scale: float | None = None,
) -> tuple[Value, None]:
    if len(g.expected) > 1 and g.expected[1].uses():
        raise g.refuse("its output logsumexp is not supported")
    name = "aten::scaled_dot_product_attention"
    return g.call(name, query, key, value, attn_mask, dropout_p, is_causal, scale), None
