"""The contents of filled blobs, for every element type, and fillers with contradictory arguments."""

import ml_dtypes  # noqa: F401
import numpy as np
import onnx_ir as ir
import pytest

import opsetta
from opsetta.exporter.capture.caffe2.fillers import Fillers
from opsetta.exporter.capture.caffe2.messages import message_type
from opsetta.exporter.files.reading import BOUNDS, TRUSTED

from .nets import set_argument


def filler(kind, **arguments):
    operator = message_type("OperatorDef")(type=kind, output=["w"])
    for name, value in arguments.items():
        set_argument(operator.arg.add(name=name), value)
    return operator


def filled(kind, bounds=BOUNDS, random=True, **arguments):
    return Fillers(bounds).tensor(filler(kind, **arguments), "the filler", random=random)


@pytest.mark.parametrize(
    ("kind", "values", "dtype"),
    [
        ("GivenTensorFill", [1.5, -2.0], np.float32),
        ("GivenTensorDoubleFill", [1.5, -2.0], np.float64),
        ("GivenTensorFp16Fill", [1.5, -2.0], np.float16),
        ("GivenTensorBoolFill", [1, 0], np.bool_),
        ("GivenTensorInt8Fill", [1, -2], np.int8),
        ("GivenTensorInt16Fill", [1, -2], np.int16),
        ("GivenTensorIntFill", [1, -2], np.int32),
        ("GivenTensorInt64Fill", [2**40, -2], np.int64),
        ("GivenTensorUInt8Fill", [1, 255], np.uint8),
        ("GivenTensorUInt16Fill", [1, 65535], np.uint16),
        ("Int8GivenIntTensorFill", [1, -(2**31)], np.int32),
    ],
)
def test_given_values(kind, values, dtype):
    tensor = filled(kind, values=values, shape=[2, 1])
    np.testing.assert_array_equal(tensor.numpy(), np.array(values, dtype).reshape(2, 1))
    assert tensor.numpy().dtype == dtype


@pytest.mark.parametrize("kind", ["GivenTensorByteStringToUInt8Fill", "Int8GivenTensorFill"])
@pytest.mark.parametrize("values", [b"\x00\xff\x80", [b"\x00\xff\x80"]])
def test_given_bytes(kind, values):
    tensor = filled(kind, values=values, shape=[3])
    np.testing.assert_array_equal(tensor.numpy(), np.array([0, 255, 128], np.uint8))


def test_given_strings():
    tensor = filled("GivenTensorStringFill", values=["a", "bc"], shape=[2])
    assert tensor.dtype == ir.DataType.STRING
    assert list(tensor.string_data()) == [b"a", b"bc"]


def test_given_values_of_another_element_type():
    assert filled("GivenTensorFill", values=[1, 2], shape=[2], dtype=10).dtype == ir.DataType.INT64
    assert filled("GivenTensorFill", values=[1.0], shape=[1], dtype=13).dtype == ir.DataType.DOUBLE


def test_scalars_and_empty_tensors():
    assert filled("GivenTensorFill", values=[2.5]).shape == ()
    assert filled("GivenTensorFill", values=[], shape=[0, 3]).shape == (0, 3)
    assert filled("ConstantFill").numpy() == 0


@pytest.mark.parametrize(
    ("arguments", "dtype", "value"),
    [
        ({"value": 0.5}, np.float32, 0.5),
        ({"value": 3}, np.int64, 3),
        ({}, np.float32, 0),
        ({"value": 1, "dtype": 5}, np.bool_, True),
        ({"value": 7, "dtype": 2}, np.int32, 7),
        ({"value": 2.0, "dtype": 10}, np.int64, 2),
        ({"dtype": "double", "value": 0.25}, np.float64, 0.25),
    ],
)
def test_constants(arguments, dtype, value):
    found = filled("ConstantFill", shape=[2, 2], **arguments).numpy()
    np.testing.assert_array_equal(found, np.full((2, 2), value, dtype))
    assert found.dtype == dtype


def test_constants_of_halves_and_ranges():
    assert filled("Float16ConstantFill", shape=[2], value=0.5).numpy().dtype == np.float16
    np.testing.assert_array_equal(filled("RangeFill", shape=[4]).numpy(), np.arange(4, dtype=np.float32))


