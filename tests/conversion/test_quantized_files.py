"""Quantized files: MaxPool of bytes below opset 12, and what is known of the operators of onnxruntime."""

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from opsetta.exporter.files.reading import BOUNDS
from opsetta.exporter.lowering.conversion.prepared_models.preparation import source_of

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


def quantized(op_type, inputs, **attributes):
    return helper.make_node(op_type, inputs, ["h"], domain="com.microsoft", **attributes)


@pytest.mark.parametrize(
    ("node", "shape"),
    [
        (quantized("QLinearAdd", ["x", "s", "z", "row", "s", "z", "s", "z"]), (1, 2, 6, 5)),
        (quantized("QLinearMul", ["x", "s", "z", "row", "s", "z", "s", "z"]), (1, 2, 6, 5)),
        (quantized("QLinearSigmoid", ["x", "s", "z", "s", "z"]), (1, 2, 6, 5)),
        (quantized("QLinearLeakyRelu", ["x", "s", "z", "s", "z"], alpha=0.1), (1, 2, 6, 5)),
        (quantized("QLinearAveragePool", ["x", "s", "z", "s", "z"], kernel_shape=[3, 2]), (1, 2, 4, 4)),
        (quantized("QLinearGlobalAveragePool", ["x", "s", "z", "s", "z"]), (1, 2, 1, 1)),
        (quantized("QLinearConcat", ["s", "z", "x", "s", "z", "x", "s", "z"], axis=-2), (1, 2, 12, 5)),
        (quantized("QuantizeLinear", ["f", "s", "z"]), (1, 2, 6, 5)),
    ],
    ids=lambda given: getattr(given, "op_type", ""),
)
def test_types_and_shapes_of_quantized_operators_of_onnxruntime_are_known(node, shape):
    kind = TensorProto.UINT8
    weights = {
        "s": np.array(0.01, np.float32),
        "z": np.array(7, np.uint8),
        "row": np.ones(5, np.uint8),
    }
    inputs = [value("x", (1, 2, 6, 5), kind), value("f", (1, 2, 6, 5))]
    nodes = [node, helper.make_node("Identity", ["h"], ["y"])]
    proto = model(17, nodes, inputs, [value("y", [None] * 4, kind)], weights, imports=[("com.microsoft", 1)])
    found = source_of(ir.from_proto(proto), BOUNDS).graph[0].outputs[0]
    assert (found.dtype, tuple(found.shape)) == (ir.DataType.UINT8, shape)
    feeds = {"x": feed(kind), "f": np.ones((1, 2, 6, 5), np.float32)}
    assert run(proto, **feeds)[0].shape == shape


SUPPORT_VECTORS = {"coefficients": [1.0, 2.0], "support_vectors": [1.0] * 4 + [2.0] * 4, "n_supports": 2}
STUMP = {
    "nodes_featureids": [0, 0, 0],
    "nodes_values": [2.0, 0.0, 0.0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_treeids": [0, 0, 0],
    "nodes_nodeids": [0, 1, 2],
    "nodes_truenodeids": [1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0],
    "target_ids": [0, 1],
    "target_nodeids": [1, 2],
    "target_treeids": [0, 0],
    "target_weights": [1.0, 2.0],
}


@pytest.mark.parametrize(
    ("op_type", "attributes"),
    [
        ("Scaler", {"offset": [1.0], "scale": [2.0]}),
        ("Imputer", {"imputed_value_floats": [0.5]}),
        ("FeatureVectorizer", {"inputdimensions": [4]}),
        ("LinearRegressor", {"coefficients": [0.1] * 8, "intercepts": [0.5, 0.2], "targets": 2}),
        ("SVMRegressor", SUPPORT_VECTORS | {"rho": [0.5], "kernel_params": [0.5, 0.0, 3.0]}),
        ("TreeEnsembleRegressor", STUMP | {"n_targets": 2}),
    ],
)
def test_axes_count_from_the_end_behind_operators_that_onnx_does_not_infer(op_type, attributes):
    """Below opset 13, Softmax needs the rank of its input."""
    nodes = [
        helper.make_node(op_type, ["x"], ["h"], domain="ai.onnx.ml", **attributes),
        helper.make_node("Softmax", ["h"], ["y"], axis=-2),
    ]
    proto = model(13, nodes, [value("x", (3, 4))], [value("y", [None] * 2)], imports=[("ai.onnx.ml", 1)])
    x = np.float32([[1, 2, 3, 4], [4, -1, 2, 0], [5, 0, np.nan if op_type == "Imputer" else 1, 1]])
    np.testing.assert_allclose(run(converted(proto, 9), x=x)[0], run(proto, x=x)[0], rtol=1e-6)


@pytest.mark.parametrize("opset", [9, 17])
def test_a_normalizer_keeps_signs_in_onnxruntime(opset):
    """With a declared shape, onnxruntime's Normalizer would write over its input, and lose them."""
    nodes = [
        helper.make_node("Neg", ["x"], ["h"]),
        helper.make_node("Normalizer", ["h"], ["n"], domain="ai.onnx.ml", norm="L2"),
        helper.make_node("Relu", ["n"], ["y"]),
    ]
    proto = model(13, nodes, [value("x", (1, 2))], [value("y", (1, 2))], imports=[("ai.onnx.ml", 1)])
    [result] = run(converted(proto, opset), x=np.float32([[3, -4]]))
    np.testing.assert_allclose(result, [[0, 0.8]], rtol=1e-6)
