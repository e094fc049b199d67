"""Activation functions, softmax, and dropout."""

import math

from .....registration import DataType, GraphContext, Number, Value, dtypes, onnx_symbolic
from ....compositions.moments import cast_like
from ....compositions.operands import is_integral
from ....compositions.size_arithmetic import axis, known_rank, sizes_of


@onnx_symbolic("aten::relu")
def relu(g: GraphContext, self: Value) -> Value:
    return g.call("aten::clamp", self, 0) if is_integral(g, self) else g.op("Relu", self)


@onnx_symbolic("aten::relu6")
def relu6(g: GraphContext, self: Value) -> Value:
    return g.call("aten::clamp", self, 0, 6)


@onnx_symbolic("aten::hardtanh")
def hardtanh(g: GraphContext, self: Value, min_val: Number = -1, max_val: Number = 1) -> Value:
    """For integers the bounds are truncated."""
    if is_integral(g, self):
        min_val, max_val = int(min_val), int(max_val)
    return g.call("aten::clamp", self, min_val, max_val)


@onnx_symbolic("aten::hardsigmoid")
def hardsigmoid(g: GraphContext, self: Value) -> Value:
    if not g.has_kernel("HardSigmoid", self):
        return g.call("aten::clamp", g.op("Add", g.op("Mul", self, 1.0 / 6.0), 0.5), 0, 1)
    return g.op("HardSigmoid", self, alpha=1.0 / 6.0, beta=0.5)


@onnx_symbolic("aten::hardswish")
def hardswish(g: GraphContext, self: Value) -> Value:
    return g.op("HardSwish", self) if g.has_kernel("HardSwish", self) else g.call("onnx::HardSwish", self)


def _leaky(g: GraphContext, self: Value, slope: Value | float) -> Value:
    return g.op("Where", g.op("Less", self, 0.0), g.op("Mul", self, slope), self)


@onnx_symbolic("aten::leaky_relu")
def leaky_relu(g: GraphContext, self: Value, negative_slope: Number = 0.01) -> Value:
    if not g.has_kernel("LeakyRelu", self):
        return _leaky(g, self, float(negative_slope))
    return g.op("LeakyRelu", self, alpha=float(negative_slope))


@onnx_symbolic("aten::rrelu")
def rrelu(
    g: GraphContext, self: Value, lower: Number = 0.125, upper: Number = 1.0 / 3.0, training: bool = False
) -> Value:
    """In training each element that is not positive gets a random slope."""
    if not training:
        return g.call("aten::leaky_relu", self, (lower + upper) / 2.0)
    dtype = g.dtype(self) or DataType.FLOAT
    slopes = g.call("composed::uniform", sizes_of(g, self), dtype, float(lower), float(upper))
    return g.op("Where", g.call("aten::le", self, 0), g.op("Mul", self, slopes), self)


@onnx_symbolic("aten::prelu")
def prelu(g: GraphContext, self: Value, weight: Value) -> Value:
    """One slope, or one for each channel, which is dim 1."""
    shape = g.shape(weight)
    if shape is not None and math.prod(shape) == 1:
        weight_shape = [] if g.rank(self) == 0 else [1]
        weight = weight if list(shape) == weight_shape else g.op("Reshape", weight, weight_shape)
    elif known_rank(g, self) > 2:
        # PRelu broadcasts from the last dimension, and the channels are dim 1.
        weight = g.op("Unsqueeze", weight, axes=list(range(1, known_rank(g, self) - 1)))
    return g.call("aten::_prelu_kernel", self, weight)


@onnx_symbolic("aten::_prelu_kernel")
def _prelu_kernel(g: GraphContext, self: Value, weight: Value) -> Value:
    return g.op("PRelu", self, weight) if g.has_kernel("PRelu", self) else _leaky(g, self, weight)


@onnx_symbolic("aten::elu")
def elu(g: GraphContext, self: Value, alpha: Number = 1, scale: Number = 1, input_scale: Number = 1) -> Value:
    if input_scale == 1 and g.has_kernel("Elu", self):
        result = g.op("Elu", self, alpha=float(alpha))
    else:
        below = g.op("Mul", g.call("aten::clamp_max", self, 0), input_scale)
        negative = g.op("Mul", g.call("aten::expm1", below), alpha)
        result = g.op("Add", g.op("Relu", self), negative)
    return result if scale == 1 else g.op("Mul", result, scale)