@pytest.mark.parametrize(
    ("kind", "arguments", "mean", "deviation"),
    [
        ("GaussianFill", {"mean": 2.0, "std": 0.5}, 2, 0.5),
        ("UniformFill", {"min": -1.0, "max": 3.0}, 1, 4 / 12**0.5),
        ("XavierFill", {}, 0, (1 / 64) ** 0.5),
        ("MSRAFill", {}, 0, (2 / 128) ** 0.5),
        ("Float16UniformFill", {}, 0.5, 1 / 12**0.5),
        ("UniformIntFill", {"min": 0, "max": 9}, 4.5, (99 / 12) ** 0.5),
    ],
)
def test_random_numbers_are_the_same_each_time(kind, arguments, mean, deviation):
    first, second = (filled(kind, shape=[128, 64], **arguments).numpy() for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert abs(first.astype(float).mean() - mean) < 0.1
    assert abs(first.astype(float).std() / deviation - 1) < 0.1
    fillers = Fillers(BOUNDS)
    other = filler(kind, shape=[128, 64], **arguments)
    other.output[0] = "other"
    assert not np.array_equal(fillers.tensor(other, "it", random=True).numpy(), first)
    assert fillers.random == {"other": kind}


def test_random_numbers_only_in_the_init_net():
    assert filled("GaussianFill", random=False, shape=[2]) is None


def test_no_fillers():
    assert filled("Relu") is None
    operator = filler("ConstantFill", value=1.0)
    operator.input.append("x")
    assert Fillers(BOUNDS).tensor(operator, "it", random=True) is None


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        ("GivenTensorFill", {"values": [1.0], "shape": [2]}, "1 values for the shape"),
        ("GivenTensorFill", {"values": [1, 2], "shape": [2]}, "in field ints, but Caffe2 reads field floats"),
        ("GivenTensorFill", {"values": [1.0], "shape": [-1]}, "an invalid shape"),
        ("GivenTensorFill", {"values": [1.0], "shape": 1}, "an invalid shape"),
        ("GivenTensorFill", {"values": [1.0], "shape": [2**62]}, "an invalid shape"),
        ("GivenTensorFill", {"values": [1.0], "shape": [1] * 100}, "1 values for the shape"),
        ("GivenTensorUInt8Fill", {"values": [256], "shape": [1]}, "range of UINT8"),
        ("GivenTensorStringFill", {"values": ["a"], "shape": [2]}, "1 values for the shape"),
        (
            "Int8GivenTensorFill",
            {"values": [1, 2], "shape": [2]},
            "must have its values as one string of bytes",
        ),
        ("ConstantFill", {"shape": [2], "value": "x"}, "not a number"),
        ("ConstantFill", {"shape": [2], "value": 0.5, "dtype": 2}, "fills INT32 with 0.5"),
        ("ConstantFill", {"shape": [2], "value": 2**40, "dtype": 2}, "cannot be filled"),
        ("ConstantFill", {"shape": [2], "value": float("nan"), "dtype": 2}, "fills INT32 with nan"),
        ("ConstantFill", {"shape": [1] * 100}, "cannot be filled"),
        ("UniformFill", {"shape": [2], "min": "x"}, "cannot be filled"),
        ("MSRAFill", {"shape": [2]}, "cannot be filled"),
        ("GaussianFill", {"shape": [2], "std": -1.0}, "cannot be filled"),
    ],
)
def test_fillers_that_contradict_themselves(kind, arguments, message):
    with pytest.raises(opsetta.ModelFileError, match=message):
        filled(kind, **arguments)


@pytest.mark.parametrize("kind", ["ConstantFill", "GaussianFill", "RangeFill", "Float16ConstantFill"])
def test_what_a_file_does_not_hold_is_bounded(kind):
    with pytest.raises(opsetta.ModelFileError, match="trusted"):
        filled(kind, shape=[10_000, 10_000])
    fillers, half = Fillers(BOUNDS), filler(kind, shape=[10_000, 3_000])
    if kind == "Float16ConstantFill":
        fillers.tensor(half, "it", random=True)
        fillers.tensor(half, "it", random=True)
    fillers.tensor(half, "it", random=True)
    with pytest.raises(opsetta.ModelFileError, match="trusted"):
        fillers.tensor(half, "it", random=True)


def test_trust_lifts_the_bound():
    fillers = Fillers(TRUSTED)
    for _ in range(3):
        assert fillers.tensor(filler("ConstantFill", shape=[30_000_000], dtype=5), "it", random=True).size
