"""Reads a model file into a message: binary, one of two text forms, or JSON, detected by content."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
from collections.abc import Callable, Iterator
from typing import IO

import onnx
from google.protobuf.message import DecodeError

from .....registration import ModelFileError
from ...small_files import open_regular, reason_of
from ..bounds import BOUNDS, Bounds
from . import text, wire
from .other_formats import refuse_other_formats

MAXIMUM_BYTES = 2**31 - 1
"""Protobuf's limit for one message; larger weights are in external data."""
_HEAD = 2**20
"""Bytes that are checked before the rest is read."""
_NO_MESSAGE = "it is truncated, or not a protobuf message"
_TEXT = re.compile(rb"[\t\n\r\x20-\x7e\x80-\xff]*")
_TEXT_SUFFIXES = (".onnxtxt", ".onnxtext", ".textproto", ".prototxt", ".pbtxt")
_JSON_SUFFIXES = (".json", ".onnxjson")


def read_model(path: str | os.PathLike[str], bounds: Bounds = BOUNDS) -> onnx.ModelProto:
    """Read a model file without its external data, in one of the four forms.

    The content decides the form; the extension counts only if the content does not decide. `to_ir` checks the
    message itself. Time and memory are bounded: docs/reading.md has the bounds.

    Raises:
        ModelFileError: the file cannot be read, is not an ONNX model, or is beyond a bound.
    """
    refuse_other_formats(path)
    title = f"'{os.fspath(path)!s}'"
    model = onnx.ModelProto()
    with decoding_errors(title, lambda: "an ONNX file"):
        data, form = regular_contents(path, title, lambda head, size: _form(head, size, path, title), bounds)
        if form == "binary":
            wire.check(data, bounds)
            model.ParseFromString(data)
        else:
            text.parse(data, form, model, bounds)
    if model.ir_version <= 0 or not model.HasField("graph"):
        raise ModelFileError(f"{title} is not an ONNX file: it has no IR version or no graph")
    return model


def regular_contents(
    path: str | os.PathLike[str], title: str, form_of: Callable[[bytes, int], str], bounds: Bounds
) -> tuple[bytes, str]:
    """The bytes of a regular file, and their form. Pipes and devices are refused.

    Args:
        path: the file.
        title: the name of the file in error messages.
        form_of: returns the form for the first bytes and the size. It raises an error if these cannot be the
            first bytes of a model, before the remaining bytes are read.
        bounds: the bounds on the size of a text.

    Raises:
        ModelFileError: the file cannot be read.
        BoundError: it is too large a text.
    """
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > MAXIMUM_BYTES:
                raise ModelFileError(
                    f"{title} cannot be read: it has {size} bytes, more than {MAXIMUM_BYTES}"
                )
            head = file.read(min(size, _HEAD))
            form = form_of(head, size)
            if form != "binary":
                text.check_length(size, form, bounds)
            data = head if len(head) == size else _whole(file, size)
            grown = bool(file.read(1))
    except ModelFileError:
        raise
    except (OSError, ValueError) as error:
        # open raises ValueError for a NUL in the path.
        raise ModelFileError(f"{title} cannot be read: {reason_of(error)}") from error
    if grown or len(data) != size:
        raise ModelFileError(f"{title} cannot be read: it changed while it was read")
    return data, form


def _whole(file: IO[bytes], size: int) -> bytes:
    file.seek(0)
    return file.read(size)


def _form(head: bytes, size: int, path: str | os.PathLike[str], title: str) -> str:
    """The form of a file with these first bytes.

    Raises:
        ModelFileError: it has none of the supported forms.
    """
    if not head:
        raise ModelFileError(f"{title} is not an ONNX file: it is empty")
    form = text.form_of(head)
    if not form:
        suffix = pathlib.PurePath(os.fsdecode(path)).suffix.lower()
        form = "text" if suffix in _TEXT_SUFFIXES else "JSON" if suffix in _JSON_SUFFIXES else "binary"
    if form == "binary" and not wire.may_be_model(head, size):
        if _TEXT.fullmatch(head):
            raise ModelFileError(f"{title} is not an ONNX file: it is a text without a model")
        raise ModelFileError(
            f"{title} is not an ONNX file: {_NO_MESSAGE}; if it is one, download or copy it again"
        )
    return form


@contextlib.contextmanager
def decoding_errors(title: str, file_type: Callable[[], str]) -> Iterator[None]:
    """Raise errors in the bytes of a file as ours, with the name of the file.

    Args:
        title: the name of the file.
        file_type: returns what the bytes should be, such as "an ONNX file"; called after a failure.

    Raises:
        ModelFileError: the bytes are not a message, or beyond a bound.
    """
    try:
        yield
    except wire.BoundError as error:
        raise ModelFileError(f"{title} cannot be read: {error}") from None
    except DecodeError as error:
        too_deep = "MaxDepth" in str(error)
        reason = "its messages are nested more than 100 deep" if too_deep else _NO_MESSAGE
        raise ModelFileError(f"{title} is not {file_type()}: {reason}") from None
    except text.SyntaxFault as error:
        raise ModelFileError(f"{title} is not {file_type()}: {error}") from None
