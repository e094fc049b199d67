"""Elementwise operators: functions of one tensor, arithmetic, comparison, selection, conversion."""

from ...registration import DataType, GraphContext, Value, onnx_symbolic
from ..compositions.operator_tables import register_functions, register_table
from ..compositions.size_arithmetic import known_rank
from ._broadcasting import legacy_operand

register_table(
    "caffe2",
    """
X: Abs Acos Asin Atan Ceil Cos Cosh Erf Exp Floor Log Negative=Neg Not Reciprocal Relu Sigmoid Sign Sin Sinh
X: Size Softplus Softsign Sqrt Tan Tanh
""",
)
_BINARY = {
    **{name: name for name in ("Add", "And", "Div", "Mul", "Or", "Sub", "Xor")},
    "EQ": "Equal",
    "GE": "GreaterOrEqual",
    "GT": "Greater",
    "LE": "LessOrEqual",
    "LT": "Less",
    # ONNX has no operator for inequality.
    "NE": "Equal",
}
_COPIES = "Alias Copy CopyCPUToGPU CopyFromCPUInput CopyGPUToCPU EnsureCPUOutput StopGradient"


def _register_binary(name: str, op_type: str) -> None:
    @onnx_symbolic(f"caffe2::{name}")
    def binary(
        g: GraphContext,
        A: Value,
        B: Value,
        broadcast: int = 0,
        axis: int = -1,
        axis_str: str = "",
        order: str = "NCHW",
    ) -> Value:
        result = g.op(op_type, A, legacy_operand(g, A, B, broadcast, axis, axis_str, order))
        return g.op("Not", result) if name == "NE" else result


def _register_variadic(name: str) -> None:
    @onnx_symbolic(f"caffe2::{name}")
    def variadic(g: GraphContext, inputs: list[Value]) -> Value:
        # A single input is its own maximum, mean, minimum and sum.
        return g.op(name, *inputs) if len(inputs) > 1 else inputs[0]


for _name, _op_type in _BINARY.items():
    _register_binary(_name, _op_type)
for _name in ("Max", "Mean", "Min", "Sum"):
    _register_variadic(_name)


register_functions(
    "caffe2",
    "X",
    {
        **dict.fromkeys(_COPIES.split(), lambda g, X: X),
        "Sqr": lambda g, X: g.op("Mul", X, X),
        "Cube": lambda g, X: g.op("Mul", g.op("Mul", X, X), X),
        "Rsqrt": lambda g, X: g.op("Reciprocal", g.op("Sqrt", X)),
        "Swish": lambda g, X: g.op("Mul", X, g.op("Sigmoid", X)),
        "HalfToFloat": lambda g, X: g.cast(X, DataType.FLOAT),
    },
)


@onnx_symbolic("caffe2::Scale")
def scale(g: GraphContext, X: Value, scale: float = 1.0) -> Value:
    return g.op("Mul", X, scale)


@onnx_symbolic("caffe2::Pow")
def pow(
    g: GraphContext,
    X: Value,
    Y: Value | None = None,
    exponent: float = 0.0,
    broadcast: int = 0,
    axis: int = -1,
    axis_str: str = "",
    order: str = "NCHW",
) -> Value:
    if Y is None:
        return g.op("Pow", X, exponent)
    return g.op("Pow", X, legacy_operand(g, X, Y, broadcast, axis, axis_str, order))


@onnx_symbolic("caffe2::Clip")
def clip(g: GraphContext, X: Value, min: float | None = None, max: float | None = None) -> Value:
    # Without bounds, Clip would be a node that does nothing.
    if min is None and max is None:
        return X
    # onnxruntime loads no Clip below opset 11 whose bounds cross.
    if min is not None and max is not None and not min <= max:
        return g.call("onnx::Clip", input=X, min=min, max=max)
    return g.op("Clip", X, min=min, max=max)


@onnx_symbolic("caffe2::Cast")
def cast(g: GraphContext, input: Value, to: DataType = DataType.FLOAT) -> Value:
    return g.cast(input, to)


@onnx_symbolic("caffe2::FloatToHalf")
def float_to_half(g: GraphContext, X: Value, clip: int = 0) -> Value:
    """With `clip`, numbers beyond the range of half precision become its limits instead of infinity."""
    return g.cast(g.op("Clip", X, min=-65504.0, max=65504.0) if clip else X, DataType.FLOAT16)


def _by_rows(g: GraphContext, condition: Value, X: Value) -> Value:
    """Reshape a condition for each index of the first dimension, so that it broadcasts against X."""
    trailing = known_rank(g, X) - 1
    return g.op("Unsqueeze", condition, axes=list(range(1, trailing + 1))) if trailing else condition


@onnx_symbolic("caffe2::Where")
def where(g: GraphContext, C: Value, X: Value, Y: Value, broadcast_on_rows: int = 0) -> Value:
    condition = _by_rows(g, C, X) if broadcast_on_rows else C
    return g.call("composed::where", condition=condition, self=X, other=Y)


@onnx_symbolic("caffe2::Conditional")
def conditional(g: GraphContext, Condition: Value, DataT: Value, DataF: Value) -> Value:
    condition = _by_rows(g, Condition, DataT)
    return g.call("composed::where", condition=condition, self=DataT, other=DataF)
