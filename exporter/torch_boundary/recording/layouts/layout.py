"""Layouts of tensors with symbolic sizes, compared by polynomials: equality holds for all sizes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import TypeGuard

import torch

from ...fake_tensors import FakeTensor
from ...symbolic_numbers import Size as Size
from ...symbolic_numbers import canonical_form, decide_condition, exceeds


# By identity, because layouts are keys of caches, and comparing symbolic sizes is slow.
@dataclasses.dataclass(eq=False)
class TensorLayout:
    """The layout of a result: a new tensor, or a view of the operator's first argument.

    Attributes:
        offset: for a view, the position of its first element in the storage; None for a new tensor.
        is_whole: whether a view has all elements of the argument, so that it fits into the same storage.
        cache_key: the part of a `KnownResults` key for tensors of this layout; None until one is used.
        is_contiguous: whether it is known to be that of a new contiguous tensor, and never empty.
    """

    dtype: torch.dtype
    shape: Sequence[Size]
    stride: Sequence[Size]
    device: torch.device
    offset: Size | None = None
    is_whole: bool = False
    cache_key: tuple[object, ...] | None = dataclasses.field(default=None, init=False)
    is_contiguous: bool = dataclasses.field(default=False, init=False)

    @functools.cached_property
    def is_symbolic(self) -> bool:
        """Whether a size or stride is symbolic."""
        return not (are_fixed(self.shape) and are_fixed(self.stride))


Weight = torch.Tensor | None
"""An optional argument of an operator."""
Rule = Callable[..., TensorLayout | None]
"""Takes an operator's arguments; returns the layout of its result, or None if its kernel must run."""
LAYOUT = "opsetta_layout"
"""The attribute of fake tensors that holds the layout that a recording gave the tensor."""


def layout_of(tensor: torch.Tensor) -> TensorLayout | None:
    """Return the layout with which a recording made a fake tensor; None for other tensors."""
    return vars(tensor).get(LAYOUT)


def forget_layout(tensor: torch.Tensor) -> None:
    """Forget the layout of a tensor that an operator changes."""
    vars(tensor).pop(LAYOUT, None)


def new_layout(
    like: torch.Tensor, shape: Sequence[Size], dtype: torch.dtype | None = None
) -> TensorLayout | None:
    """The layout of a new contiguous tensor; None if a size may be 0, for which torch has special strides."""
    stride = contiguous_strides(shape)
    if stride is None:
        return None
    layout = TensorLayout(dtype or like.dtype, shape, stride, like.device)
    layout.is_contiguous = True
    return layout


def view_layout(
    base: torch.Tensor, shape: Sequence[Size], stride: Sequence[Size], offset: Size | None = None
) -> TensorLayout:
    """The layout of a view of a tensor, by default from its first element on."""
    start = base.storage_offset() if offset is None else offset
    return TensorLayout(base.dtype, tuple(shape), tuple(stride), base.device, start)


def contiguous_strides(shape: Sequence[Size]) -> tuple[Size, ...] | None:
    """Return the strides of a new contiguous tensor; None if a size may be 0."""
    strides: list[Size] = [1]
    for size in reversed(shape[1:]):
        if not is_positive(size):
            return None
        strides.append(strides[-1] * size)
    return tuple(strides[: len(shape)][::-1]) if not shape or is_positive(shape[0]) else None


def is_contiguous(tensor: torch.Tensor, *, ignores_unit_axes: bool = False) -> bool:
    """Whether a tensor is never empty, and has the strides of a new contiguous tensor for all sizes.

    Args:
        ignores_unit_axes: whether to ignore the stride of an axis whose size is the number 1.
    """
    layout = layout_of(tensor)
    if layout is not None and layout.is_contiguous:
        return True
    strides = contiguous_strides(tensor.shape)
    if strides is None or not ignores_unit_axes:
        is_known = strides is not None and are_same(tensor.stride(), strides)
        if layout is not None:
            layout.is_contiguous = is_known
        return is_known
    axes = zip(tensor.shape, tensor.stride(), strides, strict=True)
    return all(
        is_same(size, 1) or is_same(stride, contiguous_stride) for size, stride, contiguous_stride in axes
    )


def is_fake(item: object) -> TypeGuard[FakeTensor]:
    """Whether an argument is a fake tensor, and not of a subclass."""
    return type(item) is FakeTensor


def are_fakes(items: Sequence[object]) -> TypeGuard[Sequence[FakeTensor]]:
    """Whether all items are fake tensors."""
    return all(map(is_fake, items))


def is_positive(size: Size) -> bool:
    """Whether a size is never 0."""
    return exceeds(size, 0)


def is_above_1(size: Size) -> bool:
    """Whether a size is never 0 or 1."""
    return exceeds(size, 1)


def has_single(sizes: Sequence[Size]) -> bool:
    """Whether a size is the number 1, for which kernels choose among several equivalent strides."""
    return any(type(size) is int and size == 1 for size in sizes)


def holds_with_guard(condition: bool | torch.SymBool) -> bool:
    """Whether a condition on sizes is true; if only the example decides it, true adds a guard."""
    answer = decide_condition(condition)
    # Only a symbolic condition is undecided.
    is_true_in_example = answer is None and isinstance(condition, torch.SymBool) and condition.node.hint
    return bool(condition) if is_true_in_example else bool(answer)


def is_same(size: Size, second: Size) -> bool:
    """Whether two sizes are equal for all inputs, by their polynomials; adds no guard."""
    if isinstance(size, int) or isinstance(second, int):
        return isinstance(size, int) and isinstance(second, int) and size == second
    return canonical_form(size) is canonical_form(second)


def is_made_same(size: Size, second: Size) -> bool:
    """Whether two sizes that are not broadcast are equal; adds the same guard as torch's kernel if needed."""
    if is_same(size, second):
        return True
    hints = [length if isinstance(length, int) else length.node.hint for length in (size, second)]
    return None not in hints and hints[0] == hints[1] and bool(size == second)


def are_same(sizes: Sequence[Size], second_sizes: Sequence[Size]) -> bool:
    """Whether two shapes are equal for all inputs, by their polynomials; adds no guard."""
    return len(sizes) == len(second_sizes) and all(map(is_same, sizes, second_sizes))


def are_fixed(sizes: Sequence[Size]) -> TypeGuard[Sequence[int]]:
    """Whether all sizes are Python integers, not symbols."""
    return all(type(size) is int for size in sizes)


def number(size: Size) -> Size:
    """Return a size, as a Python integer if torch knows that it is constant."""
    fixed = size.node.maybe_as_int() if isinstance(size, torch.SymInt) else None
    return size if fixed is None else fixed


def has_shape(x: torch.Tensor, sizes: Sequence[Size], *weights: torch.Tensor | None) -> bool:
    """Whether all weights have the fixed shape `sizes` and the element type and device of `x`; skips None."""
    return are_fixed(sizes) and all(
        weight is None
        or (weight.dtype == x.dtype and weight.device == x.device and are_same(weight.shape, sizes))
        for weight in weights
    )


def product(sizes: Sequence[Size]) -> Size:
    """The product of sizes."""
    result: Size = 1
    for size in sizes:
        result = size if type(result) is int and result == 1 else result * size
    return result


def axis_of(tensor: torch.Tensor, dim: object, more: int = 0) -> int | None:
    """Return a dimension as an axis from 0 on; None if there is no such axis.

    Args:
        more: how many axes the result has in addition, as `unsqueeze` has 1.
    """
    rank = tensor.dim() + more
    return dim % rank if type(dim) is int and rank and -rank <= dim < rank else None
