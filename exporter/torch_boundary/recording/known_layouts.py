"""Layouts of results that follow from contiguous arguments.

A kernel of a fake tensor finds the same by comparing symbolic sizes and strides, which takes milliseconds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from .symbolic_numbers import identity


@dataclasses.dataclass(frozen=True)
class Layout:
    """A result: a new tensor, or, with an offset in its storage, a view of the operator's first argument."""

    dtype: torch.dtype
    shape: Sequence[Any]
    stride: Sequence[Any]
    device: torch.device
    offset: Any = None


_ELEMENTWISE = frozenset(
    f"aten::{name}"
    for name in "elu erf exp gelu hardsigmoid hardswish hardtanh leaky_relu mish relu relu6 rsqrt sigmoid "
    "silu softplus sqrt tanh".split()
)
"""Operators of one tensor whose result has its layout, if it is contiguous and of floats."""


def known_layout(func: Any, args: Sequence[Any]) -> Layout | None:
    """The layout of an operator's only result; None if the operator's kernel must find it.

    Args:
        args: all arguments of the call, none of them by name.
    """
    first = args[0] if args else None
    if type(first) is not FakeTensor:
        return None
    name = func._schema.name
    rule = _like_first if name in _ELEMENTWISE else _RULES.get(name)
    if rule is None or not _is_contiguous(first):
        return None
    shape = rule(*args)
    if shape is None:
        return None
    return Layout(first.dtype, shape, _strides(shape), first.device)


def _like_first(first: torch.Tensor, *others: Any) -> Sequence[Any]:
    return first.shape


def _batch_norm(
    first: torch.Tensor, weight: Any, bias: Any, mean: Any, variance: Any, training: bool, *others: Any
) -> Sequence[Any] | None:
    # In training mode it writes to its statistics.
    is_known = not training and mean is not None and variance is not None and first.dim() >= 2
    return (
        first.shape
        if is_known and _have_shape(first, first.shape[1:2], weight, bias, mean, variance)
        else None
    )


def _layer_norm(
    first: torch.Tensor, normalized: Sequence[Any], weight: Any = None, bias: Any = None, *others: Any
) -> Sequence[Any] | None:
    sizes = first.shape[first.dim() - len(normalized) :]
    is_known = 0 < len(normalized) <= first.dim() and _are_equal(sizes, normalized)
    return first.shape if is_known and _have_shape(first, sizes, weight, bias) else None


def _linear(first: torch.Tensor, weight: torch.Tensor, bias: Any = None) -> Sequence[Any] | None:
    if first.dim() < 2 or weight.dim() != 2 or 0 in weight.shape:
        return None
    is_known = _have_shape(first, (weight.shape[0], first.shape[-1]), weight)
    is_known = is_known and _have_shape(first, weight.shape[:1], bias)
    return (*first.shape[:-1], weight.shape[0]) if is_known else None


_RULES: dict[str, Callable[..., Sequence[Any] | None]] = {
    "aten::batch_norm": _batch_norm,
    "aten::layer_norm": _layer_norm,
    "aten::linear": _linear,
}
"""The shape of a result by the arguments; None for calls that the operator's kernel may refuse."""


def _have_shape(first: torch.Tensor, sizes: Sequence[Any], *weights: torch.Tensor | None) -> bool:
    """Whether all given weights have a fixed shape, and the element type of the first argument."""
    return all(
        weight is None or (weight.dtype == first.dtype and _are_equal(weight.shape, sizes))
        for weight in weights
    )


def _are_equal(sizes: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether two shapes have the same numbers; a symbolic size would need a guard."""
    return len(sizes) == len(others) and all(
        isinstance(a, int) and isinstance(b, int) and a == b for a, b in zip(sizes, others, strict=True)
    )


def _is_contiguous(tensor: torch.Tensor) -> bool:
    """Whether a tensor of floats has the strides of a new one, by form: equal for all sizes."""
    if not tensor.dtype.is_floating_point or 0 in [size for size in tensor.shape if isinstance(size, int)]:
        return False
    pairs = zip(tensor.stride(), _strides(tensor.shape), strict=True)
    return all(_key(stride) == _key(expected) for stride, expected in pairs)


def _strides(shape: Sequence[Any]) -> tuple[Any, ...]:
    """The strides of a new tensor."""
    found: list[Any] = [1]
    for size in reversed(shape[1:]):
        found.append(found[-1] * size)
    return tuple(found[: len(shape)][::-1])


def _key(size: Any) -> Any:
    return size if isinstance(size, int) else identity(size)
