"""Distances between the rows of one tensor."""

import numpy as np

from .....registration import GraphContext, Value, onnx_symbolic
from ....compositions.size_arithmetic import compute, where_true


@onnx_symbolic(["aten::pdist", "aten::_pdist_forward"])
def pdist(g: GraphContext, self: Value, p: float = 2) -> Value:
    """The norms of the differences of each row and each later row, `[N * (N - 1) / 2]`."""
    # Gathers both rows of each pair, half of the work of a full matrix of distances.
    first, second = g.call_outputs("composed::pairs", g.size(self, 0))
    rows = [g.op("Gather", self, positions, axis=0) for positions in (first, second)]
    return g.call("aten::linalg_vector_norm", g.op("Sub", *rows), p, [1])


@onnx_symbolic("composed::pairs")
def pairs(g: GraphContext, count: int | Value) -> tuple[Value, Value]:
    """The first and the second numbers of all pairs below a count, row by row."""
    if isinstance(count, int):
        pair_rows, pair_columns = np.triu_indices(count, 1)
        return g.constant(pair_rows), g.constant(pair_columns)
    numbers = g.call("sym::range", start=0, end=count)
    later = g.op("Less", g.op("Unsqueeze", numbers, axes=[1]), numbers)
    positions = where_true(g, g.op("Reshape", later, [-1]))
    # Keeps the divisor above 0 if there are no rows.
    rows = compute(g, "max", count, 1)
    first = g.op("Div", positions, rows)
    return first, g.op("Sub", positions, g.op("Mul", first, rows))
