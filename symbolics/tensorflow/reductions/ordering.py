"""Largest elements, sorted order, unique elements, membership among the largest."""

from ....registration import DataType, GraphContext, Value, dtypes, onnx_symbolic
from ...compositions.integers import widen_integers
from ...compositions.operator_tables import register_variant
from ...compositions.size_arithmetic import Size, compute
from .._common import constant_integers, number, restore_dtype, set_shape


def _largest_elements(g: GraphContext, input: Value, k: Size, largest: bool = True) -> list[Value]:
    # Runtimes have TopK for few integer types; wider ones keep the order.
    values, indices = g.op("TopK", widen_integers(g, input), K=[k], axis=-1, largest=int(largest), outputs=2)
    shape = g.shape(input)
    for result in (values, indices):
        set_shape(result, None if shape is None else [*shape[:-1], k if isinstance(k, int) else None])
    return [restore_dtype(g, values, g.dtype(input)), indices]


@onnx_symbolic("tf::TopKV2")
def top_k(
    g: GraphContext, input: Value, k: Value | int, sorted: bool = True, index_type: DataType = DataType.INT32
) -> list[Value]:
    """Along the last dimension. The result is always sorted, which `sorted=False` allows."""
    values, indices = _largest_elements(g, input, number(g, k) if isinstance(k, Value) else k)
    return [values, g.cast(indices, index_type)]


register_variant("tf::TopK", top_k, index_type=DataType.INT32)


@onnx_symbolic("tf::ApproxTopK")
def approx_top_k(
    g: GraphContext,
    input: Value,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    is_max_k: bool = True,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
) -> list[Value]:
    """All of the k largest or smallest elements, sorted, which meets each target of recall."""
    if not aggregate_to_topk:
        raise g.refuse("the number of candidates that aggregate_to_topk=False returns depends on the device")
    values, indices = g.call_outputs("aten::topk", input, k, reduction_dimension, is_max_k, True)
    shape = g.shape(input)
    if shape is not None:
        axis = g.axis(reduction_dimension, len(shape))
        for result in (values, indices):
            set_shape(result, [*shape[:axis], k, *shape[axis + 1 :]])
    return [values, g.cast(indices, DataType.INT32)]


@onnx_symbolic("tf::NthElement")
def nth_element(g: GraphContext, input: Value, n: Value, reverse: bool = False) -> Value:
    """The n-th smallest or largest element along the last dimension."""
    position = number(g, n)
    values, _ = _largest_elements(g, input, compute(g, "add", position, 1), largest=reverse)
    if g.rank(values) is None:
        raise g.refuse("the rank of its input is unknown")
    return g.op("Gather", values, g.constant(position), axis=(g.rank(values) or 1) - 1)


@onnx_symbolic(["tf::InTopK", "tf::InTopKV2"])
def in_top_k(g: GraphContext, predictions: Value, targets: Value, k: Value | int) -> Value:
    """Whether fewer than k classes have a higher prediction than the target; false if one is not finite."""
    class_count = number(g, k) if isinstance(k, Value) else k
    classes = g.size(predictions, 1)
    target_ids = g.cast(targets, DataType.INT64)
    is_class = g.op("And", g.op("Less", target_ids, g.constant(classes)), g.op("Greater", target_ids, -1))
    # GatherElements must not read out of range; the result is false there anyway.
    safe_target = g.op("Where", is_class, target_ids, 0)
    target_prediction = g.op("GatherElements", predictions, g.op("Unsqueeze", safe_target, axes=[1]), axis=1)
    above = g.cast(g.op("Greater", predictions, target_prediction), DataType.INT64)
    count = g.op("ReduceSum", above, axes=[1], keepdims=0)
    infinite = g.cast(g.op("Not", g.call("aten::isfinite", predictions)), DataType.INT64)
    # TensorFlow returns false for a row with a prediction that is not finite.
    finite = g.op("Less", g.op("ReduceSum", infinite, axes=[1], keepdims=0), 1)
    is_valid = g.op("And", is_class, finite)
    return g.op("And", is_valid, g.op("Less", count, g.constant(class_count, DataType.INT64)))


def unique(
    g: GraphContext,
    x: Value,
    axis: Value | None = None,
    out_idx: DataType = DataType.INT32,
    with_counts: bool = False,
) -> list[Value]:
    """Unique elements in the order of their first occurrence, the index of each element, and the counts."""
    axes = constant_integers(g, axis, "axis") if axis is not None else []
    dtype = g.dtype(x)
    # Runtimes have Unique for few types; the casts lose nothing.
    wide_x = g.cast(x, DataType.INT64) if widen_integers(g, x) is not x or dtype == DataType.INT32 else x
    wide_x = g.cast(wide_x, DataType.FLOAT) if dtype in dtypes.HALVES else wide_x
    # Slices of a vector are its elements.
    dim = None if not axes or g.rank(x) == 1 else axes[0]
    values, _, inverse, counts = g.op("Unique", wide_x, axis=dim, sorted=0, outputs=4)
    shape = g.shape(x)
    set_shape(values, [None] if dim is None else None if shape is None else [None] * len(shape))
    set_shape(inverse, [None])
    set_shape(counts, [None])
    results = [restore_dtype(g, values, dtype), g.cast(inverse, out_idx)]
    return [*results, g.cast(counts, out_idx)] if with_counts else results


register_variant("tf::Unique", unique, axis=None, with_counts=False)
register_variant("tf::UniqueWithCounts", unique, axis=None, with_counts=True)
register_variant("tf::UniqueV2", unique, with_counts=False)
register_variant("tf::UniqueWithCountsV2", unique, with_counts=True)
