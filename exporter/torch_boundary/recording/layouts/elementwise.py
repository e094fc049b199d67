"""Layouts of the results of elementwise operators, whose arguments are broadcast."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...symbolic_numbers import decide_condition
from .layout import (
    Rule,
    Size,
    TensorLayout,
    are_same,
    axis_of,
    contiguous_strides,
    has_single,
    is_above_1,
    is_contiguous,
    is_fake,
    is_made_same,
    is_same,
    new_layout,
)

_OF_FLOATS = (
    "atan clamp clamp_max clamp_min cos elu erf exp gelu hardsigmoid hardswish hardtanh leaky_relu "
    "log log_sigmoid mish pow.Tensor_Scalar reciprocal relu relu6 rsqrt sigmoid silu sin "
    "softplus sqrt square tanh"
)
"""Operators of one tensor of floats, whose other arguments are numbers."""
_OF_NUMBERS = "abs neg"
"""Operators of one tensor that keep its element type, integers included."""
_ARITHMETIC = (
    "add.Tensor div.Tensor floor_divide max.other maximum min.other minimum mul.Tensor remainder.Scalar "
    "remainder.Tensor sub.Tensor"
)
_CONDITIONS = "eq ge gt le lt ne"
_LOGIC = "__and__.Tensor __or__.Tensor bitwise_and.Tensor bitwise_or.Tensor logical_and logical_or"


def _unary(x: torch.Tensor, *options: object) -> TensorLayout | None:
    if not x.dtype.is_floating_point or not all(item is None or type(item) in _NUMBERS for item in options):
        return None
    return broadcast(x.dtype, x)


def _absolute_or_negative(x: torch.Tensor) -> TensorLayout | None:
    return None if x.dtype == torch.bool or x.dtype.is_complex else broadcast(x.dtype, x)


def _convert(
    x: torch.Tensor,
    dtype: torch.dtype,
    non_blocking: bool = False,
    copy: bool = False,
    memory_format: torch.memory_format | None = None,
) -> TensorLayout | None:
    # A tensor that already has the element type may be returned itself.
    if dtype == x.dtype or x.dtype.is_complex or memory_format not in (None, torch.preserve_format):
        return None
    return broadcast(dtype, x)


def _to_device(
    x: torch.Tensor,
    device: torch.device,
    dtype: torch.dtype,
    non_blocking: bool = False,
    copy: bool = False,
    memory_format: torch.memory_format | None = None,
) -> TensorLayout | None:
    return _convert(x, dtype, non_blocking, copy, memory_format) if device == x.device else None


def _softmax(x: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> TensorLayout | None:
    is_known = x.dtype.is_floating_point and dtype in (None, x.dtype) and axis_of(x, dim) is not None
    return new_layout(x, x.shape) if is_known and is_contiguous(x) else None


def _arithmetic(x: torch.Tensor, operand: object) -> TensorLayout | None:
    if is_fake(operand):
        return broadcast(x.dtype, x, operand) if x.dtype == operand.dtype and x.dtype != torch.bool else None
    # A Python float promotes a tensor of integers; other scalars keep its element type.
    keeps_dtype = (
        x.dtype.is_floating_point
        if type(operand) is float
        else type(operand) is int and x.dtype != torch.bool
    )
    return broadcast(x.dtype, x) if keeps_dtype and type(operand) in (int, float) else None


def _quotient(x: torch.Tensor, operand: object) -> TensorLayout | None:
    return _arithmetic(x, operand) if x.dtype.is_floating_point else None


def _condition(x: torch.Tensor, operand: object) -> TensorLayout | None:
    if is_fake(operand):
        return broadcast(torch.bool, x, operand) if x.dtype == operand.dtype else None
    return broadcast(torch.bool, x) if type(operand) in (int, float) else None


def _logic(x: torch.Tensor, operand: object) -> TensorLayout | None:
    if not is_fake(operand) or not x.dtype == operand.dtype == torch.bool:
        return None
    return broadcast(torch.bool, x, operand)


def _not(x: torch.Tensor) -> TensorLayout | None:
    return broadcast(x.dtype, x) if x.dtype == torch.bool else None


def _where(condition: torch.Tensor, x: object, y: object) -> TensorLayout | None:
    tensors = [item for item in (x, y) if is_fake(item)]
    numbers = [item for item in (x, y) if type(item) in (int, float)]
    if len(tensors) + len(numbers) < 2 or not tensors or condition.dtype != torch.bool:
        return None
    dtype = tensors[0].dtype
    # Numbers promote tensors of integers.
    is_known = dtype == tensors[-1].dtype and (dtype.is_floating_point or not numbers)
    return broadcast(dtype, condition, *tensors) if is_known else None


def _masked_fill(x: torch.Tensor, mask: object, value: object) -> TensorLayout | None:
    if not x.dtype.is_floating_point or not is_fake(mask) or mask.dtype != torch.bool:
        return None
    layout = broadcast(x.dtype, x, mask) if type(value) in (int, float) else None
    return layout if layout is not None and are_same(layout.shape, x.shape) else None


def broadcast(dtype: torch.dtype, *tensors: torch.Tensor) -> TensorLayout | None:
    """The layout of an elementwise result: its strides have the order of the arguments' strides.

    None if the shape or the order depends on the sizes.
    """
    first = tensors[0]
    shape: Sequence[Size] | None = first.shape
    for tensor in tensors[1:]:
        is_known = shape is not None and tensor.device == first.device
        shape = _shape(shape, tensor.shape) if is_known else None  # type: ignore[arg-type]
    if shape is None:
        return None
    if all(map(is_contiguous, tensors)):
        # All have descending strides, so torch keeps the order of the axes.
        return new_layout(first, shape, dtype)
    axes = None if has_single(shape) else _order(shape, tensors)
    strides = None if axes is None else contiguous_strides([shape[axis] for axis in axes])
    if axes is None or strides is None:
        return None
    return TensorLayout(dtype, shape, [strides[axes.index(axis)] for axis in range(len(shape))], first.device)


def _order(shape: Sequence[Size], tensors: Sequence[torch.Tensor]) -> list[int] | None:
    """The axes of the result by descending strides, as torch sorts them; None if that depends on sizes."""
    strides = [_broadcast_strides(tensor, shape) for tensor in tensors]
    axes = list(reversed(range(len(shape))))
    # The insertion sort of ATen's TensorIterator: its comparison is no total order, so steps must be equal.
    for last in range(1, len(axes)):
        moved = last
        for earlier in reversed(range(last)):
            comparison = _compare_axes(shape, strides, axes[earlier], axes[moved])
            if comparison is None:
                return None
            if comparison < 0:
                break
            if comparison > 0:
                axes[earlier], axes[moved] = axes[moved], axes[earlier]
                moved = earlier
    return axes[::-1]


def _broadcast_strides(tensor: torch.Tensor, shape: Sequence[Size]) -> Sequence[Size]:
    added = len(shape) - tensor.dim()
    pairs = zip(tensor.shape, tensor.stride(), shape[added:], strict=True)
    return [
        *[0] * added,
        *(stride if is_same(size, result_size) else 0 for size, stride, result_size in pairs),
    ]


def _compare_axes(
    shape: Sequence[Size], strides: Sequence[Sequence[Size]], first: int, second: int
) -> int | None:
    """Compare two axes as ATen does: 1 to swap them, -1 to keep the order, 0 if no tensor decides.

    None if the answer depends on the sizes.
    """
    for tensor_strides in strides:
        a, b = tensor_strides[first], tensor_strides[second]
        if is_same(a, 0) or is_same(b, 0):
            continue
        if is_same(a, b):
            is_larger = decide_condition(shape[second] >= shape[first])
            if is_larger is not True:
                return None if is_larger is None else 1
        elif decide_condition(a < b):
            return -1
        else:
            return 1 if decide_condition(a > b) else None
    return 0


def _shape(sizes: Sequence[Size], second_sizes: Sequence[Size]) -> Sequence[Size] | None:
    """Return the broadcast shape; None if it depends on whether a symbolic size is 1 or equals another."""
    rank = max(len(sizes), len(second_sizes))
    shape = []
    for size, second_size in zip(
        *((*[1] * (rank - len(operand_sizes)), *operand_sizes) for operand_sizes in (sizes, second_sizes)),
        strict=True,
    ):
        if (
            is_same(size, second_size)
            or _is_1(second_size)
            or (is_above_1(size) and is_above_1(second_size) and is_made_same(size, second_size))
        ):
            shape.append(size)
        elif _is_1(size) and is_above_1(second_size):
            shape.append(second_size)
        else:
            return None
    return shape


def _is_1(size: Size) -> bool:
    return type(size) is int and size == 1


_NUMBERS = (bool, int, float, str)
RULES: dict[str, Rule] = {
    **{f"aten::{name}": _unary for name in _OF_FLOATS.split()},
    **{f"aten::{name}": _absolute_or_negative for name in _OF_NUMBERS.split()},
    **{f"aten::{name}": _arithmetic for name in _ARITHMETIC.split()},
    **{
        f"aten::{name}.{overload}": _condition
        for name in _CONDITIONS.split()
        for overload in ("Tensor", "Scalar")
    },
    **{f"aten::{name}": _logic for name in _LOGIC.split()},
    "aten::bitwise_not": _not,
    "aten::div.Tensor": _quotient,
    "aten::log_softmax.int": _softmax,
    "aten::logical_not": _not,
    "aten::masked_fill.Scalar": _masked_fill,
    "aten::softmax.int": _softmax,
    "aten::to.device": _to_device,
    "aten::to.dtype": _convert,
    **{f"aten::where.{overload}": _where for overload in ("self", "ScalarOther", "ScalarSelf")},
}
