"""MaxPool of 8-bit integers, as quantized models have it, at opsets whose MaxPool takes only floats."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from .test_conversion import converted, model, operators, run, value

WINDOW = {"kernel_shape": [3, 2], "strides": [2, 1]}


def feed(kind):
    numbers = np.random.default_rng(0).integers(-128, 128, (1, 2, 6, 5))
    return numbers.astype(np.int8) if kind == TensorProto.INT8 else (numbers + 128).astype(np.uint8)


@pytest.mark.parametrize("opset", [7, 9, 11])
@pytest.mark.parametrize("kind", [TensorProto.INT8, TensorProto.UINT8])
@pytest.mark.parametrize("padding", [{"pads": [1, 1, 2, 1]}, {"auto_pad": "SAME_UPPER"}], ids=str)
def test_bytes_are_pooled_as_floats(kind, opset, padding):
    pool = helper.make_node("MaxPool", ["x"], ["y"], **WINDOW, **padding)
    proto = model(17, [pool], [value("x", (1, 2, 6, 5), kind)], [value("y", [None] * 4, kind)])
    found = converted(proto, opset)
    assert operators(found) == ["Cast", "MaxPool", "Cast"]
    np.testing.assert_array_equal(run(found, x=feed(kind))[0], run(proto, x=feed(kind))[0])


@pytest.mark.parametrize("padding", [{"pads": [1, 1, 2, 1]}, {"auto_pad": "SAME_LOWER"}], ids=str)
def test_the_rank_of_bytes_may_be_unknown(padding):
    kind = TensorProto.UINT8
    contrib = helper.make_node(
        "QLinearSigmoid", ["x", "scale", "zero", "scale", "zero"], ["h"], domain="com.microsoft"
    )
    pool = helper.make_node("MaxPool", ["h"], ["y"], **WINDOW, **padding)
    constants = {"scale": np.array(0.01, np.float32), "zero": np.array(7, np.uint8)}
    proto = model(
        17,
        [contrib, pool],
        [value("x", (1, 2, 6, 5), kind)],
        [value("y", [None] * 4, kind)],
        constants,
        imports=[("com.microsoft", 1)],
    )
    np.testing.assert_array_equal(run(converted(proto, 11), x=feed(kind))[0], run(proto, x=feed(kind))[0])


def test_windows_that_may_lie_in_the_padding_are_gathered():
    window = {"kernel_shape": [2, 2], "dilations": [3, 1], "pads": [1, 0, 1, 0]}
    kind = TensorProto.UINT8
    pool = helper.make_node("MaxPool", ["x"], ["y"], **window)
    proto = model(17, [pool], [value("x", (1, 2, 6, 5), kind)], [value("y", [None] * 4, kind)])
    np.testing.assert_array_equal(run(converted(proto, 11), x=feed(kind))[0], run(proto, x=feed(kind))[0])
