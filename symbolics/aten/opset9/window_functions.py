"""Windows of signals: their lengths are numbers, so that they are constants."""

from collections.abc import Callable

import numpy as np

from ....registration import DataType, GraphContext, Value, onnx_symbolic


def _constant_window(
    g: GraphContext, length: int, periodic: bool, dtype: DataType | None, window: Callable[[int], np.ndarray]
) -> Value:
    """A symmetric window; a periodic one leaves out the last element of the next longer window."""
    g.reserve(length)
    elements = window(length + 1)[:length] if periodic and length > 1 else window(length)
    dtype = dtype or (g.expected[0].dtype if g.expected else None) or DataType.FLOAT
    return g.constant(elements.astype(dtype.numpy()))


@onnx_symbolic("aten::hamming_window")
def hamming_window(
    g: GraphContext,
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    dtype: DataType | None = None,
) -> Value:
    def window(length: int) -> np.ndarray:
        phase = np.arange(length) * (2 * np.pi / max(length - 1, 1))
        return np.ones(length) if length == 1 else alpha - beta * np.cos(phase)

    return _constant_window(g, window_length, periodic, dtype, window)


@onnx_symbolic("aten::blackman_window")
def blackman_window(
    g: GraphContext, window_length: int, periodic: bool = True, dtype: DataType | None = None
) -> Value:
    return _constant_window(g, window_length, periodic, dtype, np.blackman)


@onnx_symbolic("aten::bartlett_window")
def bartlett_window(
    g: GraphContext, window_length: int, periodic: bool = True, dtype: DataType | None = None
) -> Value:
    return _constant_window(g, window_length, periodic, dtype, np.bartlett)


@onnx_symbolic("aten::kaiser_window")
def kaiser_window(
    g: GraphContext,
    window_length: int,
    periodic: bool = True,
    beta: float = 12.0,
    dtype: DataType | None = None,
) -> Value:
    return _constant_window(g, window_length, periodic, dtype, lambda length: np.kaiser(length, beta))
