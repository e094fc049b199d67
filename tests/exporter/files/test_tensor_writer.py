"""Tensors are written in a thread: contents, memory that waits, errors, interrupts and missing threads."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import pathlib
import re
import sys
import threading
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest
import torch
from onnx_ir import tensor_adapters

import opsetta
from opsetta.exporter.files import writing
from opsetta.exporter.files.weights import tensor_writer
from opsetta.exporter.files.weights.stored_tensors import StoredFile
from opsetta.exporter.files.weights.tensor_writer import TensorWriter
from opsetta.passes.onnx_graph.constants.initializers import Initializers

from .pairs import listing, number_at, pair

MEGABYTE = 1 << 20


def lazy(array: np.ndarray) -> ir.LazyTensor:
    tensor = ir.Tensor(array)
    return ir.LazyTensor(lambda: tensor, dtype=tensor.dtype, shape=ir.Shape(array.shape))


class Blocks(ir.LazyTensor):
    """A tensor that yields blocks."""

    def __init__(self, array: np.ndarray, count: int):
        super().__init__(lambda: ir.Tensor(array), dtype=ir.DataType.FLOAT, shape=ir.Shape(array.shape))
        self._array, self._count = array, count

    def blocks(self) -> Iterator[np.ndarray]:
        yield from np.array_split(self._array, self._count)


def tensors() -> list[ir.TensorProtocol]:
    wide = np.arange(400_000, dtype=np.float32).reshape(500, 800)
    bits = ir.Tensor((np.arange(200_001) % 16).astype(np.uint8), dtype=ir.DataType.UINT4)
    return [
        ir.Tensor(wide),
        ir.Tensor(np.float32(3).reshape(())),
        ir.Tensor(wide[:0]),
        lazy(wide.T),
        lazy(wide.astype(ml_dtypes.bfloat16)),
        tensor_adapters.TorchTensor(torch.from_numpy(wide).T),
        tensor_adapters.TorchTensor(torch.arange(5, dtype=torch.bfloat16)),
        bits,
        Blocks(wide, 7),
    ]


def test_the_bytes_are_those_of_the_tensors(tmp_path: pathlib.Path) -> None:
    expected = b"head" + b"".join(tensor.tobytes() for tensor in tensors())
    digest = hashlib.sha256()
    with open(tmp_path / "file", "wb") as file, TensorWriter(file, digest.update) as writer:
        writer.write(b"head")
        for tensor in tensors():
            writer.write_tensor(tensor)
    assert (tmp_path / "file").read_bytes() == expected
    assert (writer.count, digest.digest()) == (len(expected), hashlib.sha256(expected).digest())
    memory = io.BytesIO()
    with TensorWriter(memory) as writer:
        writer.write(b"head")
        for tensor in tensors():
            writer.write_tensor(tensor)
    assert memory.getvalue() == expected


def test_an_array_is_written_in_order(tmp_path: pathlib.Path) -> None:
    array = np.arange(200_000).reshape(400, 500).T
    with open(tmp_path / "file", "wb") as file, TensorWriter(file) as writer:
        writer.write_tensor(array)
    assert (tmp_path / "file").read_bytes() == array.tobytes()


def test_a_buffer_may_change_after_it_was_written(tmp_path: pathlib.Path) -> None:
    buffer = bytearray(MEGABYTE)
    with open(tmp_path / "file", "wb") as file, TensorWriter(file) as writer:
        for number in range(20):
            buffer[:] = bytes([number]) * MEGABYTE
            writer.write(buffer)
    written = (tmp_path / "file").read_bytes()
    assert written == b"".join(bytes([number]) * MEGABYTE for number in range(20))


class Counting(io.RawIOBase):
    """Counts the bytes of each write."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.sizes.append(memoryview(data).nbytes)
        return self.sizes[-1]


