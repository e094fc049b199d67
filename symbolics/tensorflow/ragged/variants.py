"""Ragged tensors in variants, as `tf.map_fn` over the rows of a ragged tensor has them.

The variants of the rows become one INT64 tensor [rows, 2] with the first and the last position of each row.
Source of the semantics: tensorflow/core/kernels/ragged_tensor_*_variant_op.cc.
"""

import onnx_ir as ir

from ....registration import DataType, GraphContext, Value, onnx_symbolic
from ...compositions.row_partitions import all_but_first, all_but_last
from .._common import flatten, set_shape

_KEY = "opsetta.ragged_rows"
_PASSED = ("Gather", "Identity", "Reshape", "Squeeze", "Unsqueeze")


@onnx_symbolic("tf::RaggedTensorToVariant")
def ragged_tensor_to_variant(
    g: GraphContext, rt_nested_splits: list[Value], rt_dense_values: Value, batched_input: bool
) -> Value:
    """The rows of a ragged tensor; a whole ragged tensor in one variant is not supported."""
    if not batched_input or not rt_nested_splits:
        raise g.refuse("a list of ragged tensors of different lengths has no ONNX form")
    splits = flatten(g, g.cast(rt_nested_splits[0], DataType.INT64))
    ends = (g.op("Unsqueeze", part(g, splits), axes=[1]) for part in (all_but_last, all_but_first))
    rows = set_shape(g.op("Concat", *ends, axis=1), [None, 2])
    parts = [*rt_nested_splits[1:], rt_dense_values]
    if rows.meta.get(_KEY, parts) != parts:
        # Equal constants are one value.
        raise g.refuse("two ragged tensors with the same constant splits are not supported as variants")
    rows.meta[_KEY] = parts
    return rows


@onnx_symbolic("tf::RaggedTensorFromVariant")
def ragged_tensor_from_variant(
    g: GraphContext,
    encoded_ragged: Value,
    input_ragged_rank: int,
    output_ragged_rank: int,
    Tvalues: DataType,
    Tsplits: DataType = DataType.INT64,
) -> list[Value]:
    """One row of a ragged tensor."""
    source: Value | None = encoded_ragged
    while source is not None and _KEY not in source.meta:
        node: ir.Node | None = source.producer()
        source = node.inputs[0] if node is not None and node.op_type in _PASSED else None
    if source is None or source is encoded_ragged:
        raise g.refuse("only single rows of a ragged tensor are read from variants")
    *inner_splits, values = source.meta[_KEY]
    if len(inner_splits) != output_ragged_rank:
        raise g.refuse(f"a row of ragged rank {len(inner_splits)} is read with the rank {output_ragged_rank}")
    ends = g.op("Reshape", encoded_ragged, [2])
    results: list[Value] = []
    for splits in inner_splits:
        # A row of n parts has n + 1 splits; they count from its own first value.
        last = g.op("Add", ends, g.constant([0, 1]))
        own = _positions(g, g.cast(splits, DataType.INT64), last)
        ends = g.op("Gather", g.cast(splits, DataType.INT64), ends, axis=0)
        first = g.op("Gather", ends, 0, axis=0)
        results.append(g.cast(g.op("Sub", own, first), Tsplits))
    part = _positions(g, values, ends)
    shape = g.shape(values)
    return [*results, set_shape(part, None if shape is None else [None, *shape[1:]])]


def _positions(g: GraphContext, values: Value, ends: Value) -> Value:
    """The elements from the first to before the last position."""
    start, end = (g.op("Gather", ends, index, axis=0) for index in range(2))
    return g.op("Gather", values, g.constant(g.call("sym::range", start=start, end=end)), axis=0)
