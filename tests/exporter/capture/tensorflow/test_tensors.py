"""TensorProtos decode to the arrays that TensorFlow reads, or are refused if TensorFlow refuses them."""

import json
import pathlib

import numpy as np
import pytest

from opsetta import ModelFileError
from opsetta.exporter.capture.tensorflow.element_types import numpy_type, onnx_type, type_number
from opsetta.exporter.capture.tensorflow.messages import message_type
from opsetta.exporter.capture.tensorflow.tensor_protos import array_of, repeated_bytes
from opsetta.exporter.files.reading import bounds_of

DATA = pathlib.Path(__file__).parents[3] / "data" / "tensorflow"
RECORDS = json.loads((DATA / "tensor_protos.json").read_text(encoding="utf-8"))


def parsed(record):
    return message_type("TensorProto").FromString(bytes.fromhex(record["proto"]))


def tensor(text):
    from google.protobuf import text_format

    return text_format.Parse(text, message_type("TensorProto")())


@pytest.mark.parametrize("record", [r for r in RECORDS if r["read"]], ids=lambda record: record["name"])
def test_a_tensor_is_what_tensorflow_reads(record):
    message, expected = parsed(record), record["read"]
    array = array_of(message, "the tensor")
    assert array.shape == tuple(expected["shape"])
    assert not array.flags.writeable
    if "strings" in expected:
        assert [element.hex() for element in array.ravel().tolist()] == expected["strings"]
        return
    assert array.dtype == numpy_type(message.dtype)
    assert array.dtype.name == expected["type"]
    # TensorFlow keeps the unused bits of narrow types; they have no meaning.
    used = {"int4": 15, "uint4": 15, "int2": 3, "uint2": 3, "float4_e2m1fn": 15}.get(expected["type"], 255)
    held, wanted = array.tobytes(), bytes.fromhex(expected["bytes"])
    assert [byte & used for byte in held] == [byte & used for byte in wanted]


@pytest.mark.parametrize("record", [r for r in RECORDS if not r["read"]], ids=lambda record: record["name"])
def test_what_tensorflow_refuses_is_refused(record):
    with pytest.raises(ModelFileError, match="^the tensor "):
        array_of(parsed(record), "the tensor")


def test_narrow_integers_have_their_sign():
    record = next(r for r in RECORDS if r["name"] == "INT2.content")
    assert array_of(parsed(record), "the tensor").astype(int).tolist() == [[1, -2], [-1, 0]]


def test_content_is_not_copied_and_one_element_is_stored_once():
    content = tensor(r'dtype: DT_FLOAT tensor_shape { dim { size: 1 } } tensor_content: "\000\000\200?"')
    array = array_of(content, "the tensor")
    assert not array.flags.owndata
    repeated = tensor("dtype: DT_FLOAT tensor_shape { dim { size: 4000000 } } float_val: 2")
    assert array_of(repeated, "the tensor").strides == (0,)
    assert repeated_bytes(repeated, "the tensor") == 4 * 3_999_999


@pytest.mark.parametrize(
    "text",
    [
        "dtype: DT_FLOAT tensor_shape { dim { size: 1000000000 } }",
        "dtype: DT_INT8 tensor_shape { dim { size: 1000000000 } } int_val: 1 int_val: 2",
        "dtype: DT_STRING tensor_shape { dim { size: 1000000 } } string_val: '" + 1000 * "x" + "'",
        "dtype: DT_STRING tensor_shape { dim { size: 5000000 } }",
    ],
)
def test_a_few_bytes_do_not_stand_for_much_memory(text):
    with pytest.raises(ModelFileError, match=r"^'w' repeats its elements to more than 171 MiB; if you trust"):
        array_of(tensor(text), "'w'")


def test_a_trusted_file_may_repeat_its_elements():
    message = tensor("dtype: DT_FLOAT tensor_shape { dim { size: 1000000000 } } float_val: 2")
    assert array_of(message, "'w'", bounds_of(trusted=True)).shape == (1_000_000_000,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tensor_shape { dim { size: 281474976710656 } }", "sizes that exceed any memory"),
        ("tensor_shape { dim { size: 0 } dim { size: 281474976710656 } }", "sizes that exceed"),
        ("tensor_shape { " + 33 * "dim { size: 1 } " + "}", "has 33 dimensions, more than 32"),
        ("tensor_shape { unknown_rank: true dim { size: 1 } }", "1 dimensions and an unknown rank"),
        (
            "tensor_shape { dim { size: 2 } } tensor_content: 'abc'",
            "is 8 bytes by its type and shape, but contains 3",
        ),
    ],
)
def test_a_contradictory_tensor_is_refused(text, message):
    with pytest.raises(ModelFileError, match=f"^'w' .*{message}"):
        array_of(tensor(f"dtype: DT_FLOAT {text}"), "'w'")


@pytest.mark.parametrize("kind", ["DT_RESOURCE", "DT_VARIANT", "DT_INVALID"])
def test_a_type_without_contents_is_refused_by_name(kind):
    with pytest.raises(ModelFileError, match=f"'w' is of {kind}, which cannot be stored in a file"):
        array_of(message_type("TensorProto")(dtype=type_number(kind)), "'w'")
    with pytest.raises(ModelFileError, match="element type 77, which"):
        array_of(message_type("TensorProto")(dtype=77), "'w'")


def test_element_types():
    assert onnx_type(type_number("DT_HALF")).name == "FLOAT16"
    assert onnx_type(type_number("DT_HALF_REF")).name == "FLOAT16"
    assert onnx_type(type_number("DT_VARIANT")) == "variant"
    assert onnx_type(type_number("DT_QINT8")) == "qint8"
    assert numpy_type(type_number("DT_QINT8")) == np.int8
    assert numpy_type(type_number("DT_RESOURCE_REF")) is None
