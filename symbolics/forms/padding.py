"""Padding as a Pad of its own, in front of convolutions and pooling."""

from typing import Any

from ...registration import GraphContext, Value, onnx_symbolic


def _pad(g: GraphContext, X: Value, pads: list[int]) -> Value:
    """Pad the spatial dimensions with zeros."""
    half = len(pads) // 2
    return g.op("Pad", X, pads=[0, 0, *pads[:half], 0, 0, *pads[half:]])


@onnx_symbolic("form::AveragePool_separate_pad")
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
    if auto_pad != "NOTSET" or ceil_mode or not count_include_pad:
        raise g.refuse("only padding that is known, and that counts, is written as a Pad")
    padded = _pad(g, X, pads) if any(pads or ()) else X
    return g.op("AveragePool", padded, kernel_shape=kernel_shape, **attributes)


@onnx_symbolic("form::Conv_separate_pad")
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
    return g.op("Conv", _pad(g, X, pads), W, B, **attributes)
