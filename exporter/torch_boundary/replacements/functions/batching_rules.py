"""Rules for operators over a batch of dynamic size that `vmap` made.

torch's own rules for these operators read the size of the batch as a number, which would fix it. Here the
batch becomes the first dimension of plain tensors, and the operator, or operators of the same meaning,
compute all samples at once. Their meaning is that of torch, `aten/src/ATen/functorch/BatchRules*.cpp`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .....registration import CaptureError
from ...containers import pytree
from ...fake_tensors import batch_level
from ...operators.higher_order import add_batch, remove_batch
from ...operators.overloads import OpOverload

_ATEN = torch.ops.aten
Rule = Callable[..., Any]
"""Takes a `Batch`, the operator, and its arguments; returns plain results, or NotImplemented."""


class Batch:
    """The batch of the innermost `vmap` among the tensors of a call.

    Args:
        tensors: the tensors of the call.

    Attributes:
        size: the number of samples.
    """

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        levels = [batch_level(tensor) for tensor in tensors]
        self._level = max(levels)
        self.size = self.front(tensors[levels.index(self._level)]).shape[0]

    def has(self, tensor: torch.Tensor | None) -> bool:
        """Whether a tensor differs from sample to sample."""
        return tensor is not None and batch_level(tensor) == self._level

    def front(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the plain tensor of all samples, with the batch as its first dimension."""
        if self.has(tensor):
            return remove_batch(tensor, self._level, 1, 0)
        return tensor.unsqueeze(0).expand(self.size, *tensor.shape)

    def wrap(self, results: object) -> object:
        """Make the first dimension of each result a batch of this `vmap`, as its function expects."""
        return pytree.tree_map_only(torch.Tensor, lambda item: add_batch(item, 0, self._level), results)


def run_rule(rule: Rule, func: object, *args: Any, **kwargs: Any) -> object:
    """Compute a call by a rule.

    Raises:
        CaptureError: the rule does not support the arguments.
    """
    tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    batch = Batch(tensors)
    result = rule(batch, func, *args, **kwargs)
    if result is NotImplemented:
        raise CaptureError(
            f"{func} within a vmap over a dynamic dimension does not support these arguments: leave the "
            "dimension out of dynamic_shapes, which fixes it at the size of the example"
        )
    return batch.wrap(result)


def _along(batch: Batch, func: OpOverload, self: torch.Tensor, dim: int, *args: Any, **kwargs: Any) -> object:
    """Apply an operator along a dimension, such as `gather`, whose tensors have the same rank."""
    if self.dim() == 0:
        # A dimension of size 1 stands for the missing one.
        companions = pytree.tree_map_only(torch.Tensor, lambda item: batch.front(item).unsqueeze(-1), args)
        return func(batch.front(self).unsqueeze(-1), -1, *companions, **kwargs).squeeze(-1)
    # Counted from the end, the dimension stays the same.
    axis = dim if dim < 0 else dim - self.dim()
    return func(batch.front(self), axis, *pytree.tree_map_only(torch.Tensor, batch.front, args), **kwargs)


def _cross(
    batch: Batch, func: OpOverload, first: torch.Tensor, second: torch.Tensor, *, dim: int = -1
) -> object:
    rank = max(first.dim(), second.dim())
    samples = (_align(batch.front(item), rank + 1) for item in (first, second))
    return func(*samples, dim=dim if dim < 0 else dim - rank)


def _index_select(
    batch: Batch, func: OpOverload, self: torch.Tensor, dim: int, index: torch.Tensor
) -> object:
    axis = dim if dim < 0 else dim - self.dim()
    if not self.dim():
        return NotImplemented
    if not batch.has(index):
        return func(batch.front(self), axis, index)
    # Positions differ between samples: `gather` takes them, expanded over all other dimensions.
    positions = batch.front(index)
    samples = batch.front(self)
    trailing = [1] * (-axis - 1)
    positions = positions.reshape([batch.size] + [1] * (self.dim() + axis) + [positions.shape[-1], *trailing])
    sizes = list(samples.shape)
    sizes[axis] = positions.shape[axis]
    return _ATEN.gather.default(samples, axis, positions.expand(sizes))


def _index_add(
    batch: Batch,
    func: OpOverload,
    self: torch.Tensor,
    dim: int,
    index: torch.Tensor,
    source: torch.Tensor,
    **kwargs: Any,
) -> object:
    if batch.has(index) or not self.dim():
        return NotImplemented
    axis = dim if dim < 0 else dim - self.dim()
    return func(batch.front(self), axis, index, batch.front(source), **kwargs)


