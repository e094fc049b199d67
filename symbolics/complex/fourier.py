"""Discrete Fourier transforms: the `fft_*` operators.

The semantics are those of ATen's SpectralOps. A transform is a product with a matrix of roots of unity:
accurate at any length, and the same at every opset. Lengths that are not prime use two steps (Cooley and
Tukey), so that the matrices stay small.
"""

import functools
import math
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from ...registration import DataType, GraphContext, Value, onnx_symbolic
from ..compositions.operands import floating
from ..compositions.size_arithmetic import known_rank
from .real_and_imaginary import Parts, split

Size = int | Value

_DIRECT = 128
"""Up to this length a transform is one product with a constant matrix."""
_SHORTEST = 64
"""From this length on the operator DFT is quicker than a product with a matrix."""


class Transform(NamedTuple):
    """A transform along one dimension.

    Attributes:
        variant: `c2c`, from pairs to pairs; `r2c`, from real numbers to pairs; `c2r`, from half of the pairs
            to real numbers.
        inverse: whether the exponent of the roots of unity is positive.
        power: the result is multiplied by the length to this power.
        onesided: whether `r2c` gives only the first half of the pairs.
    """

    variant: str
    inverse: bool = False
    power: float = 0.0
    onesided: bool = False


def apply(g: GraphContext, self: Value, transform: Transform, dim: int, length: Size | None = None) -> Value:
    """Transform along a dimension.

    Args:
        dim: the dimension, counted without the last dimension of a pair.
        length: the length of the transform; the input is cropped or padded with zeros. For `c2r` the length
            of the result, by default `2 (m - 1)`.
    """
    rank = known_rank(g, self) - (transform.variant != "r2c")
    dim %= max(rank, 1)
    if transform.variant == "c2r":
        length = _real_length(g, g.size(self, dim)) if length is None else length
        self = resize(g, self, dim, _half(g, length))
    elif length is None:
        length = g.size(self, dim)
    else:
        self = resize(g, self, dim, length)
    exchanged = _exchange_axes(g, self, dim, rank - 1)
    result = g.call("composed::dft", exchanged, length, *transform)
    return _exchange_axes(g, result, dim, rank - 1)


def _exchange_axes(g: GraphContext, self: Value, a: int, b: int) -> Value:
    if a == b:
        return self
    # The transform works on the last dimension, so that it is a plain matrix product.
    order = list(range(known_rank(g, self)))
    order[a], order[b] = order[b], order[a]
    return g.op("Transpose", self, perm=order)


def resize(g: GraphContext, self: Value, dim: int, length: Size) -> Value:
    """The value cropped or padded with zeros at the end of a dimension."""
    size = g.size(self, dim)
    if isinstance(size, int) and isinstance(length, int):
        if size == length:
            return self
        if size > length:
            return set_shape_like(
                g.call("aten::slice", self, dim=dim, start=0, end=length), self, dim, length
            )
    elif size is length:
        return self
    shape = [g.size(self, axis) for axis in range(known_rank(g, self))]
    shape[dim] = length - size if isinstance(size, int) and isinstance(length, int) else length
    zeros = g.call("aten::zeros", size=shape, dtype=g.dtype(self))
    is_constant = isinstance(size, int) and isinstance(length, int)
    padded = set_shape_like(g.op("Concat", self, zeros, axis=dim), self, dim, length if is_constant else None)
    if is_constant:
        return padded
    return set_shape_like(g.call("aten::slice", padded, dim=dim, start=0, end=length), self, dim, length)


def set_shape_like(result: Value, self: Value, dim: int, length: Size | None) -> Value:
    """Set the shape of `result` to the shape of `self`, with another length along `dim`."""
    assert self.shape is not None
    sizes = list(self.shape)
    sizes[dim] = length if isinstance(length, int) else ir.SymbolicDim(None)
    result.shape = ir.Shape(sizes)
    return result


def _half(g: GraphContext, length: Size) -> Size:
    """The length of the one-sided spectrum of a real signal: `length // 2 + 1`."""
    if isinstance(length, int):
        return length // 2 + 1
    return g.op("Add", g.op("Div", length, 2), 1)


def _real_length(g: GraphContext, length: Size) -> Size:
    """The length of a real signal, from the length of its one-sided spectrum: `2 * (length - 1)`."""
    if isinstance(length, int):
        return 2 * (length - 1)
    return g.op("Mul", g.op("Sub", length, 1), 2)


