"""Reads the file of a net, binary or text, within bounds. Detects the format by content."""

from __future__ import annotations

import functools
import os
import re
from typing import Any

from google.protobuf.message import DecodeError

from ....registration import ModelFileError
from ...files.reading import REMEDY, Bounds
from ...files.reading.encodings import text, wire
from ...files.reading.encodings.files import reason_of, regular_contents
from .messages import message_type

_HEAD = 2**16
"""Bytes by which a net is told from other files."""
_TYPE = re.compile(rb"[A-Za-z_]\w{0,200}")
_NAME, _OPERATOR, _OPERATOR_TYPE, _OPERATOR_ARGUMENT = 0x0A, 0x12, 0x22, 0x2A
"""Tags of fields: the net's name and operators, an operator's type and its arguments."""
_OF_OPERATOR = 4_000
"""Bytes of an operator in memory, beside those of its message."""


def form_of(path: str | os.PathLike) -> str:
    """Detect the format of a net, "binary" or "text"; "" for other and unreadable files."""
    try:
        # Opening a pipe waits for its writer.
        if not os.path.isfile(path):
            return ""
        with open(path, "rb") as file:
            return _form_of(file.read(_HEAD))
    except (OSError, ValueError):
        return ""


def is_net(path: str | os.PathLike) -> bool:
    """Whether the first bytes of a file are those of a net; False if it cannot be read."""
    return bool(form_of(path))


def read_net(path: str | os.PathLike, bounds: Bounds, *, may_be_empty: bool = False) -> Any:
    """Read the net in a file.

    Args:
        may_be_empty: whether the net may have no operators, as the init_net of a net without weights.

    Returns:
        A `NetDef`.

    Raises:
        ModelFileError: the file cannot be read, holds no net, or is beyond a bound.
    """
    label = f"'{os.fspath(path)!s}'"
    net = message_type("NetDef")()
    try:
        data, form = regular_contents(
            path, label, lambda head, size: _form(head, size, label, may_be_empty), bounds
        )
        if form == "binary":
            wire.check(data, bounds, _memory())
            net.ParseFromString(data)
        else:
            text.parse(data, form, net, bounds)
    except DecodeError as error:
        raise ModelFileError(f"{label} is not a Caffe2 net: {reason_of(error)}") from None
    except wire.BoundError as error:
        raise ModelFileError(f"{label} cannot be read: {error}") from None
    except text.SyntaxFault as error:
        raise ModelFileError(f"{label} is not a Caffe2 net: {error}") from None
    if not (net.op or may_be_empty) or not all(operator.type for operator in net.op):
        raise ModelFileError(f"{label} is not a Caffe2 net: it has no operators, or one without a type")
    allowed = bounds.memory + 3 * len(data)
    if len(net.op) > bounds.nodes or len(net.op) * _OF_OPERATOR > allowed:
        raise ModelFileError(f"{label} cannot be read: it has {len(net.op)} operators; {REMEDY}")
    return net


@functools.cache
def _memory() -> wire.MessageMemory:
    # Nets store the numbers of a list as fields of their own, of five bytes for a float.
    return wire.MessageMemory(message_type("NetDef").DESCRIPTOR, free_per_byte=2)


def _form(head: bytes, size: int, label: str, may_be_empty: bool) -> str:
    form = _form_of(head, size if may_be_empty else None)
    if not form:
        raise ModelFileError(f"{label} is not a Caffe2 net: its first bytes are not those of a NetDef")
    return form


def _form_of(head: bytes, empty_size: int | None = None) -> str:
    """Return "binary" or "text", the format of a net that begins with these bytes; "" for other files.

    Args:
        empty_size: the size of a file that may hold a net without operators; None if it may not.
    """
    if text.first_word(head) in message_type("NetDef").DESCRIPTOR.fields_by_name:
        return "text"
    position = 0
    while position < len(head):
        tag, position = wire.varint(head, position, len(head))
        kind = tag & 7
        if position < 0 or tag >> 3 not in range(1, 10) or kind not in (0, 2):
            return ""
        number, position = wire.varint(head, position, len(head))
        if position < 0:
            return ""
        if tag == _OPERATOR:
            return "binary" if _is_operator(head[position : position + number]) else ""
        if kind == 2:
            if tag == _NAME and not head[position : position + number].isascii():
                return ""
            position += number
    return "binary" if position == empty_size else ""


def _is_operator(data: bytes) -> bool:
    """Whether bytes begin with the fields of an operator: blobs, a name and the type."""
    position = 0
    while position < len(data):
        tag, position = wire.varint(data, position, len(data))
        if position < 0 or tag & 7 != 2 or tag >= _OPERATOR_ARGUMENT:
            return False
        length, position = wire.varint(data, position, len(data))
        if position < 0:
            return False
        if tag == _OPERATOR_TYPE:
            return bool(_TYPE.fullmatch(data[position : position + length]))
        position += length
    return False
