"""Layouts of the results of convolutions, pooling, padding and resizing."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch

from .layout import (
    Rule,
    Size,
    TensorLayout,
    Weight,
    are_fixed,
    are_same,
    contiguous_strides,
    has_shape,
    holds_with_guard,
    is_above_1,
    is_contiguous,
    is_positive,
    new_layout,
    number,
)


def _convolution(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: Weight = None,
    stride: object = (1,),
    padding: object = (0,),
    dilation: object = (1,),
    groups: int = 1,
) -> TensorLayout | None:
    """The result for sequences, images or volumes."""
    channels = weight.shape[:1]
    if not _is_convolvable(x, weight, bias, channels) or not are_same(
        x.shape[1:2], (weight.shape[1] * groups,)
    ):
        return None
    sizes = _windows(x.shape[2:], weight.shape[2:], stride, padding, dilation)
    is_known = sizes is not None and weight.shape[0] % groups == 0
    return _keep_memory_format(x, (x.shape[0], *channels, *sizes)) if is_known else None  # type: ignore[misc]


def _transposed_convolution(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: Weight = None,
    stride: object = (1,),
    padding: object = (0,),
    output_padding: object = (0,),
    groups: int = 1,
    dilation: object = (1,),
) -> TensorLayout | None:
    """The result for sequences, images or volumes."""
    channels = [weight.shape[1] * groups]
    if not _is_convolvable(x, weight, bias, channels) or not are_same(x.shape[1:2], weight.shape[:1]):
        return None
    options = (stride, padding, output_padding, dilation)
    steps, pads, added, spreads = (_per_axis(option, x.dim() - 2) for option in options)
    if not steps or not pads or not added or not spreads or weight.shape[0] % groups:
        return None
    # torch requires each number of `output_padding` to be less than the stride or the dilation.
    if min(*steps, *spreads) < 1 or min(*pads, *added) < 0 or not all(map(is_positive, x.shape[2:])):
        return None
    if any(more >= max(step, spread) for step, more, spread in zip(steps, added, spreads, strict=True)):
        return None
    axes = zip(x.shape[2:], weight.shape[2:], steps, pads, added, spreads, strict=True)
    sizes = [
        (n - 1) * step - 2 * pad + spread * (kernel - 1) + more + 1
        for n, kernel, step, pad, more, spread in axes
    ]
    return _keep_memory_format(x, (x.shape[0], *channels, *sizes)) if all(map(is_positive, sizes)) else None


def _is_convolvable(x: torch.Tensor, weight: torch.Tensor, bias: Weight, channels: Sequence[Size]) -> bool:
    """Whether these tensors fit a convolution with `channels` output channels, as far as this can tell."""
    # An input without a batch has one axis fewer than the weight.
    if weight.dim() != x.dim() or not x.dtype.is_floating_point or not is_contiguous(weight):
        return False
    return has_shape(x, weight.shape, weight) and has_shape(x, channels, bias)


def _average_pool(
    x: torch.Tensor,
    kernel_size: object,
    stride: object = (),
    padding: object = (0,),
    ceil_mode: bool = False,
    *options: object,
) -> TensorLayout | None:
    return _pool(x, kernel_size, stride, padding, (1,), ceil_mode)


def _pool(
    x: torch.Tensor,
    kernel_size: object,
    stride: object = (),
    padding: object = (0,),
    dilation: object = (1,),
    ceil_mode: bool = False,
) -> TensorLayout | None:
    # With `ceil_mode` the last window may be partial, and its count is not that of `_windows`.
    if ceil_mode or x.dim() != 4 or not x.dtype.is_floating_point or not all(map(is_positive, x.shape[1:])):
        return None
    kernels, pads = _per_axis(kernel_size, 2), _per_axis(padding, 2)
    # torch refuses padding of more than half the kernel.
    if not kernels or not pads or any(2 * pad > kernel for pad, kernel in zip(pads, kernels, strict=True)):
        return None
    sizes = _windows(x.shape[2:], kernels, stride or kernels, pads, dilation)
    return None if sizes is None else _keep_memory_format(x, (*x.shape[:2], *sizes))


def _windows(
    sizes: Sequence[Size], kernels: Sequence[int], stride: object, padding: object, dilation: object
) -> list[Size] | None:
    """Return the number of windows along each axis; None if an option is symbolic or no window may fit."""
    steps, pads, spreads = (_per_axis(option, len(sizes)) for option in (stride, padding, dilation))
    if not steps or not pads or not spreads or min(*steps, *spreads) < 1 or min(pads) < 0:
        return None
    axes = zip(sizes, kernels, steps, pads, spreads, strict=True)
    counts: list[Size] = []
    for n, kernel, step, pad, spread in axes:
        window, padded = spread * (kernel - 1) + 1, n + 2 * pad
        # The kernel asserts that the first window fits, which is a guard where some sizes are too small.
        if not holds_with_guard(padded >= window):
            return None
        counts.append((padded - window) // step + 1)
    return counts


def _per_axis(option: object, rank: int) -> Sequence[int] | None:
    """Return one number per axis from a list of `rank` numbers or a single one; None for anything else."""
    if not isinstance(option, (list, tuple)) or not are_fixed(option):
        return None
    return list(option) * rank if len(option) == 1 else option if len(option) == rank else None


def _adaptive_average_pool(x: torch.Tensor, output_size: Sequence[Size]) -> TensorLayout | None:
    is_known = x.dim() == 4 and x.dtype.is_floating_point and all(map(is_positive, x.shape[2:]))
    is_known = is_known and are_fixed(output_size) and len(output_size) == 2 and min(output_size) > 0
    return _keep_memory_format(x, (*x.shape[:2], *output_size)) if is_known else None


def _pad(
    x: torch.Tensor, pad: Sequence[Size], mode: str = "constant", value: object = None
) -> TensorLayout | None:
    """The layout after padding with a number; None for negative padding, which removes elements."""
    if mode != "constant" or not are_fixed(pad) or min(pad, default=0) < 0 or len(pad) % 2:
        return None
    if len(pad) > 2 * x.dim() or not is_contiguous(x):
        return None
    shape: list[Size] = list(x.shape)
    # `pad` lists the axes from the last to the first.
    for axis, (before, after) in enumerate(zip(pad[::2], pad[1::2], strict=True), 1):
        shape[-axis] = shape[-axis] + (before + after)
    return new_layout(x, shape)


def _resize(x: torch.Tensor, output_size: Sequence[Size] | None, *options: object) -> TensorLayout | None:
    """The layout of images that are resized to a height and width, or by integer factors."""
    if x.dim() != 4 or not x.dtype.is_floating_point or not all(map(is_positive, x.shape[1:])):
        return None
    scales = options[-1]
    if (
        output_size is None
        and isinstance(scales, (list, tuple))
        and all(scale == int(scale) for scale in scales)
    ):
        output_size = [size * int(scale) for size, scale in zip(x.shape[2:], scales, strict=True)]
    if output_size is None or len(output_size) != 2 or not all(map(is_positive, output_size)):
        return None
    return _keep_memory_format(x, (*x.shape[:2], *map(number, output_size)))


def _keep_memory_format(x: torch.Tensor, shape: Sequence[Size]) -> TensorLayout | None:
    """The layout of a new tensor in the memory format of the argument: contiguous, or channels last."""
    if is_contiguous(x):
        return new_layout(x, shape)
    # The rules below are those of the kernels for the CPU.
    if x.dim() != 4 or x.device.type != "cpu" or not all(map(is_above_1, (*x.shape[1:], *shape[1:]))):
        return None
    (batch, channels), image = shape[:2], shape[2:]
    channels_last = contiguous_strides((x.shape[0], *x.shape[2:], x.shape[1]))
    new = new_layout(x, (batch, *image, channels))
    if channels_last is None or new is None or not are_same(x.stride(), _channels_second(channels_last)):
        return None
    return dataclasses.replace(new, shape=tuple(shape), stride=_channels_second(new.stride))


def _channels_second(items: Sequence[Size]) -> tuple[Size, ...]:
    return (items[0], items[3], items[1], items[2])


RULES: dict[str, Rule] = {
    "aten::adaptive_avg_pool2d": _adaptive_average_pool,
    "aten::avg_pool2d": _average_pool,
    "aten::conv1d": _convolution,
    "aten::conv2d": _convolution,
    "aten::conv3d": _convolution,
    "aten::conv_transpose1d": _transposed_convolution,
    "aten::conv_transpose2d.input": _transposed_convolution,
    "aten::conv_transpose3d.input": _transposed_convolution,
    "aten::max_pool2d": _pool,
    "aten::pad": _pad,
    "aten::upsample_bicubic2d.vec": _resize,
    "aten::upsample_bilinear2d.vec": _resize,
    "aten::upsample_nearest2d.vec": _resize,
}
