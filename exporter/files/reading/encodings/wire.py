"""Computes the memory that protobuf needs for a binary file, before it is parsed.

An empty message takes two bytes in the file and hundreds in memory, so the size of a file says little about
the memory that reading it takes. In the encoding of Protocol Buffers a field is a tag, a length for some
types, and a value.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import onnx
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from ..bounds import BOUNDS, REMEDY, Bounds


class BoundError(Exception):
    """A file exceeds a bound of the reader."""

    def __init__(self, message: str, *, remedy: str = REMEDY):
        super().__init__(f"{message}; {remedy}" if remedy else message)


class _Field(NamedTuple):
    """A length-delimited field, and its memory in addition to its contents.

    Attributes:
        size: bytes for each occurrence.
        of_byte: bytes for each byte of its contents.
        inner: the fields of its message type.
        plain: whether its message type has neither lists nor messages.
    """

    size: int
    of_byte: int = 0
    inner: _Fields | None = None
    plain: bool = False


_Fields = dict[int, _Field]
_POINTER, _STRING = 8, 16
_ENTRY = 2 * _POINTER
"""Bytes of an entry in a list, which doubles its capacity when it is full."""
_SHORT, _OF_SHORT = 24, 8
"""Size up to which a plain message is not opened, and its largest memory for each of these bytes."""
_NARROW = ("TYPE_FLOAT", "TYPE_INT32", "TYPE_UINT32", "TYPE_SINT32", "TYPE_ENUM", "TYPE_BOOL")
"""The types of numbers that take four bytes or less; others take eight."""
_RUN, _OF_RUN = 2**20, 64
"""Bytes of a run of fields that are visited at once, and how many fields of a run count as one."""
_UNKNOWN = _Field(48)
"""The memory of a field that the message type does not define."""
_MAP_ENTRY = 64
"""Bytes of an entry in a map's table, beside those of its key and value."""


def _size(descriptor: Descriptor) -> int:
    """Bytes of an empty message."""
    field_sizes = [_size_of_field(field) for field in descriptor.fields if field.containing_oneof is None]
    alternatives = [max(_size_of_field(field) for field in oneof.fields) for oneof in descriptor.oneofs]
    return 2 * _POINTER + sum(field_sizes) + sum(alternatives)


def _size_of_field(field: FieldDescriptor) -> int:
    is_text = field.type in (field.TYPE_STRING, field.TYPE_BYTES)
    return _STRING if is_text and not is_list(field) else _POINTER


def is_list(field: FieldDescriptor) -> bool:
    """Whether a field is a list; protobuf before 6.31 stores this as a label."""
    is_repeated = getattr(field, "is_repeated", None)
    return bool(field.label == field.LABEL_REPEATED if is_repeated is None else is_repeated)