@onnx_symbolic("aten::celu")
def celu(g: GraphContext, self: Value, alpha: Number = 1.0) -> Value:
    slope = float(alpha)
    return (
        g.op("Celu", self, alpha=slope) if g.has_kernel("Celu", self) else g.call("onnx::Celu", self, slope)
    )


@onnx_symbolic("aten::selu")
def selu(g: GraphContext, self: Value) -> Value:
    if not g.has_kernel("Selu", self):
        return g.call("aten::elu", self, 1.6732632423543772, 1.0507009873554805)
    return g.op("Selu", self)


@onnx_symbolic("aten::gelu")
def gelu(g: GraphContext, self: Value, approximate: str = "none") -> Value:
    if not g.has_kernel("Gelu", self):
        return g.call("onnx::Gelu", self, approximate)
    return g.op("Gelu", self, approximate=approximate)


@onnx_symbolic("aten::silu")
def silu(g: GraphContext, self: Value) -> Value:
    return g.op("Mul", self, g.op("Sigmoid", self))


@onnx_symbolic("aten::softplus")
def softplus(g: GraphContext, self: Value, beta: Number = 1, threshold: Number = 20) -> Value:
    """Above the threshold torch returns the input; this matters only if both differ noticeably."""
    if g.dtype(self) in dtypes.HALVES and not g.has_kernel("Softplus", self):
        return cast_like(g, g.call("aten::softplus", g.cast(self, DataType.FLOAT), beta, threshold), self)
    scaled = self if beta == 1 else g.op("Mul", self, beta)
    if not g.has_kernel("Softplus", self):
        # `max(x, 0) + log(1 + exp(-|x|))` does not overflow.
        correction = g.call("aten::log1p", g.op("Exp", g.op("Neg", g.op("Abs", scaled))))
        result = g.op("Add", g.op("Relu", scaled), correction)
    else:
        result = g.op("Softplus", scaled)
    if beta != 1:
        result = g.op("Div", result, beta)
    # From 15 on both agree to the digits of FLOAT.
    if threshold >= 15 and g.has_kernel("Softplus", self):
        return result
    return g.op("Where", g.op("Greater", scaled, threshold), self, result)


@onnx_symbolic("aten::mish")
def mish(g: GraphContext, self: Value) -> Value:
    return g.op("Mish", self) if g.has_kernel("Mish", self) else g.call("onnx::Mish", self)


@onnx_symbolic("aten::log_sigmoid")
def log_sigmoid(g: GraphContext, self: Value) -> Value:
    return g.op("Neg", g.call("aten::softplus", g.op("Neg", self)))


@onnx_symbolic("aten::hardshrink")
def hardshrink(g: GraphContext, self: Value, lambd: Number = 0.5) -> Value:
    return g.op("Where", g.call("aten::le", g.op("Abs", self), lambd), 0.0, self)


@onnx_symbolic("aten::softshrink")
def softshrink(g: GraphContext, self: Value, lambd: Number = 0.5) -> Value:
    return g.op("Sub", self, g.call("aten::clamp", self, -lambd, lambd))


@onnx_symbolic("aten::threshold")
def threshold(g: GraphContext, self: Value, threshold: Number, value: Number) -> Value:
    if threshold == 0 and value == 0:
        return g.call("aten::relu", self)
    return g.op("Where", g.call("aten::le", self, threshold), value, self)


