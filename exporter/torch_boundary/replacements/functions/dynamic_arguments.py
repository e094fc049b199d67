"""Functions of torch that convert size arguments to Python numbers, rewritten for dynamic sizes."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from ...fake_tensors import FakeTensor
from ...symbolic_numbers import Size, holds_always
from ...symbolic_sizes import check
from . import dynamic_windows
from .dynamic_windows import Choice, Function


def _has_dynamic_steps(
    start: object = None, end: object = None, steps: object = None, **options: Any
) -> bool:
    """Whether a call of `torch.linspace` would fix its number of elements, and `linspace` supports it."""
    dtype = options.get("dtype") or torch.get_default_dtype()
    is_plain = options.keys() <= {"dtype", "device", "requires_grad"} and dtype.is_floating_point
    has_vector = any(isinstance(item, torch.Tensor) and item.dim() > 0 for item in (start, end, steps))
    return isinstance(steps, (torch.SymInt, torch.Tensor)) and is_plain and not has_vector


def _linspace(
    start: Any,
    end: Any,
    steps: Any,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    requires_grad: bool = False,
) -> torch.Tensor:
    """`torch.linspace`, computed from both ends as in PyTorch; `start`, `end` and `steps` may be tensors."""
    dtype = dtype or torch.get_default_dtype()
    steps = steps.item() if isinstance(steps, torch.Tensor) else steps
    first, last = (
        item.to(device, dtype)
        if isinstance(item, torch.Tensor)
        else torch.full((), item, dtype=dtype, device=device)
        for item in (start, end)
    )
    step = (last - first) / torch.sym_max(steps - 1, 1)
    index = torch.arange(steps, device=device)
    upwards, downwards = first + step * index, last + step * index.sub(steps - 1)
    return torch.where(index < torch.sym_max(steps // 2, 1), upwards, downwards)


def _has_dynamic_size(theta: torch.Tensor, size: Sequence[object], align_corners: bool | None = None) -> bool:
    """Whether a call of `affine_grid` would fix a size."""
    return any(isinstance(item, torch.SymInt) for item in size)


def _affine_grid(
    theta: torch.Tensor, size: Sequence[int | torch.SymInt], align_corners: bool | None = None
) -> torch.Tensor:
    """`affine_grid`: the positions of the elements of images or volumes under the affine maps `theta`.

    Positions run from -1 to 1: the centres of the first and last element with `align_corners`, else their
    outer edges. A single element is at 0. Returns `[N, (D,) H, W, 2 or 3]`.
    """
    spatial = size[2:]
    axes = []
    for steps in spatial:
        check(steps > 0, lambda: f"Expected non-zero, positive output size. Got {list(size)}")
        centres = _linspace(-1.0, 1.0, steps, dtype=theta.dtype, device=theta.device)
        axes.append(centres * (torch.sym_min(steps - 1, 1) if align_corners else (steps - 1) / steps))
    coordinates = torch.meshgrid(*axes, indexing="ij")
    base = torch.stack([*coordinates[::-1], torch.ones_like(coordinates[0])], dim=-1)
    grid = base.reshape(1, -1, len(spatial) + 1) @ theta.transpose(1, 2)
    return grid.reshape(size[0], *spatial, len(spatial))


def _has_dynamic_length(input: torch.Tensor, n_fft: int, *positional: object, **named: object) -> bool:
    """Whether a call of `torch.istft` would fix the length of its result."""
    length = positional[6] if len(positional) > 6 else named.get("length")
    return isinstance(length, torch.SymInt)


def _istft(
    input: torch.Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: torch.Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: Any = None,
    return_complex: bool = False,
) -> torch.Tensor:
    """`torch.istft` with a `length`: the signal is cut off, or padded with zeros, to this length.

    The last half frame, which torch cuts off if there is no `length`, stays part of the signal.
    """
    options = window, False, normalized, onesided, None, return_complex
    signal = torch.istft(input, n_fft, hop_length, win_length, *options)
    start = n_fft // 2 if center else 0
    if not holds_always(start + length <= signal.shape[-1]):
        signal = F.pad(signal, (0, length))
    return signal[..., start : start + length]


def _has_dynamic_exponents(
    start: object, end: object, steps: object, base: float = 10.0, **options: object
) -> bool:
    """Whether a call of `torch.logspace` would fix its number of elements."""
    return not isinstance(base, torch.Tensor) and _has_dynamic_steps(start, end, steps, **options)


def _logspace(start: Any, end: Any, steps: Any, base: float = 10.0, **options: Any) -> torch.Tensor:
    """`torch.logspace`: the powers of a base, with exponents from `_linspace`."""
    return torch.pow(base, _linspace(start, end, steps, **options))


def _has_dynamic_classes(input: torch.Tensor, num_classes: object = -1) -> bool:
    """Whether a call of `one_hot` would fix its number of classes."""
    return isinstance(num_classes, torch.SymInt)


def _one_hot(input: torch.Tensor, num_classes: Any) -> torch.Tensor:
    """`one_hot`: 1 at the position of each class and 0 elsewhere, along a new last axis."""
    return (input.unsqueeze(-1) == torch.arange(num_classes, device=input.device)).to(torch.int64)


def _has_dynamic_triangle(row: object, col: object, offset: object = 0, **options: object) -> bool:
    """Whether a call of `tril_indices` or `triu_indices` would fix a size."""
    return any(isinstance(item, torch.SymInt) for item in (row, col, offset))


def _tril_indices(row: Any, col: Any, offset: Any = 0, **options: Any) -> torch.Tensor:
    """`torch.tril_indices`: the rows and columns `[2, count]` of the elements on and below a diagonal."""
    return _indices(row, col, torch.Tensor.tril, offset, _count_below(row, col, offset), **options)


def _triu_indices(row: Any, col: Any, offset: Any = 0, **options: Any) -> torch.Tensor:
    """`torch.triu_indices`: the rows and columns `[2, count]` of the elements on and above a diagonal."""
    # The transposed matrix has as many elements on and below the opposite diagonal.
    return _indices(row, col, torch.Tensor.triu, offset, _count_below(col, row, -offset), **options)


def _indices(
    row: Any,
    col: Any,
    select: Callable[..., torch.Tensor],
    offset: Any,
    count: Size,
    *,
    dtype: torch.dtype = torch.int64,
    device: torch.device | str | None = None,
    layout: torch.layout | None = None,
    pin_memory: bool = False,
) -> torch.Tensor:
    selected = select(torch.ones(row, col, dtype=torch.int64, device=device), offset)
    return torch.nonzero_static(selected, size=count).t().to(dtype)


def _count_below(row: Any, col: Any, offset: Any) -> Any:
    """Return the number of elements of a matrix on and below a diagonal."""
    # A triangle of `row + offset` rows, minus its parts right of and above the matrix, plus their overlap.
    full = _triangle(_non_negative(row + offset))
    return (
        full
        - _triangle(_non_negative(row + offset - col))
        - _triangle(_non_negative(offset))
        + (_triangle(_non_negative(offset - col)))
    )


def _non_negative(number: Any) -> Any:
    return number if holds_always(number >= 0) else torch.sym_max(number, 0)


def _triangle(length: Any) -> Any:
    return length * (length + 1) // 2


def _has_dynamic_window(window_length: object, *args: Any, **options: Any) -> bool:
    """Whether a call of a function for windows of signals would fix their length."""
    dtype = options.get("dtype") or torch.get_default_dtype()
    is_plain = options.keys() <= {"periodic", "dtype", "device", "requires_grad", "alpha", "beta"}
    return isinstance(window_length, torch.SymInt) and is_plain and dtype.is_floating_point


def _cosine_window(*coefficients: float) -> Callable[..., torch.Tensor]:
    """Make a window function: a sum of cosines with 0, 1, ... periods, weighted by the coefficients."""

    def window(window_length: Any, periodic: bool = True, **options: Any) -> torch.Tensor:
        phase = _phase(window_length, periodic, **options) * (2 * math.pi)
        waves = [
            torch.cos(phase * periods) * factor for periods, factor in enumerate(coefficients) if periods
        ]
        return _of_any_length(sum(waves, start=torch.full_like(phase, coefficients[0])), window_length)

    return window


def _hamming_window(
    window_length: object, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, **options: object
) -> torch.Tensor:
    return _cosine_window(alpha, -beta)(window_length, periodic, **options)


def _bartlett_window(window_length: Any, periodic: bool = True, **options: Any) -> torch.Tensor:
    """`torch.bartlett_window`: rises to 1 in the middle, and falls again."""
    return _of_any_length(1 - (2 * _phase(window_length, periodic, **options) - 1).abs(), window_length)


def _kaiser_window(
    window_length: Any, periodic: bool = True, beta: float = 12.0, **options: Any
) -> torch.Tensor:
    """`torch.kaiser_window`: i0(beta * sqrt(1 - x^2)) / i0(beta), for x from -1 to 1."""
    height = (1 - (2 * _phase(window_length, periodic, **options) - 1).square()).clamp(min=0).sqrt()
    scale = torch.special.i0(torch.full((), float(beta), dtype=height.dtype, device=height.device))
    return _of_any_length(torch.special.i0(height * beta) / scale, window_length)


def _phase(
    length: Any,
    periodic: bool,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    requires_grad: bool = False,
) -> torch.Tensor:
    """Return the positions of the elements; 1 is the last element or, if periodic, the one after it."""
    positions = torch.arange(length, device=device).to(dtype or torch.get_default_dtype())
    last: Any = length if periodic else torch.sym_max(length - 1, 1)
    result: torch.Tensor = positions / last
    return result


def _of_any_length(window: torch.Tensor, length: Any) -> torch.Tensor:
    """Return a window, but 1 for the element of a window of length 1."""
    is_longer: Any = torch.sym_min(length - 1, 1)
    result: torch.Tensor = window * is_longer + (1 - is_longer)
    return result


# Models of ultralytics call this private function. Older or newer torch may lack it; then no model calls it.
_SHAPE_AS_TENSOR = vars(torch).get("_shape_as_tensor")


def _shape_as_tensor(input: torch.Tensor) -> torch.Tensor:
    """Return the sizes of a tensor as an INT64 vector."""
    sizes = [torch.scalar_tensor(size, dtype=torch.int64) for size in input.shape]
    return torch.stack(sizes) if sizes else torch.zeros(0, dtype=torch.int64)


def _vander(x: torch.Tensor, N: int | None = None, increasing: bool = False) -> torch.Tensor:
    powers: torch.Tensor = torch.linalg.vander(x, N=x.shape[0] if N is None else N)
    return powers if increasing else powers.flip(-1)


def _combinations(input: torch.Tensor, r: int = 2, with_replacement: bool = False) -> torch.Tensor:
    """`torch.combinations`: selects the positions of an r-dimensional grid that increase along the axes."""
    if input.dim() != 1 or r < 1:
        return torch.combinations(input, r, with_replacement)
    count: Any = input.shape[0]
    positions = [torch.arange(count, device=input.device)] * r
    grids = torch.meshgrid(*positions, indexing="ij")
    increases = [
        first <= second if with_replacement else first < second for first, second in itertools.pairwise(grids)
    ]
    selected = functools.reduce(torch.logical_and, increases, torch.ones_like(grids[0], dtype=torch.bool))
    # There are n * (n - 1) * ... / r! combinations; with replacement, n * (n + 1) * ... / r!.
    factors = [count + i if with_replacement else count - i for i in range(r)]
    total = functools.reduce(operator.mul, factors) // math.factorial(r)
    indices = torch.nonzero_static(selected.flatten(), size=_non_negative(total)).squeeze(1)
    return torch.stack([input[grid.flatten()[indices]] for grid in grids], dim=1)


def _fill_diagonal(self: torch.Tensor, fill_value: float, wrap: bool = False) -> torch.Tensor:
    """Fill the diagonal of a matrix, or of a tensor with equal sizes, in place; returns `self`."""
    check(self.dim() >= 2, lambda: "dimensions must larger than 1")
    if self.dim() == 2 and not wrap:
        self.diagonal().fill_(fill_value)
        return self
    if self.dim() > 2:
        for size in self.shape[1:]:
            check(size == self.shape[0], lambda: "all dimensions of input must be of equal length")
    rows = torch.arange(self.shape[0], device=self.device)
    if self.dim() == 2:
        # With `wrap`, the diagonal starts again after each square and one skipped row.
        rows = rows % (self.shape[1] + 1)
    on_diagonal = torch.ones((), dtype=torch.bool, device=self.device)
    for axis in range(1, self.dim()):
        columns = torch.arange(self.shape[axis], device=self.device)
        later_axes = [1] * (self.dim() - 1 - axis)
        matches = rows.reshape([-1] + [1] * (self.dim() - 1)) == columns.reshape([-1, *later_axes])
        on_diagonal = on_diagonal & matches
    return self.masked_fill_(on_diagonal, fill_value)


def _if(would_fix_size: Callable[..., bool], function: Function) -> Choice:
    return lambda *args, **kwargs: function if would_fix_size(*args, **kwargs) else None


CHOICES: dict[object, Choice] = {
    **dynamic_windows.CHOICES,
    torch.linspace: _if(_has_dynamic_steps, _linspace),
    torch.logspace: _if(_has_dynamic_exponents, _logspace),
    torch.affine_grid_generator: _if(_has_dynamic_size, _affine_grid),
    F.affine_grid: _if(_has_dynamic_size, _affine_grid),
    torch.istft: _if(_has_dynamic_length, _istft),
    torch.Tensor.istft: _if(_has_dynamic_length, _istft),
    _SHAPE_AS_TENSOR: _if(lambda input: isinstance(input, FakeTensor), _shape_as_tensor),
    F.one_hot: _if(_has_dynamic_classes, _one_hot),
    torch.tril_indices: _if(_has_dynamic_triangle, _tril_indices),
    torch.triu_indices: _if(_has_dynamic_triangle, _triu_indices),
    torch.vander: _if(lambda x, *options, **keywords: isinstance(x, FakeTensor), _vander),
    torch.hann_window: _if(_has_dynamic_window, _cosine_window(0.5, -0.5)),
    torch.hamming_window: _if(_has_dynamic_window, _hamming_window),
    torch.blackman_window: _if(_has_dynamic_window, _cosine_window(0.42, -0.5, 0.08)),
    torch.bartlett_window: _if(_has_dynamic_window, _bartlett_window),
    torch.kaiser_window: _if(_has_dynamic_window, _kaiser_window),
    torch.combinations: _if(lambda input, *options, **keywords: isinstance(input, FakeTensor), _combinations),
    torch.Tensor.fill_diagonal_: _if(lambda self, *options, **keywords: True, _fill_diagonal),
}
"""By torch's function, a `Choice`: returns the function to call instead, if the call would fix a size."""


class RepeatedReplacements(TorchFunctionMode):
    """Makes a model that runs on numbers call the same functions as its capture with symbolic sizes.

    Args:
        replaced_calls: for each call of a function of `CHOICES` in the capture, the function that was
            called instead, or None.
    """

    def __init__(self, replaced_calls: Sequence[Function | None]):
        super().__init__()
        self._replaced_calls = iter(replaced_calls)

    def __torch_function__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> object:
        replacement = next(self._replaced_calls, None) if func in CHOICES else None
        return (replacement or func)(*args, **(kwargs or {}))
