"""What is no source file, or one that cannot be read or written, is refused by name."""

from __future__ import annotations

import io
import json
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch

import opsetta
from opsetta.exporter.captured_graph.capture import Capture, Interface
from opsetta.exporter.program import SourceModel
from opsetta.registration.arguments import source_node


@pytest.fixture(scope="module")
def program() -> opsetta.Program:
    return opsetta.export(torch.nn.Linear(2, 3).eval(), torch.ones(1, 2))


@pytest.fixture
def path(program: opsetta.Program, tmp_path: pathlib.Path) -> pathlib.Path:
    program.save_source(tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def _newer(model: onnx.ModelProto) -> None:
    next(entry for entry in model.opset_import if entry.domain == "opsetta.source").version = 2


def _without_interface(model: onnx.ModelProto) -> None:
    del model.metadata_props[:]


def _interface_cut(model: onnx.ModelProto) -> None:
    model.metadata_props[0].value = model.metadata_props[0].value[:-9]


def _interface_emptied(model: onnx.ModelProto) -> None:
    model.metadata_props[0].value = "{}"


def _undefined(model: onnx.ModelProto) -> None:
    model.graph.node[0].input[0] = "nothing"


def _twice(model: onnx.ModelProto) -> None:
    model.graph.node[0].output[0] = model.graph.input[0].name


def _key_twice(model: onnx.ModelProto) -> None:
    model.graph.value_info[0].metadata_props.add(key="opsetta.kind", value="user")


def _short(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].raw_data = b"abc"


def _other_shape(model: onnx.ModelProto) -> None:
    del model.graph.initializer[0].dims[:]
    model.graph.initializer[0].dims.extend([6])


def _strange_type(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].data_type = 99


def _strange_function(model: onnx.ModelProto) -> None:
    model.functions.add(name="f", domain="mine")


def _training(model: onnx.ModelProto) -> None:
    model.training_info.add()


def _arguments_cut(model: onnx.ModelProto) -> None:
    attribute = model.graph.node[0].attribute[0]
    attribute.s = attribute.s[:-1]


def _arguments_beyond_inputs(model: onnx.ModelProto) -> None:
    del model.graph.node[0].input[1:]


def _arguments_no_text(model: onnx.ModelProto) -> None:
    model.graph.node[0].attribute[0].s = b"\xff"


def _sparse(model: onnx.ModelProto) -> None:
    model.graph.sparse_initializer.add()


def _annotation(model: onnx.ModelProto) -> None:
    model.graph.quantization_annotation.add(tensor_name="weight")


def _reference(model: onnx.ModelProto) -> None:
    model.graph.node[0].attribute.add(name="alpha", ref_attr_name="beta", type=onnx.AttributeProto.FLOAT)


def _tensor_metadata(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].metadata_props.add(key="a", value="b")


def _unknown_field(model: onnx.ModelProto) -> None:
    model.graph.MergeFromString(b"\xf8\x3f\x01")


def _map_type(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.map_type.key_type = 7


def _interface(**changes: Any) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        entry = next(entry for entry in model.metadata_props if entry.key == "opsetta.file.interface")
        entry.value = json.dumps(json.loads(entry.value) | changes)

    change.__name__ = "interface_" + "_".join(f"{name}_{value}" for name, value in changes.items())
    return change


def _argument(reference: int) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        attribute = model.graph.node[0].attribute[0]
        assert b'{"value":0}' in attribute.s
        attribute.s = attribute.s.replace(b'{"value":0}', b'{"value":%d}' % reference)

    change.__name__ = f"argument_{reference}"
    return change


CHANGES: dict[Callable[[onnx.ModelProto], None], str] = {
    _newer: "version 2 of the source format.*reads up to 1",
    _without_interface: "no interface",
    _interface_cut: "contradicts itself",
    _interface_emptied: "contradicts itself",
    _undefined: "'nothing' is used, but nothing in the file defines it",
    _twice: "'input' is defined twice",
    _key_twice: "'opsetta.kind' twice",
    _short: "'weight' has 3 bytes, but FLOAT.* needs 24",
    _other_shape: "initializer 'weight' is FLOAT",
    _strange_type: "'weight'.*99",
    _strange_function: "'mine::f' is not part",
    _training: "'training_info'",
    _sparse: "'sparse_initializer' of GraphProto",
    _annotation: "'quantization_annotation'",
    _reference: "'ref_attr_name' of AttributeProto",
    _tensor_metadata: "'metadata_props' of TensorProto",
    _unknown_field: "has the field 1023",
    _map_type: "value 'input'.*[Mm]ap",
    _arguments_cut: "node 'linear'.*JSON",
    _arguments_beyond_inputs: "refers to input 1, but the node has 1 inputs",
    **{_argument(number): f"refers to input {number}, but the node has 3 inputs" for number in (-1, -3, 3)},
    **{
        _interface(**{field: value}): f"the interface has '{field}', which does not fit a graph with 1 inputs"
        for field, value in (
            ("outputs", [1]),
            ("outputs", [-1]),
            ("outputs", [0, 0]),
            ("outputs", []),
            ("numbers", [1]),
            ("numbers", [-1]),
            # A tensor of several elements is no Python number.
            ("numbers", [0]),
            ("complex_outputs", [7]),
            ("inputs", ["nothing"]),
            ("inputs", []),
            ("inputs", ["input", "input"]),
            ("constants", []),
            ("mutated", ["a", "b"]),
            ("output_names", []),
            ("output_names", ["a", "b"]),
            ("given_input_names", ["a", "b"]),
            ("given_output_names", ["a", "b"]),
        )
    },
    **{
        _interface(**{field: value}): f"the interface has '{field}', which has a wrong type"
        for field, value in (("outputs", [True]), ("numbers", [0.0]), ("outputs", [[]]), ("inputs", [3]))
    },
    _arguments_no_text: "node 'linear'.*utf-8",
}


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__.strip("_"))
def test_a_file_that_contradicts_itself(
    change: Callable[[onnx.ModelProto], None], path: pathlib.Path
) -> None:
    model = onnx.load_model(path)
    change(model)
    path.write_bytes(model.SerializeToString())
    with pytest.raises(opsetta.ModelFileError, match=rf"(?s)model\.onnx.*{CHANGES[change]}"):
        opsetta.load(path)


def test_a_truncated_file_ends_in_an_error_wherever_it_is_cut(path: pathlib.Path) -> None:
    content = path.read_bytes()
    for end in range(0, len(content), 7):
        path.write_bytes(content[:end])
        with pytest.raises(opsetta.ModelFileError):
            opsetta.load(path)


def test_a_mutated_file_ends_in_an_error_or_a_model(path: pathlib.Path) -> None:
    content, random = path.read_bytes(), np.random.default_rng(0)
    loaded = 0
    for _ in range(400):
        changed = np.frombuffer(content, np.uint8).copy()
        places = random.integers(0, len(changed), random.integers(1, 4))
        changed[places] = random.integers(0, 256, len(places))
        path.write_bytes(changed.tobytes())
        try:
            opsetta.load(path).lower(13)
            loaded += 1
        except opsetta.OpsettaError:
            pass
    assert 0 < loaded < 400


def test_what_is_no_file(tmp_path: pathlib.Path) -> None:
    for path in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(opsetta.ModelFileError):
            opsetta.load(path)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"weights": "some"}, "weights must be one of"),
        ({"format": "xml"}, "format must be one of"),
    ],
)
def test_an_option_that_is_none(options: dict[str, str], reason: str, program: opsetta.Program) -> None:
    with pytest.raises(opsetta.ModelFileError, match=reason):
        program.save_source(io.BytesIO(), **options)


