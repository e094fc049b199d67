"""Norms limited to a maximum: renorm, and the used rows of embeddings.

Semantics: aten/src/ATen/native/Normalization.cpp (renorm) and Embedding.cpp (embedding_renorm).
"""

from .....registration import DataType, GraphContext, Number, Value, onnx_symbolic
from ....compositions.size_arithmetic import axis, known_rank

_EPSILON = 1e-7


@onnx_symbolic("aten::renorm")
def renorm(g: GraphContext, self: Value, p: Number, dim: int, maxnorm: Number) -> Value:
    """Scale slices along a dim down to the maximum norm; norms of half precision are computed in FLOAT."""
    dimension, dtype = axis(g, self, dim), g.dtype(self)
    half = dtype not in (DataType.FLOAT, DataType.DOUBLE, None)
    wide = g.cast(self, DataType.FLOAT) if half else self
    axes = [i for i in range(known_rank(g, self)) if i != dimension]
    norm = g.call("aten::linalg_vector_norm", wide, p, axes, True)
    factor = g.op("Div", float(maxnorm), g.op("Add", norm, _EPSILON))
    # Slices within the maximum are not scaled up.
    factor = g.op("Where", g.op("Greater", norm, float(maxnorm)), factor, 1.0)
    return g.op("Mul", self, g.cast(factor, dtype) if half and dtype is not None else factor)


@onnx_symbolic("aten::embedding_renorm")
def embedding_renorm(
    g: GraphContext, self: Value, indices: Value, max_norm: float, norm_type: float
) -> Value:
    """The table with the indexed rows renormalized."""
    index = g.op("Reshape", g.cast(indices, DataType.INT64), [-1])
    # Marks rows that the index names, however often it names them.
    unmarked = g.call("composed::full", size=[g.size(self, 0)], fill_value=0, dtype=DataType.INT64)
    unit = g.call("aten::full_like", index, 1, dtype=DataType.INT64)
    is_indexed = g.call("composed::write_rows", self=unmarked, index=index, values=unit)
    is_indexed = g.op("Unsqueeze", g.cast(is_indexed, DataType.BOOL), axes=[1])
    return g.op("Where", is_indexed, g.call("aten::renorm", self, norm_type, 0, max_norm), self)
