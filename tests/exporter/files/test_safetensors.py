"""The header of .safetensors files is read within bounds, and whatever contradicts itself is refused."""

import itertools
import json
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import opsetta
from opsetta.exporter.files.checkpoints import safetensors
from opsetta.exporter.files.weights.stored_tensors import StoredFile
from opsetta.exporter.files.weights.tensor_files import NamedTensor, write_safetensors


def entry(begin=0, end=8, dtype="F32", shape=(2,)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


def content(header, size=8):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(size)


def read(folder, data):
    path = folder / "x.safetensors"
    path.write_bytes(data)
    return safetensors.read_safetensors(StoredFile.at(path), "'x'")


def test_tensors_are_those_that_the_writer_wrote(tmp_path):
    arrays = {
        "b": np.arange(6, dtype=np.float32).reshape(2, 3),
        "a": np.array([True, False]),
        "e": np.ones((0, 3)),
    }
    path = tmp_path / "x.safetensors"
    with open(path, "wb") as file:
        named = [NamedTensor(name, a.dtype, a.shape, lambda a=a: a) for name, a in arrays.items()]
        write_safetensors(file, named)
    found = safetensors.read_safetensors(StoredFile.at(path), "'x'")
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name].numpy(), array)


def test_the_metadata_of_the_file_is_no_tensor(tmp_path):
    assert list(read(tmp_path, content({"__metadata__": {"format": "pt"}, "a": entry()}))) == ["a"]


REFUSED = {
    "no header": (b"\x08", "has 1 bytes, and therefore no header"),
    "a header behind the end": (
        (2**40).to_bytes(8, "little") + b"{}",
        "the size of its header as 1099511627776",
    ),
    "no JSON": (content(b"{'a': 1}"), "not valid JSON"),
    "no UTF-8": (content(b'{"\xff": 1}'), "not valid JSON"),
    "a list": (content(b"[]"), "not a JSON object"),
    "deep nesting": (content(b'{"a":' + b"[" * 200_000), "nested too deeply|not valid JSON"),
    "a huge number": (content(b'{"a": ' + b"9" * 10_000 + b"}"), "not valid JSON"),
    "NaN": (content(b'{"a": NaN}'), "NaN is not JSON"),
    "half a surrogate": (content(b'{"\\ud800": 1}'), "not valid JSON"),
    "a key twice": (content(b'{"a": 1, "a": 2}'), "the key 'a' occurs twice"),
    "an inner key twice": (content(b'{"a": {"dtype": "F32", "dtype": "F16"}}'), "'dtype' occurs twice"),
    "no description": (content({"a": 1}), "not described by dtype, shape and data_offsets"),
    "another key": (content({"a": entry() | {"strides": [1]}}), "not described by"),
    "an unknown type": (content({"a": entry(dtype="F3")}), "element type 'F3'"),
    "a type that is a list": (content({"a": entry(dtype=["F32"])}), "element type"),
    "a negative size": (content({"a": entry(shape=(-2, -1))}), "not lists of sizes"),
    "a size that is true": (content({"a": entry(shape=(True, 2))}), "not lists of sizes"),
    "a size that overflows": (content({"a": entry(shape=(2**40, 2**40))}), "too large"),
    "three offsets": (content({"a": entry() | {"data_offsets": [0, 4, 8]}}), "not lists of sizes"),
    "another length": (content({"a": entry(shape=(3,))}), r"FLOAT\[3\], which needs 12 bytes, but has 8"),
    "ends before it begins": (content({"a": entry(8, 0)}), "but has -8"),
    "an overlap": (content({"a": entry(), "b": entry(4, 12)}, 12), "'b' .* overlaps"),
    "a gap": (content({"a": entry(), "b": entry(12, 20)}, 20), "'b' .* has 4 unused bytes before it"),
    "bytes behind": (content({"a": entry()}, 12), "take 8 bytes, but the file has 12"),
    "bytes missing": (content({"a": entry()}, 4), "take 8 bytes, but the file has 4"),
}


@pytest.mark.parametrize(("data", "message"), REFUSED.values(), ids=REFUSED)
def test_a_malformed_file_is_refused(data, message, tmp_path):
    with pytest.raises(opsetta.ModelFileError, match=message):
        read(tmp_path, data)


def test_a_huge_header_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "x.safetensors"
    with open(path, "wb") as file:
        file.write((2**36).to_bytes(8, "little") + b"{")
        file.truncate(2**36 + 100)
    with pytest.raises(opsetta.ModelFileError, match="header of 68719476736 bytes, more than"):
        opsetta.open_weights(path)


@settings(max_examples=150, deadline=None)
@given(st.randoms(use_true_random=False))
def test_a_mutated_file_ends_in_tensors_within_it_or_a_refusal(rng: random.Random):
    data = bytearray(content({"a": entry(), "b": entry(8, 20, "F16", (2, 3))}, 20))
    for _ in range(rng.randint(1, 4)):
        position = rng.randrange(len(data))
        match rng.randrange(4):
            case 0:
                data[position] = rng.randrange(256)
            case 1:
                del data[position : position + rng.randint(1, 9)]
            case 2:
                data[position:position] = rng.choice([b"9", b"-", b'"', b"[", b"{}", b'"a":', b"e9"])
            case _:
                data[position:position] = data[rng.randrange(len(data)) :][:9]
        if not data:
            return
    file = Held(bytes(data))
    try:
        found = safetensors.read_safetensors(file, "'x'")
    except opsetta.ModelFileError:
        return
    ranges = sorted((tensor.offset, tensor.offset + tensor.nbytes) for tensor in found.values())
    assert all(0 <= begin <= end <= len(data) for begin, end in ranges)
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(ranges))
    for tensor in found.values():
        assert tensor.numpy().shape == tuple(tensor.shape.numpy())


class Held:
    """The contents of a file, without one."""

    def __init__(self, data):
        self.contents = np.frombuffer(data, np.uint8)
        self.size = len(data)
