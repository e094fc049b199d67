"""Operators whose result has an element for each element of its broadcast arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...fake_tensors import FakeTensor
from ...symbolic_numbers import known
from .layout import (
    Layout,
    are_same,
    axis_of,
    contiguous_strides,
    has_single,
    is_above_1,
    is_contiguous,
    is_made_same,
    is_same,
    made,
)

_OF_FLOATS = (
    "atan clamp clamp_max clamp_min cos elu erf exp gelu hardsigmoid hardswish hardtanh leaky_relu "
    "log log_sigmoid mish pow.Tensor_Scalar reciprocal relu relu6 rsqrt sigmoid silu sin "
    "softplus sqrt square tanh"
)
"""Operators of one tensor of floats, whose other arguments are numbers."""
_OF_NUMBERS = "abs neg"
"""Operators of one tensor, which give integers for integers."""
_ARITHMETIC = (
    "add.Tensor div.Tensor floor_divide max.other maximum min.other minimum mul.Tensor remainder.Scalar "
    "remainder.Tensor sub.Tensor"
)
_CONDITIONS = "eq ge gt le lt ne"
_LOGIC = "__and__.Tensor __or__.Tensor bitwise_and.Tensor bitwise_or.Tensor logical_and logical_or"


def _unary(x: torch.Tensor, *others: Any) -> Layout | None:
    if not x.dtype.is_floating_point or not all(item is None or type(item) in _NUMBERS for item in others):
        return None
    return broadcast(x.dtype, x)


def _signed(x: torch.Tensor) -> Layout | None:
    return None if x.dtype == torch.bool or x.dtype.is_complex else broadcast(x.dtype, x)


def _converted(
    x: torch.Tensor, dtype: Any, non_blocking: bool = False, copy: bool = False, memory_format: Any = None
) -> Layout | None:
    # A tensor that has the element type is returned itself.
    if dtype == x.dtype or x.dtype.is_complex or memory_format not in (None, torch.preserve_format):
        return None
    return broadcast(dtype, x)


def _moved(x: torch.Tensor, device: Any, dtype: Any, *others: Any) -> Layout | None:
    return _converted(x, dtype, *others) if device == x.device else None


def _softmax(x: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> Layout | None:
    is_known = x.dtype.is_floating_point and dtype in (None, x.dtype) and axis_of(x, dim) is not None
    return made(x, x.shape) if is_known and is_contiguous(x) else None


def _arithmetic(x: torch.Tensor, other: Any) -> Layout | None:
    if type(other) is FakeTensor:
        return broadcast(x.dtype, x, other) if x.dtype == other.dtype and x.dtype != torch.bool else None
    is_kept = (
        x.dtype.is_floating_point if type(other) is float else type(other) is int and x.dtype != torch.bool
    )
    return broadcast(x.dtype, x) if is_kept and type(other) in (int, float) else None


def _quotient(x: torch.Tensor, other: Any) -> Layout | None:
    return _arithmetic(x, other) if x.dtype.is_floating_point else None


def _condition(x: torch.Tensor, other: Any) -> Layout | None:
    if type(other) is FakeTensor:
        return broadcast(torch.bool, x, other) if x.dtype == other.dtype else None
    return broadcast(torch.bool, x) if type(other) in (int, float) else None


def _logic(x: torch.Tensor, other: Any) -> Layout | None:
    is_known = type(other) is FakeTensor and x.dtype == other.dtype == torch.bool
    return broadcast(torch.bool, x, other) if is_known else None


def _not(x: torch.Tensor) -> Layout | None:
    return broadcast(x.dtype, x) if x.dtype == torch.bool else None


def _where(condition: torch.Tensor, x: Any, other: Any) -> Layout | None:
    tensors = [item for item in (x, other) if type(item) is FakeTensor]
    numbers = [item for item in (x, other) if type(item) in (int, float)]
    if len(tensors) + len(numbers) < 2 or not tensors or condition.dtype != torch.bool:
        return None
    dtype = tensors[0].dtype
    is_known = dtype == tensors[-1].dtype and (dtype.is_floating_point or not numbers)
    return broadcast(dtype, condition, *tensors) if is_known else None


def _masked_fill(x: torch.Tensor, mask: Any, value: Any) -> Layout | None:
    is_known = x.dtype.is_floating_point and type(mask) is FakeTensor and mask.dtype == torch.bool
    found = broadcast(x.dtype, x, mask) if is_known and type(value) in (int, float) else None
    return found if found is not None and are_same(found.shape, x.shape) else None


def broadcast(dtype: torch.dtype, *tensors: torch.Tensor) -> Layout | None:
    """A new tensor, whose strides have the order of those of the arguments."""
    first = tensors[0]
    shape: Sequence[Any] | None = first.shape
    for tensor in tensors[1:]:
        is_known = shape is not None and tensor.device == first.device
        shape = _shape(shape, tensor.shape) if is_known else None  # type: ignore[arg-type]
    if shape is None:
        return None
    if all(map(is_contiguous, tensors)):
        # No tensor has a larger stride in an inner axis.
        return made(first, shape, dtype)
    axes = None if has_single(shape) else _order(shape, tensors)
    strides = None if axes is None else contiguous_strides([shape[axis] for axis in axes])
    if axes is None or strides is None:
        return None
    return Layout(dtype, shape, [strides[axes.index(axis)] for axis in range(len(shape))], first.device)


def _order(shape: Sequence[Any], tensors: Sequence[torch.Tensor]) -> list[int] | None:
    """The axes of the result by descending strides, as torch sorts them; None if that depends on sizes."""
    strides = [_broadcast_strides(tensor, shape) for tensor in tensors]
    axes = list(reversed(range(len(shape))))
    for last in range(1, len(axes)):
        moved = last
        for earlier in reversed(range(last)):
            comparison = _compared(shape, strides, axes[earlier], axes[moved])
            if comparison is None:
                return None
            if comparison < 0:
                break
            if comparison > 0:
                axes[earlier], axes[moved] = axes[moved], axes[earlier]
                moved = earlier
    return axes[::-1]


def _broadcast_strides(tensor: torch.Tensor, shape: Sequence[Any]) -> Sequence[Any]:
    added = len(shape) - tensor.dim()
    pairs = zip(tensor.shape, tensor.stride(), shape[added:], strict=True)
    return [*[0] * added, *(stride if is_same(size, wanted) else 0 for size, stride, wanted in pairs)]


def _compared(shape: Sequence[Any], strides: Sequence[Sequence[Any]], first: int, other: int) -> int | None:
    """1 if two axes change places, -1 if they do not, 0 if the strides do not tell; None if sizes decide."""
    for each in strides:
        a, b = each[first], each[other]
        if is_same(a, 0) or is_same(b, 0):
            continue
        if is_same(a, b):
            is_larger = known(shape[other] >= shape[first])
            if is_larger is not True:
                return None if is_larger is None else 1
        elif known(a < b):
            return -1
        else:
            return 1 if known(a > b) else None
    return 0


def _shape(sizes: Sequence[Any], others: Sequence[Any]) -> Sequence[Any] | None:
    """The broadcast shape; None if sizes may be 1, or differ."""
    rank = max(len(sizes), len(others))
    found = []
    for size, other in zip(*((*[1] * (rank - len(each)), *each) for each in (sizes, others)), strict=True):
        if (
            is_same(size, other)
            or _is_1(other)
            or (is_above_1(size) and is_above_1(other) and is_made_same(size, other))
        ):
            found.append(size)
        elif _is_1(size) and is_above_1(other):
            found.append(other)
        else:
            return None
    return found


def _is_1(size: Any) -> bool:
    return type(size) is int and size == 1


_NUMBERS = (bool, int, float, str)
RULES: dict[str, Callable[..., Layout | None]] = {
    **{f"aten::{name}": _unary for name in _OF_FLOATS.split()},
    **{f"aten::{name}": _signed for name in _OF_NUMBERS.split()},
    **{f"aten::{name}": _arithmetic for name in _ARITHMETIC.split()},
    **{f"aten::{name}.{kind}": _condition for name in _CONDITIONS.split() for kind in ("Tensor", "Scalar")},
    **{f"aten::{name}": _logic for name in _LOGIC.split()},
    "aten::bitwise_not": _not,
    "aten::div.Tensor": _quotient,
    "aten::log_softmax.int": _softmax,
    "aten::logical_not": _not,
    "aten::masked_fill.Scalar": _masked_fill,
    "aten::softmax.int": _softmax,
    "aten::to.device": _moved,
    "aten::to.dtype": _converted,
    **{f"aten::where.{kind}": _where for kind in ("self", "ScalarOther", "ScalarSelf")},
}
"""The layout of the result by the arguments; None for calls that the operator's kernel must decide."""
