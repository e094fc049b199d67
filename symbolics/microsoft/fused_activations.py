"""Gelu in its variants, and the activations that onnxruntime computes inside of products and convolutions."""

from ...registration import GraphContext, Value
from . import microsoft_symbolic

_PARAMETER_COUNTS = dict.fromkeys(("Relu", "Sigmoid", "Tanh", "Softplus", "Softsign"), 0)
_PARAMETER_COUNTS |= dict.fromkeys(("Elu", "LeakyRelu", "ThresholdedRelu"), 1) | {"HardSigmoid": 2}
"""How many parameters the fused activations have: `alpha`, or `alpha` and `beta`."""


def activate(g: GraphContext, value: Value, activation: str, parameters: list[float]) -> Value:
    """Apply a fused activation; parameters that are not stated have their defaults in ONNX.

    Raises:
        UnsupportedError: the activation is unknown.
    """
    if not activation:
        return value
    if activation == "Clip":
        low, high = parameters
        return g.op("Clip", value, min=low, max=high)
    count = _PARAMETER_COUNTS.get(activation)
    if count is None:
        raise g.refuse(f"activation '{activation}' is not supported")
    # None omits an argument, so that it has its default.
    alpha, beta, *_ = [*parameters[:count], None, None]
    return g.op(activation, value, alpha=alpha, beta=beta)


@microsoft_symbolic("Gelu")
def gelu(g: GraphContext, X: Value) -> Value:
    return g.op("Gelu", X)


@microsoft_symbolic("BiasGelu")
def bias_gelu(g: GraphContext, A: Value, B: Value) -> Value:
    return g.op("Gelu", g.op("Add", A, B))


@microsoft_symbolic("FastGelu")
def fast_gelu(g: GraphContext, X: Value, bias: Value | None = None) -> Value:
    return g.op("Gelu", X if bias is None else g.op("Add", X, bias), approximate="tanh")


@microsoft_symbolic("QuickGelu")
def quick_gelu(g: GraphContext, X: Value, alpha: float = 1.702) -> Value:
    return g.op("Mul", X, g.op("Sigmoid", X if alpha == 1 else g.op("Mul", X, alpha)))
