"""Kernels for fake tensors, where torch's kernels fix symbolic sizes, fail, or do not exist."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...dispatch import DispatchKey
from ...operators.overloads import OpOverload
from ...symbolic_numbers import is_unbacked
from ...symbolic_sizes import check
from .shape_kernels import Shapes

_ATEN = torch.ops.aten


def _max_pool1d(
    self: torch.Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> torch.Tensor:
    """Pool a signal as an image of height 1."""
    window = [1, *kernel_size], [1, *(stride or kernel_size)], [0, *padding], [1, *dilation]
    pooled: torch.Tensor = _ATEN.max_pool2d.default(self.unsqueeze(-2), *window, ceil_mode)
    return pooled.squeeze(-2)


def _take_along_dim(self: torch.Tensor, indices: torch.Tensor, dim: int | None = None) -> torch.Tensor:
    """Broadcast all sizes except that of `dim`, then `gather`."""
    if dim is None:
        return self.reshape(-1).gather(0, indices.reshape(-1))
    check(
        self.dim() == indices.dim(),
        lambda: (
            "torch.take_along_dim(): input and indices should have the same number of dimensions, "
            f"but got {self.dim()} dimensions for input, and {indices.dim()} dimensions for indices"
        ),
    )
    dim = dim % self.dim()
    shapes_without_dim = [(*item.shape[:dim], 1, *item.shape[dim + 1 :]) for item in (self, indices)]
    shape = list(torch.broadcast_shapes(*shapes_without_dim))
    shape[dim] = -1
    return self.expand(shape).gather(dim, indices.expand(shape))


def _istft(
    self: torch.Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: torch.Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> torch.Tensor:
    """Return a signal of the right shape; torch's kernel fails for fake one-sided spectra of odd `n_fft`."""
    hop = n_fft // 4 if hop_length is None else hop_length
    if length is None:
        length = n_fft + hop * (self.shape[-1] - 1) - (2 * (n_fft // 2) if center else 0)
    return self.new_empty((*self.shape[:-2], length), dtype=None if return_complex else self.real.dtype)


def _kron(self: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Compute the Kronecker product: a block of the shape of `other` for each element of `self`."""
    rank = max(self.dim(), other.dim())
    outer, inner = ([1] * (rank - item.dim()) + list(item.shape) for item in (self, other))
    blocks = self.reshape([size for length in outer for size in (length, 1)])
    products = blocks * other.reshape([size for length in inner for size in (1, length)])
    return products.reshape([a * b for a, b in zip(outer, inner, strict=True)])


def _histogram(
    self: torch.Tensor, bins: int | torch.Tensor, *options: object, **keywords: object
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return tensors like the counts and the edges of the bins."""
    count = bins.shape[0] - 1 if isinstance(bins, torch.Tensor) else bins
    return self.new_empty(count), self.new_empty(count + 1)


def _scaled_dot_product_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *options: object, **keywords: object
) -> torch.Tensor:
    """Return a tensor like the result if a length depends on data; torch's kernel asks if it is 0.

    The strides are those of the kernels for images and texts, which write the heads of a token together.
    """
    operator = _ATEN.scaled_dot_product_attention.default
    shape = (*query.shape[:-1], value.shape[-1])
    numbers = [size for size in (*shape, *key.shape) if isinstance(size, torch.SymInt)]
    if not any(map(is_unbacked, (symbol for size in numbers for symbol in size.node.expr.free_symbols))):
        result: torch.Tensor = operator._op_dk(
            DispatchKey.CompositeImplicitAutograd, query, key, value, *options, **keywords
        )
        return result
    if len(shape) < 4:
        return query.new_empty(shape)
    return query.new_empty((*shape[:-3], shape[-2], shape[-3], shape[-1])).transpose(-3, -2)


COMPOSITE: dict[OpOverload, Shapes] = {
    _ATEN.kron.default: _kron,
    _ATEN.max_pool1d.default: _max_pool1d,
    _ATEN.take_along_dim.default: _take_along_dim,
    _ATEN.istft.default: _istft,
    _ATEN.scaled_dot_product_attention.default: _scaled_dot_product_attention,
}
NON_COMPOSITE: dict[OpOverload, Shapes] = {
    _ATEN.histogram.bin_ct: _histogram,
    _ATEN.histogram.bins_tensor: _histogram,
}
