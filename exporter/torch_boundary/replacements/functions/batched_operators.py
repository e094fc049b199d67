"""Replaces operators within a `vmap` over a batch of dynamic size.

torch's batching rules for them read the size of the batch as a number, which would fix it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import torch

from ...containers import pytree
from ...fake_tensors import unwrap_batches
from ...operators.decompositions import table
from ...operators.overloads import Args, Function, OpOverload
from .batching_rules import RULES, run_rule

_ATEN = torch.ops.aten
_TRACED = frozenset(
    "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d avg_pool1d avg_pool2d avg_pool3d batch_norm "
    "bilinear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d cross cross_entropy "
    "embedding gather group_norm index_put index_select instance_norm interpolate kl_div layer_norm "
    "linalg_cross max_pool1d max_pool2d max_pool3d nll_loss pad scatter scatter_add scatter_reduce "
    "take_along_dim".split()
)
"""Names of functions that consist of operators of `DECOMPOSITIONS` or `RULES`."""


def has_dynamic_batch(args: Args) -> bool:
    """Whether a tensor of a call is batched by `vmap` and has a dynamic size."""
    for tensor in pytree.tree_leaves(args):
        inner = unwrap_batches(tensor) if isinstance(tensor, torch.Tensor) else tensor
        if inner is not tensor and not all(isinstance(size, int) for size in inner.shape):
            return True
    return False


def substitute_of(func: Function, args: Args) -> Function | None:
    """Return the function to call in place of `func` within `vmap`; None to call `func` itself."""
    rule = RULES.get(func)
    substitute = _SUBSTITUTES.get(func) if rule is None else functools.partial(run_rule, rule, func)
    return substitute if substitute is not None and has_dynamic_batch(args) else None


def consists_of_operators(func: Function, args: Args) -> bool:
    """Whether a call needs `DECOMPOSITIONS` or `RULES`, so that its operators must run one by one."""
    return getattr(func, "__name__", "") in _TRACED and has_dynamic_batch(args)


def join(tensors: Sequence[torch.Tensor], dim: int = 0) -> torch.Tensor:
    """Compute `torch.cat` by stacking blocks of equal size."""
    rank = tensors[0].dim()
    axis = dim % rank if rank else 0
    lengths = [tensor.shape[axis] if tensor.dim() == rank > 0 else 0 for tensor in tensors]
    if not all(isinstance(length, int) and length for length in lengths):
        result: torch.Tensor = _ATEN.cat.default(tensors, dim)
        return result
    # The rule of `stack`, unlike that of `cat`, keeps the size of the batch dynamic.
    block = math.gcd(*lengths)
    blocks = [
        part
        for tensor, length in zip(tensors, lengths, strict=True)
        for part in tensor.unflatten(axis, (length // block, block)).unbind(axis)
    ]
    return torch.stack(blocks, axis).flatten(axis, axis + 1)


def solve(matrix: torch.Tensor, right: torch.Tensor, *, left: bool = True) -> torch.Tensor:
    """Compute `torch.linalg.solve` by the inverse, whose batching rule keeps the size dynamic."""
    inverse = torch.linalg.inv(matrix)
    result: torch.Tensor = inverse @ right if left else right @ inverse
    return result


def _select_backward(grad: torch.Tensor, input_sizes: Sequence[int], dim: int, index: int) -> torch.Tensor:
    """Compute the gradients of `select`: the incoming ones, padded with zeros along the axis."""
    axis = dim % len(input_sizes)
    start = index if index >= 0 else index + input_sizes[axis]
    return _pad(grad.unsqueeze(axis), axis, start, input_sizes[axis])


def _slice_backward(
    grad: torch.Tensor, input_sizes: Sequence[int], dim: int, start: int, end: int, step: int
) -> object:
    """Compute the gradients of `slice`: the incoming ones, padded with zeros along the axis."""
    axis = dim % len(input_sizes)
    if step != 1:
        # Zeros between the gradients, up to the last of them.
        spaced = _pad(grad.unsqueeze(axis + 1), axis + 1, 0, step).flatten(axis, axis + 1)
        grad = spaced.narrow(axis, 0, max((grad.shape[axis] - 1) * step + 1, 0))
    first = start if start >= 0 else max(start + input_sizes[axis], 0)
    return _pad(grad, axis, min(first, input_sizes[axis]), input_sizes[axis])


def _value_selecting_reduction_backward(
    grad: torch.Tensor, dim: int, indices: torch.Tensor, sizes: Sequence[int], keepdim: bool
) -> torch.Tensor:
    """Compute the gradients of operators such as `max` and `sort`: zero except at the selected positions."""
    if sizes and not keepdim:
        grad, indices = grad.unsqueeze(dim), indices.unsqueeze(dim)
    return grad.new_zeros(sizes).scatter(dim, indices, grad)


def _trilinear(
    i1: torch.Tensor,
    i2: torch.Tensor,
    i3: torch.Tensor,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> torch.Tensor:
    """Multiply three tensors, with dimensions of size 1 inserted at `expand1` to `expand3`, and sum."""
    factors = []
    for factor, dims in ((i1, expand1), (i2, expand2), (i3, expand3)):
        for dim in sorted(dims):
            factor = factor.unsqueeze(dim)
        factors.append(factor)
    return (factors[0] * factors[1] * factors[2]).sum(list(sumdim))


def _pad(grad: torch.Tensor, axis: int, start: int, size: int) -> torch.Tensor:
    after = size - start - grad.shape[axis]
    return torch.constant_pad_nd(grad, [0, 0] * (grad.dim() - 1 - axis) + [start, after])


_DECOMPOSED = (
    _ATEN.native_layer_norm.default,
    _ATEN.native_layer_norm_backward.default,
    _ATEN.native_group_norm.default,
    _ATEN.native_group_norm_backward.default,
    _ATEN._native_batch_norm_legit_no_training.default,
    _ATEN._native_batch_norm_legit.default,
    _ATEN._native_batch_norm_legit.no_stats,
    _ATEN.embedding_dense_backward.default,
    _ATEN.gelu_backward.default,
    _ATEN.glu_backward.default,
    _ATEN.native_batch_norm.default,
    _ATEN.native_batch_norm_backward.default,
    _ATEN.nll_loss_backward.default,
    _ATEN.nll_loss_forward.default,
    _ATEN.unfold_backward.default,
)
DECOMPOSITIONS: dict[OpOverload, Function] = {
    **{operator: rule for operator, rule in table().items() if operator in _DECOMPOSED},
    _ATEN.select_backward.default: _select_backward,
    _ATEN.slice_backward.default: _slice_backward,
    _ATEN._trilinear.default: _trilinear,
    _ATEN.value_selecting_reduction_backward.default: _value_selecting_reduction_backward,
}
"""By operator, a function of operators whose batching rules keep the size dynamic."""
_SUBSTITUTES: dict[object, Function] = {
    torch.cat: join,
    torch.concat: join,
    torch.concatenate: join,
    _ATEN.cat.default: join,
    torch.linalg.solve: solve,
}
"""By function, the function to call in its place."""
