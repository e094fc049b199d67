"""How many messages a binary file holds, counted before protobuf makes them.

An empty message takes two bytes in the file and hundreds in memory, so that the size of a file says little
about the memory that reading it takes. The encoding is that of Protocol Buffers: fields of a tag and a
value, the value led by its length where it has one.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any

import onnx

MAXIMUM_MESSAGES = 2_000_000
"""Messages in a file: nodes, attributes, types, dimensions, metadata entries, tensors."""
MAXIMUM_FIELDS = 8_000_000
"""Fields looked at while messages are counted."""

_Tables = dict[str, dict[int, str]]


class BoundError(Exception):
    """A file is beyond a bound on what is read."""


def _inner(descriptor: Any, tables: _Tables) -> _Tables:
    """The fields that are messages, by the message they stand in and by number."""
    if descriptor.full_name not in tables:
        fields = {f.number: f.message_type for f in descriptor.fields if f.message_type is not None}
        tables[descriptor.full_name] = {number: kind.full_name for number, kind in fields.items()}
        for kind in fields.values():
            _inner(kind, tables)
    return tables


_INNER = _inner(onnx.ModelProto.DESCRIPTOR, {})


def check(data: bytes, maximum: int = MAXIMUM_MESSAGES, fields: int = MAXIMUM_FIELDS) -> None:
    """Refuse a file of more messages than are read; what is malformed is left to the parser.

    The largest messages are opened first, until those still closed can hold no more than is allowed: a
    message of n bytes holds at most n / 2. So a file of weights is not walked through.

    Raises:
        BoundError: there are too many.
    """
    closed = [(-len(data), 0, onnx.ModelProto.DESCRIPTOR.full_name)]
    possible, found, seen = len(data) // 2, 0, 0
    while closed and found + possible > maximum:
        negative, start, kind = heapq.heappop(closed)
        possible -= -negative // 2
        for number, begin, end in _fields(data, start, start - negative):
            seen += 1
            inner = _INNER[kind].get(number)
            if inner is not None and begin >= 0:
                found += 1
                if end - begin > 1:
                    heapq.heappush(closed, (begin - end, begin, inner))
                    possible += (end - begin) // 2
            if found > maximum or seen > fields:
                what = f"{maximum} messages" if found > maximum else f"{fields} fields"
                raise BoundError(f"it holds more than {what}")


_KINDS = {
    field.number: 0 if field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_INT64) else 2
    for field in onnx.ModelProto.DESCRIPTOR.fields
}
"""How the value of each of a model's fields is written: a number, or a length and as many bytes."""


def may_be_model(head: bytes, size: int) -> bool:
    """Whether a file of a size that begins so may be a model: its fields are, as far as they are seen."""
    position = 0
    while position < len(head):
        tag, position = _varint(head, position, len(head))
        if position < 0 or position == len(head):
            return position == len(head) or size > len(head)
        if tag < 8 or _KINDS.get(tag >> 3, tag & 7) != tag & 7 or tag & 7 in (4, 6, 7):
            return False
        if tag & 7 == 3:
            return True
        if tag & 7 in (1, 5):
            position += 8 if tag & 7 == 1 else 4
            continue
        number, position = _varint(head, position, len(head))
        if position < 0:
            return size > len(head)
        if tag & 7 == 2:
            if number > size - position:
                return False
            position += number
    return True


def _fields(data: bytes, position: int, end: int) -> Iterator[tuple[int, int, int]]:
    """The fields of a message: number, and where the contents begin and end; -1 where it has no length.

    Ends where the bytes are no field any more.
    """
    while position < end:
        tag, position = _varint(data, position, end)
        kind = tag & 7
        if tag < 8:
            return
        if kind == 2:
            length, position = _varint(data, position, end)
            if position < 0 or length > end - position:
                return
            yield tag >> 3, position, position + length
            position += length
            continue
        if kind == 0:
            _, position = _varint(data, position, end)
        elif kind in (1, 5):
            position += 8 if kind == 1 else 4
        elif kind not in (3, 4):
            # A group is fields between two tags; its fields count as those of the message around it.
            return
        if position < 0:
            return
        yield tag >> 3, -1, -1


def _varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    """A number in base 128 and where it ends; -1 where it does not end."""
    number = shift = 0
    while 0 <= position < end and shift < 70:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7
    return 0, -1
