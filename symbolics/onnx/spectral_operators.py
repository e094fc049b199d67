"""Spectra of signals: DFT, STFT and MelWeightMatrix below the opsets that introduce or change them.

DFT takes a computed axis at 20; below, the axis is an attribute, and below 17 it is a product with a matrix.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from ...registration import DataType, GraphContext, Value, onnx_symbolic
from ..compositions.size_arithmetic import known_rank
from .support import below, by_axis, integers


@below("DFT", 20)
def dft(
    g: GraphContext,
    input: Value,
    dft_length: Value | None = None,
    axis: Value | None = None,
    inverse: int = 0,
    onesided: int = 0,
) -> Value:
    """Below 20: only a constant axis."""
    axes = [-2] if axis is None else integers(g, axis)
    if axes is None:
        return _dft_by_axis(g, dft, input, dft_length, axis, inverse, onesided)
    [dim] = axes
    rank = g.rank(input)
    if dim < 0:
        if rank is None:
            raise g.refuse(
                "the rank of its input is unknown, and its axis counts from the end", first_opset=20
            )
        dim += rank
    return g.op("DFT", input, dft_length, axis=dim, inverse=inverse, onesided=onesided)


@onnx_symbolic("before20::DFT")
def dft_17(
    g: GraphContext, input: Value, dft_length: Value | None = None, axis: int = 1, **attributes: Any
) -> Value:
    """Its axis is an input since 20, with another default."""
    result: Value = g.op("DFT", input, dft_length, g.constant(axis), **attributes)
    return result


@below("DFT", 17)
def composed_dft(
    g: GraphContext,
    input: Value,
    dft_length: Value | None = None,
    axis: Value | None = None,
    inverse: int = 0,
    onesided: int = 0,
) -> Value:
    """Below 17: a product with the matrix of the transform."""
    rank = known_rank(g, input)
    axes = [-2] if axis is None else integers(g, axis)
    if axes is None:
        return _dft_by_axis(g, composed_dft, input, dft_length, axis, inverse, onesided)
    dim = g.axis(axes[0], rank)
    input_shape = g.shape(input)
    if input_shape is None or input_shape[-1] not in (1, 2):
        raise g.refuse("the last dimension must be known: 1 for real, 2 for complex numbers", first_opset=17)
    length = integers(g, dft_length) if dft_length is not None else None
    if dft_length is not None and length is None:
        raise g.refuse("its length must be constant", first_opset=17)
    count = length[0] if length is not None else g.size(input, dim)
    exchanged = g.call("aten::movedim", self=input, source=dim, destination=rank - 2)
    if length is not None:
        exchanged = _fit_length(g, exchanged, rank - 2, length[0])
    if onesided and inverse:
        raise g.refuse("the inverse transform of a one-sided spectrum is not supported", first_opset=17)
    variant = "r2c" if input_shape[-1] == 1 else "c2c"
    power = -1.0 if inverse else 0.0
    if variant == "r2c":
        zeros = g.op("Mul", exchanged, 0.0)
        # The composition takes pairs; real numbers have an imaginary part of 0.
        exchanged = g.op("Concat", exchanged, zeros, axis=rank - 1)
    result = g.call("composed::dft", exchanged, count, "c2c", bool(inverse), power, bool(onesided))
    return g.call("aten::movedim", self=result, source=rank - 2, destination=dim)


def _dft_by_axis(
    g: GraphContext,
    transform: Callable[..., Value],
    input: Value,
    dft_length: Value | None,
    axis: Value | None,
    inverse: int,
    onesided: int,
) -> Value:
    """Transform along each axis, and select the result of the computed one."""
    if onesided or dft_length is not None or axis is None:
        raise g.refuse("its axis must be constant", first_opset=20)
    count = known_rank(g, input) - 1
    candidates = [transform(g, input, None, g.constant(dim), inverse) for dim in range(count)]
    return by_axis(g, g.op("Where", g.op("Less", axis, 0), g.op("Add", axis, 1), axis), candidates)


def _fit_length(g: GraphContext, value: Value, dim: int, length: int) -> Value:
    """Crop or zero-pad one dimension."""
    size = g.size(value, dim)
    if not isinstance(size, int):
        raise g.refuse("the size of the transformed dimension must be known", first_opset=17)
    if size >= length:
        return g.call("aten::slice", self=value, dim=dim, start=0, end=length)
    rank = known_rank(g, value)
    ends = [length - size if i == dim else 0 for i in range(rank)]
    return g.call("composed::pad", self=value, begins=[0] * rank, ends=ends, value=0.0)


@below("STFT", 17)
def composed_stft(
    g: GraphContext,
    signal: Value,
    frame_step: Value,
    window: Value | None = None,
    frame_length: Value | None = None,
    onesided: int = 1,
) -> Value:
    """Below 17: the frames of the signal, and a product with the matrix of the transform.

    Returns:
        The spectra of the frames, `[batch, frame, frequency, 2]`.
    """
    step = integers(g, frame_step)
    length = _frame_length(g, signal, window, frame_length)
    if step is None or length is None:
        raise g.refuse("the step and the length of the frames must be constant", first_opset=17)
    shape = g.shape(signal)
    # Runtimes also take a real signal without the last dimension, though the specification has it.
    if shape is None or (len(shape) == 3 and shape[-1] not in (1, 2)):
        raise g.refuse("the last dimension must be known: 1 for real, 2 for complex numbers", first_opset=17)
    transform = {"n_fft": length, "hop_length": step[0], "center": False}
    if len(shape) == 3 and shape[-1] == 2:
        pairs = None
        if window is not None:
            column = g.op("Unsqueeze", window, axes=[1])
            pairs = g.op("Concat", column, g.op("Mul", column, 0.0), axis=1)
        spectra = g.call("complex::stft", signal, window=pairs, onesided=False, **transform)
        if onesided:
            spectra = g.call("aten::slice", self=spectra, dim=1, start=0, end=length // 2 + 1)
    else:
        samples = g.op("Squeeze", signal, axes=[2]) if len(shape) == 3 else signal
        spectra = g.call("aten::stft", samples, window=window, onesided=bool(onesided), **transform)
    return g.op("Transpose", spectra, perm=[0, 2, 1, 3])


def _frame_length(
    g: GraphContext, signal: Value, window: Value | None, frame_length: Value | None
) -> int | None:
    """The length of a frame, by default that of the window or of the signal; None if it is not constant."""
    if frame_length is not None:
        lengths = integers(g, frame_length)
        return None if lengths is None else lengths[0]
    length = g.size(signal, 1) if window is None else g.size(window, 0)
    return length if isinstance(length, int) else None


@below("MelWeightMatrix", 17)
def constant_mel_weight_matrix(
    g: GraphContext,
    num_mel_bins: Value,
    dft_length: Value,
    sample_rate: Value,
    lower_edge_hertz: Value,
    upper_edge_hertz: Value,
    output_datatype: int = DataType.FLOAT,
) -> Value:
    """Below 17: the matrix itself, `[dft_length // 2 + 1, num_mel_bins]`, of constant arguments."""
    arguments = [
        g.constant_value(value)
        for value in (num_mel_bins, dft_length, sample_rate, lower_edge_hertz, upper_edge_hertz)
    ]
    if any(argument is None for argument in arguments):
        raise g.refuse("its inputs must be constant", first_opset=17)
    band_count, length, rate, lowest, highest = (float(np.asarray(argument)) for argument in arguments)
    g.reserve(int(band_count) * (int(length) // 2 + 1))
    matrix = mel_weight_matrix(int(band_count), int(length), rate, lowest, highest)
    return g.constant(matrix, DataType(output_datatype))


def mel_weight_matrix(
    band_count: int, length: int, rate: float, lowest: float, highest: float
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The weights of the frequencies of a transform in triangular bands of equal width on the mel scale.

    Args:
        length: the length of the transform.
        rate: samples per second.
        lowest, highest: in hertz, the lower edge of the lowest band and the upper edge of the highest.
    """
    low_mel, high_mel = (2595 * np.log10(1 + hertz / 700) for hertz in (lowest, highest))
    edges = low_mel + np.arange(band_count + 2) * (high_mel - low_mel) / (band_count + 2)
    positions = np.floor((length + 1) * 700 * (10 ** (edges / 2595) - 1) / rate)
    left, centre, right = positions[:-2], positions[1:-1], positions[2:]
    frequency = np.arange(length // 2 + 1)[:, None]
    rising = (frequency - left) / np.maximum(centre - left, 1)
    falling = (right - frequency) / np.maximum(right - centre, 1)
    weights = np.where(frequency < centre, rising, falling)
    weights = np.where((left <= frequency) & (frequency < right), weights, 0.0)
    return np.where(frequency == centre, 1.0, weights)
