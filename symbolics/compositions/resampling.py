"""Interpolation as ATen computes it: where output pixels come from, and with what weights."""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...registration import DataType, GraphContext, Number, Value

_CUBIC_A = -0.75


@dataclasses.dataclass(frozen=True)
class Axis:
    """One spatial axis of an interpolation.

    Attributes:
        size: of the input, an int where it is known.
        count: size of the output, None where only `scale` is given.
        scale: the factor that the user gave; ATen then takes coordinates from it and not from the sizes.
        multiples: of its size an output for which ATen takes them from the sizes all the same.
    """

    size: int | None
    count: int | Value | None
    scale: float | None
    multiples: tuple[int, ...] = ()

    @property
    def is_settled(self) -> bool:
        """Whether the factor alone says the coordinates, whatever the size; of one pixel all are alike."""
        if self.scale is None or self.scale.is_integer():
            return True
        whole = math.floor(self.scale)
        return whole not in self.multiples or self.scale - whole >= 0.5

    def by_sizes(self) -> "Axis":
        """The same without a factor, where ATen does without it."""
        if self.size and self.output is not None and self.output in [n * self.size for n in self.multiples]:
            return dataclasses.replace(self, count=self.output, scale=None)
        return self

    @property
    def output(self) -> int | None:
        """The output's size where it is known; ATen's `floor(size * scale)` in double precision."""
        if self.count is None and self.size is not None and self.scale is not None:
            return int(self.size * self.scale)
        return self.count if isinstance(self.count, int) else None

    @property
    def known(self) -> tuple[int, int]:
        """Both sizes, of an axis that has them."""
        assert self.size is not None, "the input size is unknown"
        assert self.output is not None, "the output size is unknown"
        return self.size, self.output

    @property
    def factor(self) -> int | None:
        """By what whole number the axis grows, where it does."""
        if self.scale is not None and float(self.scale).is_integer():
            return int(self.scale)
        if self.scale is None and self.size and self.output is not None and self.output % self.size == 0:
            return self.output // self.size
        return None

    def step(self, align_corners: bool, dtype: Any = np.float32) -> Any:
        """Input pixels per output pixel (ATen's `area_pixel_compute_scale`)."""
        size, output = self.known
        if align_corners:
            return dtype(size - 1) / dtype(output - 1) if output > 1 else dtype(0)
        return dtype(1.0 / self.scale) if self.scale is not None else dtype(size) / dtype(output)


def axes(
    g: GraphContext,
    input: Value,
    dimensions: int,
    sizes: list[int | Value] | None,
    scales: list[Number | None] | None,
    mode: str,
    antialias: bool,
) -> list[Axis]:
    """The spatial axes of an interpolation to given sizes, by given factors, or both.

    Where a size stays, linear interpolation and antialiasing copy, and so do nearest pixels of images, which
    are repeated too where it doubles (ATen's `compute_source_index_and_lambda` and `nearest_idx`).
    """
    multiples: tuple[int, ...] = (1,) if mode == "linear" or antialias else ()
    if mode == "nearest" and dimensions == 2:
        multiples = (1, 2)
    shape = g.shape(input)
    known = (None,) * dimensions if shape is None else shape[2:]
    return [
        Axis(
            size if isinstance(size, int) else None,
            None if sizes is None else sizes[i],
            None if scales is None or scales[i] is None else float(scales[i]),  # type: ignore[arg-type]
            multiples,
        ).by_sizes()
        for i, size in enumerate(known)
    ]


def nearest(axis: Axis, exact: bool) -> np.ndarray:
    """The input pixel of each output pixel: `floor(i * step)`, or of the pixel's centre when `exact`."""
    size, output = axis.known
    pixels = np.arange(output, dtype=np.float32) + np.float32(0.5 if exact else 0)
    return np.minimum(np.floor(pixels * axis.step(False)).astype(np.int64), size - 1)


def _cubic_weights(t: np.ndarray) -> list[np.ndarray]:
    """ATen's `get_cubic_upsample_coefficients`, for the pixels at -1, 0, 1 and 2."""
    a = _CUBIC_A

    def near(x: np.ndarray) -> np.ndarray:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: np.ndarray) -> np.ndarray:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def cubic_weights(g: GraphContext, t: Value) -> list[Value]:
    """The same coefficients for fractions that are computed."""
    a = _CUBIC_A
    rest = g.op("Sub", 1.0, t)

    def polynomial(x: Value, *coefficients: float) -> Value:
        result = g.op("Add", g.op("Mul", x, coefficients[0]), coefficients[1])
        for coefficient in coefficients[2:]:
            result = g.op("Add", g.op("Mul", result, x), coefficient)
        return result

    near, far = (a + 2, -(a + 3), 0.0, 1.0), (a, -5 * a, 8 * a, -4 * a)
    return [
        polynomial(g.op("Add", t, 1.0), *far),
        polynomial(t, *near),
        polynomial(rest, *near),
        polynomial(g.op("Add", rest, 1.0), *far),
    ]


