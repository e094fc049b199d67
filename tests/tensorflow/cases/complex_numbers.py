"""Complex numbers and Fourier transforms."""

from __future__ import annotations

import numpy as np

from ..records import array_of, bools, const, floats, record

LOOSE = {"rtol": 1e-4, "atol": 1e-4, "needs_rank": True}


def pairs(*shape: int, seed: int = 0, dtype: type = np.complex64) -> np.ndarray:
    """Normally distributed complex numbers."""
    return (floats(*shape, seed=seed) + 1j * floats(*shape, seed=seed + 100)).astype(dtype)


Z = pairs(2, 3, 4)


def _parts():
    yield record("Complex", "", real=floats(2, 3), imag=floats(2, 3, seed=1), needs_rank=True)
    yield record(
        "Complex",
        "double",
        real=floats(3, dtype=np.float64),
        imag=floats(3, seed=1, dtype=np.float64),
        Tout="complex128",
        needs_rank=True,
    )
    yield record("Real", "", input=Z, needs_rank=True)
    yield record("Imag", "", input=Z, needs_rank=True)
    yield record("ComplexAbs", "", x=Z, **LOOSE)
    yield record("Angle", "", input=Z, **LOOSE)
    yield record("Conj", "", input=Z, needs_rank=True)
    yield record("Cast", "real_to_complex", x=floats(3), DstT="complex64", needs_rank=True)
    yield record("Cast", "complex_to_real", x=Z, DstT="float32", needs_rank=True)
    yield record("Shape", "complex", input=Z, needs_rank=True)


def _arithmetic():
    for op in ("AddV2", "Sub", "Mul", "RealDiv"):
        yield record(op, "complex", x=Z, y=pairs(4, seed=1), **LOOSE)
    for op in ("Exp", "Neg", "Square", "Sqrt", "Reciprocal"):
        yield record(op, "complex", x=Z, **LOOSE)
    yield record("Equal", "complex", x=Z, y=Z, needs_rank=True)
    yield record("MatMul", "complex", a=pairs(2, 3), b=pairs(4, 3, seed=1), transpose_b=True, **LOOSE)
    yield record("BatchMatMulV2", "complex", x=Z, y=pairs(2, 5, 4, seed=1), adj_y=True, **LOOSE)
    yield record("Sum", "complex", input=Z, reduction_indices=const([0, -1]), **LOOSE)


def _structure():
    yield record("Reshape", "complex", tensor=Z, shape=const([6, -1]), needs_rank=True)
    yield record("Transpose", "complex", x=Z, perm=const([2, 0, 1]), needs_rank=True)
    yield record("ConjugateTranspose", "complex", x=Z, perm=const([0, 2, 1]), needs_rank=True)
    yield record("ConcatV2", "complex", values=[Z, pairs(2, 1, 4)], axis=const(1), needs_rank=True)
    yield record("Unpack", "complex", value=Z, num=3, axis=1, needs_rank=True)
    yield record("GatherV2", "complex", params=Z, indices=array_of([2, 0]), axis=const(-1), needs_rank=True)
    yield record(
        "StridedSlice",
        "complex",
        input=Z,
        begin=const([0, 1]),
        end=const([0, 2]),
        strides=const([1, 1]),
        begin_mask=1,
        end_mask=1,
        shrink_axis_mask=2,
        needs_rank=True,
    )
    yield record("Pad", "complex", input=Z, paddings=const([[0, 0], [1, 0], [0, 2]]), needs_rank=True)
    yield record("SelectV2", "complex", condition=bools(4), t=Z, e=pairs(2, 3, 4, seed=1), needs_rank=True)
    yield record("Identity", "complex", input=Z, needs_rank=True)


def _fourier():
    yield record("FFT", "", input=Z, **LOOSE)
    yield record("IFFT", "", input=Z, **LOOSE)
    yield record("FFT2D", "", input=Z, **LOOSE)
    yield record("IFFT2D", "", input=Z, **LOOSE)
    yield record("FFT3D", "", input=Z, **LOOSE)
    yield record("IFFT3D", "", input=Z, **LOOSE)
    signal = floats(2, 8, 10)
    yield record("RFFT", "", input=signal, fft_length=const([10]), **LOOSE)
    yield record("RFFT", "cropped", input=signal, fft_length=const([7]), **LOOSE)
    yield record("RFFT2D", "", input=signal, fft_length=const([8, 10]), **LOOSE)
    yield record("RFFT3D", "", input=signal, fft_length=const([2, 8, 10]), **LOOSE)
    yield record("IRFFT", "", input=pairs(2, 6), fft_length=const([10]), **LOOSE)
    yield record("IRFFT", "odd", input=pairs(2, 6), fft_length=const([9]), **LOOSE)
    yield record("IRFFT2D", "", input=pairs(2, 8, 6), fft_length=const([8, 10]), **LOOSE)
    yield record("IRFFT3D", "", input=pairs(2, 4, 6), fft_length=const([2, 4, 10]), **LOOSE)


RECORDS = [*_parts(), *_arithmetic(), *_structure(), *_fourier()]
