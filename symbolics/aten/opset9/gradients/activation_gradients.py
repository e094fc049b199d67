"""Gradients of activation functions."""

import math

from .....registration import GraphContext, Value, onnx_symbolic


@onnx_symbolic("aten::gelu_backward")
def gelu_backward(g: GraphContext, grad_output: Value, self: Value, approximate: str = "none") -> Value:
    """The distribution function plus `self` times the density.

    Shares no node with a composed gelu: onnxruntime's fusion into Gelu removes nodes that others read.
    """
    square = g.op("Mul", self, self)
    if approximate == "none":
        share = g.op("Add", g.op("Erf", g.op("Mul", self, math.sqrt(0.5))), 1.0)
        density = g.op("Mul", g.op("Exp", g.op("Mul", square, -0.5)), 1.0 / math.sqrt(2.0 * math.pi))
        slope = g.op("Add", g.op("Mul", share, 0.5), g.op("Mul", self, density))
        return g.op("Mul", grad_output, slope)
    scale = math.sqrt(2.0 / math.pi)
    inner = g.op("Mul", self, g.op("Add", g.op("Mul", square, 0.044715 * scale), scale))
    bent = g.op("Tanh", inner)
    steepness = g.op("Add", g.op("Mul", square, 1.5 * 0.044715 * scale), 0.5 * scale)
    flat = g.op("Sub", 1.0, g.op("Mul", bent, bent))
    slope = g.op(
        "Add", g.op("Mul", g.op("Add", bent, 1.0), 0.5), g.op("Mul", self, g.op("Mul", flat, steepness))
    )
    return g.op("Mul", grad_output, slope)