def _taps(
    axis: Axis, cubic: bool, align_corners: bool, dtype: Any
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The pixels around each place, two or four, and their weights."""
    size, output = axis.known
    step = axis.step(align_corners, dtype)
    pixels = np.arange(output, dtype=dtype)
    places = pixels * step if align_corners else (pixels + dtype(0.5)) * step - dtype(0.5)
    if not cubic:
        places = np.clip(places, 0, size - 1)
    first = np.floor(places).astype(np.int64)
    fraction = (places - first).astype(dtype)
    weights = _cubic_weights(fraction) if cubic else [1 - fraction, fraction]
    start = -1 if cubic else 0
    return [np.clip(first + start + i, 0, size - 1) for i in range(len(weights))], weights


def _antialiased_matrix(axis: Axis, cubic: bool, align_corners: bool) -> np.ndarray:
    """ATen's `_compute_indices_min_size_weights_aa`; its cubic has a = -0.5, as Pillow's."""
    size, output = axis.known
    step = float(axis.step(align_corners, np.float64))
    support = (2.0 if cubic else 1.0) * max(step, 1.0)
    matrix = np.zeros((size, output))
    for i in range(output):
        centre = step * (i + 0.5)
        low, high = max(int(centre - support + 0.5), 0), min(int(centre + support + 0.5), size)
        x = np.abs((np.arange(low, high) - centre + 0.5) / max(step, 1.0))
        if cubic:
            near = (1.5 * x - 2.5) * x * x + 1
            weights = np.where(x < 1, near, np.where(x < 2, ((-0.5 * x + 2.5) * x - 4) * x + 2, 0))
        else:
            weights = np.maximum(1 - x, 0)
        matrix[low:high, i] = weights / weights.sum()
    return matrix


def _is_copy(axis: Axis, taps: list[np.ndarray], weights: list[np.ndarray]) -> bool:
    """Whether every pixel stays as it is."""
    size, output = axis.known
    pixels = [tap[weight != 0] for tap, weight in zip(taps, weights, strict=True)]
    whole = all(np.isin(weight, (0, 1)).all() for weight in weights)
    return size == output and whole and np.array_equal(np.sort(np.concatenate(pixels)), np.arange(size))


def weighed(
    g: GraphContext, input: Value, taps: Sequence[Any], weights: Sequence[Any], position: int, rank: int
) -> Value:
    """Sums of pixels along one dimension times their weights.

    As in ATen a pixel counts in the results that it has a weight in, and a product with a matrix would bring
    its NaN or infinity into all of them.

    Args:
        taps: positions of pixels, as many for each result.
        weights: theirs, 1-D arrays or values too.
    """
    behind = rank - position - 1
    products = []
    for tap, weight in zip(taps, weights, strict=True):
        factor = weight if isinstance(weight, Value) else g.constant(weight, g.dtype(input) or DataType.FLOAT)
        factor = g.op("Unsqueeze", factor, axes=list(range(1, behind + 1))) if behind else factor
        products.append(g.op("Mul", g.op("Gather", input, tap, axis=position), factor))
    return functools.reduce(lambda a, b: g.op("Add", a, b), products)


def _times(g: GraphContext, input: Value, weights: np.ndarray, position: int, rank: int) -> Value:
    """A product along one dimension; the last two need no transposition."""
    dtype = g.dtype(input) or DataType.FLOAT
    if position == rank - 1:
        return g.op("MatMul", input, g.constant(weights, dtype))
    if position == rank - 2:
        return g.op("MatMul", g.constant(weights.T, dtype), input)
    perm = list(range(rank))
    perm[position], perm[-1] = perm[-1], perm[position]
    product = g.op("MatMul", g.op("Transpose", input, perm=perm), g.constant(weights, dtype))
    return g.op("Transpose", product, perm=perm)


def by_constants(
    g: GraphContext, input: Value, spatial: list[Axis], mode: str, align_corners: bool, antialias: bool
) -> Value | None:
    """By constant indices and weights, one axis after the other; None where a size is unknown."""
    if any(axis.size is None or axis.output is None for axis in spatial):
        return None
    rank = len(spatial) + 2
    for position, axis in enumerate(spatial, start=2):
        if mode.startswith("nearest"):
            indices = nearest(axis, mode == "nearest_exact")
            if not np.array_equal(indices, np.arange(axis.known[0])):
                input = g.op("Gather", input, indices, axis=position)
            continue
        if antialias:
            filters = _antialiased_matrix(axis, mode == "cubic", align_corners)
            if not np.array_equal(filters, np.eye(len(filters))):
                input = _times(g, input, filters, position, rank)
            continue
        precision = np.float64 if g.dtype(input) == DataType.DOUBLE else np.float32
        taps, weights = _taps(axis, mode == "cubic", align_corners, precision)
        if not _is_copy(axis, taps, weights):
            input = weighed(g, input, taps, weights, position, rank)
    return input


def float_scale(axis: Axis) -> float | None:
    """The factor as the FLOAT from which ONNX computes the same output size, None where there is none."""
    if (axis.scale is None or axis.count is not None) and (axis.size is None or axis.output is None):
        return None
    exact = axis.scale if axis.scale is not None else axis.output / axis.size  # type: ignore[operator]
    scale = np.float32(exact)
    if float(scale) < exact:  # NumPy would round the other side to FLOAT.
        scale = np.nextafter(scale, np.float32(math.inf), dtype=np.float32)
    if axis.size is not None and axis.output is not None:
        # onnxruntime multiplies in FLOAT, the shape inference of ONNX in DOUBLE.
        found = {int(np.float32(axis.size) * scale), int(axis.size * float(scale))}
        return float(scale) if found == {axis.output} else None
    return float(scale)


def agrees(axis: Axis, exact: bool) -> bool:
    """Whether Resize takes the same nearest pixels as ATen, which multiplies where ONNX divides."""
    scale = float_scale(axis)
    if axis.size is None or axis.output is None or axis.factor is not None:
        return True
    divisor = np.float32(scale if scale is not None else axis.output / axis.size)
    pixels = np.arange(axis.output, dtype=np.float32)
    if exact:
        places = np.floor((pixels + np.float32(0.5)) / divisor - np.float32(0.5) + np.float32(0.5))
    else:
        places = np.floor(pixels / divisor)
    return np.array_equal(np.clip(places, 0, axis.size - 1), nearest(axis, exact))
