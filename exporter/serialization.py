"""Writing a model file: whole or not at all, weights inline or as external data beside it."""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator
from typing import IO

import onnx_ir as ir

from ..registration import ModelFileError
from .message import Message

INLINE_LIMIT = 2_000_000_000
"""Bytes of a message from which on weights go to external data: protobuf itself ends at 2 GiB."""


def to_bytes(model: ir.Model) -> bytes | None:
    """The model as one protobuf message, weights included; None where it does not fit into one."""
    message = Message.of(model)
    if message.size > INLINE_LIMIT:
        return None
    buffer = io.BytesIO()
    message.write(buffer)
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
        message = None if external_data else Message.of(model)
        if external_data is None and message is not None and message.size > INLINE_LIMIT:
            message = None
        _save_to_path(model, pathlib.Path(target), message)
        return
    if not hasattr(target, "write"):
        raise ModelFileError(
            f"a model is saved to a path or a binary file object, not {type(target).__name__}"
        )
    if isinstance(target, io.TextIOBase):
        raise ModelFileError("the file object is open for text; open it in binary mode, open(path, 'wb')")
    if external_data:
        raise ModelFileError("external data needs a path: a file object has no folder to put it in")
    message = _fitting(Message.of(model))
    try:
        message.write(target)
    except (OSError, ValueError) as error:
        raise ModelFileError(f"the file object cannot be written: {error}") from error


def _save_to_path(model: ir.Model, path: pathlib.Path, message: Message | None) -> None:
    """Write one message, or where there is none, the model with its weights in `<name>.data`."""
    data = f"{path.name}.data"
    with aside(path) as folder:
        if message is None:
            ir.save(model, folder / path.name, external_data=data, size_threshold_bytes=1024)
        else:
            with open(folder / path.name, "wb") as file:
                _fitting(message).write(file)


@contextlib.contextmanager
def aside(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A folder to write a model's file and its `<name>.data` in, which take their places when all is written.

    Raises:
        ModelFileError: they cannot be written. Nothing is left behind; a file there before stays.
    """
    folder = path.parent
    if not folder.is_dir():
        raise ModelFileError(f"'{path}' cannot be written: there is no folder '{folder}'")
    if path.is_dir():
        raise ModelFileError(f"'{path}' cannot be written: it is a folder")
    data = f"{path.name}.data"
    try:
        written = pathlib.Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=folder))
    except OSError as error:
        raise ModelFileError(f"'{path}' cannot be written: {error.strerror or error}") from error
    try:
        yield written
        # There may be nothing in it: small tensors stay in the file.
        if (written / data).exists() and (written / data).stat().st_size:
            os.replace(written / data, folder / data)
        os.replace(written / path.name, path)
    except ModelFileError:
        raise
    except OSError as error:
        raise ModelFileError(f"'{path}' cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(written, ignore_errors=True)
