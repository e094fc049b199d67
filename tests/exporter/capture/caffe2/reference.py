"""Caffe2's operators in numpy, from their documentation and their CPU kernels.

Windows go through the loops of the kernels: sizes and pads first, then each window clipped to the input.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import torch

NOTSET, VALID, SAME, CAFFE_LEGACY_POOLING = range(4)


def sizes_and_pads(
    size: int, stride: int, kernel: int, dilation: int, legacy: int, head: int, tail: int
) -> tuple[int, int, int]:
    """The number of windows along a dimension, and its pads."""
    extent = dilation * (kernel - 1) + 1
    if legacy == NOTSET:
        return math.floor((size + head + tail - extent) / stride + 1), head, tail
    if legacy == VALID:
        return (size - extent) // stride + 1, 0, 0
    if legacy == SAME:
        target = (size + stride - 1) // stride
        needed = (target - 1) * stride + kernel - size
        head = int(needed / 2)  # Towards zero, as in C++.
        return (size + needed - extent) // stride + 1, head, needed - head
    count = math.ceil((size + head * 2 - kernel) / stride + 1)
    if head > 0 and (count - 1) * stride >= size + head:
        count -= 1
    standard = math.floor((size + head * 2 - kernel) / stride + 1)
    return count, head, head + stride * (count - standard)


def windows(
    spatial: Sequence[int],
    kernels: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    legacy: int,
    dilations: Sequence[int] | None = None,
) -> list[tuple[int, int, int]]:
    """The number of windows and the pads, for each dimension."""
    count = len(kernels)
    dilations = dilations or [1] * count
    return [
        sizes_and_pads(spatial[i], strides[i], kernels[i], dilations[i], legacy, pads[i], pads[i + count])
        for i in range(count)
    ]


def pool(
    x: np.ndarray,
    kind: str,
    kernels: Sequence[int],
    strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    legacy: int = NOTSET,
    count_include_pad: bool = False,
) -> np.ndarray:
    """Max or average pooling of [N, C, spatial...]."""
    count = len(kernels)
    strides = strides or [1] * count
    found = windows(x.shape[2:], kernels, strides, pads or [0] * 2 * count, legacy)
    result = np.empty((*x.shape[:2], *[n for n, _, _ in found]), x.dtype)
    for place in itertools.product(*[range(n) for n, _, _ in found]):
        region = []
        for at, stride, kernel, size, (_, head, _) in zip(
            place, strides, kernels, x.shape[2:], found, strict=True
        ):
            start = at * stride - head
            region.append(slice(max(start, 0), min(start + kernel, size)))
        part = x[(slice(None), slice(None), *region)].reshape(*x.shape[:2], -1)
        if kind == "max":
            value = part.max(-1)
        else:
            value = part.sum(-1) / (math.prod(kernels) if count_include_pad else part.shape[-1])
        result[(slice(None), slice(None), *place)] = value
    return result


def conv(
    x: np.ndarray,
    w: np.ndarray,
    b: np.ndarray | None = None,
    strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    legacy: int = NOTSET,
    group: int = 1,
) -> np.ndarray:
    """A convolution of [N, C, spatial...], padded as Caffe2 does."""
    count = w.ndim - 2
    strides, dilations = strides or [1] * count, dilations or [1] * count
    found = windows(x.shape[2:], w.shape[2:], strides, pads or [0] * 2 * count, legacy, dilations)
    around = [(0, 0), (0, 0), *[(max(head, 0), max(tail, 0)) for _, head, tail in found]]
    padded = np.pad(x, around)
    for axis, (_, head, tail) in enumerate(found, start=2):
        padded = np.take(padded, range(max(-head, 0), padded.shape[axis] + min(tail, 0)), axis)
    function = [torch.conv1d, torch.conv2d, torch.conv3d][count - 1]
    bias = None if b is None else torch.from_numpy(b)
    return function(
        torch.from_numpy(padded), torch.from_numpy(w), bias, tuple(strides), 0, tuple(dilations), group
    ).numpy()


def to_nhwc(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(np.moveaxis(x, 1, -1))


def legacy_broadcast(a: np.ndarray, b: np.ndarray, axis: int = -1) -> np.ndarray:
    """B in the shape in which it is combined with A: a run of its dimensions from `axis` on."""
    if b.size == 1:
        return b.reshape(())
    if axis == -1:
        axis = a.ndim - b.ndim
    return b.reshape(*b.shape, *[1] * (a.ndim - axis - b.ndim))


def softmax(x: np.ndarray, axis: int = 1) -> np.ndarray:
    rows = x.reshape(math.prod(x.shape[:axis]), -1)
    powers = np.exp(rows - rows.max(1, keepdims=True))
    return (powers / powers.sum(1, keepdims=True)).reshape(x.shape)


def lrn(x: np.ndarray, size: int, alpha: float, beta: float, bias: float) -> np.ndarray:
    padding = (size - 1) // 2
    squares = np.pad(x * x, [(0, 0), (padding, padding), (0, 0), (0, 0)])
    summed = sum(squares[:, i : i + x.shape[1]] for i in range(size))
    return x * (bias + alpha / size * summed) ** -beta


def fc(x: np.ndarray, w: np.ndarray, b: np.ndarray, axis: int = 1, axis_w: int = 1) -> np.ndarray:
    rows = x.reshape(math.prod(x.shape[:axis]), -1)
    weight = w.reshape(math.prod(w.shape[:axis_w]), -1)
    return (rows @ weight.T + b).reshape(*x.shape[:axis], weight.shape[0])


def resize_nearest(x: np.ndarray, height: float, width: float) -> np.ndarray:
    h, w = x.shape[2:]
    rows = [min(int(np.float32(y) / np.float32(height)), h - 1) for y in range(int(h * np.float32(height)))]
    columns = [min(int(np.float32(y) / np.float32(width)), w - 1) for y in range(int(w * np.float32(width)))]
    return x[:, :, rows][:, :, :, columns]


def upsample_bilinear(x: np.ndarray, height: float, width: float) -> np.ndarray:
    def mixed(values: np.ndarray, axis: int, scale: float) -> np.ndarray:
        size = values.shape[axis]
        made = int(size * scale)
        step = (size - 1) / (made - 1) if made > 1 else 0.0
        at = np.arange(made) * step
        low = at.astype(int)
        high = np.minimum(low + 1, size - 1)
        part = (at - low).reshape([-1 if i == axis else 1 for i in range(values.ndim)])
        return np.take(values, low, axis) * (1 - part) + np.take(values, high, axis) * part

    return mixed(mixed(x, 2, height), 3, width).astype(x.dtype)


def channel_shuffle(x: np.ndarray, group: int) -> np.ndarray:
    n, c, *spatial = x.shape
    return x.reshape(n, group, c // group, *spatial).swapaxes(1, 2).reshape(x.shape)


def quantize(x: np.ndarray, scale: float, zero_point: int) -> np.ndarray:
    return np.clip(np.rint(x / np.float32(scale)) + zero_point, 0, 255).astype(np.uint8)


def dequantize(q: np.ndarray, scale: float, zero_point: int) -> np.ndarray:
    return ((q.astype(np.int32) - zero_point) * np.float32(scale)).astype(np.float32)


def requantize(counts: np.ndarray, multiplier: float, zero_point: int, low: int = 0) -> np.ndarray:
    """Sums of products of integers, in units of the result's scale: rounded to even, and saturated."""
    return np.clip(np.rint(counts * multiplier) + zero_point, low, 255).astype(np.uint8)