@onnx_symbolic("aten::glu")
def glu(g: GraphContext, self: Value, dim: int = -1) -> Value:
    dimension = axis(g, self, dim)
    size = g.size(self, dimension)
    if isinstance(size, int):
        first, second = g.op("Split", self, axis=dimension, split=[size // 2, size // 2], outputs=2)
    else:
        half = g.op("Div", size, 2)
        first = g.call("aten::slice", self, dim=dimension, end=half)
        second = g.call("aten::slice", self, dim=dimension, start=half)
    return g.op("Mul", first, g.op("Sigmoid", second))


def _apply_along_dim(g: GraphContext, op_type: str, value: Value, dim: int) -> Value:
    if g.rank(value) == 0:
        return g.op("Squeeze", g.op(op_type, g.op("Unsqueeze", value, axes=[0]), axis=0), axes=[0])
    return g.op(op_type, value, axis=dim)


@onnx_symbolic("aten::softmax")
def softmax(g: GraphContext, self: Value, dim: int, dtype: DataType | None = None) -> Value:
    return _apply_along_dim(g, "Softmax", self if dtype is None else g.cast(self, dtype), dim)


@onnx_symbolic("aten::log_softmax")
def log_softmax(g: GraphContext, self: Value, dim: int, dtype: DataType | None = None) -> Value:
    """DOUBLE uses Softmax, because onnxruntime's LogSoftmax of DOUBLE loses NaN and infinity."""
    value = self if dtype is None else g.cast(self, dtype)
    result = _apply_along_dim(g, "LogSoftmax", value, dim)
    if g.dtype(value) != DataType.DOUBLE:
        return result
    # A product of Softmax and 0 is 0, or NaN where the input has NaN or infinity.
    return g.op("Add", result, g.op("Mul", _apply_along_dim(g, "Softmax", value, dim), 0.0))


def _register_special_softmax(name: str, general: str) -> None:
    @onnx_symbolic(f"aten::special_{name}")
    def special(g: GraphContext, self: Value, dim: int, dtype: DataType | None = None) -> Value:
        return g.call(general, self, dim, dtype)

    @onnx_symbolic(f"aten::_{name}")
    def kernel(g: GraphContext, self: Value, dim: int, half_to_float: bool) -> Value:
        return g.call(general, self, dim, DataType.FLOAT if half_to_float else None)


_register_special_softmax("softmax", "aten::softmax")
_register_special_softmax("log_softmax", "aten::log_softmax")


@onnx_symbolic("aten::_safe_softmax")
def _safe_softmax(g: GraphContext, self: Value, dim: int, dtype: DataType | None = None) -> Value:
    """The softmax, but zeros for a row that contains only minus infinity."""
    if dtype is not None:
        self = g.cast(self, dtype)
    # A row whose maximum is minus infinity has no other element.
    empty = g.call("aten::isneginf", g.call("aten::amax", self, [dim], True))
    return g.op("Where", empty, 0.0, g.call("aten::softmax", self, dim))


@onnx_symbolic("aten::dropout")
def dropout(g: GraphContext, input: Value, p: float, train: bool) -> Value:
    """The identity in inference; in training elements are dropped at random and the others scaled up."""
    if not train or p == 0:
        return input
    if p < 1 and g.has("Dropout", "training_mode"):
        return g.op("Dropout", input, ratio=p, training_mode=True)
    return g.call_outputs("aten::native_dropout", input, p, train)[0]


@onnx_symbolic("aten::native_dropout")
def native_dropout(g: GraphContext, input: Value, p: float, train: bool | None) -> list[Value]:
    if train is False or p == 0:
        return [input, g.call("aten::ones_like", input, DataType.BOOL)]
    if p < 1 and g.has("Dropout", "training_mode"):
        return g.op("Dropout", input, ratio=p, training_mode=True, outputs=2)
    mask = g.call("composed::kept", sizes_of(g, input), DataType.BOOL, p)
    scaled = g.op("Mul", input, 1.0 / (1.0 - p)) if p < 1 else input
    return [g.op("Where", mask, scaled, 0.0), mask]


def _register_dropout(name: str, feature: bool, alpha: bool) -> None:
    @onnx_symbolic(f"aten::{name}")
    def drop(g: GraphContext, input: Value, p: float, train: bool) -> Value:
        """In training, elements or channels become 0, or for alpha dropout the negative limit of SELU."""
        if not train or p == 0:
            return input
        if p == 1:
            return g.op("Mul", input, 0.0)
        sizes = sizes_of(g, input)
        if feature:
            sizes = [*sizes[:2], *[1] * (len(sizes) - 2)]
        dtype = g.dtype(input) or DataType.FLOAT
        mask = g.call("composed::kept", sizes, dtype, p)
        if not alpha:
            return g.op("Mul", input, g.op("Div", mask, 1.0 - p))
        limit = 1.7580993408473766
        scale = 1.0 / math.sqrt((limit * limit * p + 1.0) * (1.0 - p))
        shift = g.op("Mul", g.op("Sub", mask, 1.0), limit * scale)
        shift = g.op("Add", shift, limit * scale * p)
        return g.op("Add", g.op("Mul", input, g.op("Mul", mask, scale)), shift)


_register_dropout("feature_dropout", feature=True, alpha=False)
_register_dropout("alpha_dropout", feature=False, alpha=True)
_register_dropout("feature_alpha_dropout", feature=True, alpha=True)
