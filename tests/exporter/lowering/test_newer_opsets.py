"""Opsets of a newer onnx: declared if no operator of the model has changed since the newest tested opset."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

import onnx
import onnx.helper
import pytest
import torch

import opsetta
from opsetta.registration import MAXIMUM_OPSET, schemas
from opsetta.registration.opsets import ir_version

NEWER = MAXIMUM_OPSET + 1
IR_VERSION = 99


@pytest.fixture
def newer_onnx(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An onnx whose newest opset is above opsetta's, and changes Softmax there."""
    get_schema = onnx.defs.get_schema

    def newer_schema(name: str, *arguments: Any) -> onnx.defs.OpSchema:
        if name == "Softmax" and arguments[0] >= NEWER:
            return onnx.defs.OpSchema("Softmax", "", NEWER)
        schema: onnx.defs.OpSchema = get_schema(name, *arguments)
        return schema

    monkeypatch.setattr(onnx.defs, "onnx_opset_version", lambda: NEWER)
    monkeypatch.setattr(onnx.defs, "get_schema", newer_schema)
    monkeypatch.setitem(onnx.helper.OP_SET_ID_VERSION_MAP, ("ai.onnx", NEWER), IR_VERSION)
    caches = (schemas.operator_schema, ir_version)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


def _model(folder: pathlib.Path, op_type: str) -> opsetta.OnnxModel:
    """A file at opset 13 of one operator."""
    node = onnx.helper.make_node(op_type, ["x"], ["y"])
    infos = [onnx.helper.make_tensor_value_info(name, 1, [2, 3]) for name in "xy"]
    graph = onnx.helper.make_graph([node], "g", infos[:1], infos[1:])
    imports = [onnx.helper.make_opsetid("", 13)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=imports, ir_version=8), folder / "model.onnx")
    return opsetta.load(folder / "model.onnx")


@pytest.mark.usefixtures("newer_onnx")
def test_model_of_unchanged_operators_declares_the_newer_opset() -> None:
    x = torch.randn(2, 3)
    with pytest.warns(
        UserWarning, match=f"tested with opsets up to {MAXIMUM_OPSET}; .* declares opset {NEWER}"
    ):
        program = opsetta.export(lambda x: torch.relu(x + 1), (x,), opset=NEWER)
    assert program.opset == NEWER
    assert program.model.graph.opset_imports[""] == NEWER
    assert program.model_proto.ir_version == IR_VERSION
    newest = program.lower(MAXIMUM_OPSET)
    assert [node.op_type for node in program.model.graph] == [node.op_type for node in newest.model.graph]


@pytest.mark.usefixtures("newer_onnx")
def test_changed_operators_are_refused_with_their_names() -> None:
    def model(x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        return torch.cond(condition, lambda x: torch.softmax(x, 1), lambda x: x + 1, (x,)).relu()

    with pytest.raises(opsetta.OpsetError, match=f"opset {NEWER} changes operators of this model: Softmax;"):
        opsetta.export(model, (torch.randn(2, 3), torch.tensor(True)), opset=NEWER)


@pytest.mark.usefixtures("newer_onnx")
def test_file_is_converted_if_its_operators_are_unchanged(tmp_path: pathlib.Path) -> None:
    with pytest.warns(UserWarning, match=f"declares opset {NEWER}"):
        converted = _model(tmp_path, "Relu").lower(NEWER)
    converted.save(tmp_path / "newer.onnx")
    assert onnx.load(tmp_path / "newer.onnx").opset_import[0].version == NEWER
    with pytest.raises(opsetta.OpsetError, match="Softmax"):
        _model(tmp_path, "Softmax").lower(NEWER)


@pytest.mark.usefixtures("newer_onnx")
def test_opset_that_the_newer_onnx_lacks_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(opsetta.OpsetError, match=f"has opsets up to {NEWER}"):
        _model(tmp_path, "Relu").lower(NEWER + 1)


@pytest.mark.parametrize("distance", [1, 10])
def test_opset_that_the_installed_onnx_lacks_is_refused_before_the_capture(distance: int) -> None:
    calls: list[object] = []
    opset = onnx.defs.onnx_opset_version() + distance
    with pytest.raises(opsetta.OpsetError, match=f"installed onnx {onnx.__version__} has opsets up to"):
        opsetta.export(calls.append, (torch.randn(2),), opset=opset)
    assert not calls
