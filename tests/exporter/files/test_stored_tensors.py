"""Tensors in files are read and written block by block."""

import io
import os

import numpy as np
import onnx_ir as ir
import pytest

from opsetta.exporter.files.weights import stored_tensors
from opsetta.exporter.files.weights.stored_tensors import ConvertedTensor, FileTensor, StoredFile

ELEMENTS = np.arange(21, dtype=np.float32).reshape(3, 7)


@pytest.fixture
def tensor(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"head" + ELEMENTS.tobytes() + b"tail")
    return FileTensor(StoredFile.at(path), 4, ir.DataType.FLOAT, ELEMENTS.shape, "x")


def written(tensor):
    file = io.BytesIO()
    tensor.tofile(file)
    return file.getvalue()


@pytest.mark.parametrize("block", [4, 5, 2**20])
def test_blocks_of_any_size_give_the_same_bytes(block, tensor, monkeypatch):
    monkeypatch.setattr(stored_tensors, "_BLOCK", block)
    assert written(tensor) == ELEMENTS.tobytes() == tensor.tobytes()
    np.testing.assert_array_equal(tensor.numpy(), ELEMENTS)
    for dtype in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE):
        converted = ConvertedTensor(tensor, dtype, "x")
        assert written(converted) == ELEMENTS.astype(dtype.numpy()).tobytes() == converted.tobytes()


def test_a_tensor_under_another_name_is_at_the_same_place(tensor):
    other = tensor.renamed("y")
    assert (other.name, other.file, other.offset) == ("y", tensor.file, 4)
    assert tensor.name == "x"


def test_a_replaced_file_is_still_read(tensor, tmp_path):
    assert tensor.file.is_current()
    (tmp_path / "y").write_bytes(b"other")
    os.replace(tmp_path / "y", tmp_path / "x")
    assert not tensor.file.is_current()
    assert written(tensor) == ELEMENTS.tobytes()


def test_a_truncated_file_is_an_error(tensor, tmp_path):
    os.truncate(tmp_path / "x", 20)
    with pytest.raises(OSError, match="truncated"):
        written(tensor)


def test_what_is_no_file_is_refused(tmp_path):
    with pytest.raises(OSError, match="not a regular file"):
        StoredFile.at(tmp_path)
    with pytest.raises(FileNotFoundError):
        StoredFile.at(tmp_path / "none")


def test_a_file_is_closed_when_nothing_refers_to_it(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(bytes(8))
    file = StoredFile.at(path)
    tensor, descriptor = FileTensor(file, 0, ir.DataType.FLOAT, (2,), "x"), file._descriptor
    del file
    os.fstat(descriptor)
    del tensor
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
