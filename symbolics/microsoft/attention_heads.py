"""Attention over heads: what Attention, MultiHeadAttention and GroupQueryAttention have in common.

Tensors of heads have the shape [batch, heads, length, head size].
"""

import math

from ...registration import DataType, GraphContext, Value, dtypes
from ..compositions.matrices import dtype_of, positions
from ..compositions.size_arithmetic import Size, compute, same_size

MASK_FILTER = -10000.0
"""The default of `mask_filter_value`, which is added to the scores of masked keys."""


def split_heads(g: GraphContext, value: Value, count: int) -> Value:
    """Heads of a tensor of [batch, length, heads * head size]."""
    return g.op("Transpose", g.op("Reshape", value, [0, 0, count, -1]), perm=[0, 2, 1, 3])


def merge_heads(g: GraphContext, heads: Value) -> Value:
    return g.op("Reshape", g.op("Transpose", heads, perm=[0, 2, 1, 3]), [0, 0, -1])


def compute_scores(g: GraphContext, query: Value, key: Value, scale: float | None) -> Value:
    """The scaled products of queries and keys.

    Args:
        scale: the factor; 0 or None for `1 / sqrt(head size)`.
    """
    product = g.op("MatMul", query, g.op("Transpose", key, perm=[0, 1, 3, 2]))
    # onnxruntime reads a scale of 0 as none.
    if scale:
        return g.op("Mul", product, scale)
    size = g.size(query, -1)
    if isinstance(size, int):
        return g.op("Mul", product, 1 / math.sqrt(size))
    # The root of a size is computed in FLOAT, because half precision does not hold all sizes.
    root = g.op("Sqrt", g.cast(size, DataType.FLOAT))
    return g.op("Div", product, g.cast(root, dtype_of(g, product)))


def lowest_score(g: GraphContext, scores: Value) -> Value:
    """The lowest finite number of the scores' element type."""
    dtype = dtype_of(g, scores)
    return g.constant(dtypes.limits(dtype)[0], dtype)


def mask_future(g: GraphContext, scores: Value, past: Size) -> Value:
    """Give keys after the query's position the lowest score.

    Args:
        past: the position of the first query.
    """
    rows = g.op("Add", positions(g, g.size(scores, 2)), past)
    later = g.op("Greater", positions(g, g.size(scores, 3)), g.op("Unsqueeze", rows, axes=[1]))
    return g.op("Where", later, lowest_score(g, scores), scores)


def add_padding_mask(g: GraphContext, scores: Value, mask: Value | None, filter_value: float) -> Value:
    """Add the filter value to the scores of keys that a mask excludes.

    Args:
        mask: nonzero for keys to attend to, [batch, keys] or [batch, queries, keys]; or the end of every
            sequence, [batch], optionally with the starts after the ends.
    """
    if mask is None:
        return scores
    rank = g.rank(mask)
    if rank == 1:
        keeps = _keys_between(g, scores, mask)
    elif rank in (2, 3):
        keeps = g.op("Unsqueeze", g.op("Greater", mask, 0), axes=[1, 2] if rank == 2 else [1])
    else:
        raise g.refuse("the mask must have one, two or three dimensions")
    dtype = dtype_of(g, scores)
    return g.op("Add", scores, g.op("Where", keeps, g.constant(0.0, dtype), g.constant(filter_value, dtype)))


def _keys_between(g: GraphContext, scores: Value, bounds: Value) -> Value:
    """Whether each key lies before the end of its sequence, and not before its start if that is stated."""
    [count], batch = g.shape(bounds) or [None], (g.shape(scores) or [None])[0]
    keys = positions(g, g.size(scores, 3))
    bounds = g.cast(bounds, DataType.INT64)
    if count is not None and batch is not None and same_size(count, batch):
        before = g.op("Less", keys, g.op("Unsqueeze", bounds, axes=[1]))
        return g.op("Unsqueeze", before, axes=[1, 2])
    if isinstance(count, int) and isinstance(batch, int) and count != 2 * batch:
        raise g.refuse("a mask of one dimension must have as many elements as the batch, or twice as many")
    # The vector has all ends first, and then all starts. Unknown sizes may mean that it has no starts: 0.
    rows = g.op("Reshape", bounds, g.stack([-1, g.size(scores, 0)]))
    columns = g.op("Transpose", g.op("Concat", rows, g.op("Mul", rows, 0), axis=0), perm=[1, 0])
    ends, starts = (
        g.op("Slice", columns, starts=[position], ends=[position + 1], axes=[1]) for position in (0, 1)
    )
    before = g.op("Less", keys, ends)
    inside = g.op("And", before, g.op("Not", g.op("Less", keys, starts)))
    return g.op("Unsqueeze", inside, axes=[1, 2])


def append_to_past(g: GraphContext, past: Value | None, heads: Value) -> Value:
    return heads if past is None else g.op("Concat", past, heads, axis=2)


def attend(
    g: GraphContext,
    query: Value,
    key: Value,
    value: Value,
    mask: Value | None,
    bias: Value | None,
    *,
    past: Size | None,
    scale: float | None,
    filter_value: float,
) -> tuple[Value, Value]:
    """Attention of one head per query head; the result has its heads merged, and the weights follow.

    Args:
        past: the position of the first query if later keys are masked, else None.
    """
    scores = add_padding_mask(g, compute_scores(g, query, key, scale), mask, filter_value)
    if bias is not None:
        scores = g.op("Add", scores, bias)
    # After the padding, so that a row without any key still ignores later ones, as in the kernel.
    if past is not None:
        scores = mask_future(g, scores, past)
    weights = g.op("Softmax", scores, axis=-1)
    return merge_heads(g, g.op("MatMul", weights, value)), weights


def past_length(g: GraphContext, past: Value | None, unidirectional: int) -> Size | None:
    """The position of the first query where later keys are masked, else None."""
    if not unidirectional:
        return None
    return 0 if past is None else compute(g, "add", g.size(past, -2), 0)
