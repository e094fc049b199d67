"""Weights in memory-mapped files, which are read into memory before their use, and released afterwards."""

from __future__ import annotations

import collections
import errno
import functools
import mmap
import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from ....registration import ModelFileError
from ...files.reading.names import quoted
from .system_memory import DONTNEED, POPULATE_READ, WILLNEED, advise
from .value_types import ValueType

PAGE = 4096
"""The alignment of weights in a file that opsetta writes."""
_UNABLE = (errno.EINVAL, errno.ENOSYS, errno.EAGAIN, errno.ENOMEM)
"""Errors of madvise for which reading page by page may still work: unknown advice, or a lack of resources."""


class MappedWeight:
    """A weight in a memory-mapped file.

    Attributes:
        name: the name of the initializer.
        type: the element type and shape.
        nbytes: the bytes of the weight.
        size: the bytes of memory that the weight takes, rounded up to whole pages.
    """

    def __init__(self, name: str, value_type: ValueType, data: np.ndarray):
        """Wrap the bytes of a weight, which begin at a multiple of its element size."""
        self.name = name
        self.type = value_type
        self._data = data
        self.nbytes = data.nbytes
        # Independent of the offset, so that equal blocks of a model are cut alike.
        self.size = -(-data.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        begin = int(data.ctypes.data)
        # madvise accepts only whole pages.
        self._begin = begin - begin % mmap.PAGESIZE
        self._length = begin + data.nbytes - self._begin

    @functools.cached_property
    def value(self) -> Any:
        """The weight as an onnxruntime value over the mapped memory."""
        import onnxruntime

        dims = tuple(int(dim) for dim in self.type.dims or () if dim is not None)
        dtype = ir.DataType(self.type.element_type)
        if dtype.bitwidth < 8:
            array = packed_array(self._data, dims)
        else:
            array = self._data.view(f"u{dtype.bitwidth // 8}").reshape(dims)
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array, self.type.element_type)

    def populate(self) -> None:
        """Read the weight into memory.

        Raises:
            ModelFileError: the file cannot be read, or became shorter.
        """
        # WILLNEED starts reading the whole range, before the pages are awaited one after the other.
        if advise(self._begin, self._length, WILLNEED) is None:
            self._touch()
            return
        failure = advise(self._begin, self._length, POPULATE_READ)
        if failure in _UNABLE:
            self._touch()
        elif failure:
            raise ModelFileError(
                f"weight {quoted(self.name)} cannot be read from its file: {os.strerror(failure)}"
            )

    def array(self) -> np.ndarray:
        """Return a copy of the weight in memory."""
        dtype = ir.DataType(self.type.element_type).numpy()
        return np.array(self._data.view(dtype)).reshape([int(dim or 0) for dim in self.type.dims or ()])

    def write(self, content: np.ndarray) -> None:
        """Replace the bytes of a weight, whose file must be mapped for writing."""
        self._data[:] = content

    def release(self) -> None:
        """Return the memory to the system; the file keeps the weight."""
        advise(self._begin, self._length, DONTNEED)

    def _touch(self) -> None:
        """Read a byte of each page, on systems without POPULATE_READ."""
        int(self._data[:: mmap.PAGESIZE].max())


class ResidentWeights:
    """Counts the segments in memory that use each weight; the last one to leave releases it."""

    def __init__(self, weights: dict[str, MappedWeight]):
        self._weights = weights
        self._users: collections.Counter[str] = collections.Counter()

    def enter(self, names: Iterable[str]) -> list[MappedWeight]:
        """Add a segment's use of weights; return them, for the caller to populate."""
        names = list(names)
        self._users.update(names)
        return [self._weights[name] for name in names]

    def leave(self, names: Iterable[str]) -> None:
        """End a segment's use of weights."""
        for name in names:
            self._users[name] -= 1
            if not self._users[name]:
                del self._users[name]
                self._weights[name].release()


def packed_array(data: np.ndarray, dims: Sequence[int]) -> np.ndarray:
    """Make an array with the shape and address of packed elements smaller than a byte, for onnxruntime.

    Its elements must not be read: they are bytes, so the array extends beyond the data.
    """
    strides = [1]
    for size in reversed(dims[1:]):
        strides.append(strides[-1] * size)
    return np.lib.stride_tricks.as_strided(data, dims, tuple(reversed(strides[: len(dims)])))
