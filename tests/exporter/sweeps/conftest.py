"""A small zoo of ONNX files, and an engine whose processes import what they need once for all tests."""

import contextlib

import onnx
import pytest
from onnx import TensorProto, helper

from opsetta.exporter.sweeps.engines.processes import LocalEngine


def save(path, operator):
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 3]) for name in "xy"]
    graph = helper.make_graph([helper.make_node(operator, ["x"], ["y"])], "graph", values[:1], values[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    (folder / "activation").mkdir()
    save(folder / "activation" / "gelu.onnx", "Gelu")
    save(folder / "relu.onnx", "Relu")
    (folder / "broken.onnx").write_text("no model")
    return folder


@pytest.fixture(scope="session")
def kept_engine():
    with LocalEngine(1) as opened:
        yield opened


@pytest.fixture
def engine(kept_engine, monkeypatch):
    """One engine for several sweeps."""
    monkeypatch.setattr(
        "opsetta.exporter.sweeps.run_sweep.LocalEngine", lambda workers: contextlib.nullcontext(kept_engine)
    )
