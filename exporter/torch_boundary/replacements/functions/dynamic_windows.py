"""Pooling and windows whose lengths are computed from sizes; torch's operators accept only numbers."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from ...symbolic_numbers import Size, holds_always
from ...symbolic_sizes import check

Sizes = Size | Sequence[Size]
Function = Callable[..., Any]
Choice = Callable[..., Function | None]
"""Takes the arguments of a call that may fix a size, and returns the function to call instead, or None."""


def _per_axis(sizes: Sizes, dimensions: int) -> list[Size]:
    """Return one size per spatial axis; a single size applies to all axes."""
    if not isinstance(sizes, (list, tuple)):
        return [sizes] * dimensions  # type: ignore[list-item]
    return list(sizes) * dimensions if len(sizes) == 1 else list(sizes)


def _is_dynamic(*sizes: object) -> bool:
    """Whether any size is symbolic, also in a list."""
    return any(
        isinstance(size, torch.SymInt) or (isinstance(size, (list, tuple)) and _is_dynamic(*size))
        for size in sizes
    )


def take_windows(tensor: torch.Tensor, axis: int, length: Any, step: Any, spacing: Any) -> torch.Tensor:
    """Return the windows along an axis, which becomes two axes: `[..., count, length, ...]`."""
    check(step > 0, lambda: "the step between windows is not positive")
    reach = spacing * (length - 1) + 1
    check(reach <= tensor.shape[axis], lambda: "a window is longer than its axis")
    count = (tensor.shape[axis] - reach) // step + 1
    device = tensor.device
    starts, offsets = torch.arange(count, device=device), torch.arange(length, device=device)
    positions = (starts * step).unsqueeze(1) + offsets * spacing
    windows = tensor.index_select(axis, positions.reshape(-1))
    return windows.reshape(*tensor.shape[:axis], count, length, *tensor.shape[axis + 1 :])


class _DynamicPooling:
    """Pools the axes whose windows have dynamic lengths or steps; torch's operator pools the other axes.

    Args:
        pool: torch's operator: takes the input, kernel, stride and padding as numbers, and options.
        reduce: takes a tensor, axes and `keepdim`; reduces these axes.
        fill: takes a tensor; returns the value to pad it with.
        takes_dilation: whether the operator takes the option `dilation`.
    """

    def __init__(
        self,
        pool: Callable[..., torch.Tensor],
        reduce: Callable[..., torch.Tensor],
        fill: Callable[[torch.Tensor], float],
        *,
        takes_dilation: bool,
    ):
        self._takes_dilation = takes_dilation
        self._pool = pool
        self._reduce = reduce
        self._fill = fill

    def __call__(
        self, input: torch.Tensor, window: _Window, axes: _DynamicAxes, **options: Any
    ) -> torch.Tensor:
        first = input.dim() - len(window.kernel)
        if axes.whole:
            input = self._reduce(input, [first + i for i in axes.whole], keepdim=True)
        for i in axes.sliding:
            padded = self._pad(input, first + i, window.padding[i])
            sizes = window.kernel[i], window.stride[i], window.dilation[i]
            input = self._reduce(take_windows(padded, first + i, *sizes), [first + i + 1])
        if len(axes.all) == len(window.kernel):
            return input

        def numbers_of(sizes: Sequence[Size], default: int) -> list[Size]:
            return [default if i in axes.all else size for i, size in enumerate(sizes)]

        if self._takes_dilation:
            options["dilation"] = numbers_of(window.dilation, 1)
        fixed_sizes = (
            numbers_of(window.kernel, 1),
            numbers_of(window.stride, 1),
            numbers_of(window.padding, 0),
        )
        return self._pool(input, *fixed_sizes, **options)

    def _pad(self, input: torch.Tensor, axis: int, amount: int) -> torch.Tensor:
        if amount == 0:
            return input
        pads = [0, 0] * (input.dim() - axis - 1) + [amount, amount]
        return F.pad(input, pads, value=self._fill(input))


@dataclasses.dataclass(frozen=True)
class _Window:
    """The window of a pooling; each list has one number per spatial axis."""

    kernel: list[Size]
    stride: list[Size]
    padding: list[int]
    dilation: list[Size]

    @staticmethod
    def of(
        dimensions: int, kernel_size: Sizes, stride: Sizes | None, padding: Any, dilation: Sizes = 1
    ) -> _Window:
        """Make a window from torch's arguments; a missing stride is the size of the kernel."""
        kernel = _per_axis(kernel_size, dimensions)
        steps = kernel if stride is None or stride == [] else _per_axis(stride, dimensions)
        amounts: Any = _per_axis(padding, dimensions)
        return _Window(kernel, steps, amounts, _per_axis(dilation, dimensions))

    def dynamic_axes(self, input: torch.Tensor) -> _DynamicAxes:
        """Return the spatial axes on which the window is dynamic."""
        first = input.dim() - len(self.kernel)
        sizes = zip(self.kernel, self.stride, self.dilation, strict=True)
        dynamic = [i for i, of_axis in enumerate(sizes) if _is_dynamic(*of_axis)]
        whole = [
            i
            for i in dynamic
            if self.padding[i] == 0
            and holds_always(self.dilation[i] == 1)
            and holds_always(self.kernel[i] == input.shape[first + i])
        ]
        return _DynamicAxes(whole, [i for i in dynamic if i not in whole])


