"""torch's functions that appear in a captured graph but are not operators."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch._functorch import eager_transforms as eager_transforms
from torch._functorch.predispatch import (
    _add_batch_dim,
    _remove_batch_dim,
    _vmap_decrement_nesting,
    _vmap_increment_nesting,
    lazy_load_decompositions,
)

from .. import probe

_NESTING: dict[object, int] = {_vmap_increment_nesting: 1, _vmap_decrement_nesting: -1}
add_batch: Callable[[torch.Tensor, int, int], torch.Tensor] = _add_batch_dim
"""Hides the batch dimension of a tensor from `vmap`: takes the tensor, that dimension, and the level."""
remove_batch: Callable[[torch.Tensor, int, int, int], torch.Tensor] = _remove_batch_dim
"""Undoes `add_batch`: takes a tensor, its level, the size of the batch, and where to put that dimension."""


def vmap_nesting(target: object) -> int:
    """1 for the function at the beginning of a `vmap`, -1 for the one at its end, 0 for others."""
    return _NESTING.get(target, 0)


def is_transform(target: object) -> bool:
    """Whether a function is one of those that begin, end or prepare a `vmap` in a captured graph."""
    return getattr(target, "__module__", None) in (
        _vmap_increment_nesting.__module__,
        lazy_load_decompositions.__module__,
    )


def has_no_result(target: object) -> bool:
    """Whether a function only loads torch's decompositions, so that its call can be removed."""
    return target is lazy_load_decompositions


def eager_flex_attention() -> Callable[..., object]:
    """The function that computes `flex_attention` eagerly, from the arguments of its operator."""
    probe.require(probe.FLEX_ATTENTION)
    from torch._higher_order_ops.flex_attention import math_attention

    return math_attention
