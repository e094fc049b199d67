"""Spectrograms and cepstral coefficients of audio, as graphs for speech commands compute them.

Source of the formulas, in tensorflow/core/kernels: spectrogram.cc, mfcc.cc, mfcc_mel_filterbank.cc and
mfcc_dct.cc.
"""

import numpy as np

from ....registration import DataType, GraphContext, Value, onnx_symbolic
from ...compositions.special.formulas import Formula
from .._common import set_shape

_FLOOR = 1e-12
"""Energies below it are raised to it before the logarithm."""


@onnx_symbolic("tf::AudioSpectrogram")
def audio_spectrogram(
    g: GraphContext, input: Value, window_size: int, stride: int, magnitude_squared: bool = False
) -> Value:
    """The magnitudes [channels, windows, frequencies] of samples [samples, channels].

    One convolution multiplies each window by a Hann window, and by the cosines and sines of all frequencies.
    """
    count = g.size(input, 0)
    if isinstance(count, int) and count < window_size:
        raise g.refuse(f"its {count} samples are fewer than a window of {window_size}, so it has no result")
    length = 1 << (window_size - 1).bit_length()
    frequencies = length // 2 + 1
    positions = np.arange(window_size)
    window = 0.5 - 0.5 * np.cos(2 * np.pi * positions / window_size)
    # The remainder keeps the angles small, and therefore exact.
    angles = np.outer(np.arange(frequencies), positions) % length * (2 * np.pi / length)
    kernels = np.concatenate([np.cos(angles), np.sin(angles)]) * window
    signal = g.op("Unsqueeze", g.op("Transpose", input, perm=[1, 0]), axes=[1])
    weights = g.constant(kernels[:, None].astype(np.float32))
    parts = g.op("Conv", signal, weights, kernel_shape=[window_size], strides=[stride])
    set_shape(parts, [None, len(kernels), None])
    squares = g.op("Mul", parts, parts)
    halves = (
        g.op("Slice", squares, starts=[start], ends=[start + frequencies], axes=[1])
        for start in (0, frequencies)
    )
    energies = set_shape(g.op("Transpose", g.op("Add", *halves), perm=[0, 2, 1]), [None, None, frequencies])
    return energies if magnitude_squared else set_shape(g.op("Sqrt", energies), g.shape(energies))


@onnx_symbolic("tf::Mfcc")
def mfcc(
    g: GraphContext,
    spectrogram: Value,
    sample_rate: Value,
    upper_frequency_limit: float = 4000.0,
    lower_frequency_limit: float = 20.0,
    filterbank_channel_count: int = 40,
    dct_coefficient_count: int = 13,
) -> Value:
    """The coefficients in the last axis, of squared magnitudes [channels, windows, frequencies]."""
    size = g.size(spectrogram, 2)
    if not isinstance(size, int):
        raise g.refuse("the size of dimension 2 is unknown")
    limits = (lower_frequency_limit, upper_frequency_limit)
    filters = _mel_filters(g, size, sample_rate, filterbank_channel_count, limits)
    positions = np.arange(filterbank_channel_count) + 0.5
    angles = np.outer(positions, np.arange(dct_coefficient_count)) * (np.pi / filterbank_channel_count)
    cosines = np.sqrt(2 / filterbank_channel_count) * np.cos(angles)
    energies = g.op("MatMul", g.op("Sqrt", spectrogram), filters)
    logarithms = g.op("Log", g.op("Max", energies, _FLOOR))
    return g.op("MatMul", logarithms, g.constant(cosines.astype(np.float32)))


def _mel_filters(
    g: GraphContext, size: int, sample_rate: Value, channels: int, limits: tuple[float, float]
) -> Value:
    """The weights [size, channels] of triangular filters whose centers are equally spaced on the mel scale.

    Computed in DOUBLE from the rate, because graphs read it from the file of the audio.
    """
    lowest, highest = (1127 * np.log1p(limit / 700) for limit in limits)
    rate = Formula(g, g.op("Reshape", g.cast(sample_rate, DataType.DOUBLE), [1]))
    index = Formula(g, g.constant(np.arange(size, dtype=np.float64)[:, None]))
    centers = Formula(g, g.constant(np.arange(1, channels + 1, dtype=np.float64)))
    # A bin of the spectrogram is a frequency; a unit of the mel scale is the distance of two triangles.
    step = rate * (0.5 / (size - 1))
    mels = (index * step * (1 / 700) + 1.0).log() * 1127.0
    distance = abs((mels - lowest) * ((channels + 1) / (highest - lowest)) - centers)
    # As in HTK, the constant part of the signal never counts.
    first, last = (limits[0] / step + 1.5).floor(), (limits[1] / step).floor()
    is_inside = (distance < 1.0) & (index >= first) & (index <= last)
    weights: Value = is_inside.chosen(1.0 - distance, 0.0).cast(DataType.FLOAT).value
    return weights