@dataclasses.dataclass(frozen=True)
class _DynamicAxes:
    """The spatial axes with dynamic windows, by number.

    Attributes:
        whole: the axes that one window covers completely.
        sliding: the axes along which the window slides.
    """

    whole: list[int]
    sliding: list[int]

    @property
    def all(self) -> list[int]:
        """All these axes."""
        return [*self.whole, *self.sliding]


def _lowest(tensor: torch.Tensor) -> float:
    return float("-inf") if tensor.dtype.is_floating_point else float(torch.iinfo(tensor.dtype).min)


def _average(dimensions: int) -> Choice:
    operator: Any = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}[dimensions]
    pooling = _DynamicPooling(operator, torch.mean, lambda tensor: 0.0, takes_dilation=False)

    def choose(
        input: torch.Tensor,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Function | None:
        if not _is_dynamic(kernel_size, stride) or _is_dynamic(padding) or divisor_override is not None:
            return None
        window = _Window.of(dimensions, kernel_size, stride, padding)
        axes = window.dynamic_axes(input)
        if axes.sliding and (
            ceil_mode or (not count_include_pad and any(window.padding[i] for i in axes.sliding))
        ):
            return None
        return functools.partial(average, axes)

    def average(
        axes: _DynamicAxes,
        input: torch.Tensor,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: None = None,
    ) -> torch.Tensor:
        window = _Window.of(dimensions, kernel_size, stride, padding)
        options = {"ceil_mode": ceil_mode, "count_include_pad": count_include_pad}
        return pooling(input, window, axes, **options)

    return choose


def _maximum(dimensions: int) -> Choice:
    operator: Any = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}[dimensions]
    pooling = _DynamicPooling(operator, torch.amax, _lowest, takes_dilation=True)

    def choose(
        input: torch.Tensor,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Any = 0,
        dilation: Sizes = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Function | None:
        if not _is_dynamic(kernel_size, stride, dilation) or _is_dynamic(padding):
            return None
        axes = _Window.of(dimensions, kernel_size, stride, padding, dilation).dynamic_axes(input)
        if (axes.sliding and ceil_mode) or (return_indices and len(axes.whole) < dimensions):
            return None
        return functools.partial(maximum, axes)

    def maximum(
        axes: _DynamicAxes,
        input: torch.Tensor,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Any = 0,
        dilation: Sizes = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        if return_indices:
            values, indices = input.flatten(-dimensions).max(-1)
            shape = (*values.shape, *[1] * dimensions)
            return values.reshape(shape), indices.reshape(shape)
        window = _Window.of(dimensions, kernel_size, stride, padding, dilation)
        return pooling(input, window, axes, ceil_mode=ceil_mode)

    return choose


def _maximum_with_indices(dimensions: int) -> Choice:
    """Make the choice for `max_pool*_with_indices`, which ignores its argument `return_indices`."""
    choose = _maximum(dimensions)

    def choose_with_indices(*args: Any, return_indices: bool = True, **options: Any) -> Function | None:
        maximum = choose(*args, return_indices=True, **options)
        if maximum is None:
            return None
        return lambda *args, return_indices=True, **options: maximum(*args, return_indices=True, **options)

    return choose_with_indices


def _power_average(dimensions: int) -> Choice:
    """Make the choice for `lp_pool*`, the root of a sum of powers: computed by `avg_pool`, as in torch."""
    choose_average = _average(dimensions)

    def choose(
        input: torch.Tensor,
        norm_type: float,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        ceil_mode: bool = False,
    ) -> Function | None:
        average = choose_average(input, kernel_size, stride, 0, ceil_mode)
        return None if average is None else functools.partial(power_average, average)

    def power_average(
        average: Function,
        input: torch.Tensor,
        norm_type: float,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        ceil_mode: bool = False,
    ) -> torch.Tensor:
        mean = average(input.pow(norm_type), kernel_size, stride, 0, ceil_mode)
        count = functools.reduce(operator.mul, _per_axis(kernel_size, dimensions))
        return (torch.sign(mean) * F.relu(mean.abs())).mul(count).pow(1.0 / norm_type)

    return choose


def _choose_unfold(
    input: torch.Tensor, kernel_size: Sizes, dilation: Sizes = 1, padding: Any = 0, stride: Sizes = 1
) -> Function | None:
    is_dynamic = _is_dynamic(kernel_size, dilation, stride) and not _is_dynamic(padding)
    return _unfold if is_dynamic and input.dim() in (3, 4) else None


def _unfold(
    input: torch.Tensor, kernel_size: Sizes, dilation: Sizes = 1, padding: Any = 0, stride: Sizes = 1
) -> torch.Tensor:
    """`F.unfold`: the windows of images `[N, C, H, W]` as columns `[N, C * kernel, positions]`."""
    kernel, spacing, steps = (_per_axis(sizes, 2) for sizes in (kernel_size, dilation, stride))
    amounts: Any = _per_axis(padding, 2)
    height, width = amounts
    batched = input if input.dim() == 4 else input.unsqueeze(0)
    padded = F.pad(batched, [width, width, height, height]) if height or width else batched
    rows = take_windows(padded, 2, kernel[0], steps[0], spacing[0])
    windows = take_windows(rows, 4, kernel[1], steps[1], spacing[1])
    batch, channels, row_count, _, column_count, _ = windows.shape
    columns = windows.permute(0, 1, 3, 5, 2, 4).reshape(
        batch, channels * kernel[0] * kernel[1], row_count * column_count
    )
    return columns if input.dim() == 4 else columns.squeeze(0)


def _choose_slide(self: torch.Tensor, dimension: int, size: Size, step: Size) -> Function | None:
    return _slide if _is_dynamic(size, step) and self.dim() > 0 else None


def _slide(self: torch.Tensor, dimension: int, size: Size, step: Size) -> torch.Tensor:
    """`Tensor.unfold`: the windows along an axis, with the elements of each as the last axis."""
    axis = dimension % self.dim()
    return take_windows(self, axis, size, step, 1).movedim(axis + 1, -1)


CHOICES: dict[Any, Choice] = {
    F.avg_pool1d: _average(1),
    F.avg_pool2d: _average(2),
    F.avg_pool3d: _average(3),
    **{function: _maximum(1) for function in (F.max_pool1d, torch.max_pool1d)},
    **{function: _maximum(2) for function in (F.max_pool2d, torch.max_pool2d)},
    **{function: _maximum(3) for function in (F.max_pool3d, torch.max_pool3d)},
    F.max_pool1d_with_indices: _maximum_with_indices(1),
    F.max_pool2d_with_indices: _maximum_with_indices(2),
    F.max_pool3d_with_indices: _maximum_with_indices(3),
    F.lp_pool1d: _power_average(1),
    F.lp_pool2d: _power_average(2),
    F.lp_pool3d: _power_average(3),
    F.unfold: _choose_unfold,
    torch.Tensor.unfold: _choose_slide,
}
"""By torch's function, the choice of the function to call instead."""
