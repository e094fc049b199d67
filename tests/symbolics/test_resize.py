"""Resize of opset 13 where the target's version only repeats pixels: written operators, and numbers."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import opsetta
from opsetta.exporter.running.sessions.session import Session


def _model(
    folder: pathlib.Path,
    scales: list[float],
    element_type: int = onnx.TensorProto.FLOAT,
    shape: tuple[int, ...] = (1, 2, 3, 4),
    **attributes: Any,
) -> opsetta.OnnxModel:
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="nearest", **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", element_type, shape)],
        [helper.make_tensor_value_info("y", element_type, None)],
        [helper.make_tensor("scales", onnx.TensorProto.FLOAT, [len(scales)], scales)],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8),
        folder / "resize.onnx",
    )
    return opsetta.load(folder / "resize.onnx")


def _operators(source: opsetta.OnnxModel, opset: int) -> set[str]:
    """The operators of the model at an opset, whose numbers must be those of the file."""
    converted = source.lower(opset)
    x = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    results = [Session(model).run({"x": x})[0].numpy() for model in (source.model, converted.model)]
    np.testing.assert_array_equal(*results)
    return {node.op_type for node in converted.model.graph}


REPEATS = [
    ("asymmetric", "floor", [1.0, 1.0, 2.0, 3.0]),
    ("half_pixel", "round_prefer_floor", [1.0, 1.0, 2.0, 3.0]),
    ("half_pixel", "round_prefer_ceil", [1.0, 1.0, 3.0, 2.0]),
]
DOES_NOT_REPEAT = [
    ("half_pixel", "floor", [1.0, 1.0, 2.0, 2.0]),
    ("half_pixel", "ceil", [1.0, 1.0, 2.0, 2.0]),
    ("asymmetric", "ceil", [1.0, 1.0, 2.0, 2.0]),
    ("asymmetric", "round_prefer_floor", [1.0, 1.0, 3.0, 3.0]),
    ("align_corners", "floor", [1.0, 1.0, 2.0, 2.0]),
    ("align_corners", "round_prefer_floor", [1.0, 1.0, 2.5, 1.7]),
    ("pytorch_half_pixel", "floor", [1.0, 1.0, 2.0, 2.0]),
    ("asymmetric", "floor", [1.0, 1.0, 1.5, 2.0]),
    ("asymmetric", "floor", [1.0, 1.0, 0.5, 2.0]),
    ("asymmetric", "floor", [1.0, 2.0, 2.0, 2.0]),
]


@pytest.mark.parametrize("opset", [9, 10])
@pytest.mark.parametrize(("coordinates", "rounding", "scales"), REPEATS)
def test_repeated_pixels_are_one_operator(
    tmp_path: pathlib.Path, coordinates: str, rounding: str, scales: list[float], opset: int
) -> None:
    attributes = {"coordinate_transformation_mode": coordinates, "nearest_mode": rounding}
    source = _model(tmp_path, scales, **attributes)
    assert _operators(source, opset) == {"Upsample" if opset == 9 else "Resize"}


@pytest.mark.parametrize("opset", [9, 10])
@pytest.mark.parametrize(("coordinates", "rounding", "scales"), DOES_NOT_REPEAT)
def test_pixels_that_are_not_repeated_are_selected(
    tmp_path: pathlib.Path, coordinates: str, rounding: str, scales: list[float], opset: int
) -> None:
    attributes = {"coordinate_transformation_mode": coordinates, "nearest_mode": rounding}
    source = _model(tmp_path, scales, **attributes)
    assert not _operators(source, opset) & {"Upsample", "Resize"}


@pytest.mark.parametrize(
    ("shape", "scales", "element_type"),
    [
        ((3, 4), [1.0, 2.0], onnx.TensorProto.FLOAT),
        ((1, 2, 3, 4), [1.0, 1.0, 2.0, 2.0], onnx.TensorProto.DOUBLE),
    ],
    ids=["no-image", "no-kernel-for-double"],
)
def test_operator_of_opset_10_is_not_written_where_onnxruntime_lacks_it(
    tmp_path: pathlib.Path, shape: tuple[int, ...], scales: list[float], element_type: int
) -> None:
    attributes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    converted = _model(tmp_path, scales, element_type, shape, **attributes).lower(10)
    assert "Resize" not in {node.op_type for node in converted.model.graph}
    x = np.arange(np.prod(shape)).reshape(shape).astype(converted.model.graph.inputs[0].dtype.numpy())
    repeated = x
    for axis, scale in enumerate(scales):
        repeated = repeated.repeat(int(scale), axis)
    np.testing.assert_array_equal(Session(converted.model).run({"x": x})[0].numpy(), repeated)
