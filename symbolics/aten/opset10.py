"""What changes meaning or reach at opset 10."""

from ...registration import DataType, GraphContext, Number, Value, dtypes, onnx_symbolic


@onnx_symbolic("aten::isinf", opset=10)
def isinf(g: GraphContext, self: Value) -> Value:
    """From 10: IsInf."""
    integral = g.dtype(self) in dtypes.INTEGERS or g.dtype(self) == DataType.BOOL
    return g.op("Less", self, self) if integral else g.op("IsInf", self)


@onnx_symbolic("aten::fmod", opset=10)
def fmod(g: GraphContext, self: Value, other: Value | Number) -> Value:
    """From 10: Mod, exact for every element type."""
    return g.op("Mod", self, other, fmod=1)


@onnx_symbolic("aten::remainder", opset=10)
def remainder(g: GraphContext, self: Value | Number, other: Value | Number) -> Value:
    """From 10: Mod, which has the sign of `other` for integers and that of `self` for floats."""
    if not isinstance(self, Value):
        self = g.constant(self, g.dtype(other) if isinstance(other, Value) else None)
    if g.dtype(self) in dtypes.INTEGERS:
        return g.op("Mod", self, other)
    other = g.constant(other, g.dtype(self))
    rest = g.op("Mod", self, other, fmod=1)
    opposite = g.op("Xor", g.op("Less", rest, 0.0), g.op("Less", other, 0.0))
    wrong = g.op("And", opposite, g.cast(rest, DataType.BOOL))
    return g.op("Where", wrong, g.op("Add", rest, other), rest)


@onnx_symbolic("composed::enlarge", opset=10)
def enlarge(g: GraphContext, input: Value, factors: list[int]) -> Value:
    """From 10: Resize in place of Upsample."""
    return g.op("Resize", input, mode="nearest", scales=[1.0, 1.0, *map(float, factors)])


@onnx_symbolic("composed::slice", opset=10)
def slice(
    g: GraphContext, self: Value, dim: int, start: int | Value, end: int | Value, step: int | Value
) -> Value:
    """From 10: bounds and steps may be computed."""
    steps = None if isinstance(step, int) and step == 1 else [step]
    return g.op("Slice", self, starts=[start], ends=[end], axes=[dim], steps=steps)


@onnx_symbolic("composed::reverse", opset=10)
def reverse(g: GraphContext, self: Value, dims: list[int]) -> Value:
    """From 10: Slice with steps of -1."""
    count = len(dims)
    return g.op(
        "Slice", self, starts=[-1] * count, ends=[-(2**63) + 1] * count, axes=dims, steps=[-1] * count
    )


@onnx_symbolic("packed::head", opset=10)
def head(g: GraphContext, self: Value, count: Value) -> Value:
    """From 10: Slice with a computed end."""
    return g.op("Slice", self, starts=[0], ends=[count], axes=[0])


@onnx_symbolic("composed::top", opset=10)
def top(g: GraphContext, self: Value, k: int | Value, dim: int, largest: bool) -> list[Value]:
    """From 10: TopK with a computed `k`."""
    return g.call("composed::top_of_floats", self, k, dim, largest)