def _index_put(
    batch: Batch,
    func: OpOverload,
    self: torch.Tensor,
    indices: Sequence[torch.Tensor | None],
    values: torch.Tensor,
    accumulate: bool = False,
) -> object:
    tensors = [index for index in indices if index is not None]
    first = list(indices).index(tensors[0])
    rank = max(index.dim() for index in tensors)
    targets = batch.front(self)
    updates = _align(batch.front(values), rank + self.dim() - len(tensors) + 1)
    if any(index is None or index.dtype == torch.bool for index in indices[first:]):
        return NotImplemented
    if not any(map(batch.has, tensors)):
        return func(targets, [None, *indices], updates, accumulate)
    if first:
        return NotImplemented
    # The sample number becomes the first index, next to the others, so the result keeps its order of axes.
    numbers = torch.arange(batch.size, device=self.device).reshape([-1] + [1] * rank)
    aligned = [
        _align(batch.front(index), rank + 1) if batch.has(index) else index.unsqueeze(0) if rank else index
        for index in tensors
    ]
    return func(targets, [numbers, *aligned], updates, accumulate)


def _embedding(
    batch: Batch, func: OpOverload, weight: torch.Tensor, indices: torch.Tensor, *options: object
) -> object:
    if not batch.has(weight):
        return func(weight, batch.front(indices), *options)
    if not batch.has(indices):
        return batch.front(weight)[:, indices]
    numbers = torch.arange(batch.size, device=weight.device).reshape([-1] + [1] * indices.dim())
    return batch.front(weight)[numbers, batch.front(indices)]


def _align(tensor: torch.Tensor, rank: int) -> torch.Tensor:
    """Insert dimensions of size 1 after the batch, so that a tensor of samples has `rank` dimensions."""
    return tensor.reshape([tensor.shape[0]] + [1] * (rank - tensor.dim()) + list(tensor.shape[1:]))


def _spatial(dimensions: int, batch: Batch, func: OpOverload, *args: Any, **kwargs: Any) -> object:
    """Apply an operator on images with the samples joined to the operator's own batch dimension.

    Args:
        dimensions: the number of spatial dimensions.
    """
    image = next(item for item in args if isinstance(item, torch.Tensor))
    rank = image.dim()
    if rank != dimensions + 2:
        return func(*pytree.tree_map_only(torch.Tensor, batch.front, args), **kwargs)
    count = image.shape[0]
    joined: list[object] = []
    for item in args:
        if isinstance(item, torch.Tensor):
            joined.append(batch.front(item).flatten(0, 1))
        # The gradient operators of resampling take the shape of their result as an argument.
        elif isinstance(item, (list, tuple)) and len(item) == rank:
            joined.append([batch.size * item[0], *item[1:]])
        else:
            joined.append(item)
    results = func(*joined, **kwargs)
    return pytree.tree_map_only(torch.Tensor, lambda item: item.unflatten(0, (batch.size, count)), results)


