"""Two files side by side: what is counted, measured and compared, and what cannot be."""

import math

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from opsetta.exporter.running.comparisons.file_comparison import compare_files
from opsetta.registration import OpsettaError


def saved(path, operator="Mul", weight=2.0, shape=("batch", 3), name="x", kind=TensorProto.FLOAT):
    x = helper.make_tensor_value_info(name, kind, shape)
    y = helper.make_tensor_value_info("y", kind, None if operator == "ReduceSum" else shape)
    array = np.array([weight], helper.tensor_dtype_to_np_dtype(kind))
    inputs = [name] if operator == "ReduceSum" else [name, "w"]
    graph = helper.make_graph(
        [helper.make_node(operator, inputs, ["y"])], "g", [x], [y], [numpy_helper.from_array(array, "w")]
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


def test_contents_latency_and_results_stand_side_by_side(tmp_path):
    a, b = saved(tmp_path / "a.onnx"), saved(tmp_path / "b.onnx", weight=2.5, name="other")
    found = compare_files(a, b, runs=3, dimensions={"batch": 4})
    assert [file["operators"] for file in found.files] == [{"Mul": 1}, {"Mul": 1}]
    assert set(found.latency) == {"all", "none"}
    assert all(0 < ms < 1000 for pair in found.latency.values() for ms in pair)
    [output] = found.outputs
    feed = np.concatenate([np.random.default_rng(seed).standard_normal((4, 3)) for seed in (0, 1)])
    assert output.absolute == pytest.approx(0.5 * np.abs(feed).max(), rel=1e-5)
    assert output.relative == pytest.approx(0.25, rel=1e-5)


def test_equal_files_differ_in_nothing_and_no_runs_measure_nothing(tmp_path):
    a, b = saved(tmp_path / "a.onnx"), saved(tmp_path / "b.onnx")
    found = compare_files(a, b, runs=0)
    assert found.latency == {}
    assert (found.outputs[0].absolute, found.outputs[0].relative) == (0, 0)


@pytest.mark.parametrize(
    "kind", [TensorProto.INT64, TensorProto.INT32, TensorProto.DOUBLE, TensorProto.FLOAT16]
)
def test_inputs_of_other_types(tmp_path, kind):
    a, b = saved(tmp_path / "a.onnx", kind=kind), saved(tmp_path / "b.onnx", weight=3, kind=kind)
    [output] = compare_files(a, b, runs=0).outputs
    assert output.absolute > 0


def test_a_nan_on_one_side_is_an_infinite_difference(tmp_path):
    a, b = saved(tmp_path / "a.onnx"), saved(tmp_path / "b.onnx", weight=math.nan)
    assert compare_files(a, b, runs=0).outputs[0].absolute == math.inf
    assert compare_files(b, b, runs=0).outputs[0].absolute == 0


def test_results_of_other_shapes_have_a_reason(tmp_path):
    a, b = saved(tmp_path / "a.onnx"), saved(tmp_path / "b.onnx", operator="ReduceSum")
    [output] = compare_files(a, b, runs=0).outputs
    assert output.absolute is None
    assert output.reason == "shape [2, 3] against [1, 1]"


def test_files_that_do_not_correspond_are_refused(tmp_path):
    a = saved(tmp_path / "a.onnx")
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1]) for n in "xy")
    z = helper.make_tensor_value_info("z", TensorProto.FLOAT, [1])
    graph = helper.make_graph([helper.make_node("Add", ["x", "y"], ["z"])], "g", [x, y], [z])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), tmp_path / "b.onnx")
    with pytest.raises(OpsettaError, match="1 inputs, and .* has 2"):
        compare_files(a, tmp_path / "b.onnx")
    with pytest.raises(OpsettaError, match="has a dimension 'bach' \\(named: batch\\)"):
        compare_files(a, a, dimensions={"bach": 2})
