"""Memory for computed weights that is reused while a model is written.

New memory of some megabytes comes from the system each time, which clears it first, and on a virtual machine
may have to ask the host for it. That takes longer than most computations of weights.
"""

from __future__ import annotations

import contextlib
import math
import threading
import weakref
from collections.abc import Iterator

import numpy as np

BLOCK = 1 << 21
"""Bytes of the largest array that gets such memory."""


class ReusedMemory:
    """Provides memory for the arrays of `empty`, and takes it back when they are freed."""

    def __init__(self) -> None:
        self._free: list[memoryview] = []

    @contextlib.contextmanager
    def activate(self) -> Iterator[None]:
        """Within the context, arrays that this thread creates by `empty` get this memory."""
        outer, _of_thread.memory = getattr(_of_thread, "memory", None), self
        try:
            yield
        finally:
            _of_thread.memory = outer

    def array(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """An array of at most `BLOCK` bytes, with any contents."""
        # Not a bytearray: Python would fill all of it with zeros, even if only a small part is used.
        memory = self._free.pop() if self._free else np.empty(BLOCK, np.uint8).data
        # All views of this array keep it as their base: numpy looks no further than the owner of a buffer.
        whole = np.frombuffer(memory, dtype, math.prod(shape))
        weakref.finalize(whole, self._free.append, memory).atexit = False
        return whole.reshape(shape)


_of_thread = threading.local()


def empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array with any contents, as `numpy.empty` gives; small ones get the thread's `ReusedMemory`."""
    memory: ReusedMemory | None = getattr(_of_thread, "memory", None)
    if memory is None or not 0 < math.prod(shape) * dtype.itemsize <= BLOCK:
        return np.empty(shape, dtype)
    return memory.array(shape, dtype)
