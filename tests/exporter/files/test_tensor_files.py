"""Weights in .safetensors and .npz files are read by their own packages."""

import io

import ml_dtypes
import numpy as np
import pytest
from safetensors import numpy as safetensors

from opsetta import ModelFileError
from opsetta.exporter.files.weights.tensor_files import NamedTensor, write_npz, write_safetensors

ARRAYS = {
    "a/w:0": np.arange(6, dtype=np.float32).reshape(2, 3),
    "scalar": np.array(3),
    "empty": np.zeros((0, 2), np.uint8),
    "turned": np.arange(24, dtype=np.float16).reshape(2, 3, 4).transpose(2, 0, 1),
    "é": np.array([True, False]),
}


def tensors(arrays):
    return [NamedTensor(name, a.dtype, a.shape, lambda a=a: a) for name, a in arrays.items()]


@pytest.mark.parametrize(
    ("write", "read"),
    [(write_safetensors, safetensors.load), (write_npz, lambda data: dict(np.load(io.BytesIO(data))))],
)
def test_a_file_has_the_arrays(write, read):
    file, again = io.BytesIO(), io.BytesIO()
    write(file, tensors(ARRAYS))
    write(again, tensors(ARRAYS))
    assert file.getvalue() == again.getvalue()
    found = read(file.getvalue())
    assert set(found) == set(ARRAYS)
    for name, array in ARRAYS.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert (found[name] == array).all()


def test_types_of_ml_dtypes():
    arrays = {"b": np.array([1.5], ml_dtypes.bfloat16)}
    file = io.BytesIO()
    write_safetensors(file, tensors(arrays))
    assert b'"BF16"' in file.getvalue()
    assert file.getvalue().endswith(arrays["b"].tobytes())
    with pytest.raises(
        ModelFileError, match=r"a .npz file does not support the element types of 'b' \(bfloat16\)"
    ):
        write_npz(io.BytesIO(), tensors(arrays))


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        ({"s": np.array([b"a"], object)}, r"'s' \(string\)"),
        ({"c": np.ones(1, np.complex128)}, r"'c' \(complex128\)"),
        ({"__metadata__": np.ones(1)}, "called __metadata__"),
    ],
)
def test_what_safetensors_does_not_have_is_named(arrays, reason):
    with pytest.raises(ModelFileError, match=reason):
        write_safetensors(io.BytesIO(), tensors(arrays))


def test_two_weights_of_one_name_are_refused():
    with pytest.raises(ModelFileError, match="two weights have the same name"):
        write_npz(io.BytesIO(), tensors({"a": np.ones(1)}) * 2)