def test_a_target_that_cannot_be_written(program: opsetta.Program, tmp_path: pathlib.Path) -> None:
    with pytest.raises(opsetta.ModelFileError, match="no folder"):
        program.save_source(tmp_path / "nowhere" / "model.onnx")
    with pytest.raises(opsetta.ModelFileError, match="binary"):
        program.save_source(io.StringIO())  # type: ignore[arg-type]
    with pytest.raises(opsetta.ModelFileError, match="needs a path"):
        program.save_source(io.BytesIO(), weights="external")


def test_blocks_beyond_what_is_read(tmp_path: pathlib.Path) -> None:
    graph = ir.Graph([], [], nodes=[], name="innermost")
    for _ in range(40):
        node = source_node("prim::If", {}, num_outputs=0, attributes=[ir.AttrGraph("block", graph)])
        graph = ir.Graph([], [], nodes=[node], name="outer")
    model = SourceModel(Capture(ir.Model(graph, ir_version=10), Interface(None, None, [], [], [])))
    for form in ("binary", "text", "json"):
        with pytest.raises(opsetta.ModelFileError, match="deep"):
            model.save_source(tmp_path / "model", format=form)
    inner = graph
    for _ in range(20):
        inner = next(iter(inner)).attributes["block"].as_graph()
    model = SourceModel(Capture(ir.Model(inner, ir_version=10), Interface(None, None, [], [], [])))
    for form in ("binary", "text"):
        model.save_source(tmp_path / "model", format=form)
        assert model.difference(opsetta.load(tmp_path / "model")) is None


def test_a_name_that_is_no_text(program: opsetta.Program, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"before")
    node = next(iter(program.source.graph))
    name, node.name = node.name, "\ud800"
    try:
        with pytest.raises(opsetta.ModelFileError, match="node"):
            program.save_source(path)
    finally:
        node.name = name
    assert path.read_bytes() == b"before"
    assert [item.name for item in tmp_path.iterdir()] == ["model.onnx"]
