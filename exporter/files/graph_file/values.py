"""Stores values of a source graph as `ValueInfoProto`: type, shape, metadata, and unique names."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import onnx
import onnx_ir as ir
from onnx_ir import serde

from ....registration import ModelFileError
from ....registration.arguments import blocks
from ....registration.json_text import parse_json
from .layout import DIGEST, NAME, naming, read_metadata, write_metadata


def values(graph: ir.Graph) -> Iterator[ir.Value]:
    """Every value that a graph and its sub-graphs define, in the order of the file."""
    yield from graph.inputs
    formal = set(graph.inputs)
    yield from (value for value in graph.initializers.values() if value not in formal)
    for node in graph:
        for block in blocks(node):
            yield from values(block)
        yield from node.outputs


def file_names(graph: ir.Graph) -> dict[ir.Value, str]:
    """A unique name for each value: its own, unless it has none or an earlier value has the same."""
    all_values = list(values(graph))
    original_names = {value.name for value in all_values}
    names: dict[ir.Value, str] = {}
    assigned_names: set[str] = set()
    for value in all_values:
        name = stem = value.name or "value"
        if not value.name or name in assigned_names:
            # Also avoid names that later values have, so that they keep them.
            number = 1
            while (name := f"{stem}.{number}") in assigned_names or name in original_names:
                number += 1
        assigned_names.add(name)
        names[value] = name
    return names


def write_values(
    target: Iterable[onnx.ValueInfoProto],
    source: Iterable[ir.Value],
    names: dict[ir.Value, str],
    digests: dict[ir.Value, str],
) -> None:
    """Append an entry for each value."""
    for value in source:
        name = names.get(value)
        if name is None:
            raise ModelFileError(f"value '{value.name}' is used, but nothing in the graph defines it")
        with naming(f"value '{value.name}'"):
            _write(target.add(), value, name, digests.get(value))  # type: ignore[attr-defined]


def _write(info: onnx.ValueInfoProto, value: ir.Value, name: str, digest: str | None) -> None:
    info.name = name
    if value.type is not None:
        serde.serialize_type_into(info.type, value.type)
    if value.shape is not None:
        if value.type is None:
            # A shape without an element type: the field is present but empty.
            info.type.tensor_type.SetInParent()
        serde.serialize_shape_into(info.type, value.shape)
    if value.doc_string is not None:
        info.doc_string = value.doc_string
    format_metadata = {} if value.name == name else {NAME: json.dumps(value.name)}
    if digest is not None:
        format_metadata[DIGEST] = digest
    write_metadata(info.metadata_props, value.metadata_props, format_metadata)


def read_value(info: onnx.ValueInfoProto, value: ir.Value) -> dict[str, str]:
    """Apply an entry to a value, and return the file's own metadata."""
    with naming(f"value '{info.name}'"):
        value.type = serde.deserialize_type_proto_for_type(info.type)
        shape = serde.deserialize_type_proto_for_shape(info.type)
        # onnx_ir reads a frozen shape; a captured shape is not frozen.
        value.shape = None if shape is None else ir.Shape(shape.dims, shape_denotations(shape))
        value.doc_string = info.doc_string if info.HasField("doc_string") else None
        metadata, format_metadata = read_metadata(info.metadata_props)
        value.metadata_props.clear()
        value.metadata_props.update(metadata)
    return format_metadata


def shape_denotations(shape: ir.Shape) -> list[str | None]:
    """The denotation of each dimension of a shape."""
    return [shape.get_denotation(axis) for axis in range(len(shape))]


def original_name(format_metadata: dict[str, str], name: str) -> str | None:
    """The name of a value or node in the graph, from its name in the file."""
    if NAME not in format_metadata:
        return name
    stored_name = parse_json(format_metadata[NAME])
    if stored_name is not None and not isinstance(stored_name, str):
        raise ModelFileError(f"the original name of '{name}' is not a valid name")
    return stored_name
