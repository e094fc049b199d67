"""Conversion of sparse tensors to dense ones, and updates of rows."""

from collections.abc import Callable

from ....registration import DataType, GraphContext, Value, onnx_symbolic
from ...compositions.matrices import transpose
from ...compositions.operator_tables import register_functions
from ...compositions.size_arithmetic import known_rank
from .._common import flatten, known_elements
from .scattering import scatter_updates


def _columns(g: GraphContext, indices: Value) -> Value:
    """Reshape positions to rows `[count, dimensions]`."""
    rank = known_rank(g, indices)
    int64_indices = g.cast(indices, DataType.INT64)
    if rank == 2:
        return int64_indices
    return g.op("Reshape", int64_indices, [1, 1]) if rank == 0 else g.op("Unsqueeze", int64_indices, axes=[1])


@onnx_symbolic("tf::SparseToDense")
def sparse_to_dense(
    g: GraphContext, sparse_indices: Value, output_shape: Value, sparse_values: Value, default_value: Value
) -> Value:
    """Fill with a default, and write values to the given positions."""
    dtype = g.dtype(sparse_values) or DataType.FLOAT
    filled = g.call(
        "composed::full", size=known_elements(g, output_shape), fill_value=default_value, dtype=dtype
    )
    positions = _columns(g, sparse_indices)
    values = sparse_values
    # One value may be written to all positions.
    if known_rank(g, values) == 0:
        values = g.op("Expand", values, g.stack([g.size(positions, 0)]))
    return g.op("ScatterND", filled, positions, values)


@onnx_symbolic("tf::SparseTensorDenseMatMul")
def sparse_tensor_dense_matmul(
    g: GraphContext,
    a_indices: Value,
    a_values: Value,
    a_shape: Value,
    b: Value,
    adjoint_a: bool = False,
    adjoint_b: bool = False,
) -> Value:
    """The product with the dense form of the sparse matrix."""
    dtype = g.dtype(a_values) or DataType.FLOAT
    zeros = g.call("composed::full", size=known_elements(g, a_shape, 2), fill_value=0, dtype=dtype)
    dense = scatter_updates(g, zeros, a_indices, a_values, "add")
    first = g.op("Transpose", dense, perm=[1, 0]) if adjoint_a else dense
    return g.op("MatMul", first, transpose(g, b) if adjoint_b else b)


def _row_write(function: str, *, negate: bool = False) -> Callable[..., Value]:
    def write(g: GraphContext, x: Value, i: Value, v: Value) -> Value:
        """Write to rows of a copy."""
        rows = flatten(g, g.cast(i, DataType.INT64))
        return g.call(f"composed::{function}", self=x, index=rows, values=g.op("Neg", v) if negate else v)

    return write


register_functions(
    "tf",
    "x i v",
    {
        "InplaceUpdate": _row_write("write_rows"),
        "InplaceAdd": _row_write("accumulate_rows"),
        "InplaceSub": _row_write("accumulate_rows", negate=True),
    },
)


@onnx_symbolic("tf::ScatterNdNonAliasingAdd")
def scatter_nd_add(
    g: GraphContext, input: Value, indices: Value, updates: Value, bad_indices_policy: str = ""
) -> Value:
    return g.call("tf::TensorScatterAdd", input, indices, updates, bad_indices_policy)


@onnx_symbolic("tf::UnravelIndex")
def unravel_index(g: GraphContext, indices: Value, dims: Value) -> Value:
    """Convert flat positions to indices, one row per dimension."""
    lengths = known_elements(g, dims)
    remaining = g.cast(indices, DataType.INT64)
    rows: list[Value] = []
    for length in reversed(lengths):
        size = g.constant(length, DataType.INT64)
        rows.append(g.op("Sub", remaining, g.op("Mul", g.op("Div", remaining, size), size)))
        remaining = g.op("Div", remaining, size)
    index_rows = [g.op("Unsqueeze", row, axes=[0]) for row in reversed(rows)]
    return g.cast(g.op("Concat", *index_rows, axis=0), g.dtype(indices) or DataType.INT32)
