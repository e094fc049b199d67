"""Sizes that a file declares for results whose size depends on their contents are those of an example."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import opsetta

X = np.array([3, 0, 3, 2, 0, 9], "f")
INT64, FLOAT = onnx.TensorProto.INT64, onnx.TensorProto.FLOAT
MODELS = {
    "shape of NonZero": (
        13,
        [helper.make_node("NonZero", ["x"], ["n"]), helper.make_node("Shape", ["n"], ["y"])],
        [("n", INT64, [1, 2])],
        ("y", INT64, [2]),
    ),
    "later than Unique": (
        11,
        [
            helper.make_node("Unique", ["x"], ["u", "", "", "counts"]),
            helper.make_node("Neg", ["counts"], ["m"]),
            helper.make_node("Shape", ["m"], ["y"]),
        ],
        [("u", FLOAT, [2]), ("counts", INT64, [2]), ("m", INT64, [2])],
        ("y", INT64, [1]),
    ),
    "Compress in a branch": (
        11,
        [
            helper.make_node("Cast", ["x"], ["mask"], to=onnx.TensorProto.BOOL),
            helper.make_node("Size", ["x"], ["count"]),
            helper.make_node("Cast", ["count"], ["condition"], to=onnx.TensorProto.BOOL),
            helper.make_node(
                "If",
                ["condition"],
                ["z"],
                then_branch=helper.make_graph(
                    [helper.make_node("Compress", ["x", "mask"], ["c"], axis=-1)],
                    "then",
                    [],
                    [helper.make_tensor_value_info("c", FLOAT, [2])],
                ),
                else_branch=helper.make_graph(
                    [helper.make_node("Identity", ["x"], ["e"])],
                    "else",
                    [],
                    [helper.make_tensor_value_info("e", FLOAT, [2])],
                ),
            ),
            helper.make_node("Shape", ["z"], ["y"]),
        ],
        [("z", FLOAT, [2])],
        ("y", INT64, [1]),
    ),
}


@pytest.mark.parametrize("opset", [9, 13, 18, 21])
@pytest.mark.parametrize("name", MODELS)
def test_declared_sizes_of_counted_results_are_not_relied_on(name, opset, tmp_path):
    source_opset, nodes, declared, output = MODELS[name]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", FLOAT, [6])],
        [helper.make_tensor_value_info(*output)],
        value_info=[helper.make_tensor_value_info(*value) for value in declared],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", source_opset)], ir_version=7)
    onnx.save(model, tmp_path / "model.onnx")
    converted = opsetta.load(tmp_path / "model.onnx").lower(opset=opset).model_proto
    # onnxruntime folds Shape by the declared sizes, in the source too.
    (expected,) = ReferenceEvaluator(model).run(None, {"x": X})
    (result,) = ReferenceEvaluator(converted).run(None, {"x": X})
    np.testing.assert_array_equal(result, expected)


def test_sizes_beside_the_counted_axis_stay(tmp_path):
    graph = helper.make_graph(
        [
            helper.make_node("Compress", ["x", "mask"], ["c"], axis=0),
            helper.make_node("Flatten", ["c"], ["y"], axis=1),
        ],
        "g",
        [
            helper.make_tensor_value_info("x", FLOAT, [3, 4]),
            helper.make_tensor_value_info("mask", onnx.TensorProto.BOOL, [3]),
        ],
        [helper.make_tensor_value_info("y", FLOAT, [2, 4])],
        value_info=[helper.make_tensor_value_info("c", FLOAT, [2, 4])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=7)
    onnx.save(model, tmp_path / "model.onnx")
    converted = opsetta.load(tmp_path / "model.onnx").lower(opset=17).model_proto
    sizes = [dim.dim_value for dim in converted.graph.output[0].type.tensor_type.shape.dim]
    assert sizes == [0, 4]
