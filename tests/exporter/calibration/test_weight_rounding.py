"""Weights whose integers are chosen by calibration data: products change less than with the nearest ones."""

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from onnx import numpy_helper

import opsetta
from opsetta.exporter.calibration.weight_rounding import factor_of_inverse, products_of, round_rows

RANDOM = np.random.default_rng(0)
MIXTURE = RANDOM.standard_normal((2, 12))
"""Twelve inputs that depend on two numbers, as channels of real data do."""

GRAPHS = {
    "MatMul": ("y = MatMul(x, w)", (12, 5), (1,)),
    "Gemm": ("y = Gemm(x, w)", (12, 5), (1,)),
    "GemmTransposed": ("y = Gemm<transB = 1>(x, w)", (5, 12), (1,)),
    "Conv": (
        "y = Conv<pads = [1, 0, 2, 1], strides = [2, 1], dilations = [1, 2]>(x, w)",
        (5, 12, 3, 2),
        (6, 5),
    ),
    "Conv1d": ("y = Conv<pads = [1, 1]>(x, w)", (5, 12, 3), (6,)),
    "GroupedConv": ("y = Conv<group = 3>(x, w)", (6, 4, 2, 2), (6, 5)),
}


def batch_of(operator, positions):
    data = RANDOM.standard_normal((20, *positions, 2)) @ MIXTURE
    moved = np.moveaxis(data, -1, 1) if "Conv" in operator else data.reshape(20, 12)
    return {"x": moved.astype(np.float32)}


def float_model(operator, tmp_path):
    text, shape, positions = GRAPHS[operator]
    sizes = list(batch_of(operator, positions)["x"].shape)
    rank = len(sizes) if "Conv" in operator else 2
    model = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 13]>
        net (float{sizes} x) => (float[{", ".join("abcd"[:rank])}] y) {{ {text} }}""")
    weight = RANDOM.standard_normal(shape).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    onnx.save(model, tmp_path / "m.onnx")
    return opsetta.load(tmp_path / "m.onnx")


@pytest.mark.parametrize("operator", list(GRAPHS))
def test_samples_and_rows_give_the_product(tmp_path, operator):
    model = float_model(operator, tmp_path)
    data = batch_of(operator, GRAPHS[operator][2])["x"]
    expected = model(data)
    (product,) = products_of(model.model)
    rows = product.rows(product.weight.const_value.numpy())
    actual = np.concatenate([*(product.samples(data, 10**6) @ rows.swapaxes(1, 2))], 1)
    by_sample = np.moveaxis(expected, 1, -1).reshape(actual.shape)
    np.testing.assert_allclose(actual, by_sample, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(product.array(rows), product.weight.const_value.numpy())
    # Fewer samples are some of all.
    assert product.samples(data, 7).shape == (
        len(rows),
        -(-len(actual) // -(-len(actual) // 7)),
        rows.shape[2],
    )


def test_products_change_less_than_with_the_nearest_integers(tmp_path):
    model = float_model("Gemm", tmp_path)
    batches = [batch_of("Gemm", (1,)) for _ in range(5)]
    # Other numbers may be outside of the calibrated ranges.
    feed = batches[1]["x"]
    expected = model(feed)
    # Activations of 16 bits add nearly no error of their own.
    scheme = {"activations": "uint16", "per_channel": True, "reduce_range": True}
    nearest, calibrated = (
        np.linalg.norm(model.quantize(batches, weight_rounding=rounding, **scheme)(feed) - expected)
        for rounding in ("nearest", "calibrated")
    )
    assert calibrated < 0.5 * nearest


@pytest.mark.parametrize("scheme", [{}, {"form": "qoperator"}, {"weights": "uint8", "activations": "uint8"}])
def test_integers_stay_within_their_limits(tmp_path, scheme):
    model = float_model("Gemm", tmp_path)
    batches = [batch_of("Gemm", (1,)) for _ in range(5)]
    options = {"per_channel": True, "reduce_range": True, **scheme}
    weights = {
        rounding: model.quantize(batches, weight_rounding=rounding, **options).model.graph.initializers[
            "w_quantized"
        ]
        for rounding in ("nearest", "calibrated")
    }
    nearest, calibrated = (value.const_value.numpy().astype(int) for value in weights.values())
    assert (nearest != calibrated).any()
    limits = (0, 127) if "weights" in scheme else (-64, 64)
    assert calibrated.min() >= limits[0]
    assert calibrated.max() <= limits[1]


def test_rows_that_would_change_more_keep_the_nearest_integers():
    steps = RANDOM.standard_normal((1, 3, 4)) * 10
    nearest = np.rint(steps)
    # Inputs that are not correlated, and data that say nothing.
    for moments in (np.eye(4)[None], np.zeros((1, 4, 4)), np.full((1, 4, 4), np.nan)):
        np.testing.assert_array_equal(round_rows(steps, nearest, moments, (-127, 127)), nearest)


def test_weights_of_several_readers_and_computed_ones_are_left_alone():
    text = """
        <ir_version: 8, opset_import: ["" : 13]>
        net (float[2, 2] x) => (float[2, 2] y)
            <float[2, 2] w = {1, 2, 3, 4}, float[2, 2] v = {1, 2, 3, 4}, float[2, 2] u = {1, 2, 3, 4}> {
          a = MatMul(x, w)
          b = MatMul(a, w)
          c = MatMul(b, x)
          d = MatMul(v, u)
          y = Add(c, d)
        }"""
    model = ir.serde.deserialize_model(onnx.parser.parse_model(text))
    assert products_of(model) == []


def test_the_factor_of_an_inverse_is_that_of_numpy():
    samples = np.random.default_rng(0).normal(size=(2, 500, 300))
    moments = samples.swapaxes(1, 2) @ samples + np.eye(300)
    factor = factor_of_inverse(moments)
    assert not np.tril(factor, -1).any()
    np.testing.assert_allclose(factor.swapaxes(1, 2) @ factor, np.linalg.inv(moments), atol=1e-12)
