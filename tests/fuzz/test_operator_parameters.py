"""Random parameters of single operators give a valid file, or an error; the judge sees what is not valid."""

import numpy as np
import onnx
import pytest
from onnx import helper

from . import operator_parameters as fuzz

_QUICK = {"tensorflow": 120, "caffe2": 60}


@pytest.mark.parametrize("dialect", _QUICK)
def test_files_are_valid_or_not_written(dialect: str) -> None:
    outcomes = fuzz.run_range((dialect, 0, _QUICK[dialect]))
    failed = [outcome for outcome in outcomes if outcome.kind in fuzz.FAILED]
    assert not failed, "\n\n".join(map(str, failed))
    kinds = {outcome.kind for outcome in outcomes}
    assert {fuzz.VALID, fuzz.REFUSED} <= kinds


@pytest.mark.parametrize("dialect", fuzz.DIALECTS[:2])
def test_unchanged_operators_are_valid(dialect: str) -> None:
    bases = fuzz.bases_of(dialect)
    judged = [fuzz.judge(base.make(), 17)[0] for base in bases[:: len(bases) // 30]]
    assert judged.count(fuzz.VALID) > 20
    assert fuzz.INVALID not in judged
    assert fuzz.RAW not in judged


def _file(*nodes: onnx.NodeProto, sizes: tuple[int, ...] = (2, 3)) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, sizes)
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "graph", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(
    "node",
    [
        helper.make_node("Gather", ["x", "x"], ["y"]),
        helper.make_node("Transpose", ["x"], ["y"], perm=[0, 2]),
        helper.make_node("Softmax", ["x"], ["y"], axis=4),
        helper.make_node("Relu", ["x"], ["y"], alpha=1.0),
    ],
    ids=["element type", "permutation", "axis", "attribute"],
)
def test_the_judge_sees_a_file_that_is_not_valid(node: onnx.NodeProto) -> None:
    assert fuzz.judge_file(_file(node))[0] == fuzz.INVALID


def test_the_judge_takes_a_valid_file() -> None:
    assert fuzz.judge_file(_file(helper.make_node("Relu", ["x"], ["y"]))) == (fuzz.VALID, "")


def test_cases_depend_on_their_number_alone() -> None:
    assert fuzz.run_case("caffe2", 7) == fuzz.run_case("caffe2", 7)
    assert np.unique([fuzz.run_case("caffe2", number).changes for number in range(6)]).size > 3
