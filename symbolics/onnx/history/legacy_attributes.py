"""Operators of opsets below 7: broadcasting as an attribute, types by name, shapes as attributes."""

from typing import Any

from ....registration import DataType, GraphContext, Value, onnx_symbolic
from ....registration.functions.results import listed
from ...compositions.size_arithmetic import known_rank


def _align_operand(g: GraphContext, A: Value, B: Value, axis: int | None) -> Value:
    """The second operand, with dimensions of size 1 added to align it with the first from an axis on."""
    if axis is None:
        return B
    rank, operand_rank = known_rank(g, A), known_rank(g, B)
    start = g.axis(axis, rank)
    # Broadcasting aligns the last dimensions, so the dimensions behind the operand's are added.
    after = rank - start - operand_rank
    return g.op("Unsqueeze", B, axes=list(range(operand_rank, operand_rank + after))) if after > 0 else B


def _register(op_type: str) -> None:
    @onnx_symbolic(f"before7::{op_type}")
    def binary(g: GraphContext, A: Value, B: Value, axis: int | None = None, broadcast: int = 0) -> Value:
        """Below 7 the attribute `broadcast` broadcasts the second operand, from an axis on."""
        return g.op(op_type, A, _align_operand(g, A, B, axis) if broadcast else B)


for _op_type in "Add Sub Mul Div And Or Xor Equal Greater Less".split():
    _register(_op_type)


@onnx_symbolic("before7::Pow")
def pow_(g: GraphContext, X: Value, Y: Value, axis: int | None = None, broadcast: int = 0) -> Value:
    """Like the other binary operators."""
    return g.op("Pow", X, _align_operand(g, X, Y, axis) if broadcast else Y)


@onnx_symbolic("before7::PRelu")
def prelu(g: GraphContext, X: Value, slope: Value) -> Value:
    """Below 7 the slopes of channels are a one-dimensional tensor."""
    rank = known_rank(g, X)
    if g.rank(slope) == 1 and g.shape(slope) != (1,) and rank > 2:
        # Since 7 slopes broadcast from the last dimension.
        slope = g.op("Unsqueeze", slope, axes=list(range(1, rank - 1)))
    return g.op("PRelu", X, slope)


@onnx_symbolic("before7::Gemm")
def gemm(g: GraphContext, A: Value, B: Value, C: Value, broadcast: int = 0, **attributes: Any) -> Value:
    """Below 7 the attribute `broadcast` broadcasts the bias."""
    result: Value = g.op("Gemm", A, B, C, **attributes)
    return result


@onnx_symbolic("before6::Cast")
def cast(g: GraphContext, input: Value, to: str) -> Value:
    """Below 6 the type is a string."""
    return g.cast(input, DataType[to])


@onnx_symbolic("before6::Tile")
def tile(g: GraphContext, input: Value, tiles: Value, axis: Value) -> Value:
    """Below 6 one axis is repeated."""
    rank = known_rank(g, input)
    axis_array = g.constant_value(axis)
    if axis_array is None:
        raise g.refuse("its axis must be constant")
    no_repeats = (
        g.constant([1] * int(axis_array.item())),
        g.constant([1] * (rank - int(axis_array.item()) - 1)),
    )
    times = g.op("Reshape", g.cast(tiles, DataType.INT64), [1])
    return g.op("Tile", input, g.op("Concat", no_repeats[0], times, no_repeats[1], axis=0))


@onnx_symbolic("before7::Dropout")
def dropout(
    g: GraphContext, data: Value, ratio: float = 0.5, is_test: int = 1, outputs: int = 1
) -> list[Value]:
    """Below 7 an attribute selects training. If it is left out, runtimes use inference mode."""
    if not is_test:
        raise g.refuse("training mode as defined below version 7 is not supported")
    return g.call_outputs("before12::Dropout", data, ratio=ratio, outputs=outputs)


@onnx_symbolic("before4::Concat")
def concat(g: GraphContext, inputs: list[Value], axis: int = 1) -> Value:
    """Below 4 the axis may be left out."""
    return g.op("Concat", *inputs, axis=axis)


@onnx_symbolic("before2::Split")
def split(
    g: GraphContext,
    input: Value,
    split: Value | list[int] | None = None,
    axis: int | None = None,
    outputs: int = 1,
) -> list[Value]:
    """Below 2 the axis has no default, neither in the schema nor in the text."""
    if axis is None:
        raise g.refuse("version 1 of Split has no default for axis, but the node has no axis")
    count = outputs if split is None else None
    return listed(g.op("Split", input, split=split, axis=axis, num_outputs=count, outputs=outputs))