def test_a_large_tensor_is_written_a_megabyte_at_a_time() -> None:
    counting = Counting()
    with TensorWriter(io.BufferedWriter(counting)) as writer:
        writer.write_tensor(np.zeros(5 * MEGABYTE // 2, np.uint8))
    assert counting.sizes == [MEGABYTE, MEGABYTE, MEGABYTE // 2]


def test_blocks_that_wait_are_few(tmp_path: pathlib.Path) -> None:
    """A tensor of 128 blocks of a megabyte, and a disk that takes none until 17 of them wait."""
    made = written = most = 0
    may_write = threading.Event()

    class Slow(Blocks):
        def blocks(self) -> Iterator[np.ndarray]:
            nonlocal made, most
            for _ in range(128):
                made += 1
                most = max(most, made - written)
                if made - written == 17:
                    may_write.set()
                yield np.zeros(MEGABYTE, np.uint8)

    def consume(piece: np.ndarray) -> None:
        nonlocal written
        assert may_write.wait(30)
        written += 1

    with open(tmp_path / "file", "wb") as file, TensorWriter(file, consume) as writer:
        writer.write_tensor(Slow(np.zeros(0, np.float32), 1))
    assert (made, written) == (128, 128)
    # One more may be written than was reported as written.
    assert most <= tensor_writer._AHEAD // MEGABYTE + 2


@pytest.mark.parametrize("external", [False, True])
def test_an_error_of_a_computation_leaves_the_old_model(tmp_path: pathlib.Path, external: bool) -> None:
    path = tmp_path / "model.onnx"
    writing.save(pair(1), path, external_data=external)
    kept, threads = listing(tmp_path), threading.active_count()
    for error in (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), KeyboardInterrupt(), ValueError("3")):
        model = pair(2, size=400)

        def fails(error: BaseException = error) -> ir.TensorProtocol:
            raise error

        last = model.graph.initializers["larger"]
        last.const_value = ir.LazyTensor(fails, dtype=ir.DataType.FLOAT, shape=ir.Shape((2, 400, 400)))
        expected = opsetta.ModelFileError if isinstance(error, OSError) else type(error)
        with pytest.raises(expected):
            writing.save(model, path, external_data=external)
        assert (number_at(path), listing(tmp_path), threading.active_count()) == (1, kept, threads)


def test_an_error_of_a_thread_reaches_the_caller() -> None:
    """A device that is always full."""
    threads = threading.active_count()
    piece = np.zeros(MEGABYTE, np.uint8)
    for count in (1, 100):
        # A small buffer, of which nothing is left to be written when the file is closed.
        full = pytest.raises(OSError, match="No space left")
        with open("/dev/full", "wb", buffering=1024) as file, full, TensorWriter(file) as writer:
            writer.write_tensor(Blocks(piece, count))
        assert threading.active_count() == threads


@pytest.mark.parametrize("external", [False, True])
def test_without_threads_the_bytes_are_the_same(
    tmp_path: pathlib.Path, external: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    paths = [tmp_path / name / "model.onnx" for name in "ab"]
    for path in paths:
        path.parent.mkdir()
        writing.save(pair(1, size=400), path, external_data=external)
        monkeypatch.setattr(threading.Thread, "start", refuse)
    first, second = ({p.name: p.read_bytes() for p in path.parent.iterdir()} for path in paths)
    assert first == second


def test_a_transposed_weight_of_bfloat16(tmp_path: pathlib.Path) -> None:
    matrix = np.arange(24, dtype=np.float32).reshape(4, 6).astype(ml_dtypes.bfloat16)
    model = pair(1)
    known = Initializers(model)
    source = known.make(matrix, "weight")
    made = known.derive([source], np.transpose, ir.DataType.BFLOAT16, (6, 4), blocks=lambda array: [array.T])
    assert made.const_value is not None
    memory = io.BytesIO()
    made.const_value.tofile(memory)  # type: ignore[attr-defined]
    assert memory.getvalue() == np.ascontiguousarray(matrix.T).tobytes()
    with open(tmp_path / "file", "wb") as file, TensorWriter(file) as writer:
        writer.write_tensor(made.const_value)
    assert (tmp_path / "file").read_bytes() == memory.getvalue()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which pages are in memory")
def test_mapped_pages_leave_the_memory_while_tensors_are_written(tmp_path, monkeypatch):
    def resident(path: pathlib.Path) -> int:
        """The KiB of a mapped file that are in memory."""
        text = pathlib.Path("/proc/self/smaps").read_text().partition(str(path))[2]
        return int(re.search(r"^Rss:\s+(\d+)", text, re.MULTILINE)[1])

    # A piece is written before the next one, and the pages leave after it.
    monkeypatch.setattr(tensor_writer, "_AHEAD", 0)
    monkeypatch.setattr(tensor_writer, "_RELEASED", MEGABYTE)
    path = tmp_path / "weights"
    path.write_bytes(np.arange(MEGABYTE, dtype=np.uint32).tobytes())
    stored = StoredFile.at(path)
    with (tmp_path / "copy").open("wb") as file, TensorWriter(file) as writer:
        for start in (0, 2 * MEGABYTE):
            writer.write_tensor(stored.contents[start : start + 2 * MEGABYTE])
            assert resident(path) == 0
    assert (tmp_path / "copy").read_bytes() == path.read_bytes() == stored.contents.tobytes()
    assert resident(path) == 4096
