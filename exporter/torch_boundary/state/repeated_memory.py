"""Refuses tensors that are much larger than the memory that they are views of.

A file of a few bytes may have one element as a tensor of any size, or many tensors of one memory.
"""

from __future__ import annotations

import torch

from ....registration import CaptureError
from ...files.reading.bounds import BOUNDS
from ..fake_tensors import FakeTensor


class RepeatedMemory:
    """Adds up by how many bytes tensors exceed the storages that they share."""

    def __init__(self) -> None:
        self._bytes = 0
        self._storages: set[int] = set()

    def add(self, name: str, tensor: torch.Tensor) -> None:
        """Add a tensor.

        Raises:
            CaptureError: all tensors together repeat too many bytes.
        """
        if isinstance(tensor, FakeTensor) or tensor.layout != torch.strided or tensor.is_meta:
            return
        storage = tensor.untyped_storage()
        self._bytes += tensor.numel() * tensor.element_size()
        # A storage is subtracted once, so only the repeated bytes remain.
        if storage._cdata not in self._storages:
            self._storages.add(storage._cdata)
            self._bytes -= storage.nbytes()
        if self._bytes > BOUNDS.memory:
            raise CaptureError(
                f"the tensors of the program repeat {self._bytes} bytes, such as '{name}', "
                f"{list(tensor.shape)} of {storage.nbytes()} bytes: store what is repeated, and expand it in "
                "forward"
            )
