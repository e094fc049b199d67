"""Source files of `save_source` whose size says little about the work that they ask for.

Each entry of `FILES` changes the source of a small Caffe2 net, which needs no torch.
"""

from __future__ import annotations

import io
import json
import pathlib
import tempfile
from collections.abc import Callable, Iterator

import onnx

import opsetta

from .hostile import Builder

_NET = (
    "name: 'p' op { input: 'x' input: 'w' output: 'y' type: 'Add' arg { name: 'broadcast' i: 1 } } "
    "external_input: 'x' external_input: 'w' external_output: 'y'"
)
_INIT = (
    "name: 'i' op { output: 'w' type: 'GivenTensorFill' arg { name: 'shape' ints: 2 } "
    "arg { name: 'values' floats: 1 floats: 2 } }"
)
INTERFACE = "opsetta.file.interface"


def source() -> onnx.ModelProto:
    """The source file of a net that adds a weight."""
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        (place / "predict_net.pb").write_text(_NET)
        (place / "init_net.pb").write_text(_INIT)
        buffer = io.BytesIO()
        opsetta.load(place / "predict_net.pb").save_source(buffer)
    return onnx.ModelProto.FromString(buffer.getvalue())


def _changed(change: Callable[[onnx.ModelProto], None]) -> Builder:
    def build(path: pathlib.Path) -> None:
        model = source()
        change(model)
        path.write_bytes(model.SerializeToString())

    return build


def _argument(text: Callable[[], str]) -> Builder:
    """Another text of the arguments of the node."""

    def change(model: onnx.ModelProto) -> None:
        model.graph.node[0].attribute[0].s = text().encode()

    return _changed(change)


def _interface(**fields: Callable[[], object]) -> Builder:
    """Other fields of the interface."""

    def change(model: onnx.ModelProto) -> None:
        entry = next(entry for entry in model.metadata_props if entry.key == INTERFACE)
        content = json.loads(entry.value)
        texts = {key: make() for key, make in fields.items()}
        content.update({key: value for key, value in texts.items() if not isinstance(value, str)})
        entry.value = json.dumps(content)
        for key, value in texts.items():
            if isinstance(value, str):
                entry.value = entry.value.replace(f'"{key}": {json.dumps(content[key])}', f'"{key}": {value}')

    return _changed(change)


def _metadata(key: str, text: Callable[[], str]) -> Builder:
    return _changed(
        lambda model: model.metadata_props.append(onnx.StringStringEntryProto(key=key, value=text()))
    )


def _nodes(count: int, inputs: int = 1) -> Builder:
    """Many nodes in a row, which have the arguments of one node, or many inputs."""

    def change(model: onnx.ModelProto) -> None:
        first = model.graph.node[0]
        for i in range(count):
            node = model.graph.node.add()
            node.CopyFrom(first)
            node.input[0] = f"y{i - 1}" if i else "y"
            node.input.extend(["w"] * (inputs - 1))
            node.output[0] = f"y{i}"
            node.name = f"n{i}"
        model.graph.output[0].name = f"y{count - 1}"

    return _changed(change)


def _structure(depth: int) -> str:
    return '{"type": "builtins.tuple", "context": null, "children": [' * depth + "null" + "]}" * depth


def _values(count: int) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        for i in range(count):
            value = model.graph.value_info.add(name=f"v{i}")
            value.metadata_props.add(key="opsetta.file.name", value=json.dumps("n" * 40))

    return change


def _files() -> Iterator[tuple[str, Builder]]:
    yield (
        "arguments 5000 deep",
        _argument(lambda: '[["A",{"value":0}],["B",' + "[" * 5_000 + "]" * 5_000 + "]]"),
    )
    yield "arguments 900 deep", _argument(lambda: '[["A",{"value":0}],["B",' + "[" * 900 + "]" * 900 + "]]")
    yield (
        "a number of a million digits",
        _argument(lambda: '[["A",{"value":0}],["B",' + "7" * 1_000_000 + "]]"),
    )
    yield (
        "a list of 3 million numbers",
        _argument(lambda: '[["A",{"value":0}],["B",[' + "1," * 3_000_000 + "1]]]"),
    )
    yield (
        "a list of a million objects",
        _argument(lambda: '[["A",{"value":0}],["B",[' + '{"a":1},' * 1_000_000 + "1]]]"),
    )
    yield "a million arguments", _argument(lambda: "[" + '["A",1],' * 1_000_000 + '["B",1]]')
    yield "a complex number of many parts", _argument(lambda: '[["A",{"complex":[' + "1," * 1_000 + "1]}]]")
    yield "a float of a long text", _argument(lambda: '[["A",{"float":"' + "1" * 1_000_000 + '"}]]')
    yield "a structure 5000 deep", _interface(input_structure=lambda: _structure(5_000))
    yield "a structure 300 deep", _interface(input_structure=lambda: _structure(300))
    yield (
        "constants 5000 deep",
        _interface(constants=lambda: "[" + '{"tuple": [' * 5_000 + "1" + "]}" * 5_000 + "]"),
    )
    yield "a million names of outputs", _interface(output_names=lambda: ["n"] * 1_000_000)
    yield (
        "a million keys",
        _interface(
            input_structure=lambda: {
                "type": "builtins.dict",
                "context": [str(i) for i in range(200_000)],
                "children": [None] * 200_000,
            }
        ),
    )
    for key in ("opsetta.dimensions", "opsetta.ranges", "opsetta.specializations"):
        yield f"{key} 5000 deep", _metadata(key, lambda: "[" * 5_000 + "]" * 5_000)
        yield f"{key} of digits", _metadata(key, lambda: "7" * 6_000)
        yield f"{key} of a million lists", _metadata(key, lambda: "[" + "[]," * 3_000_000 + "0]")
    yield "15000 nodes of a source", _nodes(15_000)
    yield "200 nodes of 5000 inputs", _nodes(200, 5_000)
    yield "300000 values of a source", _changed(_values(300_000))


FILES = {f"source of {name}": build for name, build in _files()}


def _convert(path: pathlib.Path) -> None:
    model = opsetta.load(path)
    assert isinstance(model, opsetta.SourceModel)
    model.save_source(io.BytesIO())
    model.lower(13).save(path.parents[1] / "converted.onnx")


WAYS = {"load": opsetta.load, "convert": _convert}
