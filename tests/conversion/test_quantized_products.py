"""Convolutions and products of 8-bit integers at opset 9, which lacks their operators."""

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

import opsetta

RANDOM = np.random.default_rng(0)


def convolution(channels, is_constant):
    """A ConvInteger with 9 weights per channel of its input, and its feeds."""
    weights = RANDOM.integers(0, 256, (2, channels, 3, 3), np.uint8)
    kernel = "" if is_constant else f", uint8[2, {channels}, 3, 3] w"
    model = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 10]>
        net (uint8[1, {channels}, 3, 4] x{kernel}) => (int32[1, 2, 1, 2] y)
            <uint8 zx = {{3}}, uint8 zw = {{130}}> {{
          y = ConvInteger(x, w, zx, zw)
        }}""")
    if is_constant:
        model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    # The largest data that a sum can have.
    images = np.full((1, channels, 3, 4), 255, np.uint8)
    return model, {"x": images, **({} if is_constant else {"w": weights})}


# With kernels of 3 x 3, an output has 288 weights at 32 channels, and 4608 at 512, the most in a ResNet.
@pytest.mark.parametrize(("channels", "is_constant"), [(4, True), (32, True), (512, True), (32, False)])
def test_sums_are_exact(tmp_path, channels, is_constant):
    model, feeds = convolution(channels, is_constant)
    onnx.save(model, tmp_path / "m.onnx")
    converted = opsetta.load(tmp_path / "m.onnx").lower(9)
    (expected,) = ReferenceEvaluator(model).run(None, feeds)
    np.testing.assert_array_equal(converted(*feeds.values()), expected)


def test_sums_that_may_be_inexact_are_refused(tmp_path):
    onnx.save(convolution(512, is_constant=False)[0], tmp_path / "m.onnx")
    with pytest.raises(opsetta.UnsupportedOperatorsError, match=r"may be too large for FLOAT; opset 10 is"):
        opsetta.load(tmp_path / "m.onnx").lower(9)


def test_products_of_unknown_rank(tmp_path):
    """The rank is unknown after operators of other domains; a number as the zero point does not need it."""
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 10]>
        net (uint8[2, 3] x, uint8[3, 4] w) => (uint8[a, b] y)
            <float s = {0.5}, uint8 z = {3}, float[1] t = {9}> {
          y = QLinearMatMul(x, s, z, w, s, z, t, z)
        }""")
    model.graph.input[0].type.tensor_type.ClearField("shape")
    onnx.save(model, tmp_path / "m.onnx")
    source = opsetta.load(tmp_path / "m.onnx")
    feeds = [RANDOM.integers(0, 9, shape, np.uint8) for shape in ((2, 3), (3, 4))]
    np.testing.assert_array_equal(source.lower(9)(*feeds), source(*feeds))


@pytest.mark.parametrize("data", [RANDOM.normal(size=(3, 5)), np.zeros((2, 2)), np.full((2, 2), -3.0)])
def test_dynamic_quantization_gives_what_the_kernel_gives(tmp_path, data):
    """The quantized numbers, the scale and the zero point. The scale of a tensor of zeros is 1."""
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 11]>
        net (float[m, n] x) => (uint8[m, n] y, float s, uint8 z) { y, s, z = DynamicQuantizeLinear(x) }""")
    onnx.save(model, tmp_path / "m.onnx")
    source, feed = opsetta.load(tmp_path / "m.onnx"), data.astype(np.float32)
    for opset in (7, 10):
        for array, expected in zip(source.lower(opset)(feed), source(feed), strict=True):
            np.testing.assert_array_equal(array, expected)


def test_verification_of_a_quantized_file_is_not_of_fused_kernels(tmp_path):
    """onnxruntime fuses the nodes of the original, and rounds in other places than the file does."""
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 13]>
        net (float[1, 3, 9, 9] x) => (float[1, 4, 7, 7] y)
            <float s = {0.04}, uint8 z = {128}, float t = {0.05}, float u = {0.01}, int8 n = {0}> {
          a = QuantizeLinear(x, s, z)
          b = DequantizeLinear(a, s, z)
          w = DequantizeLinear(k, u, n)
          c = Conv(b, w)
          d = QuantizeLinear(c, t, z)
          y = DequantizeLinear(d, t, z)
        }""")
    model.graph.initializer.append(
        numpy_helper.from_array(RANDOM.integers(-64, 64, (4, 3, 3, 3), np.int8), "k")
    )
    onnx.save(model, tmp_path / "m.onnx")
    converted = opsetta.load(tmp_path / "m.onnx").lower(9)
    images = 4 * RANDOM.normal(size=(64, 1, 3, 9, 9)).astype(np.float32)
    for image in images:
        assert converted.verify((image,)).max_absolute_error < 1e-5