@onnx_symbolic("composed::dft")
def dft(
    g: GraphContext,
    self: Value,
    length: int | Value,
    variant: str,
    inverse: bool,
    power: float,
    onesided: bool,
) -> Value:
    """Transform the last dimension, or the one before the pair; it already has the right length."""
    transform = Transform(variant, inverse, power, onesided)
    if isinstance(length, Value):
        return _dynamic(g, self, length, transform)
    # The docstring of `_by_operator` says why only powers of two use the operator.
    if length >= _SHORTEST and length & (length - 1) == 0 and g.has("DFT"):
        return _by_operator(g, self, length, transform)
    if length < 1:
        raise g.refuse(f"the length of a Fourier transform must be at least 1, not {length}")
    factor = _factor(length)
    # A short length, or a prime, which has no factors to split by.
    if factor == 1:
        g.reserve(2, length, 2, length)
        return _product(g, self, _matrix(length, transform), 2 if variant != "c2r" else 1, variant != "r2c")
    if variant == "c2r":
        full = g.call("composed::dft", whole_spectrum(g, self, length), length, "c2c", inverse, power, False)
        return split(g, full).re
    spectrum = _two_steps(g, self, factor, length // factor, transform)
    return resize(g, spectrum, known_rank(g, spectrum) - 2, length // 2 + 1) if onesided else spectrum


def _by_operator(g: GraphContext, self: Value, length: int, transform: Transform) -> Value:
    """The operator DFT, for a length that is a power of two.

    At other lengths onnxruntime's DFT loses half of the digits of FLOAT (Bluestein's method with a chirp in
    single precision); matrix products do not.
    """
    variant, inverse, power, onesided = transform
    if variant == "r2c":
        self = g.op("Unsqueeze", self, axes=[known_rank(g, self)])
    elif variant == "c2r":
        self = whole_spectrum(g, self, length)
    dim = known_rank(g, self) - 2
    if variant == "r2c" and inverse:
        # DFT has no one-sided inverse: use the conjugate of the transform, with a scale.
        transformed = g.op("DFT", self, axis=dim, onesided=int(onesided))
    else:
        transformed = g.op("DFT", self, axis=dim, inverse=int(inverse), onesided=int(onesided))
        power += float(inverse)
    result = set_shape_like(transformed, self, dim, length // 2 + 1 if onesided else length)
    result.shape = ir.Shape([*list(result.shape or ())[:-1], 2])
    if variant == "r2c" and inverse:
        result = split(g, result).conj().pair()
    if power:
        result = g.op("Mul", result, float(length) ** power)
    return split(g, result).re if variant == "c2r" else result


def whole_spectrum(g: GraphContext, self: Value, length: int) -> Value:
    """The whole spectrum of real numbers from its first half; imaginary parts that must be 0 are set to 0."""
    dim = known_rank(g, self) - 2
    parts = split(g, self)
    g.reserve(length)
    factors = np.ones(length // 2 + 1)
    factors[0] = 0.0
    if length % 2 == 0:
        factors[-1] = 0.0
    self = Parts(g, parts.re, g.op("Mul", parts.imaginary, g.constant(factors, g.dtype(self)))).pair()
    # The second half of a real signal's spectrum mirrors the first half, conjugated.
    backwards = list(range((length - 1) // 2, 0, -1))
    if not backwards:
        return self
    mirrored = split(g, g.op("Gather", self, backwards, axis=dim)).conj().pair()
    return g.op("Concat", self, mirrored, axis=dim)


def _factor(length: int) -> int:
    """The largest divisor up to the root of a length that is too long for one product; 1 for a prime."""
    if length <= _DIRECT:
        return 1
    return next((d for d in range(math.isqrt(length), 1, -1) if length % d == 0), 1)


def _angles(rows: int, columns: int, length: int) -> np.ndarray:
    """`2 pi j k / length`, from an exact product of integers."""
    return 2.0 * np.pi / length * (np.outer(np.arange(rows), np.arange(columns)) % length)


@functools.lru_cache(maxsize=8)
def _matrix(length: int, transform: Transform) -> np.ndarray:
    """The transform as a matrix from (index, part) to (index, part)."""
    half = length // 2 + 1
    rows = half if transform.variant == "c2r" else length
    columns = half if transform.onesided else length
    angles = _angles(rows, columns, length)
    cosines, sines = np.cos(angles), np.sin(angles) * (1.0 if transform.inverse else -1.0)
    if transform.variant == "c2r":
        # Each pair except the first and the middle one represents two conjugate numbers.
        weights = np.full(rows, 2.0)
        weights[0] = 1.0
        if length % 2 == 0:
            weights[-1] = 1.0
        cosines, sines = cosines * weights[:, None], sines * weights[:, None]
    table = np.array([[cosines, sines], [-sines, cosines]])  # from part, to part, from index, to index
    if transform.variant == "r2c":
        table = table[:1]
    elif transform.variant == "c2r":
        table = table[:, :1]
    matrix = table.transpose(2, 0, 3, 1).reshape(rows * table.shape[0], columns * table.shape[1])
    result: np.ndarray = matrix * float(length) ** transform.power
    return result


def _product(g: GraphContext, self: Value, matrix: np.ndarray, parts: int, paired: bool) -> Value:
    """The matrix product over the last dimension, or for pairs over the last two."""
    rank = known_rank(g, self) - paired
    if paired:
        self = g.op("Reshape", self, shape=[0] * (rank - 1) + [matrix.shape[0]])
    result = _matmul(g, self, g.constant(matrix, g.dtype(self)))
    if parts == 1:
        return result
    return g.op("Reshape", result, shape=[0] * (rank - 1) + [matrix.shape[1] // 2, 2])


def _two_steps(g: GraphContext, self: Value, first: int, second: int, transform: Transform) -> Value:
    """A transform of length `first * second`: over the columns, times twiddle factors, then over the rows."""
    paired = transform.variant != "r2c"
    rank = known_rank(g, self) - paired
    tail = [2] if paired else []
    # Index j = second * a + b, as [b, a].
    self = g.op("Reshape", self, shape=[0] * (rank - 1) + [first, second, *tail])
    self = _exchange_axes(g, self, rank - 1, rank)
    columns = g.call(
        "composed::dft", self, first, transform.variant, transform.inverse, transform.power, False
    )
    angles = _angles(second, first, first * second) * (1.0 if transform.inverse else -1.0)
    dtype = g.dtype(columns)
    twiddle = Parts(g, g.constant(np.cos(angles), dtype), g.constant(np.sin(angles), dtype))
    twiddled = _exchange_axes(g, (split(g, columns) * twiddle).pair(), rank - 1, rank)
    rows = g.call("composed::dft", twiddled, second, "c2c", transform.inverse, transform.power, False)
    # Index k = a + first * b, as [a, b].
    rows = _exchange_axes(g, rows, rank - 1, rank)
    return g.op("Reshape", rows, shape=[0] * (rank - 1) + [first * second, 2])


def _dynamic(g: GraphContext, self: Value, length: Value, transform: Transform) -> Value:
    """A transform of computed length; the graph computes its matrix too."""
    dtype = g.dtype(self) or DataType.FLOAT
    half = _half(g, length)
    rows, columns = (half if flag else length for flag in (transform.variant == "c2r", transform.onesided))
    down, across = (g.call("aten::arange", end=end, dtype=DataType.INT64) for end in (rows, columns))
    turns = g.op("Mul", g.op("Unsqueeze", down, axes=[1]), g.op("Unsqueeze", across, axes=[0]))
    size = g.cast(length, dtype)
    # Whole turns are removed among integers: a large angle would lose its digits as a float.
    turns = g.cast(g.call("aten::remainder", turns, length), dtype)
    angles = g.op("Mul", g.op("Div", turns, size), 2.0 * math.pi)
    cosines, sines = g.call("aten::cos", angles), g.call("aten::sin", angles)
    if not transform.inverse:
        sines = g.op("Neg", sines)
    if transform.variant == "r2c":
        result = Parts(g, _matmul(g, self, cosines), _matmul(g, self, sines))
        return _apply_power(g, result, size, transform.power).pair()
    parts = split(g, self)
    if transform.variant == "c2r":
        ends = [g.call("aten::eq", down, 0), g.call("aten::eq", g.op("Mul", down, 2), length)]
        weights = g.op("Sub", g.constant(2.0, dtype), g.op("Add", *(g.cast(end, dtype) for end in ends)))
        parts = parts.scale(weights)
    re = g.op("Sub", _matmul(g, parts.re, cosines), _matmul(g, parts.imaginary, sines))
    if transform.variant == "c2r":
        return _apply_power(g, Parts(g, re), size, transform.power).re
    im = g.op("Add", _matmul(g, parts.re, sines), _matmul(g, parts.imaginary, cosines))
    return _apply_power(g, Parts(g, re, im), size, transform.power).pair()


def _matmul(g: GraphContext, self: Value, matrix: Value) -> Value:
    """The matrix product over the last dimension; sets the rank of the result also for vectors."""
    columns = g.size(matrix, 1)
    return set_shape_like(
        g.op("MatMul", self, matrix), self, -1, columns if isinstance(columns, int) else None
    )


def _apply_power(g: GraphContext, parts: Parts, size: Value, power: float) -> Parts:
    return parts if power == 0 else parts.scale(g.op("Pow", size, g.constant(power, g.dtype(size))))


_POWERS = {None: (0.0, -1.0), "backward": (0.0, -1.0), "ortho": (-0.5, -0.5), "forward": (-1.0, 0.0)}
_NORMALIZATIONS = (0.0, -0.5, -1.0)


def _transform(
    g: GraphContext, variant: str, inverse: bool, norm: str | None, onesided: bool = False
) -> Transform:
    if norm not in _POWERS:
        raise g.refuse(f"norm must be backward, ortho or forward, not '{norm}'")
    return Transform(variant, inverse, _POWERS[norm][inverse], onesided)


def _register(stem: str, variant: str, inverse: bool) -> None:
    """Register the transforms over one, two and any number of dimensions; the last one is the real one."""
    onesided = variant == "r2c"

    @onnx_symbolic(f"complex::fft_{stem}")
    def transform_one(
        g: GraphContext, self: Value, n: int | Value | None = None, dim: int = -1, norm: str | None = None
    ) -> Value:
        signal = floating(g, self) if onesided else self
        return apply(g, signal, _transform(g, variant, inverse, norm, onesided), dim, n)

    @onnx_symbolic(f"complex::fft_{stem}n")
    def transform_many(
        g: GraphContext,
        self: Value,
        s: list[int | Value] | None = None,
        dim: list[int] | None = None,
        norm: str | None = None,
    ) -> Value:
        signal = floating(g, self) if onesided else self
        rank = known_rank(g, signal) - (not onesided)
        dims = list(range(rank - len(s), rank) if s is not None else range(rank)) if dim is None else dim
        dims = [d % max(rank, 1) for d in dims]
        # torch takes -1 for the size that the dimension has.
        sizes = [None if size == -1 else size for size in (s if s is not None else [-1] * len(dims))]
        steps = [
            (_transform(g, "c2c", inverse, norm), d, size)
            for d, size in zip(dims[:-1], sizes[:-1], strict=True)
        ]
        if dims:
            last = (_transform(g, variant, inverse, norm, onesided), dims[-1], sizes[-1])
            # The real side is the first step of a forward transform, and the last step of a backward one.
            steps = [last, *steps] if onesided else [*steps, last]
        for transform, d, size in steps:
            signal = apply(g, signal, transform, d, size)
        return signal

    @onnx_symbolic(f"complex::fft_{stem}2")
    def transform_two(
        g: GraphContext,
        self: Value,
        s: list[int | Value] | None = None,
        dim: list[int] = [-2, -1],  # noqa: B006
        norm: str | None = None,
    ) -> Value:
        return transform_many(g, self, s, dim, norm)


for _stem, _variant, _inverse in (
    ("fft", "c2c", False),
    ("ifft", "c2c", True),
    ("rfft", "r2c", False),
    ("irfft", "c2r", True),
    ("hfft", "c2r", False),
    ("ihfft", "r2c", True),
):
    _register(_stem, _variant, _inverse)


def _transform_each_axis(g: GraphContext, self: Value, transform: Transform, dims: list[int]) -> Value:
    """Apply a one-dimensional transform along each dimension in turn."""
    for dim in dims:
        self = apply(g, self, transform, dim)
    return self


@onnx_symbolic("complex::_fft_c2c")
def _fft_c2c(g: GraphContext, self: Value, dim: list[int], normalization: int, forward: bool) -> Value:
    return _transform_each_axis(g, self, Transform("c2c", not forward, _NORMALIZATIONS[normalization]), dim)


@onnx_symbolic("complex::_fft_r2c")
def _fft_r2c(g: GraphContext, self: Value, dim: list[int], normalization: int, onesided: bool) -> Value:
    power = _NORMALIZATIONS[normalization]
    first = apply(g, self, Transform("r2c", False, power, onesided), dim[-1])
    return _transform_each_axis(
        g, first, Transform("c2c", False, power), [d % (known_rank(g, self)) for d in dim[:-1]]
    )


@onnx_symbolic("complex::_fft_c2r")
def _fft_c2r(
    g: GraphContext, self: Value, dim: list[int], normalization: int, last_dim_size: int | Value
) -> Value:
    power = _NORMALIZATIONS[normalization]
    inner = _transform_each_axis(g, self, Transform("c2c", True, power), dim[:-1])
    return apply(g, inner, Transform("c2r", True, power), dim[-1], last_dim_size)
