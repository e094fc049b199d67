"""Crossed features, as Keras' `HashedCrossing` and `tf.sparse.cross_hashed` compute them."""

from ....registration import DataType, GraphContext, Value, onnx_symbolic
from ...compositions.size_arithmetic import product
from ...compositions.special.formulas import Formula
from .._common import flatten, set_shape
from ..text.computed_fingerprints import bucket_of, concatenate_fingerprints


@onnx_symbolic("tf::SparseCross")
def sparse_cross(
    g: GraphContext,
    indices: list[Value],
    values: list[Value],
    shapes: list[Value],
    dense_inputs: list[Value],
    hashed_output: bool,
    num_buckets: int,
    hash_key: int,
    out_type: DataType,
    internal_type: DataType,
) -> list[Value]:
    """The hashes of all combinations of the features of a row; only for dense integers [rows, features]."""
    if indices or not hashed_output or any(g.dtype(item) != DataType.INT64 for item in dense_inputs):
        raise g.refuse("only hashes of dense integers are supported: ONNX cannot read the bytes of strings")
    crossed = Formula(g, g.constant([[hash_key]], DataType.INT64))
    for item in dense_inputs:
        # The features of the last input change first.
        previous, features = (
            g.op("Unsqueeze", value, axes=[axis]) for value, axis in ((crossed.value, 2), (item, 1))
        )
        combined = concatenate_fingerprints(Formula(g, previous), Formula(g, features))
        count = product(g, [g.size(crossed.value, 1), g.size(item, 1)])
        crossed = Formula(g, g.call("aten::reshape", self=combined.value, shape=[g.size(item, 0), count]))
    positions = g.op("NonZero", g.op("Add", g.op("Mul", crossed.value, 0), 1))
    if num_buckets:
        result = bucket_of(crossed, num_buckets)
    else:
        # Without its highest bit, the fingerprint is not negative.
        result = (crossed < 0).chosen(crossed + -(2**63), crossed).value
    rows = set_shape(g.op("Transpose", positions, perm=[1, 0]), [None, 2])
    return [rows, set_shape(flatten(g, result), [None]), set_shape(g.op("Shape", result), [2])]
