"""Writing a model file: whole or not at all, weights inline or as external data beside it."""

from __future__ import annotations

import io
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator
from typing import IO, Any

import onnx_ir as ir

from ..registration import ModelFileError
from .message import Message

INLINE_LIMIT = 2_000_000_000
"""Bytes of a message from which on weights go to external data: protobuf itself ends at 2 GiB."""


def initializers(model: ir.Model) -> Iterator[ir.Value]:
    """The initializers of every graph of a model."""
    for graph in model.graphs():
        yield from graph.initializers.values()


def weight_bytes(model: ir.Model) -> int:
    """The size of all initializers, in bytes; those that share a tensor count once each."""
    return sum(value.const_value.nbytes for value in initializers(model) if value.const_value is not None)


def to_bytes(model: ir.Model) -> bytes:
    """The model as one protobuf message, weights included.

    Raises:
        ModelFileError: it does not fit into one.
    """
    buffer = io.BytesIO()
    _fitting(Message(model)).write(buffer)
    return buffer.getvalue()


def _fitting(message: Message) -> Message:
    if message.size > INLINE_LIMIT:
        raise ModelFileError(
            f"{message.size} bytes do not fit into one message; save with external_data=True"
        )
    return message


def save(
    model: ir.Model, target: str | os.PathLike | IO[bytes], *, external_data: bool | None = None
) -> None:
    """Write a model.

    Args:
        target: a path, or a binary file object.
        external_data: weights to `<name>.data` beside the file; None decides by size (2 GB).

    Raises:
        ModelFileError: the target cannot be written. Nothing is left behind; a file there before stays.
    """
    if isinstance(target, (str, os.PathLike)):
        external = weight_bytes(model) > INLINE_LIMIT if external_data is None else external_data
        _save_to_path(model, pathlib.Path(target), external)
        return
    if not hasattr(target, "write"):
        raise ModelFileError(
            f"a model is saved to a path or a binary file object, not {type(target).__name__}"
        )
    if isinstance(target, io.TextIOBase):
        raise ModelFileError("the file object is open for text; open it in binary mode, open(path, 'wb')")
    if external_data:
        raise ModelFileError("external data needs a path: a file object has no folder to put it in")
    message = _fitting(Message(model))
    try:
        message.write(target)
    except (OSError, ValueError) as error:
        raise ModelFileError(f"the file object cannot be written: {error}") from error


def _save_to_path(model: ir.Model, path: pathlib.Path, external: bool) -> None:
    folder = path.parent
    if not folder.is_dir():
        raise ModelFileError(f"'{path}' cannot be written: there is no folder '{folder}'")
    if path.is_dir():
        raise ModelFileError(f"'{path}' cannot be written: it is a folder")
    data = f"{path.name}.data"
    try:
        aside = tempfile.mkdtemp(prefix=f".{path.name}.", dir=folder)
    except OSError as error:
        raise ModelFileError(f"'{path}' cannot be written: {error.strerror or error}") from error
    try:
        written = os.path.join(aside, path.name)
        _write(model, written, data if external else None)
        if os.path.exists(os.path.join(aside, data)):
            os.replace(os.path.join(aside, data), folder / data)
        os.replace(written, path)
    except OSError as error:
        raise ModelFileError(f"'{path}' cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _write(model: ir.Model, path: str, data: str | None) -> None:
    if data is None:
        message = _fitting(Message(model))
        with open(path, "wb") as file:
            message.write(file)
        return
    tensors: list[tuple[ir.Value, Any]] = [(value, value.const_value) for value in initializers(model)]
    try:
        ir.save(model, path, external_data=data, size_threshold_bytes=1024)
    finally:
        for value, tensor in tensors:
            value.const_value = tensor
