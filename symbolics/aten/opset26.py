"""What changes meaning or reach at opset 26."""

from ...registration import DataType, GraphContext, Value, dtypes, onnx_symbolic


@onnx_symbolic("aten::cumprod", opset=26)
def cumprod(g: GraphContext, self: Value, dim: int, dtype: DataType | None = None) -> Value:
    """From 26: CumProd, along a dim of any size."""
    if dtype is None and (g.dtype(self) in dtypes.INTEGERS or g.dtype(self) == DataType.BOOL):
        dtype = DataType.INT64
    self = self if dtype is None else g.cast(self, dtype)
    return self if g.rank(self) == 0 else g.op("CumProd", self, axis=dim)


@onnx_symbolic("composed::bits_of_double", opset=26)
def bits_of_double(g: GraphContext, self: Value) -> Value:
    """From 26: BitCast, which tells one NaN from another."""
    return g.op("BitCast", self, to=int(DataType.INT64))
