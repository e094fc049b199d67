"""Matrix products along one axis."""

from .....registration import GraphContext, Value


def along(g: GraphContext, value: Value, axis: int, rank: int, matrix: Value) -> Value:
    """A product with a matrix `[before, after]` along one axis."""
    if axis == rank - 1:
        return g.op("MatMul", value, matrix)
    perm = [*(other for other in range(rank) if other != axis), axis]
    back = [*range(axis), rank - 1, *range(axis, rank - 1)]
    moved = g.op("MatMul", g.op("Transpose", value, perm=perm), matrix)
    return g.op("Transpose", moved, perm=back)
