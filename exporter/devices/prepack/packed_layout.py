"""`PackedLayout`: turns the bytes of a packed weight into a tensor for oneDNN's kernels, without a copy."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

from ....registration import PrepackError
from .memory_descriptor import MemoryDescriptor

if TYPE_CHECKING:
    import torch


@dataclasses.dataclass(frozen=True)
class PackedLayout:
    """The layout of a packed weight.

    Attributes:
        descriptor: the layout in memory; that of a grouped convolution has the groups as its first size.
        groups: the number of groups of a convolution, else 1.
    """

    descriptor: MemoryDescriptor
    groups: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the plain weight.

        Raises:
            PrepackError: the descriptor does not have this number of groups.
        """
        sizes = self.descriptor.shape
        if self.groups == 1:
            return sizes
        if self.groups != sizes[0] or len(sizes) < 4:
            raise PrepackError(f"a weight with the sizes {list(sizes)} does not have {self.groups} groups")
        return (math.prod(sizes[:2]), *sizes[2:])

    def check_memory(self, content: torch.Tensor) -> torch.Tensor:
        """Return a tensor of rank 1 as bytes; its size must be the one that the layout needs.

        Raises:
            PrepackError: the size differs, or the descriptor does not have this number of groups.
        """
        import torch

        if content.dim() != 1 or content.nbytes != self.descriptor.nbytes or not self.shape:
            raise PrepackError(f"a packed weight has {content.nbytes} bytes, not {self.descriptor.nbytes}")
        return content.contiguous().view(torch.uint8)

    def tensor_over(self, memory: torch.Tensor) -> torch.Tensor:
        """Make a packed tensor that uses checked memory; the caller must keep the memory alive."""
        from ...torch_boundary import onednn

        descriptor = self.descriptor
        return onednn.tensor_of(memory, self.shape, descriptor.dtype, descriptor.to_blob(), self.groups)


def packed_layout(packed: torch.Tensor) -> tuple[PackedLayout, torch.Tensor]:
    """Return the layout of a tensor that oneDNN packed, and a copy of its bytes.

    Raises:
        PrepackError: oneDNN chose a layout other than blocks.
    """
    from ...torch_boundary import onednn

    blob, groups = onednn.descriptor_blob(packed)
    return PackedLayout(MemoryDescriptor.from_blob(blob), groups), onednn.packed_bytes(packed)
