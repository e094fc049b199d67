"""Searches: positions in sorted elements, and elements that another vector lacks."""

from ....registration import DataType, GraphContext, Value, onnx_symbolic
from ...compositions.size_arithmetic import where_true


@onnx_symbolic("tf::ListDiff")
def list_diff(g: GraphContext, x: Value, y: Value, out_idx: DataType = DataType.INT32) -> list[Value]:
    """The elements of one vector that another one lacks, and their positions."""
    rows, columns = g.op("Unsqueeze", x, axes=[1]), g.op("Unsqueeze", y, axes=[0])
    is_equal = g.cast(g.call("tf::Equal", rows, columns), DataType.INT64)
    # The sum over no elements is 0: an empty `y` keeps all of `x`.
    match_counts = g.op("ReduceSum", is_equal, axes=[1], keepdims=0)
    positions = where_true(g, g.op("Less", match_counts, 1))
    return [g.op("Gather", x, positions, axis=0), g.cast(positions, out_idx)]


@onnx_symbolic("tf::Bucketize")
def bucketize(g: GraphContext, input: Value, boundaries: list[float]) -> Value:
    """The number of boundaries that are not above each element."""
    float_input = input if g.dtype(input) == DataType.DOUBLE else g.cast(input, DataType.FLOAT)
    limits = g.constant(boundaries, g.dtype(float_input))
    return g.call("aten::bucketize", self=float_input, boundaries=limits, out_int32=True, right=True)


def _register_bound(name: str, right: bool) -> None:
    @onnx_symbolic(f"tf::{name}")
    def bound(
        g: GraphContext, sorted_inputs: Value, values: Value, out_type: DataType = DataType.INT32
    ) -> Value:
        insertion_points = g.call(
            "aten::searchsorted", sorted_sequence=sorted_inputs, self=values, right=right
        )
        return g.cast(insertion_points, out_type)


_register_bound("LowerBound", right=False)
_register_bound("UpperBound", right=True)
