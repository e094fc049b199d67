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
    """A result: a new tensor, or, with an offset in its storage, a view of the operator's first argument.

    Attributes:
        is_whole: whether a view has all elements of the argument, so that it is in the storage as well.
        cache_key: the part of a `KnownResults` key for tensors of this layout; None until one is used.
    """

    dtype: torch.dtype
    shape: Sequence[Size]
    stride: Sequence[Size]
    device: torch.device
    offset: Size | None = None
    is_whole: bool = False
    cache_key: tuple[object, ...] | None = dataclasses.field(default=None, init=False)

    @functools.cached_property
    def is_symbolic(self) -> bool:
        """Whether a size or stride is symbolic."""
        return not (are_fixed(self.shape) and are_fixed(self.stride))


Weight = torch.Tensor | None
"""An optional argument of an operator."""
Rule = Callable[..., TensorLayout | None]
"""The layout of an operator's result by its arguments; None for calls that its kernel must decide."""
LAYOUT = "opsetta_layout"
"""The name of an attribute of fake tensors. It holds the layout that a recording gave the tensor."""


def layout_of(tensor: torch.Tensor) -> TensorLayout | None:
    """The layout that a recording gave a fake tensor, one object for all tensors of it; None for others."""
    return vars(tensor).get(LAYOUT)


def forget_layout(tensor: torch.Tensor) -> None:
    """Forget the layout of a tensor that an operator changes."""
    vars(tensor).pop(LAYOUT, None)


def new_layout(
    like: torch.Tensor, shape: Sequence[Size], dtype: torch.dtype | None = None
) -> TensorLayout | None:
    """A new contiguous tensor; None if a size may be 0, for which torch has special strides."""
    stride = contiguous_strides(shape)
    return None if stride is None else TensorLayout(dtype or like.dtype, shape, stride, like.device)


def view_layout(
    base: torch.Tensor, shape: Sequence[Size], stride: Sequence[Size], offset: Size | None = None
) -> TensorLayout:
    """A view of a tensor, by default from its first element on."""
    start = base.storage_offset() if offset is None else offset
    return TensorLayout(base.dtype, tuple(shape), tuple(stride), base.device, start)


def contiguous_strides(shape: Sequence[Size]) -> tuple[Size, ...] | None:
    """The strides of a new tensor; None if a size may be 0."""
    strides: list[Size] = [1]
    for size in reversed(shape[1:]):
        if not is_positive(size):
            return None
        strides.append(strides[-1] * size)
    return tuple(strides[: len(shape)][::-1]) if not shape or is_positive(shape[0]) else None


def is_contiguous(tensor: torch.Tensor, *, but_single: bool = False) -> bool:
    """Whether a tensor has the strides of a new one for all sizes, and elements.

    Args:
        but_single: whether the stride of an axis with one element may be any.
    """
    strides = contiguous_strides(tensor.shape)
    if strides is None or not but_single:
        return strides is not None and are_same(tensor.stride(), strides)
    axes = zip(tensor.shape, tensor.stride(), strides, strict=True)
    return all(
        is_same(size, 1) or is_same(stride, contiguous_stride) for size, stride, contiguous_stride in axes
    )


def is_fake(item: object) -> TypeGuard[FakeTensor]:
    """Whether an argument is a fake tensor, rather than one of a class below."""
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
    """Whether a condition on sizes is true; if it is so for the example only, a guard records it."""
    answer = decide_condition(condition)
    # Only a symbolic condition is undecided.
    is_true_in_example = answer is None and isinstance(condition, torch.SymBool) and condition.node.hint
    return bool(condition) if is_true_in_example else bool(answer)


def is_same(size: Size, second: Size) -> bool:
    """Whether two sizes have the same polynomial, so that no guard is needed."""
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
    """Whether two shapes have the same polynomials."""
    return len(sizes) == len(second_sizes) and all(map(is_same, sizes, second_sizes))


def are_fixed(sizes: Sequence[Size]) -> TypeGuard[Sequence[int]]:
    """Whether all sizes are Python's integers."""
    return all(type(size) is int for size in sizes)


def number(size: Size) -> Size:
    """A size, as Python's integer if it is the same for all sizes of the inputs."""
    fixed = size.node.maybe_as_int() if isinstance(size, torch.SymInt) else None
    return size if fixed is None else fixed


def has_shape(x: torch.Tensor, sizes: Sequence[Size], *weights: torch.Tensor | None) -> bool:
    """Whether all given weights have a fixed shape, and the element type and device of the first argument."""
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
    """The axis that a dimension names, from the end if it is negative; None if there is no such axis."""
    rank = tensor.dim() + more
    return dim % rank if type(dim) is int and rank and -rank <= dim < rank else None
