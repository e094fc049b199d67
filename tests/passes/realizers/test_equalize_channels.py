"""Channels between two convolutions get weights of one range, and the results stay the same."""

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

import opsetta
from opsetta.exporter.editing.rewrite import rewrite
from opsetta.passes.realizers import EqualizeChannels

RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.standard_normal((12, 3, 8, 8)).astype(np.float32)
RANGES = np.array([100, 1, 0.01, 10, 1, 0.1]).reshape(6, 1, 1, 1)
WEIGHTS = {
    "w": RANDOM.standard_normal((6, 3, 3, 3)) * RANGES,
    "b": RANDOM.standard_normal(6) * RANGES.ravel(),
    "depthwise": RANDOM.standard_normal((6, 1, 3, 3)) / RANGES,
    "last": RANDOM.standard_normal((4, 6, 1, 1)),
}
GRAPH = """
<ir_version: 8, opset_import: ["" : 13]>
net (float[batch, 3, 8, 8] x) => (float[batch, 4, h, v] y)
{{
  c = Conv(x, w, b)
  r = {between}
  d = Conv<group = 6>(r, depthwise)
  {line}
  y = Conv(a, last)
}}
"""


def load(tmp_path, between="Relu(c)", line="a = LeakyRelu(d)", weights=WEIGHTS):
    model = onnx.parser.parse_model(GRAPH.format(between=between, line=line))
    for name, array in weights.items():
        model.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))
    onnx.save(model, tmp_path / "m.onnx")
    return opsetta.load(tmp_path / "m.onnx")


def equalized(model):
    return opsetta.OnnxModel(rewrite(model.model, [EqualizeChannels()], False))


def spread(model):
    """How much the largest weights of channels differ, in the first convolution."""
    weight = next(node for node in model.model.graph if node.op_type == "Conv").inputs[1].const_value.numpy()
    ranges = np.abs(weight.reshape(len(weight), -1)).max(1)
    return ranges.max() / ranges.min()


@pytest.mark.parametrize("between", ["Relu(c)", "MaxPool<kernel_shape = [2, 2]>(c)"])
def test_ranges_become_equal_and_results_stay(tmp_path, between):
    model = load(tmp_path, between)
    result = equalized(model)
    expected = model(IMAGES)
    np.testing.assert_allclose(result(IMAGES), expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())
    assert spread(model) > 1000
    assert spread(result) < 10
    # The same is done once more: the weights stay.
    assert spread(equalized(result)) == pytest.approx(spread(result), rel=0.1)


@pytest.mark.parametrize("between", ["Sigmoid(c)", "Clip(c)", "Add(c, c)"])
def test_what_does_not_commute_with_a_factor_stays(tmp_path, between):
    model = load(tmp_path, between)
    assert spread(equalized(model)) == spread(model)


def test_channels_without_weights_stay(tmp_path):
    model = load(tmp_path, weights=WEIGHTS | {"depthwise": WEIGHTS["depthwise"] * 0})
    np.testing.assert_array_equal(equalized(model)(IMAGES), model(IMAGES))


def test_one_scale_per_weight_loses_less_of_equalized_ones(tmp_path):
    model = load(tmp_path)
    batches = [{"x": image[None]} for image in IMAGES]
    errors = [
        model.quantize(batches, equalize=equalize).accuracy.outputs[0].relative_error
        for equalize in (False, True)
    ]
    assert errors[1] < 0.5 * errors[0]
