"""Metadata that does not have its form is an error of ours, however it is malformed."""

import numpy as np
import onnx
import pytest
from onnx import helper

import opsetta
from opsetta.exporter.captured_graph import dimensions, specializations
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
        dimensions.read_restrictions({DIMENSIONS: text})
    with pytest.raises(opsetta.DimensionError, match="does not have the documented form"):
        dimensions.read_ranges({RANGES: text})
    with pytest.raises(opsetta.OpsettaError, match="does not have the documented form"):
        specializations.read_specializations({SPECIALIZATIONS: text})


def test_ranges_are_those_of_the_metadata():
    assert dimensions.read_ranges({}) is None
    assert dimensions.read_ranges({RANGES: '{"n": [1, 4]}'}) == {"n": [1, 4]}


def test_dimensions_have_the_conditions_that_mention_them():
    conditions = ["n % 2 == 0", "batch size >= 2", "n2 <= 7", "batch size + n <= 9", "True"]
    metadata: dict[str, str] = {}
    dimensions.write_restrictions(metadata, [dimensions.SizeRestriction(text, "why") for text in conditions])
    shapes = [("x", ["n", "batch size", "n2", 3, "n + n2", "True", None])]
    found = dimensions.dimensions(shapes, metadata)
    mentions = {name: [r.condition for r in entry.restrictions] for name, entry in found.items()}
    assert mentions == {
        "n": ["n % 2 == 0", "batch size + n <= 9"],
        "batch size": ["batch size >= 2", "batch size + n <= 9"],
        "n2": ["n2 <= 7"],
    }
    assert (found["batch size"].minimum, found["n2"].maximum) == (2, 7)
    check = dimensions.SizeCheck(shapes, metadata)
    check([[2, 3, 5, 3, 7, 1, 0]])
    for sizes in ([3, 3, 5, 3, 8, 1, 0], [2, 1, 5, 3, 7, 1, 0], [2, 8, 5, 3, 7, 1, 0], [2, 3, 5, 3, 6, 1, 0]):
        with pytest.raises(opsetta.DimensionError):
            check([sizes])


def test_a_model_with_malformed_metadata_is_not_called(tmp_path):
    value = [helper.make_tensor_value_info(name, 1, ["n"]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", value[:1], value[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model.metadata_props.add(key=DIMENSIONS, value="[" * 30_000)
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(opsetta.OpsettaError, match="does not have the documented form"):
        opsetta.load(tmp_path / "m.onnx")(np.ones(2, np.float32))
