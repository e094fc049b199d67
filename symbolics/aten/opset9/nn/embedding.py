"""Bags of embeddings: sums, means and maxima of rows of a table."""

from .....registration import DataType, GraphContext, Value, onnx_symbolic
from ....compositions.outputs import is_used
from ....compositions.size_arithmetic import compute, known_rank

_SUM, _MEAN, _MAX = range(3)


@onnx_symbolic(["aten::embedding_bag", "aten::_embedding_bag", "aten::_embedding_bag_forward_only"])
def embedding_bag(
    g: GraphContext,
    weight: Value,
    indices: Value,
    offsets: Value,
    scale_grad_by_freq: bool = False,
    mode: int = _SUM,
    sparse: bool = False,
    per_sample_weights: Value | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = -1,
) -> list[Value]:
    """A bag has the indices from its offset to the next one; indices equal to `padding_idx` do not count.

    The result of an empty bag is 0. The other three results are for gradients, and are not supported.
    """
    if is_used(g, 1, 2, 3):
        raise g.refuse("the outputs of embedding_bag for its gradient are not supported")
    positions, starts = g.cast(indices, DataType.INT64), g.cast(offsets, DataType.INT64)
    # An additional bag, which is dropped, takes the padding and the indices behind the last offset.
    bags = compute(g, "sub", g.size(starts, 0), int(include_last_offset))
    count = g.size(positions, 0)
    numbers = g.call("sym::range", start=0, end=count)
    started = g.call("aten::le", g.op("Unsqueeze", starts, axes=[1]), numbers)
    bag = g.op("Sub", g.op("ReduceSum", g.cast(started, DataType.INT64), axes=[0], keepdims=0), 1)
    # -1 means no padding; in the overload that takes an index or None it is the last row.
    is_index = g.node is not None and g.node.overload == "padding_idx"
    if padding_idx is not None and (padding_idx != -1 or is_index):
        padding = compute(g, "mod", padding_idx, g.size(weight, 0))
        bag = g.op("Where", g.op("Equal", positions, padding), g.constant(bags, DataType.INT64), bag)
    rows = g.op("Gather", weight, positions)
    if per_sample_weights is not None:
        rows = g.op("Mul", rows, g.op("Unsqueeze", per_sample_weights, axes=[1]))
    result = _reduce_bags(g, rows, bag, bags, g.size(weight, 1), mode)
    # They are not computed, but have the type that PyTorch's kernel declares.
    declared = [output.dtype for output in g.expected[1:]]
    empty = g.constant([], (declared[0] if declared else None) or DataType.INT64)
    return [result, empty, empty, empty][: max(len(g.expected), 1)]


def _reduce_bags(
    g: GraphContext, rows: Value, bag: Value, bags: int | Value, width: int | Value, mode: int
) -> Value:
    dtype = g.dtype(rows) or DataType.FLOAT
    table_sizes = [compute(g, "add", bags, 1), width]
    if mode != _MAX:
        zeros = g.call("composed::full", size=table_sizes, fill_value=0, dtype=dtype)
        total = g.call("composed::accumulate_rows", zeros, bag, rows)
        total = g.call("aten::slice", self=total, dim=0, start=0, end=bags)
        if mode == _SUM:
            return total
    unit_counts = g.call("aten::full_like", bag, 1, dtype=dtype)
    none = g.call("composed::full", size=table_sizes[:1], fill_value=0, dtype=dtype)
    sizes = g.call("composed::accumulate_rows", none, bag, unit_counts)
    sizes = g.op("Unsqueeze", g.call("aten::slice", self=sizes, dim=0, start=0, end=bags), axes=[1])
    # An empty bag has a sum of 0: dividing by 1 keeps it.
    if mode == _MEAN:
        return g.op("Div", total, g.call("aten::clamp_min", sizes, 1))
    lowest = g.call("composed::full", size=table_sizes, fill_value=float("-inf"), dtype=dtype)
    index = g.call("aten::expand_as", g.op("Unsqueeze", bag, axes=[1]), rows)
    largest = g.call("composed::scatter_reduce", lowest, 0, index, rows, "max")
    largest = g.call("aten::slice", self=largest, dim=0, start=0, end=bags)
    assert known_rank(g, sizes) == 2
    return g.op("Where", g.op("Greater", sizes, 0.0), largest, 0.0)
