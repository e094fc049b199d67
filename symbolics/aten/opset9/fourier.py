"""Fourier operators on real tensors: sample frequencies, and the short-time transform as real pairs."""

from collections.abc import Callable

import numpy as np

from ....registration import DataType, GraphContext, Value, onnx_symbolic
from ...complex.fourier import Transform, apply, resize
from ...complex.real_and_imaginary import Parts, split
from ...compositions.size_arithmetic import known_rank


def _register_frequencies(name: str, numbers: Callable[[int], np.ndarray]) -> None:
    def frequencies(g: GraphContext, n: int, d: float = 1.0, dtype: DataType | None = None) -> Value:
        result_dtype = dtype if dtype is not None else DataType.FLOAT
        g.reserve(n)
        return g.op("Mul", g.constant(numbers(n), result_dtype), 1.0 / (n * d))

    frequencies.__name__ = name
    onnx_symbolic(f"aten::{name}")(frequencies)


_register_frequencies("fft_fftfreq", lambda n: (np.arange(n) + n // 2) % n - n // 2)
_register_frequencies("fft_rfftfreq", lambda n: np.arange(n // 2 + 1))


def _register_stft(domain: str, parts_of: Callable[[GraphContext, Value], Parts]) -> None:
    """Register stft for real or complex (as pairs) signals and windows."""

    @onnx_symbolic(f"{domain}::stft")
    def stft(
        g: GraphContext,
        self: Value,
        n_fft: int,
        hop_length: int | None = None,
        win_length: int | None = None,
        window: Value | None = None,
        center: bool | None = None,
        pad_mode: str = "reflect",
        normalized: bool = False,
        onesided: bool | None = None,
        return_complex: bool | None = None,
        align_to_window: bool | None = None,
    ) -> Value:
        """The transform of the frames of a signal, [batch?, frequency, frame, 2].

        With `center`, the default of the overload of this name, the signal is padded by half a frame at both
        ends.
        """
        if align_to_window:
            raise g.refuse("align_to_window is not supported")
        signal = parts_of(g, self)
        if center or (center is None and g.node is not None and g.node.overload == "center"):
            signal = signal.map(lambda part: _pad_to_centre(g, part, n_fft // 2, pad_mode))
        taps = None if window is None else parts_of(g, window)
        hop = hop_length if hop_length is not None else n_fft // 4
        length = win_length if win_length is not None else n_fft
        frames = signal.map(lambda part: g.call("aten::unfold", part, dimension=-1, size=n_fft, step=hop))
        if taps is not None or length != n_fft:
            frames = frames * _window(g, taps, length, n_fft, signal)
        is_real = frames.im is None
        is_half = is_real if onesided is None else onesided
        power = -0.5 if normalized else 0.0
        transform = Transform("r2c" if is_real else "c2c", False, power, is_half and is_real)
        result = apply(g, frames.re if is_real else frames.pair(), transform, -1)
        rank = known_rank(g, result)
        return g.op("Transpose", result, perm=[*range(rank - 3), rank - 2, rank - 3, rank - 1])


_register_stft("aten", lambda g, value: Parts(g, value))
_register_stft("complex", split)


def _pad_to_centre(g: GraphContext, signal: Value, amount: int, mode: str) -> Value:
    new_axes = list(range(3 - known_rank(g, signal)))
    batched = g.op("Unsqueeze", signal, axes=new_axes)
    return g.op("Squeeze", g.call("aten::pad", batched, pad=[amount, amount], mode=mode), axes=new_axes)


def _window(g: GraphContext, window: Parts | None, length: int, n_fft: int, like: Parts) -> Parts:
    """The window centred in a frame; ones by default."""
    g.reserve(n_fft)
    taps = Parts(g, g.constant(np.ones(length), g.dtype(like.re))) if window is None else window
    leading = (n_fft - length) // 2
    pad = [leading, n_fft - length - leading]
    if pad == [0, 0]:
        return taps
    return taps.map(lambda part: g.call("aten::constant_pad_nd", part, pad=pad, value=0))


@onnx_symbolic("complex::istft")
def istft(
    g: GraphContext,
    self: Value,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Value | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Value:
    """The signal whose frames have the spectra of `self`, [batch?, frequency, frame, 2].

    The frames of the inverse transform are weighted with the window, added where they overlap, and divided by
    the sum of the squared windows there.
    """
    hop = hop_length if hop_length is not None else n_fft // 4
    rank = known_rank(g, self)
    if return_complex and onesided:
        raise g.refuse("a complex result of a one-sided spectrum is not supported: pass onesided=False")
    spectrum = g.op("Transpose", self, perm=[*range(rank - 3), rank - 2, rank - 3, rank - 1])
    power = -0.5 if normalized else -1.0
    if return_complex:
        frames = split(g, apply(g, spectrum, Transform("c2c", True, power), -1))
    else:
        frames = Parts(g, apply(g, spectrum, Transform("c2r", True, power), -1, n_fft))
    window_length = win_length if win_length is not None else n_fft
    taps = _window(g, None if window is None else split(g, window), window_length, n_fft, frames)
    squares = (taps * taps).map(lambda part: _in_every_frame(g, part, frames.re))
    overlapped, envelope = (
        summands.map(lambda part: _overlap_add(g, part, n_fft, hop)) for summands in (frames * taps, squares)
    )
    start = n_fft // 2 if center else 0
    if length is not None:
        end: int | Value = start + length
    else:
        total = _total(g, frames.re, n_fft, hop)
        end = total - start if isinstance(total, int) else g.op("Sub", total, start)

    def cut(part: Value) -> Value:
        cropped = g.call("aten::slice", part, dim=-1, start=start, end=end)
        return cropped if length is None else resize(g, cropped, known_rank(g, cropped) - 1, length)

    signal = (overlapped / envelope).map(cut)
    return signal.pair() if return_complex else signal.re


def _in_every_frame(g: GraphContext, weights: Value, frames: Value) -> Value:
    """The weights of a frame, repeated for each frame: [frame, n_fft]."""
    rank = known_rank(g, frames)
    first = (
        frames
        if rank == 2
        else g.op("Squeeze", g.call("aten::slice", frames, dim=0, start=0, end=1), axes=[0])
    )
    return g.op("Add", g.call("aten::zeros_like", first), weights)


def _total(g: GraphContext, frames: Value, n_fft: int, hop: int) -> int | Value:
    count = g.size(frames, known_rank(g, frames) - 2)
    if isinstance(count, int):
        return n_fft + hop * (count - 1)
    return g.op("Add", g.op("Mul", count, hop), n_fft - hop)


def _overlap_add(g: GraphContext, frames: Value, n_fft: int, hop: int) -> Value:
    """The overlap-add of frames, [..., frame, n_fft], computed for each part of hop length."""
    rank = known_rank(g, frames)
    part_count = -(-n_fft // hop)
    # Frames padded to a multiple of the hop length consist of parts that fall on whole hops.
    frames = g.call("aten::constant_pad_nd", frames, pad=[0, part_count * hop - n_fft], value=0)
    shifted = []
    for index in range(part_count):
        # Part i of a frame belongs i hops later, so it is shifted by i rows.
        part = g.call("aten::slice", frames, dim=rank - 1, start=index * hop, end=(index + 1) * hop)
        shifted.append(
            g.call("aten::constant_pad_nd", part, pad=[0, 0, index, part_count - 1 - index], value=0)
        )
    total = shifted[0] if len(shifted) == 1 else g.op("Sum", *shifted)
    flat = g.op("Reshape", total, shape=[0] * (rank - 2) + [-1])
    return g.call("aten::slice", flat, dim=-1, start=0, end=_total(g, frames, n_fft, hop))
