"""Normalisation below the opsets where its operators begin."""

from ...registration import DataType, GraphContext, Value, onnx_symbolic
from ..compositions.sizes import known_rank


@onnx_symbolic("onnx::LayerNormalization", opset=9)
def layer_normalization(
    g: GraphContext,
    X: Value,
    Scale: Value,
    B: Value | None = None,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> list[Value]:
    """Below 17: centred and scaled in the type of the stash."""
    rank = known_rank(g, X)
    axes = list(range(axis % rank, rank))
    own, wide = g.dtype(X), DataType(stash_type)
    data = g.cast(X, wide) if own is not None else X
    mean = g.op("ReduceMean", data, axes=axes, keepdims=1)
    apart = g.op("Sub", data, mean)
    spread = g.op("ReduceMean", g.op("Mul", apart, apart), axes=axes, keepdims=1)
    root = g.op("Sqrt", g.op("Add", spread, epsilon))
    scaled = g.op("Div", apart, root)
    scaled = g.cast(scaled, own) if own is not None else scaled
    result = g.op("Mul", scaled, Scale)
    return [result if B is None else g.op("Add", result, B), mean, g.op("Div", 1.0, root)]
