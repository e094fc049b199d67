"""Layouts of the results of normalizations, products, reductions, `cat`, indexing and attention."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch

from ...symbolic_numbers import axes_by_stride, decide_condition
from .elementwise import broadcast
from .layout import (
    Rule,
    Size,
    TensorLayout,
    Weight,
    are_fakes,
    are_fixed,
    are_same,
    axis_of,
    contiguous_strides,
    has_shape,
    has_single,
    is_above_1,
    is_contiguous,
    is_fake,
    is_made_same,
    is_positive,
    is_same,
    new_layout,
)


def _batch_norm(
    x: torch.Tensor,
    weight: Weight,
    bias: Weight,
    mean: Weight,
    variance: Weight,
    training: bool,
    *options: object,
) -> TensorLayout | None:
    # In training mode it writes to its statistics.
    if training or mean is None or variance is None or x.dim() < 2 or not x.dtype.is_floating_point:
        return None
    return broadcast(x.dtype, x) if has_shape(x, x.shape[1:2], weight, bias, mean, variance) else None


def _group_norm(
    x: torch.Tensor, groups: int, weight: Weight = None, bias: Weight = None, *options: object
) -> TensorLayout | None:
    channels = x.shape[1:2]
    # The kernel keeps the memory format of images with their channels last.
    is_known = x.dim() > 1 and x.dtype.is_floating_point and is_contiguous(x)
    is_known = is_known and has_shape(x, channels, weight, bias) and channels[0] % groups == 0
    return new_layout(x, x.shape) if is_known else None


def _layer_norm(
    x: torch.Tensor, normalized: Sequence[Size], weight: Weight = None, bias: Weight = None, *options: object
) -> TensorLayout | None:
    sizes = x.shape[x.dim() - len(normalized) :]
    is_known = x.dtype.is_floating_point and 0 < len(normalized) <= x.dim() and are_fixed(sizes)
    is_known = is_known and are_same(sizes, normalized) and has_shape(x, sizes, weight, bias)
    return new_layout(x, x.shape) if is_known else None


def _linear(x: torch.Tensor, weight: torch.Tensor, bias: Weight = None) -> TensorLayout | None:
    if not x.dtype.is_floating_point or x.dim() < 2 or weight.dim() != 2 or 0 in weight.shape:
        return None
    is_known = has_shape(x, (weight.shape[0], x.shape[-1]), weight) and has_shape(x, weight.shape[:1], bias)
    return (
        new_layout(x, (*x.shape[:-1], weight.shape[0]))
        if is_known and (x.dim() < 4 or is_contiguous(x))
        else None
    )


def _addmm(bias: torch.Tensor, x: object, right: object) -> TensorLayout | None:
    if not is_fake(x) or not is_fake(right) or not x.dtype.is_floating_point:
        return None
    is_known = x.dim() == right.dim() == 2 and has_shape(x, (x.shape[1], right.shape[1]), right)
    is_known = is_known and 0 not in right.shape and has_shape(x, right.shape[1:], bias)
    return new_layout(x, (x.shape[0], right.shape[1])) if is_known else None


def _matmul(x: torch.Tensor, right: object) -> TensorLayout | None:
    """The layout of the product of two stacks of matrices without broadcasting."""
    if not is_fake(right) or not 3 <= x.dim() == right.dim() <= 4 or x.dtype != right.dtype:
        return None
    is_known = x.dtype.is_floating_point and x.device == right.device
    is_known = is_known and are_same((*x.shape[:-2], x.shape[-1]), (*right.shape[:-2], right.shape[-2]))
    return new_layout(x, (*x.shape[:-1], right.shape[-1])) if is_known else None


def _roll(
    x: torch.Tensor, shifts: int | Sequence[Size], dims: int | Sequence[int] = ()
) -> TensorLayout | None:
    # A script may give one number instead of a list.
    if isinstance(shifts, int) or isinstance(dims, int) or not are_fixed(shifts):
        return None
    is_known = len(shifts) == len(dims) and None not in [axis_of(x, dim) for dim in dims]
    return new_layout(x, x.shape) if is_known and dims and is_contiguous(x) else None


def _contiguous(
    x: torch.Tensor, memory_format: torch.memory_format = torch.contiguous_format
) -> TensorLayout | None:
    """The layout of the copy of an argument that is not contiguous for any sizes; else None."""
    strides = contiguous_strides(x.shape)
    if strides is None or memory_format != torch.contiguous_format:
        return None
    axes = zip(x.shape, x.stride(), strides, strict=True)
    is_copied = any(
        is_above_1(size) and decide_condition(stride != contiguous_stride)
        for size, stride, contiguous_stride in axes
    )
    return new_layout(x, x.shape) if is_copied else None


def _cumulate(x: torch.Tensor, dim: int, *, dtype: torch.dtype | None = None) -> TensorLayout | None:
    is_known = axis_of(x, dim) is not None and is_contiguous(x) and not x.dtype.is_complex
    default_dtype = x.dtype if x.dtype.is_floating_point else torch.int64
    return new_layout(x, x.shape, dtype or default_dtype) if is_known else None


def _reduce(
    x: torch.Tensor, dim: Sequence[int] | None, keepdim: bool = False, dtype: torch.dtype | None = None
) -> TensorLayout | None:
    axes = {axis_of(x, dimension) for dimension in dim or ()}
    # The strides of a reduction follow those of its operand where that is not contiguous.
    if not x.dtype.is_floating_point or dtype not in (None, x.dtype) or not is_contiguous(x):
        return None
    if not dim or None in axes or len(axes) != len(dim):
        return None
    sizes = [1 if axis in axes else size for axis, size in enumerate(x.shape) if keepdim or axis not in axes]
    return new_layout(x, sizes)


def _index(x: torch.Tensor, indices: Sequence[object]) -> TensorLayout | None:
    """The layout of indexing by tensors of positions along the first axes."""
    if not are_fakes(indices) or any(index.dtype != torch.int64 for index in indices):
        return None
    if (
        not 0 < len(indices) <= x.dim()
        or not is_contiguous(x)
        or any(index.device != x.device for index in indices)
    ):
        return None
    positions = broadcast(torch.int64, *indices)
    return None if positions is None else new_layout(x, (*positions.shape, *x.shape[len(indices) :]))


def _attention(
    query: torch.Tensor,
    key: object,
    value: object,
    mask: object = None,
    dropout: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> TensorLayout | None:
    """The layout that the flash kernel for the CPU gives: the axes in the query's order of strides."""
    tensors = [query, key, value]
    # Other kernels give other strides.
    if dropout or enable_gqa or not torch.backends.cuda.flash_sdp_enabled():
        return None
    if not are_fakes(tensors) or not all(
        tensor.dim() == 4
        and tensor.dtype == torch.float32
        and tensor.device.type == "cpu"
        and tensor.stride()[-1] == 1
        and are_fixed((tensor.shape[1], tensor.shape[3]))
        and are_same((*tensor.shape[:2], tensor.shape[3]), (*query.shape[:2], query.shape[3]))
        and all(map(is_positive, tensor.shape))
        for tensor in tensors
    ):
        return None
    _, key, value = tensors
    if not are_same(key.shape, value.shape) or not _is_mask(mask, query, key):
        return None
    order = _order_of_strides(query)
    strides = None if order is None else contiguous_strides([query.shape[axis] for axis in order])
    if order is None or strides is None or has_single(query.shape):
        return None
    return TensorLayout(
        query.dtype, query.shape, [strides[order.index(axis)] for axis in range(4)], query.device
    )