def _fields_of(descriptor: Descriptor, tables: dict[str, _Fields]) -> _Fields:
    """The memory of a message's fields, by tag; lists of numbers are listed under both encodings."""
    if descriptor.full_name in tables:
        return tables[descriptor.full_name]
    table = tables[descriptor.full_name] = {}
    for field in descriptor.fields:
        is_narrow = field.type in [getattr(field, name) for name in _NARROW]
        tag, entry = field.number << 3, (_ENTRY // 2 if is_narrow else _ENTRY) if is_list(field) else 0
        if field.message_type is not None:
            inner = _fields_of(field.message_type, tables)
            entry += _MAP_ENTRY if field.message_type.GetOptions().map_entry else 0
            plain = not any(f.message_type is not None or is_list(f) for f in field.message_type.fields)
            table[tag | 2] = _Field(_size(field.message_type) + entry, 0, inner, plain)
        elif field.type in (field.TYPE_STRING, field.TYPE_BYTES):
            table[tag | 2] = _Field(_STRING + entry if entry else _POINTER)
        else:
            wire_type = {field.TYPE_FLOAT: 5, field.TYPE_DOUBLE: 1}.get(field.type, 0)
            table[tag | wire_type] = _Field(entry)
            if entry:
                # A varint takes at least one byte and becomes an entry; a fixed-length number keeps its size.
                table[tag | 2] = _Field(entry, 0 if wire_type else entry)
    return table


class MessageMemory:
    """The memory that protobuf needs for the fields of a message type.

    Attributes:
        fields: the fields of the type, with those of the messages in it.
        most_per_byte: the largest memory for each byte of a file; every field has at least two bytes.
        free_per_byte: how many bytes of memory each byte of a file is given beyond the bound.
    """

    def __init__(self, descriptor: Descriptor, free_per_byte: int = 1):
        self.free_per_byte = free_per_byte
        tables: dict[str, _Fields] = {}
        self.fields = _fields_of(descriptor, tables)
        self.most_per_byte = max(field.size for table in tables.values() for field in table.values()) // 2


_MODEL = MessageMemory(onnx.ModelProto.DESCRIPTOR)


def check(data: bytes, bounds: Bounds = BOUNDS, memory: MessageMemory = _MODEL) -> None:
    """Refuse a file whose parsing takes too much memory; the parser reports malformed data.

    Visits fields in order, until the rest cannot exceed the bound. Contents of strings and tensors are
    skipped, and numbers of a list that are fields of their own are visited many at once.

    Raises:
        BoundError: it takes too much memory.
    """
    size = end = len(data)
    allowed = bounds.parsed + memory.free_per_byte * size
    position = needed_bytes = field_count = 0
    outer: list[tuple[int, _Fields]] = []
    fields = memory.fields
    # Stop as soon as the unvisited bytes cannot exceed the bound; a small file needs no visit at all.
    while needed_bytes + (size - position) * memory.most_per_byte > allowed:
        while position >= end:
            if not outer:
                return
            end, fields = outer.pop()
        tag = data[position]
        position += 1
        if tag > 0x7F:
            tag, position = varint(data, position - 1, end)
        wire_type = tag & 7
        field = fields.get(tag, _UNKNOWN)
        needed_bytes += field.size
        field_count += 1
        if wire_type == 2:
            length, position = varint(data, position, end)
            if tag < 8 or position < 0 or length > end - position:
                return
            if field.inner is None:
                needed_bytes += field.of_byte * length
                position += length
            elif field.plain and length <= _SHORT:
                needed_bytes += _OF_SHORT * length
                position += length
            else:
                outer.append((end, fields))
                end, fields = position + length, field.inner
        else:
            # A group is fields between two tags; they count as fields of the enclosing message.
            if wire_type == 0:
                _, position = varint(data, position, end)
            elif wire_type in (1, 5):
                position += 8 if wire_type == 1 else 4
            if tag < 8 or wire_type > 5 or position < 0:
                return
            if field.size and position < end and data[position] == tag and wire_type in (0, 1, 5):
                count, position = _run(data, position, end, tag)
                needed_bytes += field.size * count
                field_count += count // _OF_RUN
        if needed_bytes > allowed:
            raise BoundError(f"protobuf would take more than {allowed >> 20} MiB for {size} bytes")
        if field_count > bounds.fields:
            raise BoundError(f"it holds more than {bounds.fields} fields")


def _run(data: bytes, position: int, end: int, tag: int) -> tuple[int, int]:
    """Count consecutive number fields with one tag; return the count and their end.

    Args:
        tag: the tag of one byte with which the first of them begins.
    """
    total = 0
    while position < end:
        part = np.frombuffer(data, np.uint8, min(end - position, _RUN), position)
        if tag & 7:
            step = 9 if tag & 7 == 1 else 5
            is_field = part[: len(part) // step * step : step] == tag
        else:
            # Numbers end at bytes below 128, and a tag is a number of one byte.
            ends = np.flatnonzero(part < 0x80)
            tags, numbers = ends[0 : len(ends) // 2 * 2 : 2], ends[1::2]
            begins = np.concatenate([[0], numbers[:-1] + 1])[: len(tags)]
            is_field = (tags == begins) & (part[tags] == tag)
        count = len(is_field) if is_field.all() else int(is_field.argmin())
        position += (step * count if tag & 7 else int(numbers[count - 1]) + 1) if count else 0
        total += count
        if count < len(is_field) or not count:
            break
    return total, position


_KINDS = {
    field.number: 0 if field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_INT64) else 2
    for field in onnx.ModelProto.DESCRIPTOR.fields
}
"""The wire type of each field of a model: a number, or a length and its bytes."""


def may_be_model(head: bytes, size: int) -> bool:
    """Whether a file of this size with these first bytes may be a model: the visible fields fit."""
    position = 0
    while position < len(head):
        tag, position = varint(head, position, len(head))
        if position < 0 or position == len(head):
            return position == len(head) or size > len(head)
        if tag < 8 or _KINDS.get(tag >> 3, tag & 7) != tag & 7 or tag & 7 in (4, 6, 7):
            return False
        if tag & 7 == 3:
            return True
        if tag & 7 in (1, 5):
            position += 8 if tag & 7 == 1 else 4
            continue
        number, position = varint(head, position, len(head))
        if position < 0:
            return size > len(head)
        if tag & 7 == 2:
            if number > size - position:
                return False
            position += number
    return True


def varint(data: bytes | memoryview, position: int, end: int) -> tuple[int, int]:
    """Read a number in base 128; return it and the position after it, which is -1 if it does not end."""
    if position < end and data[position] < 0x80:
        return data[position], position + 1
    number = shift = 0
    while 0 <= position < end and shift < 70:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7
    return 0, -1
