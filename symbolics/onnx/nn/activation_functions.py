"""Activations whose operators begin or change at an opset, and for element types without kernels."""

import math

from ....registration import GraphContext, Value, onnx_symbolic
from ...compositions.size_arithmetic import known_rank
from ..support import below

_SQRT_2 = math.sqrt(2.0)


@onnx_symbolic("onnx::HardSwish")
def hard_swish(g: GraphContext, X: Value) -> Value:
    """Below 14."""
    return g.op("Mul", X, g.call("aten::hardsigmoid", X))


@onnx_symbolic("onnx::Celu")
def celu(g: GraphContext, X: Value, alpha: float = 1.0) -> Value:
    """Below 12: `max(0, x) + min(0, alpha * (exp(x / alpha) - 1))`."""
    if alpha == 0:
        # The formula of the operator, in which x / 0 is infinite or NaN.
        dtype = g.dtype(X)
        slope, zero = g.constant(alpha, dtype), g.constant(0.0, dtype)
        scaled = g.op("Mul", g.op("Sub", g.op("Exp", g.op("Div", X, slope)), 1.0), slope)
        return g.op("Add", g.call("aten::maximum", X, zero), g.call("aten::minimum", scaled, zero))
    return g.call("aten::elu", X, alpha, 1, 1.0 / alpha)


@onnx_symbolic("onnx::Mish")
def mish(g: GraphContext, X: Value) -> Value:
    """Below 18."""
    return g.op("Mul", X, g.op("Tanh", g.call("aten::softplus", X)))


@onnx_symbolic("onnx::Gelu")
def gelu(g: GraphContext, X: Value, approximate: str = "none") -> Value:
    """Below 20: composed in the forms that onnxruntime fuses into its Gelu and, on accelerators, FastGelu."""
    if approximate == "tanh":
        cubic = g.op("Add", X, g.op("Mul", g.op("Pow", X, 3.0), 0.044715))
        bent = g.op("Tanh", g.op("Mul", cubic, math.sqrt(2.0 / math.pi)))
        return g.op("Mul", g.op("Mul", X, 0.5), g.op("Add", bent, 1.0))
    below = g.op("Add", g.call("aten::erf", g.op("Div", X, _SQRT_2)), 1.0)
    return g.op("Mul", g.op("Mul", X, below), 0.5)


def _register_softmax(op_type: str) -> None:
    @below(op_type, 13)
    def along(g: GraphContext, input: Value, axis: int = -1) -> Value:
        """Below 13 the operator flattens everything from the axis on: the axis is moved to the end."""
        rank = known_rank(g, input)
        dim = g.axis(axis, max(rank, 1))
        # Trailing dimensions of size 1 do not change the rows of the flattened matrix.
        if all(size == 1 for size in (g.shape(input) or ())[dim + 1 :]):
            return g.op(op_type, input, axis=dim)
        perm = list(range(rank))
        # The permutation exchanges two dimensions, so it is its own inverse.
        perm[dim], perm[-1] = perm[-1], perm[dim]
        result = g.op(op_type, g.op("Transpose", input, perm=perm), axis=rank - 1)
        return g.op("Transpose", result, perm=perm)

    @onnx_symbolic(f"before13::{op_type}")
    def over_rows(g: GraphContext, input: Value, axis: int = 1) -> Value:
        rank = g.rank(input)
        if rank is not None and axis in (-1, rank - 1):
            return g.op(op_type, input, axis=-1)
        # Below 13 the sum runs over all dimensions from the axis on, as over the row of a matrix.
        flat = g.op("Flatten", input, axis=axis)
        result = g.op("Reshape", g.op(op_type, flat, axis=-1), g.op("Shape", input))
        result.shape = input.shape
        return result


for _op_type in ("Softmax", "LogSoftmax", "Hardmax"):
    _register_softmax(_op_type)