def _order_of_strides(x: torch.Tensor) -> list[int] | None:
    """Return the axes by descending stride; None if the order depends on the sizes."""
    order, strides = axes_by_stride(x), x.stride()
    if order is None:
        return None
    is_known = all(decide_condition(strides[a] > strides[b]) is True for a, b in itertools.pairwise(order))
    return order if is_known else None


def _is_mask(mask: object, query: torch.Tensor, key: torch.Tensor) -> bool:
    if mask is None:
        return True
    scores_shape = (*query.shape[:3], key.shape[2])
    return (
        is_fake(mask)
        and mask.dtype in (torch.bool, query.dtype)
        and mask.dim() == 4
        and all(
            is_same(size, 1) or is_made_same(size, score_size)
            for size, score_size in zip(mask.shape, scores_shape, strict=True)
        )
    )


def _embedding(weight: torch.Tensor, indices: object, *options: object) -> TensorLayout | None:
    if not is_fake(indices) or indices.dtype not in (torch.int64, torch.int32):
        return None
    is_known = weight.dim() == 2 and indices.device == weight.device
    is_known = is_known and is_contiguous(indices, ignores_unit_axes=True)
    return new_layout(weight, (*indices.shape, weight.shape[1])) if is_known else None


def _cat(tensors: Sequence[object], dim: int = 0) -> TensorLayout | None:
    if not are_fakes(tensors):
        return None
    joined = [tensor for tensor in tensors if not _is_skipped(tensor)]
    if not joined:
        return None
    first = joined[0]
    axis = axis_of(first, dim)
    if axis is None or not all(
        tensor.dtype == first.dtype and tensor.device == first.device for tensor in tensors
    ):
        return None
    if not all(
        _is_joined_contiguously(tensor)
        and tensor.dim() == first.dim()
        and are_same(_without_axis(tensor.shape, axis), _without_axis(first.shape, axis))
        for tensor in joined
    ):
        return None
    total = sum((tensor.shape[axis] for tensor in joined[1:]), first.shape[axis])
    return new_layout(first, (*first.shape[:axis], total, *first.shape[axis + 1 :]))


def _is_skipped(x: torch.Tensor) -> bool:
    """Whether `cat` skips a tensor: one without elements and with one dimension, such as an empty cache."""
    return x.dim() == 1 and type(x.shape[0]) is int and x.shape[0] == 0


def _is_joined_contiguously(x: torch.Tensor) -> bool:
    """Whether a tensor is never empty and not channels last, a format that the result of `cat` would keep."""
    if not all(map(is_positive, x.shape)):
        return False
    return x.dim() not in (4, 5) or decide_condition(x.shape[1] * x.stride()[1] > x.stride()[-1]) is True


def _without_axis(shape: Sequence[Size], axis: int) -> Sequence[Size]:
    return (*shape[:axis], *shape[axis + 1 :])


RULES: dict[str, Rule] = {
    "aten::addmm": _addmm,
    "aten::batch_norm": _batch_norm,
    "aten::cat": _cat,
    "aten::contiguous": _contiguous,
    "aten::cumsum": _cumulate,
    "aten::embedding": _embedding,
    "aten::group_norm": _group_norm,
    "aten::index.Tensor": _index,
    "aten::layer_norm": _layer_norm,
    "aten::linear": _linear,
    "aten::matmul": _matmul,
    "aten::mean.dim": _reduce,
    "aten::roll": _roll,
    "aten::scaled_dot_product_attention": _attention,
    "aten::sum.dim_IntList": _reduce,
}
