"""Tensors whose contents stay in a file until they are read, and are written block by block."""

from __future__ import annotations

import errno
import functools
import math
import mmap
import os
import stat
import sys
import weakref
from collections.abc import Iterator, Sequence
from typing import IO

import numpy as np
import onnx_ir as ir

from ....registration.inference.tensor_sizes import packed_bytes

_BLOCK = 1 << 20
"""Bytes that are read at once; a multiple of every element size."""

_mappings: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()
"""The files that are mapped into memory now."""


def release_pages() -> None:
    """Remove the pages of mapped files from the memory of the process; reading brings them back."""
    if sys.platform != "win32":
        for mapping in list(_mappings):
            mapping.madvise(mmap.MADV_DONTNEED)


class StoredFile:
    """A file that is open and mapped into memory. Its contents stay if the path gets another file.

    Attributes:
        path: its absolute path, with links followed.
        contents: its bytes. Pages come into memory as they are read.
    """

    def __init__(self, path: str, file: IO[bytes]):
        """Map an open file, which the caller may close.

        Raises:
            OSError, ValueError: it cannot be mapped; an empty file cannot.
        """
        self.path = path
        self._identity = _identity(os.fstat(file.fileno()))
        mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        _mappings.add(mapping)
        self.contents = np.frombuffer(mapping, np.uint8)
        self._descriptor = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._descriptor)

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> StoredFile:
        """The file at a path; links are followed.

        Raises:
            OSError, ValueError: it cannot be opened or mapped.
        """
        real = os.path.realpath(path)
        if not stat.S_ISREG(os.stat(real).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        with open(real, "rb", buffering=0) as file:
            return cls(real, file)

    @property
    def size(self) -> int:
        """Its length in bytes."""
        return int(self.contents.size)

    def is_current(self) -> bool:
        """Whether its path still refers to this file, which is unmodified."""
        try:
            return _identity(os.stat(self.path)) == self._identity
        except OSError:
            return False

    def blocks(self, offset: int, size: int) -> Iterator[bytes]:
        """Yield a range of the file, without a mapping: pages that were read need not stay in memory.

        Raises:
            OSError: the file was truncated.
        """
        end = offset + size
        while offset < end:
            count = min(_BLOCK, end - offset)
            if hasattr(os, "pread"):
                block = os.pread(self._descriptor, count, offset)
            else:
                block = self.contents[offset : offset + count].tobytes()
            if not block:
                raise OSError(errno.EIO, "the file with the weights was truncated", self.path)
            yield block
            offset += len(block)


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def tensor_over(
    data: np.ndarray, name: str | None, dtype: ir.DataType, shape: Sequence[int]
) -> ir.TensorProtocol:
    """A tensor over bytes in the encoding of a file."""
    if dtype.bitwidth < 8:
        return ir.PackedTensor(data, dtype, shape=ir.Shape(shape), name=name)
    # numpy cannot view zero bytes as elements.
    numpy_type = dtype.numpy().newbyteorder("<") if dtype.itemsize > 1 else dtype.numpy()
    return ir.Tensor(data.view(numpy_type).reshape(shape), dtype=dtype, shape=ir.Shape(shape), name=name)


class FileTensor(ir.LazyTensor):
    """A tensor at a position in a file, in the encoding of ONNX's `raw_data`.

    Attributes:
        file: the file.
        offset: the offset of its first byte.
    """

    __slots__ = ("file", "offset")

    def __init__(
        self, file: StoredFile, offset: int, dtype: ir.DataType, shape: Sequence[int], name: str | None
    ):
        self.file = file
        self.offset = offset
        # Without a reference to itself, a tensor closes its file as soon as nothing refers to it.
        view = functools.partial(_view, file, offset, dtype, tuple(shape), name)
        super().__init__(view, dtype=dtype, shape=ir.Shape(shape), name=name)

    @property
    def data(self) -> np.ndarray:
        """Its bytes, mapped into memory."""
        return self.file.contents[self.offset : self.offset + self.nbytes]

    @property
    def is_aligned(self) -> bool:
        """Whether its offset is a multiple of its element size, as runtimes require for mapping."""
        return self.offset % max(1, self.dtype.bitwidth // 8) == 0

    def renamed(self, name: str) -> FileTensor:
        """The tensor under another name."""
        return FileTensor(self.file, self.offset, self.dtype, self.shape.numpy(), name)

    def blocks(self) -> Iterator[bytes]:
        """Yield its bytes."""
        return self.file.blocks(self.offset, self.nbytes)

    def tofile(self, file: IO[bytes]) -> None:
        """Write its bytes, without the whole tensor in memory."""
        for block in self.blocks():
            file.write(block)


def are_equal(first: ir.TensorProtocol, second: ir.TensorProtocol) -> bool:
    """Whether two tensors have the same element type, shape and bytes."""
    if first is second:
        return True
    if first.dtype != second.dtype or first.shape != second.shape:
        return False
    if isinstance(first, FileTensor) and isinstance(second, FileTensor):
        if (first.file, first.offset) == (second.file, second.offset):
            return True
        # In blocks: a tensor may be larger than memory.
        return all(a == b for a, b in zip(first.blocks(), second.blocks(), strict=True))
    return first.tobytes() == second.tobytes()


def _view(
    file: StoredFile, offset: int, dtype: ir.DataType, shape: tuple[int, ...], name: str | None
) -> ir.TensorProtocol:
    size = packed_bytes(dtype, math.prod(shape))
    return tensor_over(file.contents[offset : offset + size], name, dtype, shape)


class ConvertedTensor(ir.LazyTensor):
    """Another tensor in a different floating-point type, converted when it is read."""

    __slots__ = ("_source",)

    def __init__(self, source: ir.TensorProtocol, dtype: ir.DataType, name: str | None):
        self._source = source
        super().__init__(
            lambda: ir.Tensor(_convert(source.numpy(), dtype), dtype=dtype, name=name),
            dtype=dtype,
            shape=ir.Shape(source.shape.numpy()),
            name=name,
        )

    @property
    def source(self) -> ir.TensorProtocol:
        """The tensor in its own type."""
        return self._source

    def blocks(self) -> Iterator[bytes]:
        """Yield its bytes; a tensor in a file is converted block by block."""
        source = self._source
        if not isinstance(source, FileTensor):
            yield self.tobytes()
            return
        for block in _whole(source.blocks(), source.dtype.bitwidth // 8):
            array = np.frombuffer(block, source.dtype.numpy().newbyteorder("<"))
            yield ir.Tensor(_convert(array, self.dtype), dtype=self.dtype).tobytes()

    def tofile(self, file: IO[bytes]) -> None:
        """Write the bytes of the tensor; a tensor in a file is not loaded as a whole."""
        for block in self.blocks():
            file.write(block)


def _convert(elements: np.ndarray, dtype: ir.DataType) -> np.ndarray:
    # Values beyond the smaller type's range become infinite, as in torch.
    with np.errstate(all="ignore"):
        return elements.astype(dtype.numpy())


def _whole(blocks: Iterator[bytes], size: int) -> Iterator[bytes]:
    """Blocks of whole elements. A file system may return fewer bytes than were asked for."""
    incomplete = b""
    for block in blocks:
        joined = incomplete + block if incomplete else block
        whole = len(joined) - len(joined) % size
        incomplete = joined[whole:]
        yield joined[:whole]
