"""Reads the file of a net, binary or text, within bounds. The content decides the encoding."""

import functools
import os
import re

from ....registration import ModelFileError
from ...files.reading import REMEDY, Bounds
from ...files.reading.encodings import text, wire
from ...files.reading.encodings.model_files import decoding_errors, regular_contents
from .messages import NetDef, message_type

_HEAD_BYTES = 2**16
"""The number of first bytes that distinguish a net from other files."""
_TYPE = re.compile(rb"[A-Za-z_]\w{0,200}")
_NAME, _OPERATOR, _OPERATOR_TYPE, _OPERATOR_ARGUMENT = 0x0A, 0x12, 0x22, 0x2A
"""Tags of fields: the net's name and operators, an operator's type and its arguments."""
_OPERATOR_BYTES = 4_000
"""Bytes of memory that an operator takes, besides its message."""


def encoding_of(path: str | os.PathLike[str]) -> str:
    """Detect the encoding of a net, "binary" or "text"; "" for other and unreadable files."""
    try:
        # Opening a named pipe would wait for its writer.
        if not os.path.isfile(path):
            return ""
        with open(path, "rb") as file:
            return _recognise_encoding(file.read(_HEAD_BYTES))
    except (OSError, ValueError):
        return ""


def is_net(path: str | os.PathLike[str]) -> bool:
    """Whether the first bytes of a file are those of a net; False if it cannot be read."""
    return bool(encoding_of(path))


def read_net(path: str | os.PathLike[str], bounds: Bounds, *, may_be_empty: bool = False) -> NetDef:
    """Read the net in a file.

    Args:
        may_be_empty: whether the net may have no operators, like the init_net of a net without weights.

    Returns:
        A `NetDef`.

    Raises:
        ModelFileError: the file cannot be read, is not a net, or exceeds a bound.
    """
    label = f"'{os.fspath(path)!s}'"
    net = message_type("NetDef")()

    def require_encoding(head: bytes, size: int) -> str:
        encoding = _recognise_encoding(head, size if may_be_empty else None)
        if not encoding:
            raise ModelFileError(f"{label} is not a Caffe2 net: its first bytes are not those of a NetDef")
        return encoding

    with decoding_errors(label, lambda: "a Caffe2 net"):
        data, encoding = regular_contents(path, label, require_encoding, bounds)
        if encoding == "binary":
            wire.check(data, bounds, _message_memory())
            net.ParseFromString(data)
        else:
            text.parse(data, encoding, net, bounds)
    if not (net.op or may_be_empty) or not all(operator.type for operator in net.op):
        raise ModelFileError(f"{label} is not a Caffe2 net: it has no operators, or one without a type")
    maximum_bytes = bounds.memory + 3 * len(data)
    if len(net.op) > bounds.nodes or len(net.op) * _OPERATOR_BYTES > maximum_bytes:
        raise ModelFileError(f"{label} cannot be read: it has {len(net.op)} operators; {REMEDY}")
    return net


@functools.cache
def _message_memory() -> wire.MessageMemory:
    # Nets are proto2: each number of a list is a field, which takes five bytes for a float.
    return wire.MessageMemory(message_type("NetDef").DESCRIPTOR, free_per_byte=2)


def _recognise_encoding(head: bytes, empty_size: int | None = None) -> str:
    """The encoding of a net that begins with these bytes; "" for other files.

    `empty_size` is the size of a file whose net may have no operators; None if it must have some.
    """
    # A text begins with the name of a field.
    if text.first_word(head) in message_type("NetDef").DESCRIPTOR.fields_by_name:
        return "text"
    position = 0
    while position < len(head):
        tag, position = wire.varint(head, position, len(head))
        wire_type = tag & 7
        if position < 0 or tag >> 3 not in range(1, 10) or wire_type not in (0, 2):
            return ""
        number, position = wire.varint(head, position, len(head))
        if position < 0:
            return ""
        if tag == _OPERATOR:
            return "binary" if _is_operator(head[position : position + number]) else ""
        if wire_type == 2:
            if tag == _NAME and not head[position : position + number].isascii():
                return ""
            position += number
    return "binary" if position == empty_size else ""


def _is_operator(data: bytes) -> bool:
    """Whether bytes begin with the fields of an operator: the names of blobs, its name and its type."""
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
