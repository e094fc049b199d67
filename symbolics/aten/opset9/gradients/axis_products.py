"""Matrix products along one axis."""

from .....registration import GraphContext, Value


def multiply_along(g: GraphContext, value: Value, axis: int, rank: int, matrix: Value) -> Value:
    """A product with a matrix `[before, after]` along one axis."""
    if axis == rank - 1:
        return g.op("MatMul", value, matrix)
    # MatMul works on the last dimension.
    perm = [*(dim for dim in range(rank) if dim != axis), axis]
    inverse_perm = [*range(axis), rank - 1, *range(axis, rank - 1)]
    product = g.op("MatMul", g.op("Transpose", value, perm=perm), matrix)
    return g.op("Transpose", product, perm=inverse_perm)
