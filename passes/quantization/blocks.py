"""Affine quantization of matrices in blocks along their rows, in numpy."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import math
import os
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from ...registration import UsageError

_AT_ONCE = 1 << 17
"""Elements of a matrix that are computed at once, which fit into the cache of a processor."""
_CACHE_LINE = 64
"""Bytes that a processor reads at once."""
_FEW_PARTS = 4
_TILE = 128
"""Lines of the cache that the fastest cache of a processor holds, besides what is written."""
_SHORT = 256
"""Elements of a block up to which a transposed copy is reduced faster."""
_T = TypeVar("_T")
SMALLEST_BLOCK = 16
"""onnxruntime's MatMulNBits takes blocks of 16, 32, 64, … elements."""


@dataclasses.dataclass(frozen=True)
class Scheme:
    """How weights are quantized.

    Attributes:
        bits: of a quantized element, 4 or 8.
        block_size: elements that share a scale, along the dimension that a product sums over.
        symmetric: whether zero points are in the middle of the range, so that they need no storage.
        is_ggml: whether blocks have the numbers of GGML's type Q4_0: the scale is FLOAT16, and may be
            negative, so that the largest element is -8 times the scale.

    Raises:
        UsageError: a number is none of these.
    """

    bits: int
    block_size: int = 32
    symmetric: bool = True
    is_ggml: bool = False

    def __post_init__(self) -> None:
        if self.bits not in (4, 8):
            raise UsageError(f"bits must be 4 or 8, not {self.bits!r}")
        size = self.block_size
        if not isinstance(size, int) or size < SMALLEST_BLOCK or size & (size - 1):
            raise UsageError(f"the block size must be a power of two, {SMALLEST_BLOCK} or more, not {size!r}")
        if self.is_ggml and (self.bits, size, self.symmetric) != (4, 32, True):
            raise UsageError(
                "blocks of Q4_0 have 32 symmetric elements of 4 bits: leave out the other options"
            )

    @property
    def middle(self) -> int:
        """The zero point of symmetric quantization, for elements without a sign."""
        return 1 << (self.bits - 1)

    def check_largest(self, size: float) -> None:
        """Refuse a weight by its largest absolute value. A NaN is the largest one, too.

        Raises:
            ValueError: it is not finite, or beyond what a scale can be.
        """
        if not math.isfinite(size):
            raise ValueError("it holds an infinity or NaN")
        if self.is_ggml and size / 8 > float(np.finfo(np.float16).max):
            raise ValueError("a scale is beyond the range of FLOAT16, which the scales of Q4_0 have")


DTYPES = ("int8", "int4", "q4_0")
"""The names of schemes."""


def scheme_of(dtype: str, block_size: int = 32, symmetric: bool = True, **ignored: object) -> Scheme:
    """How weights are quantized, from arguments of `quantize_weights`.

    Raises:
        UsageError: an argument has an unknown value.
    """
    if dtype not in DTYPES:
        raise UsageError(f"dtype must be 'int8', 'int4' or 'q4_0', not {dtype!r}")
    return Scheme(8 if dtype == "int8" else 4, block_size, symmetric, dtype == "q4_0")


@dataclasses.dataclass(frozen=True)
class Blocks:
    """A quantized matrix: `(codes - zeros) * scales`, rows padded to whole blocks.

    Attributes:
        codes: unsigned elements, `[rows, blocks, block size]`.
        scales: `[rows, blocks]`, in the type of the weight.
        zeros: unsigned zero points, `[rows, blocks]`.
        worst: the largest absolute error of an element.
        total_error: the sum of the absolute errors.
        largest: the largest absolute value of the matrix.
        total: the sum of its absolute values.
    """

    codes: np.ndarray
    scales: np.ndarray
    zeros: np.ndarray
    worst: float
    total_error: float
    largest: float
    total: float


