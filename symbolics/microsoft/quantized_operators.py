"""Quantized operators that ONNX does not have: they dequantize, compute in FLOAT, and quantize."""

from collections.abc import Callable

from ...registration import DataType, GraphContext, Value
from ..compositions.size_arithmetic import known_rank
from . import microsoft_symbolic


def _dequantize(g: GraphContext, value: Value, scale: Value, zero_point: Value | None) -> Value:
    return g.op("DequantizeLinear", value, scale, zero_point)


def _quantize(g: GraphContext, real: Value, scale: Value, zero_point: Value | None, like: Value) -> Value:
    """Quantize to the type of `like`, whose zero point is 0 by default."""
    if zero_point is None:
        zero_point = g.constant(0, g.dtype(like) or DataType.UINT8)
    return g.op("QuantizeLinear", real, scale, zero_point)


def _register_pair(op_type: str) -> None:
    @microsoft_symbolic(f"QLinear{op_type}")
    def combine(
        g: GraphContext,
        A: Value,
        A_scale: Value,
        A_zero_point: Value | None,
        B: Value,
        B_scale: Value,
        B_zero_point: Value | None,
        C_scale: Value,
        C_zero_point: Value | None = None,
    ) -> Value:
        operands = _dequantize(g, A, A_scale, A_zero_point), _dequantize(g, B, B_scale, B_zero_point)
        return _quantize(g, g.op(op_type, *operands), C_scale, C_zero_point, A)


for _op_type in ("Add", "Mul"):
    _register_pair(_op_type)


def _register_unary(op_type: str, compute: Callable[..., Value]) -> None:
    @microsoft_symbolic(op_type)
    def apply(
        g: GraphContext,
        X: Value,
        X_scale: Value,
        X_zero_point: Value | None,
        Y_scale: Value,
        Y_zero_point: Value | None = None,
        channels_last: int = 0,
        **attributes: int | float | str | list[int],
    ) -> Value:
        # Integers are transposed, not floats: runtimes look for a pool between its quantization nodes.
        trailing = range(2, known_rank(g, X)) if channels_last else ()
        input = (
            g.op("Transpose", X, perm=[0, len(trailing) + 1, *range(1, len(trailing) + 1)]) if trailing else X
        )
        real = compute(g, _dequantize(g, input, X_scale, X_zero_point), **attributes)
        result = _quantize(g, real, Y_scale, Y_zero_point, X)
        return g.op("Transpose", result, perm=[0, *trailing, 1]) if trailing else result


def _softmax(g: GraphContext, value: Value, opset: int, axis: int | None = None) -> Value:
    """The meaning of the ONNX operator at `opset`; before 13 it normalizes over all axes from `axis` on."""
    # The attribute keeps the opset of the node that was quantized.
    if opset >= 13:
        return g.op("Softmax", value, axis=-1 if axis is None else axis)
    rank = known_rank(g, value)
    first = g.axis(1 if axis is None else axis, rank)
    if first == rank - 1:
        return g.op("Softmax", value, axis=-1)
    rows = g.op("Softmax", g.op("Flatten", value, axis=first), axis=-1)
    return g.op("Reshape", rows, g.op("Shape", value))


_UNARY: dict[str, Callable[..., Value]] = {
    "QLinearSigmoid": lambda g, value: g.op("Sigmoid", value),
    "QLinearLeakyRelu": lambda g, value, alpha=0.01: g.op("LeakyRelu", value, alpha=alpha),
    "QLinearAveragePool": lambda g, image, **window: g.op("AveragePool", image, **window),
    "QLinearGlobalAveragePool": lambda g, image: g.op("GlobalAveragePool", image),
    "QLinearSoftmax": _softmax,
}
for _name, _compute in _UNARY.items():
    _register_unary(_name, _compute)


@microsoft_symbolic("QLinearConcat")
def q_linear_concat(
    g: GraphContext, Y_scale: Value, Y_zero_point: Value, inputs: list[Value], axis: int
) -> Value:
    """`inputs` are tensors, each followed by its scale and its zero point."""
    tensors = [_dequantize(g, *inputs[i : i + 3]) for i in range(0, len(inputs), 3)]
    return g.op("QuantizeLinear", g.op("Concat", *tensors, axis=axis), Y_scale, Y_zero_point)


@microsoft_symbolic("QLinearWhere")
def q_linear_where(
    g: GraphContext,
    condition: Value,
    X: Value,
    x_scale: Value,
    x_zero_point: Value,
    Y: Value,
    y_scale: Value,
    y_zero_point: Value,
    z_scale: Value,
    z_zero_point: Value,
) -> Value:
    branches = _dequantize(g, X, x_scale, x_zero_point), _dequantize(g, Y, y_scale, y_zero_point)
    return g.op("QuantizeLinear", g.op("Where", condition, *branches), z_scale, z_zero_point)


@microsoft_symbolic("QuantizeLinear")
def quantize_linear(
    g: GraphContext, x: Value, y_scale: Value, y_zero_point: Value | None = None, axis: int | None = None
) -> Value:
    return g.op("QuantizeLinear", x, y_scale, y_zero_point, axis=axis)


@microsoft_symbolic("DequantizeLinear")
def dequantize_linear(
    g: GraphContext, x: Value, x_scale: Value, x_zero_point: Value | None = None, axis: int | None = None
) -> Value:
    return g.op("DequantizeLinear", x, x_scale, x_zero_point, axis=axis)
