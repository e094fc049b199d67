"""Writing a source graph, with all that lowering and calling it needs, to a file."""

from __future__ import annotations

import io
import os
import pathlib
from typing import IO

import onnx
from google.protobuf import json_format, text_format

from ...registration import ModelFileError
from ..capture.source import Capture
from ..message import Initializer, Message
from ..reading.text import BoundError, SyntaxFault, parse
from ..serialization import INLINE_LIMIT, aside
from .decompositions import Decompositions, write_decompositions
from .graphs import GraphWriter
from .layout import DOMAIN, INTERFACE, VERSION, naming, write_metadata
from .structures import write_interface
from .weights import MODES, digests, initializers

FORMATS = {"binary": (), "text": (".textproto", ".onnxtxt", ".pbtxt", ".prototxt"), "json": (".json",)}
"""The forms of a file, and the extensions that stand for them."""


def format_of(path: str | os.PathLike) -> str:
    """The form that a file of this name is written in."""
    suffix = pathlib.Path(path).suffix.lower()
    return next((name for name, suffixes in FORMATS.items() if suffix in suffixes), "binary")


def write_source(
    capture: Capture,
    decompositions: Decompositions,
    target: str | os.PathLike | IO[bytes],
    *,
    given_inputs: list[str] | None = None,
    given_outputs: list[str] | None = None,
    weights: str = "inline",
    format: str | None = None,
) -> None:
    """Write a captured graph, so that reading it gives an equal one.

    Args:
        target: a path, or a binary file object.
        given_inputs, given_outputs: the names that the user gave them.
        weights: `"inline"`; `"external"`, those above 1 KiB in `<name>.data` beside the file; or `"none"`,
            which keeps a SHA-256 for each parameter and persistent buffer in the place of its contents.
        format: `"binary"`, `"text"` or `"json"`; by the extension unless given.

    Raises:
        ModelFileError: the graph has what a file cannot hold, or the target cannot be written. Nothing is
            left behind.
    """
    is_path = isinstance(target, (str, os.PathLike))
    if format is None:
        format = format_of(target) if is_path else "binary"  # type: ignore[arg-type]
    _check(target, is_path, weights, format)
    left_out = digests(capture.source.graph.initializers.values()) if weights == "none" else {}
    writer = GraphWriter(capture.source.graph, left_out)
    model = _model(capture, writer, given_inputs, given_outputs)
    model.functions.extend(write_decompositions(decompositions))
    values = list(capture.source.graph.initializers.values())

    def write(file: IO[bytes], external: tuple[IO[bytes], str] | None) -> None:
        _write(file, model, initializers(values, writer.names, left_out, external), format)

    if not is_path:
        try:
            write(target, None)  # type: ignore[arg-type]
        except ModelFileError:
            raise
        except (OSError, ValueError) as error:
            raise ModelFileError(f"the file object cannot be written: {error}") from error
        return
    path = pathlib.Path(target)  # type: ignore[arg-type]
    with aside(path) as folder, open(folder / path.name, "wb") as file:
        if weights != "external":
            write(file, None)
            return
        location = f"{path.name}.data"
        with open(folder / location, "wb") as data:
            write(file, (data, location))


def _check(target: object, is_path: bool, weights: str, format: str) -> None:
    if weights not in MODES:
        raise ModelFileError(f"weights must be one of {', '.join(map(repr, MODES))}, not {weights!r}")
    if format not in FORMATS:
        raise ModelFileError(f"format must be one of {', '.join(map(repr, FORMATS))}, not {format!r}")
    if is_path:
        return
    if not hasattr(target, "write") or isinstance(target, io.TextIOBase):
        raise ModelFileError(
            "a source file is written to a path or a file object that is open for binary data"
        )
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
        raise ModelFileError("the source graph has functions of its own, which the format does not hold")
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
        message = Message(model, weights)
        if message.size > INLINE_LIMIT:
            raise ModelFileError(
                f"{message.size} bytes do not fit into one message; save with weights='external'"
            )
        message.write(file)
        return
    for header, tensor in weights:
        if tensor is not None:
            header.raw_data = tensor.tobytes()
        model.graph.initializer.append(header)
    if format == "json":
        text = json_format.MessageToJson(
            model, preserving_proto_field_name=True, indent=1, ensure_ascii=False
        )
    else:
        text = text_format.MessageToString(model, as_utf8=True)
    content = text.encode()
    try:
        parse(content, "JSON" if format == "json" else "text", onnx.ModelProto())
    except (BoundError, SyntaxFault) as error:
        raise ModelFileError(f"no reader would take this file: {error}") from error
    file.write(content)
