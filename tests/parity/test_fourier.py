"""Fourier transforms against eager PyTorch: lengths, norms, dimensions, frames, and a speech frontend."""

import functools

import pytest
import torch

import opsetta

from .records import HIGHEST, Record, check, floats, parametrized

OPSETS = (7, 9, 16, 17, HIGHEST)
FEW = (9, 20)
LENGTHS = (1, 2, 3, 4, 7, 16, 64, 127, 130, 131, 256, 400)
NORMS = ("backward", "ortho", "forward")
BATCH = {0: "batch"}


def complexes(*shape: int, seed: int = 0) -> torch.Tensor:
    """Normally distributed complex numbers, the same ones every time."""
    return torch.complex(floats(*shape, seed=seed), floats(*shape, seed=seed + 100))


def _call(name: str, **options):
    return functools.partial(getattr(torch.fft, name), **options)


def _all_lengths(length: int):
    def function(z: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        fft = torch.fft
        half = z[..., : length // 2 + 1]
        return (
            *(fft.fft(z), fft.ifft(z), fft.fft(x), fft.rfft(x), fft.ihfft(x)),
            *(fft.irfft(half, length), fft.hfft(half, length)),
        )

    return function


ONE = [
    Record(
        f"length-{length}",
        _all_lengths(length),
        (complexes(2, length), floats(2, length, seed=3)),
        FEW if length < 64 else (9, 17, HIGHEST),
    )
    for length in LENGTHS
]
ONE += [
    Record(f"{name}-{norm}", _call(name, norm=norm), (complexes(2, 5),), FEW)
    for name in ("fft", "ifft", "irfft", "hfft")
    for norm in NORMS
]
ONE += [
    Record(f"{name}-{norm}", _call(name, norm=norm), (floats(2, 5),), FEW)
    for name in ("rfft", "ihfft")
    for norm in NORMS
]
ONE += [
    Record(f"fft-{norm}-{length}", _call("ifft", norm=norm), (complexes(2, length),), (9, 17))
    for norm in NORMS
    for length in (128, 144)
]
ONE += [
    Record(
        "fft-dim",
        lambda z: (torch.fft.fft(z, dim=0), torch.fft.ifft(z, dim=-2)),
        (complexes(3, 4, 2),),
        OPSETS,
    ),
    Record(
        "fft-cut", lambda z: (torch.fft.fft(z, 3), torch.fft.fft(z, 3, dim=0)), (complexes(4, 5),), OPSETS
    ),
    Record(
        "fft-filled", lambda z: (torch.fft.fft(z, 8), torch.fft.fft(z, 6, dim=0)), (complexes(4, 5),), OPSETS
    ),
    Record(
        "rfft-dim",
        lambda x: (torch.fft.rfft(x, 6, dim=0), torch.fft.rfft(x, dim=-2)),
        (floats(4, 5),),
        OPSETS,
    ),
    Record(
        "irfft-odd", lambda z: (torch.fft.irfft(z, 7), torch.fft.irfft(z, dim=0)), (complexes(4, 5),), OPSETS
    ),
    Record("irfft-longer", lambda z: torch.fft.irfft(z, 128), (complexes(4, 5),), OPSETS),
    Record("irfft-of-real", lambda x: (torch.fft.irfft(x), torch.fft.hfft(x)), (floats(4, 5),), OPSETS),
    Record("fft-integers", lambda x: torch.fft.rfft(x), (torch.arange(6),), OPSETS),
    Record(
        "fft-double",
        lambda x: torch.fft.irfft(torch.fft.rfft(x) * 2),
        (floats(2, 6, dtype=torch.float64),),
        FEW,
    ),
    Record("fft-double-64", torch.fft.ifft, (complexes(2, 64).to(torch.complex128),), (9, 17, HIGHEST)),
]

MANY = [
    Record("fftn", torch.fft.fftn, (complexes(2, 3, 4),), OPSETS),
    Record("ifftn", _call("ifftn", dim=(0, -1), norm="ortho"), (complexes(2, 3, 4),), FEW),
    Record("fftn-sizes", _call("fftn", s=(4, -1)), (complexes(2, 3, 4),), FEW),
    Record("fft2", torch.fft.fft2, (floats(2, 3, 4),), OPSETS),
    Record("ifft2", _call("ifft2", s=(2, 5), dim=(0, 1)), (complexes(2, 3, 4),), FEW),
    Record("rfftn", torch.fft.rfftn, (floats(2, 3, 4),), OPSETS),
    Record("rfft2", _call("rfft2", s=(4, 5), norm="forward"), (floats(2, 3, 4),), FEW),
    Record("irfftn", torch.fft.irfftn, (complexes(2, 3, 4),), OPSETS),
    Record("irfft2", _call("irfft2", s=(3, 5), norm="ortho"), (complexes(2, 3, 4),), FEW),
    Record("hfft2", torch.fft.hfft2, (complexes(2, 3, 4),), FEW),
    Record("hfftn", _call("hfftn", norm="ortho"), (complexes(2, 3, 4),), FEW),
    Record("ihfft2", torch.fft.ihfft2, (floats(2, 3, 4),), FEW),
    Record("ihfftn", _call("ihfftn", dim=(1, 0)), (floats(2, 3, 4),), FEW),
]

KERNELS = [
    Record("c2c", lambda z: torch.ops.aten._fft_c2c(z, [0, 1], 1, True), (complexes(3, 4),), FEW),
    Record("c2c-inverse", lambda z: torch.ops.aten._fft_c2c(z, [1], 2, False), (complexes(3, 4),), FEW),
    Record("r2c", lambda x: torch.ops.aten._fft_r2c(x, [0, 1], 0, True), (floats(3, 4),), FEW),
    Record("r2c-whole", lambda x: torch.ops.aten._fft_r2c(x, [1], 0, False), (floats(3, 64),), (9, 17)),
    Record("c2r", lambda z: torch.ops.aten._fft_c2r(z, [0, 1], 2, 6), (complexes(3, 4),), FEW),
]

PLACES = [
    Record(
        "fftshift", lambda z: (torch.fft.fftshift(z), torch.fft.ifftshift(z, dim=-1)), (complexes(3, 4),), FEW
    ),
    Record(
        "fftshift-real", lambda x: (torch.fft.fftshift(x, 0), torch.fft.ifftshift(x)), (floats(3, 4),), OPSETS
    ),
    Record(
        "frequencies",
        lambda x: tuple(
            x * f(n, d).sum() + f(n, d)[:2]
            for f in (torch.fft.fftfreq, torch.fft.rfftfreq)
            for n, d in ((5, 1.0), (6, 0.25))
        ),
        (floats(2),),
        FEW,
    ),
]

DYNAMIC = [
    Record(
        "dynamic-vector",
        lambda x: (torch.fft.fft(x), torch.fft.irfft(torch.fft.rfft(x)), torch.fft.ihfft(x, 5)),
        (floats(8),),
        (9, 17),
        dynamic=({0: "length"},),
    ),
    Record(
        "dynamic-batch",
        lambda x: (torch.fft.rfft(x, dim=1), torch.fft.irfft(torch.fft.fft(x[..., 0]))),
        (floats(3, 8, 2),),
        (9, 17, HIGHEST),
        dynamic=(BATCH,),
    ),
    Record(
        "dynamic-length",
        lambda x: (torch.fft.fft(x), torch.fft.ifft(x), torch.fft.rfft(x, norm="ortho"), torch.fft.fft(x, 6)),
        (floats(3, 8),),
        (9, 17, HIGHEST),
        dynamic=({0: "batch", 1: "length"},),
    ),
    Record(
        "dynamic-irfft",
        lambda z: (torch.fft.irfft(z), torch.fft.hfft(z, norm="forward"), torch.fft.irfft(z, 12)),
        (complexes(3, 5),),
        (9, 17, HIGHEST),
        dynamic=({0: "batch", 1: "length"},),
    ),
]


def _stft(**options):
    return lambda x, *window: torch.stft(x, window=window[0] if window else None, **options)


HANN = torch.hann_window(16)
STFT = [
    Record("stft", _stft(n_fft=16, hop_length=4, return_complex=True), (floats(2, 50), HANN), OPSETS),
    Record("stft-as-real", _stft(n_fft=16, return_complex=False), (floats(50), HANN), OPSETS),
    Record(
        "stft-short-window",
        _stft(n_fft=16, win_length=10, return_complex=True),
        (floats(2, 50), HANN[:10]),
        FEW,
    ),
    Record(
        "stft-no-window", _stft(n_fft=7, win_length=4, center=False, return_complex=True), (floats(50),), FEW
    ),
    Record("stft-whole", _stft(n_fft=8, onesided=False, return_complex=True), (floats(50),), FEW),
    Record("stft-normalized", _stft(n_fft=16, normalized=True, return_complex=True), (floats(50), HANN), FEW),
    Record(
        "stft-constant", _stft(n_fft=16, pad_mode="constant", return_complex=True), (floats(50), HANN), FEW
    ),
    Record("stft-complex", _stft(n_fft=16, return_complex=True), (complexes(50), HANN), FEW),
    Record("stft-complex-window", _stft(n_fft=8, return_complex=True), (floats(50), complexes(8)), FEW),
    Record("stft-long", _stft(n_fft=512, hop_length=128, return_complex=True), (floats(1, 2000),), (9, 17)),
    Record("istft", lambda z: torch.istft(z, 16, 4, window=HANN), (complexes(2, 9, 7),), OPSETS),
    Record("istft-uneven", lambda z: torch.istft(z, 16, 5, window=HANN + 0.1), (complexes(9, 7),), FEW),
    Record(
        "istft-length", lambda z: torch.istft(z, 16, 4, window=HANN, length=21), (complexes(2, 9, 7),), FEW
    ),
    Record(
        "istft-longer", lambda z: torch.istft(z, 16, 4, window=HANN, length=40), (complexes(2, 9, 7),), FEW
    ),
    Record(
        "istft-uncentered",
        lambda z: torch.istft(z, 16, 4, center=False, window=HANN + 0.1),
        (complexes(9, 7),),
        FEW,
    ),
    Record("istft-whole", lambda z: torch.istft(z, 8, 2, normalized=True), (complexes(2, 8, 7),), FEW),
    Record(
        "istft-complex",
        lambda z, w: torch.istft(z, 8, 2, window=w, return_complex=True, onesided=False),
        (complexes(2, 8, 7), complexes(8) + 3),
        FEW,
    ),
    Record(
        "stft-and-back",
        lambda x: torch.istft(
            torch.stft(x, 16, 4, window=HANN, return_complex=True) * 1j, 16, 4, window=HANN
        ),
        (floats(2, 50),),
        (9, 17, HIGHEST),
        dynamic=({0: "batch", 1: torch.export.Dim("length", min=20)},),
    ),
]


@parametrized([*ONE, *MANY, *KERNELS, *PLACES, *DYNAMIC, *STFT])
def test_agrees_with_eager(record: Record) -> None:
    check(record)


class _Frontend(torch.nn.Module):
    """Log mel spectrogram."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(400))
        self.register_buffer("filters", floats(201, 16).abs())

    def forward(self, signal: torch.Tensor) -> torch.Tensor:
        """Of a signal, [batch, length], the logarithm of its power in each band, [batch, frame, band]."""
        spectrum = torch.stft(signal, 400, 160, window=self.window, return_complex=True)
        power = spectrum.abs() ** 2
        return torch.log(torch.clamp(power.transpose(1, 2) @ self.filters, min=1e-10))


@functools.cache
def _frontend() -> opsetta.Program:
    shapes = ({0: torch.export.Dim("batch"), 1: torch.export.Dim("length", min=400)},)
    return opsetta.export(_Frontend().eval(), (floats(2, 3200),), opset=13, dynamic_shapes=shapes)


@pytest.mark.parametrize("opset", [9, 13, 17, 20, HIGHEST])
def test_speech_frontend_agrees_at_other_lengths(opset: int) -> None:
    program = _frontend().lower(opset=opset)
    program.verify()
    program.verify((floats(3, 1000, seed=1),))
    program.verify((floats(1, 4011, seed=2),))


@pytest.mark.parametrize("opset", [9, 17])
def test_dynamic_length_agrees_at_other_lengths(opset: int) -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            """There and back."""
            spectrum = torch.fft.rfft(x)
            return spectrum, torch.fft.irfft(spectrum, x.shape[1]), torch.fft.fftshift(spectrum, dim=1)

    shapes = ({0: torch.export.Dim("batch"), 1: torch.export.Dim("length", min=4)},)
    program = opsetta.export(Model().eval(), (floats(2, 12),), opset=opset, dynamic_shapes=shapes)
    for length in (7, 12, 33):
        program.verify((floats(2, length),))


@pytest.mark.parametrize(
    ("opset", "length", "due"), [(16, 256, False), (17, 256, True), (20, 256, True), (20, 100, False)]
)
def test_operator_serves_powers_of_two(opset: int, length: int, due: bool) -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            """A spectrum."""
            return torch.fft.rfft(x)

    program = opsetta.export(Model().eval(), (floats(2, length),), opset=opset)
    assert ("DFT" in {node.op_type for node in program.model.graph}) == due
