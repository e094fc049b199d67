"""What changes meaning or reach at opset 13."""

from typing import Any

from ...registration import DataType, GraphContext, Value, onnx_symbolic


def _along(g: GraphContext, op_type: str, self: Value, dim: int, dtype: DataType | None) -> Value:
    self = self if dtype is None else g.cast(self, dtype)
    if g.rank(self) == 0:
        return g.op("Squeeze", g.op(op_type, g.op("Unsqueeze", self, axes=[0]), axis=0), axes=[0])
    return g.op(op_type, self, axis=dim)


@onnx_symbolic("aten::softmax", opset=13)
def softmax(g: GraphContext, self: Value, dim: int, dtype: DataType | None = None) -> Value:
    """From 13: `axis` is the one dim that is normalised."""
    return _along(g, "Softmax", self, dim, dtype)


@onnx_symbolic("aten::log_softmax", opset=13)
def log_softmax(g: GraphContext, self: Value, dim: int, dtype: DataType | None = None) -> Value:
    """From 13: `axis` is the one dim that is normalised."""
    return _along(g, "LogSoftmax", self, dim, dtype)


@onnx_symbolic("composed::resize", opset=13)
def resize(
    g: GraphContext,
    input: Value,
    scales: list[float] | None,
    sizes: list[int | Value] | None,
    modes: dict[str, Any],
) -> Value:
    """From 13: absent inputs are left out."""
    if scales is not None:
        return g.op("Resize", input, scales=[1.0, 1.0, *scales], **modes)
    return g.op("Resize", input, sizes=[g.size(input, 0), g.size(input, 1), *(sizes or [])], **modes)


@onnx_symbolic("composed::rows_begun", opset=13)
def rows_begun(g: GraphContext, rest: Value) -> Value:
    """From 13: a Loop carries sequences, so that no group copies the rows of those before it."""
    return g.op("SequenceConstruct", rest)


@onnx_symbolic("composed::rows_appended", opset=13)
def rows_appended(g: GraphContext, rows: Value, more: Value) -> Value:
    """From 13: into the sequence, before the rest."""
    return g.op("SequenceInsert", rows, more, -1)


@onnx_symbolic("composed::rows_joined", opset=13)
def rows_joined(g: GraphContext, rows: Value, rest: Value) -> Value:
    """From 13: the sequence has the rest in it."""
    return g.op("ConcatFromSequence", rows, axis=0)
