"""Operations on sets: the elements of each row of the last dimension."""

from ....registration import DataType, GraphContext, Value, onnx_symbolic
from ...compositions.size_arithmetic import known_rank, product, sizes_of
from .._common import flatten, set_shape
from .positions import flat_positions, sparse_sizes

_OPERATIONS = ("a-b", "b-a", "intersection", "union")


@onnx_symbolic("tf::DenseToDenseSetOperation")
def dense_to_dense_set_operation(
    g: GraphContext, set1: Value, set2: Value, set_operation: str, validate_indices: bool = True
) -> list[Value]:
    """The positions, the sorted elements and the dense shape of the sets; duplicates count once."""
    if set_operation not in _OPERATIONS:
        raise g.refuse(f"set_operation '{set_operation}' is none of {', '.join(_OPERATIONS)}")
    dtype = g.dtype(set1) or DataType.INT64
    if dtype == DataType.STRING:
        raise g.refuse("sets of strings are not supported")
    rank = known_rank(g, set1)
    first, second = g.cast(set1, DataType.INT64), g.cast(set2, DataType.INT64)
    candidates, _ = g.call_outputs("aten::sort", g.op("Concat", first, second, axis=rank - 1), rank - 1)
    # Each candidate is compared with the members of its row, because ONNX has no search in rows.
    in_first, in_second = _is_in(g, candidates, first), _is_in(g, candidates, second)
    belongs = {
        "a-b": lambda: g.op("And", in_first, g.op("Not", in_second)),
        "b-a": lambda: g.op("And", in_second, g.op("Not", in_first)),
        "intersection": lambda: g.op("And", in_first, in_second),
        "union": lambda: g.op("Or", in_first, in_second),
    }[set_operation]()
    # Sorted elements: one that equals its predecessor is a duplicate.
    before = g.call("aten::slice", self=candidates, dim=rank - 1, start=0, end=-1)
    after = g.call("aten::slice", self=candidates, dim=rank - 1, start=1)
    differs = g.op("Not", g.op("Equal", before, after))
    head = g.call("aten::slice", self=candidates, dim=rank - 1, start=0, end=1)
    is_first = g.op("Concat", g.op("Equal", head, head), differs, axis=rank - 1)
    selection = g.cast(g.op("And", belongs, is_first), DataType.INT64)
    positions = g.op("Transpose", g.op("NonZero", selection), perm=[1, 0])
    positions = set_shape(positions, [None, rank])
    elements = g.call("aten::masked_select", self=candidates, mask=g.cast(selection, DataType.BOOL))
    counts = g.call("aten::cumsum", self=selection, dim=rank - 1)
    # In the result, an element's last index is the number of elements before it in its row.
    targets = g.op(
        "Sub", g.call("aten::masked_select", self=counts, mask=g.cast(selection, DataType.BOOL)), 1
    )
    leading = g.call("aten::slice", self=positions, dim=1, start=0, end=rank - 1)
    indices = g.op("Concat", leading, g.op("Unsqueeze", targets, axes=[1]), axis=1)
    totals = g.op("ReduceSum", selection, axes=[rank - 1], keepdims=0)
    flat_totals = g.op("Concat", g.constant([0]), g.op("Reshape", totals, [-1]), axis=0)
    largest = g.op("ReduceMax", flat_totals, axes=[0], keepdims=0)
    shape = g.stack([*sizes_of(g, set1)[:-1], largest])
    return [set_shape(indices, [None, rank]), g.cast(set_shape(elements, [None]), dtype), shape]


def _is_in(g: GraphContext, candidates: Value, members: Value) -> Value:
    """Whether each candidate is in the same row of another tensor."""
    rank = known_rank(g, candidates)
    column, row = g.op("Unsqueeze", candidates, axes=[rank]), g.op("Unsqueeze", members, axes=[rank - 1])
    matches = g.op("ReduceSum", g.cast(g.op("Equal", column, row), DataType.INT64), axes=[rank], keepdims=0)
    return g.op("Greater", matches, 0)


@onnx_symbolic("tf::SetSize")
def set_size(
    g: GraphContext, set_indices: Value, set_values: Value, set_shape: Value, validate_indices: bool = True
) -> Value:
    """The number of different elements of each row of the last dimension."""
    if g.dtype(set_values) == DataType.STRING:
        raise g.refuse("sets of strings are not supported")
    *leading, _ = sizes = sparse_sizes(g, set_shape, set_indices)
    rows = g.op("Div", flat_positions(g, set_indices, sizes), g.constant(sizes[-1], DataType.INT64))
    values = g.cast(flatten(g, set_values), DataType.INT64)
    # An element counts if no earlier one of its row equals it.
    is_same = g.op(
        "And",
        *(
            g.op("Equal", g.op("Unsqueeze", x, axes=[0]), g.op("Unsqueeze", x, axes=[1]))
            for x in (rows, values)
        ),
    )
    earlier = g.op(
        "ReduceSum", g.op("Trilu", g.cast(is_same, DataType.INT64), -1, upper=0), axes=[1], keepdims=0
    )
    is_first = g.cast(g.op("Equal", earlier, 0), DataType.INT64)
    counts = g.call("tf::UnsortedSegmentSum", is_first, rows, g.constant(product(g, leading), DataType.INT64))
    return g.cast(g.call("aten::reshape", self=counts, shape=leading), DataType.INT32)
