"""Metadata that does not have its form is an error of ours, however it is malformed."""

import numpy as np
import onnx
import pytest
from onnx import helper

import opsetta
from opsetta.exporter.source import dimensions, specializations
from opsetta.registration import DIMENSIONS, RANGES, SPECIALIZATIONS

TEXTS = [
    "[" * 30_000,
    '{"a":' * 30_000,
    "[" + "{}," * 3_000_000 + "0]",
    "[" + "9" * 5_000 + "]",
    "[1",
    "[1]",
    "1",
]


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_malformed_metadata_is_an_error_of_ours(text):
    with pytest.raises(opsetta.DimensionError, match="does not have the documented form"):
        dimensions.read({DIMENSIONS: text})
    with pytest.raises(opsetta.DimensionError, match="does not have the documented form"):
        dimensions.read_ranges({RANGES: text})
    with pytest.raises(opsetta.OpsettaError, match="does not have the documented form"):
        specializations.read({SPECIALIZATIONS: text})


def test_ranges_are_those_of_the_metadata():
    assert dimensions.read_ranges({}) is None
    assert dimensions.read_ranges({RANGES: '{"n": [1, 4]}'}) == {"n": [1, 4]}


@pytest.mark.parametrize("key", [DIMENSIONS, RANGES])
def test_a_model_with_malformed_metadata_is_not_called(key, tmp_path):
    value = [helper.make_tensor_value_info(name, 1, ["n"]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", value[:1], value[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model.metadata_props.add(key=key, value="[" * 30_000)
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(opsetta.OpsettaError, match="does not have the documented form"):
        opsetta.load(tmp_path / "m.onnx")(np.ones(2, np.float32))