def quantize(matrix: np.ndarray, scheme: Scheme, block_size: int, scale_type: np.dtype) -> Blocks:
    """Quantize the rows of a matrix, a few of them at a time.

    Args:
        block_size: elements of a row that share a scale; it may differ from that of the scheme.
        scale_type: the type that scales are rounded to before they are used.

    Raises:
        ValueError: the matrix contains an infinity or NaN.
    """
    rows, columns = matrix.shape
    count = -(-columns // block_size)
    codes = np.zeros((rows, count, block_size), dtype=np.uint8)
    scales = np.empty((rows, count), dtype=scale_type)
    zeros = np.empty((rows, count), dtype=np.uint8)
    step = max(1, _AT_ONCE // max(1, count * block_size))
    buffers = _Buffers(min(step, rows) * count * block_size)

    def quantize_rows(row: int) -> tuple[float, float, float, float]:
        """Fill the arrays from a row on; the largest error, their sum, the largest weight and their sum."""
        shape = min(step, rows - row), count, block_size
        part, sizes, part_codes = (buffer[: math.prod(shape)].reshape(shape) for buffer in buffers.arrays)
        flat = part.reshape(len(part), -1)
        _copy_in_tiles(flat[:, :columns], matrix[row : row + step])
        flat[:, columns:] = 0
        np.abs(part, out=sizes)
        largest_size = float(sizes.max(initial=0))
        scheme.check_largest(largest_size)
        scale, zero = _quantize_blocks(part, sizes, part_codes, scheme, scale_type)
        row_range = slice(row, row + len(part))
        codes[row_range], scales[row_range], zeros[row_range] = part_codes, scale, zero
        errors = part_codes
        errors -= zero[..., None].astype(np.float32)
        errors *= scale[..., None].astype(np.float32)
        errors -= part
        np.abs(errors, out=errors)
        return (
            float(errors.max(initial=0)),
            float(errors.sum(dtype=np.float64)),
            largest_size,
            float(sizes.sum(dtype=np.float64)),
        )

    facts = map_in_threads(quantize_rows, range(0, rows, step))
    worst = max((fact[0] for fact in facts), default=0.0)
    largest = max((fact[2] for fact in facts), default=0.0)
    # In the order of the rows, so that the sums do not depend on the threads.
    total_error, total = sum(fact[1] for fact in facts), sum(fact[3] for fact in facts)
    return Blocks(codes, scales, zeros, worst, total_error, largest, total)


class _Buffers(threading.local):
    """Arrays for the parts that one thread computes: the system gives new memory page by page, which is slow.

    Attributes:
        arrays: the part, its absolute values, and its codes.
    """

    def __init__(self, size: int):
        self.arrays = np.empty((3, size), dtype=np.float32)


def map_in_threads(compute: Callable[[int], _T], starts: Sequence[int]) -> list[_T]:
    """Call a function of numpy for parts of an array, on all processors: numpy runs without Python's lock.

    Args:
        compute: takes the number at which a part begins.
        starts: these numbers, in the order of the results.
    """
    # Threads cost more than a few small parts.
    if len(starts) <= _FEW_PARTS:
        return [compute(start) for start in starts]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(compute, starts))


def transpose_in_tiles(matrix: np.ndarray) -> np.ndarray:
    """A transposed copy, made on all processors. Each line of the cache is read once."""
    result = np.empty(matrix.shape[::-1], dtype=matrix.dtype)
    width = max(1, _CACHE_LINE // matrix.itemsize)

    def copy_tile(start: int) -> None:
        _copy_in_tiles(result[start : start + width], matrix[:, start : start + width].T)

    map_in_threads(copy_tile, range(0, len(result), width))
    return result


def _copy_in_tiles(target: np.ndarray, source: np.ndarray) -> None:
    """Copy a few rows of a matrix, which may be a transposed view, in tiles that fit into the cache."""
    for start in range(0, target.shape[1], _TILE):
        target[:, start : start + _TILE] = source[:, start : start + _TILE]


def _quantize_blocks(
    part: np.ndarray, sizes: np.ndarray, codes: np.ndarray, scheme: Scheme, scale_type: np.dtype
) -> tuple[np.ndarray, np.ndarray]:
    """Scales and zero points of blocks along the last axis.

    Args:
        sizes: the absolute values of `part`.
        codes: filled with the codes as float32.
    """
    top = (1 << scheme.bits) - 1
    if scheme.is_ggml:
        return _quantize_ggml_blocks(part, sizes, codes)
    if scheme.symmetric:
        steps = _reduce_blocks(np.maximum, sizes) / (scheme.middle - 1)
        low = np.zeros_like(steps)
    else:
        # The range includes 0, so that zeros, such as padding, are exact.
        low = np.minimum(_reduce_blocks(np.minimum, part), 0)
        steps = (np.maximum(_reduce_blocks(np.maximum, part), 0) - low) / top
    scale = steps.astype(scale_type)
    # A block of zeros, or one whose scale underflows in the type.
    scale = np.where(scale == 0, np.ones_like(scale), scale)
    # Codes are computed with the scale as it is stored, rounded to its type.
    exact = scale.astype(np.float32)
    zero = (
        np.full(steps.shape, scheme.middle, dtype=np.float32) if scheme.symmetric else np.rint(-low / exact)
    )
    zero = np.clip(zero, 0, top)
    np.divide(part, exact[..., None], out=codes)
    np.rint(codes, out=codes)
    codes += zero[..., None]
    np.clip(codes, 0, top, out=codes)
    return scale, zero.astype(np.uint8)


def _quantize_ggml_blocks(
    part: np.ndarray, sizes: np.ndarray, codes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The same for Q4_0, with the numbers of GGML's `quantize_row_q4_0_ref`."""
    largest = np.take_along_axis(part, sizes.argmax(axis=-1)[..., None], axis=-1)
    steps = largest / np.float32(-8)
    # GGML computes codes with the scale before it is rounded.
    factors = np.divide(1, steps, out=np.zeros_like(steps), where=steps != 0)
    np.multiply(part, factors, out=codes)
    codes += 8.5
    np.trunc(codes, out=codes)
    np.clip(codes, 0, 15, out=codes)
    scales = steps[..., 0].astype(np.float16)
    return scales, np.full(scales.shape, 8, np.uint8)


def _reduce_blocks(function: np.ufunc, part: np.ndarray) -> np.ndarray:
    """Reduce each block, along the last axis."""
    if part.shape[-1] > _SHORT:
        result: np.ndarray = function.reduce(part, axis=-1)
        return result
    # numpy reduces a short last axis element by element, but a first axis by whole rows.
    columns = np.ascontiguousarray(part.reshape(-1, part.shape[-1]).T)
    result = function.reduce(columns, axis=0)
    return result.reshape(part.shape[:-1])


def pack_nibbles(codes: np.ndarray) -> np.ndarray:
    """Elements of 4 bits, two in a byte along the last axis, the first one in the low half."""
    result: np.ndarray = codes[..., 0::2] | (codes[..., 1::2] << 4)
    return result


def pack_nibbles_flat(codes: np.ndarray) -> np.ndarray:
    """The same over the whole array in order, as ONNX stores tensors of 4 bits."""
    flat = codes.reshape(-1)
    if flat.size % 2:
        flat = np.append(flat, np.uint8(0))
    return pack_nibbles(flat)
