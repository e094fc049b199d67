"""What changes meaning or reach at opset 14."""

from ...registration import DataType, GraphContext, Value, onnx_symbolic
from ..compositions.integers import widened


@onnx_symbolic("aten::hardswish", opset=14)
def hardswish(g: GraphContext, self: Value) -> Value:
    """From 14: HardSwish, which onnxruntime lacks for DOUBLE."""
    double = g.dtype(self) == DataType.DOUBLE
    return g.call("composed::hardswish", self) if double else g.op("HardSwish", self)


@onnx_symbolic("composed::reshape", opset=14)
def reshape(
    g: GraphContext, self: Value, shape: list[int | Value] | Value, target: list[int | Value] | Value
) -> Value:
    """From 14: `allowzero`, so that computed sizes of 0 are meant as they stand."""
    if isinstance(shape, list) and any(isinstance(size, int) and size == -1 for size in shape):
        return g.op("Reshape", self, target)
    return g.op("Reshape", self, shape, allowzero=1)


def _triangle(g: GraphContext, self: Value, diagonal: int | Value, upper: int) -> Value:
    result = g.op("Trilu", widened(g, self), g.constant(diagonal), upper=upper)
    return result if self.dtype is None else g.cast(result, self.dtype)


@onnx_symbolic("aten::tril", opset=14)
def tril(g: GraphContext, self: Value, diagonal: int | Value = 0) -> Value:
    """From 14: Trilu."""
    return _triangle(g, self, diagonal, upper=0)


@onnx_symbolic("aten::triu", opset=14)
def triu(g: GraphContext, self: Value, diagonal: int | Value = 0) -> Value:
    """From 14: Trilu."""
    return _triangle(g, self, diagonal, upper=1)
