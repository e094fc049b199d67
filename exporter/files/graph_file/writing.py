"""Writes a source graph to a file, with everything that lowering and calling it need."""

from __future__ import annotations

import os
import pathlib
from typing import IO

import onnx
import onnx_ir as ir
from google.protobuf import json_format, text_format

from ....registration import ModelFileError
from ...captured_graph.capture import Capture
from ..output.publishing import DataFile, publish
from ..reading.encodings.text import BoundError, SyntaxFault, exact_largest_floats, parse
from ..weights.message import Initializer, Message
from ..writing import message_if_it_fits, write_to_object
from .decompositions import Decompositions, write_decompositions
from .graphs import GraphWriter
from .layout import DOMAIN, INTERFACE, VERSION, naming, write_metadata
from .structures import write_interface
from .weights import MODES, digests, initializers, store

FORMATS = {"binary": (), "text": (".textproto", ".onnxtxt", ".pbtxt", ".prototxt"), "json": (".json",)}
"""The encodings of a file and their extensions."""


def format_of(path: str | bytes | os.PathLike[str]) -> str:
    """Return the encoding for a file with this name."""
    suffix = pathlib.Path(os.fsdecode(path)).suffix.lower()
    return next((name for name, suffixes in FORMATS.items() if suffix in suffixes), "binary")


def write_source(
    capture: Capture,
    decompositions: Decompositions,
    target: str | bytes | os.PathLike[str] | IO[bytes],
    *,
    given_inputs: list[str] | None,
    given_outputs: list[str] | None,
    weights: str,
    format: str | None,
) -> None:
    """Write a captured graph, so that reading it gives an equal one.

    Args:
        target: a path, or a binary file object.
        given_inputs, given_outputs: the user's names of inputs and outputs.
        weights: `"inline"`; `"external"`, tensors above 1 KiB in `<name>.<digest>.data` beside the file; or
            `"none"`, which stores a SHA-256 of each parameter and persistent buffer instead of its contents.
        format: `"binary"`, `"text"` or `"json"`; the default depends on the extension.

    Raises:
        ModelFileError: the format cannot store the graph, or the target cannot be written. No partial file
            remains.
    """
    is_path = isinstance(target, (str, bytes, os.PathLike))
    if format is None:
        format = format_of(target) if is_path else "binary"  # type: ignore[arg-type]
    _check(target, is_path, weights, format)
    left_out = digests(capture.source.graph.initializers.values()) if weights == "none" else {}
    writer = GraphWriter(capture.source.graph, left_out)
    model = _model(capture, writer, given_inputs, given_outputs)
    model.functions.extend(write_decompositions(decompositions))
    values = list(capture.source.graph.initializers.values())

    offsets: dict[ir.Value, int] = {}

    def stream(data: DataFile) -> None:
        offsets.update(store(values, data))

    def write(file: IO[bytes], location: str | None) -> None:
        _write(file, model, initializers(values, writer.names, left_out, offsets, location), format)

    if not is_path:
        write_to_object(target, lambda file: write(file, None))
        return
    if weights == "external":
        size = sum(value.const_value.nbytes for value in values if value.const_value is not None)
        publish(target, write, weights=stream, weight_bytes=size)  # type: ignore[arg-type]
    else:
        publish(target, write)  # type: ignore[arg-type]


def _check(target: object, is_path: bool, weights: str, format: str) -> None:
    if weights not in MODES:
        raise ModelFileError(f"weights must be one of {', '.join(map(repr, MODES))}, not {weights!r}")
    if format not in FORMATS:
        raise ModelFileError(f"format must be one of {', '.join(map(repr, FORMATS))}, not {format!r}")
    if is_path:
        return
    if weights == "external":
        raise ModelFileError("external data needs a path: a file object has no folder to put it in")


def _model(
    capture: Capture, writer: GraphWriter, given_inputs: list[str] | None, given_outputs: list[str] | None
) -> onnx.ModelProto:
    """The message of a source file without initializers."""
    source = capture.source
    model = onnx.ModelProto(ir_version=source.ir_version)
    for field in ("producer_name", "producer_version", "domain", "doc_string"):
        if (text := getattr(source, field)) is not None:
            setattr(model, field, text)
    if source.model_version is not None:
        model.model_version = source.model_version
    if source.functions:
        raise ModelFileError(
            "the source graph has functions of its own, which the source format does not support"
        )
    imports = {**source.graph.opset_imports, DOMAIN: VERSION}
    for domain in sorted(imports):
        model.opset_import.add(domain=domain, version=imports[domain])
    with naming("the model"):
        interface = write_interface(capture.interface, capture.output_names, given_inputs, given_outputs)
        write_metadata(model.metadata_props, source.metadata_props, {INTERFACE: interface})
    model.graph.SetInParent()
    writer.write(model.graph, with_tensors=False)
    return model


def _write(file: IO[bytes], model: onnx.ModelProto, weights: list[Initializer], format: str) -> None:
    if format == "binary":
        message_if_it_fits(Message(model, weights), "save to a file with weights='external'").write(file)
        return
    for header, tensor in weights:
        if tensor is not None:
            header.raw_data = tensor.tobytes()
        model.graph.initializer.append(header)
    if format == "json":
        text = exact_largest_floats(
            json_format.MessageToJson(model, preserving_proto_field_name=True, indent=1, ensure_ascii=False)
        )
    else:
        text = text_format.MessageToString(model, as_utf8=True)
    content = text.encode()
    # Readers bound the nesting and number of values of a text: refuse now what they would refuse.
    try:
        parse(content, "JSON" if format == "json" else "text", onnx.ModelProto())
    except (BoundError, SyntaxFault) as error:
        raise ModelFileError(f"readers would refuse this file: {error}") from error
    file.write(content)