def _convolution(
    batch: Batch,
    func: OpOverload,
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> object:
    count = input.shape[0]
    images = batch.front(input).flatten(0, 1)
    if not batch.has(weight) and not batch.has(bias):
        options = (stride, padding, dilation, transposed, output_padding, groups)
        return func(images, weight, bias, *options).unflatten(0, (batch.size, count))
    if transposed or weight.dim() > 4:
        return NotImplemented
    # Weights differ between samples: multiply them, as matrices, by the windows of the images.
    settings = (dilation, padding, stride)
    columns = _windows(images, weight.shape[2:], *settings)
    columns = columns.reshape(batch.size, count, groups, -1, columns.shape[-1])
    matrices = batch.front(weight).reshape(batch.size, 1, groups, weight.shape[0] // groups, -1)
    sizes = [
        (size + 2 * pad - step * (kernel - 1) - 1) // move + 1
        for size, kernel, step, pad, move in zip(input.shape[2:], weight.shape[2:], *settings, strict=True)
    ]
    result = (matrices @ columns).reshape(batch.size, count, weight.shape[0], *sizes)
    if bias is None:
        return result
    return result + batch.front(bias).reshape([batch.size, 1, weight.shape[0]] + [1] * len(sizes))


def _windows(images: torch.Tensor, kernel: Sequence[int], *settings: Sequence[int]) -> torch.Tensor:
    """Return the windows that a convolution reads from images or signals, as columns (`im2col`)."""
    shape = images.shape if len(kernel) == 2 else [*images.shape[:2], 1, images.shape[2]]
    columns: torch.Tensor = _ATEN.im2col.default(images.reshape(shape), *_planar(kernel, *settings))
    return columns


def _planar(
    kernel: Sequence[int], dilation: Sequence[int], padding: Sequence[int], stride: Sequence[int]
) -> list[list[int]]:
    """Return the settings of a convolution for images; signals become images of height 1."""
    is_signal = len(kernel) == 1
    return [
        [*([height] if is_signal else []), *numbers]
        for height, numbers in ((1, kernel), (1, dilation), (0, padding), (1, stride))
    ]


def _convolution_backward(
    batch: Batch,
    func: OpOverload,
    grad_output: torch.Tensor,
    input: torch.Tensor,
    weight: torch.Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> object:
    count = input.shape[0]
    images, gradients = batch.front(input), batch.front(grad_output)
    rows = gradients
    if batch.has(weight) or output_mask[1]:
        if transposed or weight.dim() > 4:
            return NotImplemented
        rows = gradients.reshape(batch.size, count, groups, weight.shape[0] // groups, -1)
    of_input = of_weight = of_bias = None
    settings = (dilation, padding, stride)
    if output_mask[0] and not batch.has(weight):
        options = (bias_sizes, stride, padding, dilation, transposed, output_padding, groups)
        pair = (gradients.flatten(0, 1), images.flatten(0, 1))
        [of_input, *_] = func(*pair, weight, *options, [True, False, False])
        of_input = of_input.unflatten(0, (batch.size, count))
    elif output_mask[0]:
        matrices = batch.front(weight).reshape(batch.size, 1, groups, weight.shape[0] // groups, -1)
        columns = (matrices.transpose(-1, -2) @ rows).flatten(2, 3).flatten(0, 1)
        # The sum of the windows at their positions; signals are images of height 1.
        sizes = [*([1] if weight.dim() == 3 else []), *input.shape[2:]]
        of_input = _ATEN.col2im.default(columns, sizes, *_planar(weight.shape[2:], *settings))
        of_input = of_input.reshape(batch.size, *input.shape)
    if output_mask[1]:
        columns = _windows(images.flatten(0, 1), weight.shape[2:], *settings)
        columns = columns.reshape(batch.size, count, groups, -1, columns.shape[-1])
        of_weight = (rows @ columns.transpose(-1, -2)).sum(1).reshape(batch.size, *weight.shape)
    if output_mask[2]:
        of_bias = gradients.sum([1, *range(3, gradients.dim())])
    return of_input, of_weight, of_bias


_OF_IMAGES = {
    1: "reflection_pad1d replication_pad1d upsample_linear1d upsample_nearest1d",
    2: "_adaptive_avg_pool2d adaptive_max_pool2d avg_pool2d max_pool2d_with_indices reflection_pad2d "
    "replication_pad2d upsample_bicubic2d upsample_bilinear2d upsample_nearest2d",
    3: "_adaptive_avg_pool3d avg_pool3d max_pool3d_with_indices reflection_pad3d replication_pad3d "
    "upsample_nearest3d upsample_trilinear3d",
}
"""Operators on images, by the number of spatial dimensions; gradients add `_backward` to the name."""

RULES: dict[object, Rule] = {
    _ATEN.embedding.default: _embedding,
    _ATEN.gather.default: _along,
    _ATEN.scatter.src: _along,
    _ATEN.scatter.value: _along,
    _ATEN.scatter_add.default: _along,
    _ATEN.scatter_reduce.two: _along,
    _ATEN.index_select.default: _index_select,
    _ATEN.index_add.default: _index_add,
    _ATEN.index_put.default: _index_put,
    _ATEN.linalg_cross.default: _cross,
    _ATEN.convolution.default: _convolution,
    _ATEN.convolution_backward.default: _convolution_backward,
    **{
        getattr(_ATEN, name + ending).default: functools.partial(_spatial, dimensions)
        for dimensions, names in _OF_IMAGES.items()
        for name in names.split()
        for ending in ("", "_backward")
        if hasattr(_ATEN, name + ending)
    },
}
"""By operator, the rule that computes it for a batch of dynamic size."""
