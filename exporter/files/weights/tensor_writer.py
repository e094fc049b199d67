"""Writes tensors to a file in a thread, while the caller computes the next ones."""

from __future__ import annotations

import functools
import io
import queue
import sys
import threading
from collections.abc import Callable, Iterable
from typing import IO, Any, TypeAlias

import numpy as np
import onnx_ir as ir

from ....passes.onnx_graph.constants.reused_memory import ReusedMemory
from .stored_tensors import release_pages

Bytes: TypeAlias = bytes | bytearray | memoryview | np.ndarray
_AHEAD = 1 << 24
"""Bytes that may wait to be written. A larger piece is written before the caller computes the next one."""
_RELEASED = 1 << 25
"""The number of bytes to write before pages of mapped weights are released from memory."""
_SMALL = 1 << 16
"""A piece of at least this many bytes goes to the thread at once; smaller pieces are joined first."""
_LARGEST_WRITE = 1 << 20
"""Bytes of one write at most. For larger ones Linux caches the file in pages of 2 MB, which the host of a
virtual machine may have to provide anew: saving 440 MB then took up to 0.9 seconds instead of 0.15."""


class TensorWriter:
    """Writes bytes and tensors to a file, in order; to a file of the system in a thread.

    Attributes:
        count: the bytes that a file of the system got.
    """

    def __init__(self, file: IO[bytes], *consumers: Callable[[Any], object]):
        """Make the writer; `consumers` also receive the written data, each in its own thread."""
        self._file = file
        # Only a file of the system is written in a thread: others may not expect one.
        self._is_direct = type(file) is not io.BufferedWriter
        functions: list[Callable[[np.ndarray], object]] = [functools.partial(_write, file), *consumers]
        self._workers = [_Worker(consume) for consume in functions]
        self._collected = bytearray()
        self._memory = ReusedMemory()
        self.count = 0
        self._released = 0

    def __enter__(self) -> TensorWriter:
        return self

    def __exit__(self, exception_type: object, *exception: object) -> None:
        try:
            if exception_type is None:
                self.finish()
        finally:
            self.stop()

    def write(self, data: Any) -> None:
        """Write a buffer, which may change afterwards unless it is `bytes`."""
        if self._is_direct:
            self._file.write(data)
            return
        if not len(data):
            return
        piece = np.frombuffer(data, np.uint8)
        self._put(piece)
        # The caller may change the buffer afterwards, so it must be written before.
        if piece.nbytes >= _SMALL and not isinstance(data, bytes):
            self._wait()

    def write_tensor(self, tensor: Any) -> None:
        """Write a tensor: an ONNX IR tensor, an array, or an object with their method `tofile`."""
        if self._is_direct:
            tensor.tofile(self._file)
            return
        pieces = _pieces(tensor)
        if pieces is None:
            tensor.tofile(self)
            return
        with self._memory.activate():
            for piece in pieces:
                self._put(_bytes_of(piece))
        # Pages of the mapped weights would stay in memory, and count as that of the process.
        if self.count - self._released > _RELEASED:
            self._released = self.count
            release_pages()

    def finish(self) -> None:
        """Return when everything is written.

        Raises:
            OSError: something could not be written.
        """
        self._flush()
        self._wait()

    def stop(self) -> None:
        """End the threads; discard data that they have not begun to write."""
        for worker in self._workers:
            worker.stop()

    def _put(self, piece: np.ndarray) -> None:
        self.count += piece.nbytes
        if piece.nbytes < _SMALL:
            self._collected += piece.data
        if max(piece.nbytes, len(self._collected)) >= _SMALL:
            self._flush()
        if piece.nbytes >= _SMALL:
            self._send_to_workers(piece)

    def _flush(self) -> None:
        if self._collected:
            self._send_to_workers(np.frombuffer(self._collected, np.uint8))
            self._collected = bytearray()

    def _send_to_workers(self, piece: np.ndarray) -> None:
        for worker in self._workers:
            worker.put(piece)

    def _wait(self) -> None:
        for worker in self._workers:
            worker.wait()


class _Worker:
    """Calls a function with each piece of data in order, in a thread."""

    def __init__(self, consume: Callable[[np.ndarray], object]):
        self._consume = consume
        self._thread: threading.Thread | None = None
        # A SimpleQueue has no lock that an interrupt of the caller could leave locked.
        self._pieces: queue.SimpleQueue[np.ndarray | None] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[int | Exception] = queue.SimpleQueue()
        self._ahead = 0
        self._is_stopped = False

    def put(self, piece: np.ndarray) -> None:
        """Give a piece to the thread; wait while more than `_AHEAD` bytes are not consumed."""
        if self._thread is None and (piece.nbytes < _SMALL or not self._start()):
            self._consume(piece)
            return
        self._ahead += piece.nbytes
        self._pieces.put(piece)
        self.wait(_AHEAD)

    def wait(self, allowed: int = 0) -> None:
        """Wait until at most `allowed` bytes are left to consume; re-raise an error of the function."""
        while self._ahead > allowed:
            result = self._results.get()
            if isinstance(result, Exception):
                raise result
            self._ahead -= result

    def stop(self) -> None:
        """End the thread after the current piece."""
        self._is_stopped = True
        if self._thread is not None:
            self._pieces.put(None)
            self._thread.join()
            self._thread = None

    def _start(self) -> bool:
        thread = threading.Thread(target=self._run, name="opsetta-writer")
        try:
            thread.start()
        except RuntimeError:
            # No thread starts while the interpreter ends, and some systems limit their number.
            return False
        self._thread = thread
        return True

    def _run(self) -> None:
        while not self._is_stopped:
            piece = self._pieces.get()
            if piece is None:
                return
            try:
                self._consume(piece)
                result: int | Exception = piece.nbytes
            except Exception as error:
                result = error
            # Dropping the reference frees the memory of a piece as soon as it is written.
            del piece
            self._results.put(result)


def _write(file: IO[bytes], piece: np.ndarray) -> None:
    for start in range(0, piece.nbytes, _LARGEST_WRITE):
        file.write(piece.data[start : start + _LARGEST_WRITE])


def _pieces(tensor: Any) -> Iterable[Bytes] | None:
    """The contents of a tensor in immutable pieces; None if only its `tofile` can write them."""
    if isinstance(tensor, np.ndarray):
        return [tensor]
    # A lazy tensor that keeps its result would keep it in memory; evaluate only those that do not.
    while not hasattr(tensor, "blocks") and isinstance(tensor, ir.LazyTensor) and not tensor.cache:
        tensor = tensor.raw()
    if hasattr(tensor, "blocks"):
        blocks: Iterable[bytes] = tensor.blocks()
        return blocks
    # Smaller elements are packed and big-endian ones swapped on the way, which `tofile` does.
    is_plain = type(tensor) is ir.Tensor and tensor.dtype.bitwidth % 8 == 0 and sys.byteorder == "little"
    return [tensor.raw] if is_plain and isinstance(tensor.raw, np.ndarray) else None


def _bytes_of(piece: Bytes) -> np.ndarray:
    if isinstance(piece, np.ndarray):
        return np.ascontiguousarray(piece).reshape(-1).view(np.uint8)
    return np.frombuffer(piece, np.uint8)
