"""What changes meaning or reach at opset 12."""

from typing import Any

from ...registration import DataType, GraphContext, Number, Value, onnx_symbolic
from ..compositions.einsum import contract, read, written
from ..compositions.integers import summed_as


@onnx_symbolic("aten::einsum", opset=12)
def einsum(g: GraphContext, equation: str, tensors: list[Value], path: list[int] | None = None) -> Value:
    """From 12: any equation, diagonals included, and tensors of unknown rank.

    onnxruntime's Einsum ends the process where a size is 0: what is known to be empty is composed.
    """
    ranks = [rank for rank in map(g.rank, tensors) if rank is not None]
    text = equation.replace(" ", "")
    if "..." in text and len(ranks) == len(tensors):
        text = written(read(g, text, ranks))
    wide, dtype = summed_as(g, tensors)
    is_empty = len(ranks) == len(tensors) and any(0 in (g.shape(tensor) or ()) for tensor in tensors)
    result = contract(g, read(g, text, ranks), wide) if is_empty else g.op("Einsum", *wide, equation=text)
    return result if dtype is None else g.cast(result, dtype)


@onnx_symbolic("aten::ge", opset=12)
@onnx_symbolic("aten::greater_equal", opset=12)
def ge(g: GraphContext, self: Value, other: Value | Number) -> Value:
    """From 12: GreaterOrEqual."""
    return g.op("GreaterOrEqual", self, other)


@onnx_symbolic("aten::le", opset=12)
@onnx_symbolic("aten::less_equal", opset=12)
def le(g: GraphContext, self: Value, other: Value | Number) -> Value:
    """From 12: LessOrEqual."""
    return g.op("LessOrEqual", self, other)


@onnx_symbolic("aten::maximum", opset=12)
@onnx_symbolic("aten::max.other", opset=12)
def maximum(g: GraphContext, self: Value, other: Value | Number) -> Value:
    """From 12: Max of integers too; onnxruntime lacks it for 16 bits."""
    if g.dtype(self) in (DataType.INT16, DataType.UINT16):
        return g.call("composed::where", condition=g.op("Greater", self, other), self=self, other=other)
    return g.op("Or" if g.dtype(self) == DataType.BOOL else "Max", self, other)


@onnx_symbolic("aten::minimum", opset=12)
@onnx_symbolic("aten::min.other", opset=12)
def minimum(g: GraphContext, self: Value, other: Value | Number) -> Value:
    """From 12: Min of integers too; onnxruntime lacks it for 16 bits."""
    if g.dtype(self) in (DataType.INT16, DataType.UINT16):
        return g.call("composed::where", condition=g.op("Less", self, other), self=self, other=other)
    return g.op("And" if g.dtype(self) == DataType.BOOL else "Min", self, other)


@onnx_symbolic("aten::celu", opset=12)
def celu(g: GraphContext, self: Value, alpha: Number = 1.0) -> Value:
    """From 12: Celu, of FLOAT alone."""
    if g.dtype(self) == DataType.DOUBLE:
        return g.call("composed::celu", self, alpha)
    return g.op("Celu", self, alpha=float(alpha))


def _dropped(g: GraphContext, input: Value, p: float, outputs: int) -> Any:
    return g.op("Dropout", input, ratio=p, training_mode=True, outputs=outputs)


@onnx_symbolic("aten::dropout", opset=12)
def dropout(g: GraphContext, input: Value, p: float, train: bool) -> Value:
    """From 12: in training too."""
    if not train or p == 0:
        return input
    return g.call("composed::native_dropout", input, p, train)[0] if p == 1 else _dropped(g, input, p, 1)


@onnx_symbolic("aten::native_dropout", opset=12)
def native_dropout(g: GraphContext, input: Value, p: float, train: bool | None) -> list[Value]:
    """From 12: in training too."""
    if train is False or p in (0, 1):
        return g.call("composed::native_dropout", input, p, train)
    return _dropped(g, input, p, 2)
