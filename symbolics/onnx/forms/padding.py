"""Convolutions and pooling with a Pad of its own, or with two dimensions in place of one."""

from typing import Any

from ....registration import GraphContext, Value, onnx_symbolic


def _pad(g: GraphContext, X: Value, pads: list[int]) -> Value:
    """Pad the spatial dimensions with zeros."""
    half = len(pads) // 2
    return g.op("Pad", X, pads=[0, 0, *pads[:half], 0, 0, *pads[half:]])


@onnx_symbolic("form::AveragePool.separate_pad")
def average_pool(
    g: GraphContext,
    X: Value,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    pads: list[int] | None = None,
    **attributes: Any,
) -> Value:
    """Padding that counts, as zeros in front of the operator."""
    if auto_pad != "NOTSET" or ceil_mode or not count_include_pad or pads is None or not any(pads):
        raise g.refuse("only padding that is known, and that counts, is written as a Pad")
    result: Value = g.op("AveragePool", _pad(g, X, pads), kernel_shape=kernel_shape, **attributes)
    return result


@onnx_symbolic("form::Conv.separate_pad")
def convolution(
    g: GraphContext,
    X: Value,
    W: Value,
    B: Value | None = None,
    auto_pad: str = "NOTSET",
    pads: list[int] | None = None,
    **attributes: Any,
) -> Value:
    """Padding that differs between the sides, as zeros in front of the operator."""
    half = len(pads or ()) // 2
    if auto_pad != "NOTSET" or pads is None or pads[:half] == pads[half:]:
        raise g.refuse("only padding that differs between the sides is written as a Pad")
    result: Value = g.op("Conv", _pad(g, X, pads), W, B, **attributes)
    return result


def _register_two_dimensions(op_type: str) -> None:
    @onnx_symbolic(f"form::{op_type}.two_dimensions")
    def convolve_rows(
        g: GraphContext,
        X: Value,
        W: Value,
        B: Value | None = None,
        auto_pad: str = "NOTSET",
        group: int = 1,
        **arguments: Any,
    ) -> Value:
        """Sequences as images of one row."""
        kernel = g.constant_value(W)
        if g.rank(X) != 3 or auto_pad != "NOTSET" or "output_shape" in arguments:
            raise g.refuse("only a known padding of sequences becomes one of images")
        named: dict[str, Any] = {}
        for name, numbers in arguments.items():
            before = {"pads": [0, numbers[0], 0, numbers[-1]], "output_padding": [0, *numbers]}
            named[name] = before.get(name, [1, *numbers])
        weight = g.op("Unsqueeze", W, axes=[2]) if kernel is None else g.constant(kernel[:, :, None])
        image = g.op(op_type, g.op("Unsqueeze", X, axes=[2]), weight, B, group=group, **named)
        return g.op("Squeeze", image, axes=[2])


for _op_type in ("Conv", "ConvTranspose"):
    _register_two_dimensions(_op_type)


@onnx_symbolic("form::Relu.two_dimensions")
def relu(g: GraphContext, X: Value) -> Value:
    """Sequences as images of one row."""
    if g.rank(X) != 3:
        raise g.refuse("only sequences become images")
    result: Value = g.op("Squeeze", g.op("Relu", g.op("Unsqueeze", X, axes=[2])), axes=[2])
    return result


@onnx_symbolic("form::Clip.two_dimensions")
def clip(g: GraphContext, input: Value, min: Value | None = None, max: Value | None = None) -> Value:
    """Sequences as images of one row."""
    if g.rank(input) != 3:
        raise g.refuse("only sequences become images")
    result: Value = g.op("Squeeze", g.op("Clip", g.op("Unsqueeze", input, axes=[2]), min, max), axes=[2])
    return result
