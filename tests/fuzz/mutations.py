"""Ways to break a file: bytes, the framing of fields, tokens of text, and fields of the message itself."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import onnx
from google.protobuf import json_format, text_format
from google.protobuf.descriptor import FieldDescriptor

NUMBERS = [
    0,
    1,
    -1,
    2,
    7,
    127,
    128,
    255,
    2**31 - 1,
    2**31,
    -(2**31),
    2**32,
    2**40,
    2**62,
    2**63 - 1,
    -(2**63),
]
TEXTS = [
    *("", "x", "y", "a", "e", "f", "w", "weights.bin", "inner/weights.bin", "link_inside.bin", "pipe", "."),
    *("link_outside.bin", "folder_outside/secret.bin", "hard_link.bin", "inner", "../outside/secret.bin"),
    *("inner/../../outside/secret.bin", "/etc/hostname", "/dev/zero", "..\\outside\\secret.bin", "C:\\x"),
    *(
        "\0",
        "a\0b",
        "0",
        "32",
        "-1",
        "1e3",
        "9" * 40,
        "0:0",
        "true",
        "location",
        "offset",
        "length",
        "checksum",
    ),
    *("ai.onnx", "mine", "F", "Identity", "If", "Loop", "\u202e\ud7ff", "A" * 5000, "n + 1", "9**9**9**9"),
]
_BYTES = [
    b"\xff" * 10,
    b"\xff\xff\xff\xff\x07",
    b"\x80" * 9 + b"\x01",
    b"\0" * 16,
    b"\x0a\x00" * 50,
    b"{" * 30,
]
_TOKENS = [
    "{",
    "}",
    "[",
    "]",
    '"',
    "'",
    "#",
    "\\",
    ",",
    ":",
    "<",
    ">",
    "\n",
    "NaN",
    "null",
    "1e999",
    "\ud7ff",
    "\\377",
]


def mutate(chance: random.Random, files: list[bytes], source: Source | None = None) -> bytes:
    """One mutated file, the same for the same state of `chance`; of ONNX unless another source is given."""
    source = source or ONNX
    data = chance.choice(files)
    binary = source.is_binary(data)
    if chance.random() < 0.4:
        return change_bytes(chance, data, files, is_text=not binary)
    while not binary:
        data = chance.choice(files)
        binary = source.is_binary(data)
    model = source.parse(data)
    for _ in range(chance.choice([1, 1, 2, 4])):
        change_message(chance, model)
    return chance.choice(source.writers)(model)


def change_bytes(chance: random.Random, data: bytes, files: list[bytes], *, is_text: bool = False) -> bytes:
    """Data with some of its bytes changed, cut, doubled, or replaced by those of other files."""
    for _ in range(chance.choice([1, 1, 1, 2, 3, 8])):
        data = chance.choice(_TEXT_WAYS if is_text else _WAYS)(chance, data, files)
    return data


def write_binary(model: Any) -> bytes:
    return model.SerializeToString()


def write_text(model: Any) -> bytes:
    return text_format.MessageToString(model).encode("utf-8", "replace")


def write_json(model: onnx.ModelProto) -> bytes:
    try:
        return json_format.MessageToJson(model, indent=None).encode("utf-8", "replace")
    except json_format.SerializeToJsonError:
        return write_binary(model)


class Source(NamedTuple):
    """Files of one kind.

    Attributes:
        is_binary: whether a file is a binary message, not a text.
        parse: the message of a binary file.
        writers: how a changed message is written; one of them by chance.
    """

    is_binary: Callable[[bytes], bool]
    parse: Callable[[bytes], Any]
    writers: list[Callable[[Any], bytes]]


ONNX = Source(
    lambda data: data[:1] == b"\x08",
    onnx.ModelProto.FromString,
    [write_binary, write_binary, write_text, write_json],
)


def _span(chance: random.Random, data: bytes, longest: int = 64) -> tuple[int, int]:
    start = chance.randrange(len(data) + 1)
    return start, min(len(data), start + chance.randrange(longest))


def _flip(chance: random.Random, data: bytes, files: list[bytes]) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.choice([1, 1, 4, 30])):
        if changed:
            changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _truncate(chance: random.Random, data: bytes, files: list[bytes]) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def _remove(chance: random.Random, data: bytes, files: list[bytes]) -> bytes:
    start, end = _span(chance, data)
    return data[:start] + data[end:]


def _repeat(chance: random.Random, data: bytes, files: list[bytes]) -> bytes:
    start, end = _span(chance, data, 400)
    return data[:end] + data[start:end] * chance.choice([1, 2, 50]) + data[end:]


def _splice(chance: random.Random, data: bytes, files: list[bytes]) -> bytes:
    other = chance.choice(files)
    (start, end), at = _span(chance, other, 2000), chance.randrange(len(data) + 1)
    return data[:at] + other[start:end] + data[at + chance.choice([0, end - start]) :]


def _overwrite(chance: random.Random, data: bytes, files: list[bytes]) -> bytes:
    at, put = chance.randrange(len(data) + 1), chance.choice(_BYTES)
    return data[:at] + put + data[at + chance.choice([0, len(put)]) :]


def _varint(number: int) -> bytes:
    number &= 2**64 - 1
    groups = bytearray()
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*groups, number])


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while at < len(data):
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80 or shift > 63:
            break
        shift += 7
    return number, at


def _reframe(chance: random.Random, data: bytes, files: list[bytes]) -> bytes:
    """Change, double, remove or fill one field that has a length; the lengths around it stay."""
    chosen = None
    start, end = 0, len(data)
    for _ in range(chance.randrange(1, 10)):
        fields = list(_delimited(data, start, end))
        if not fields:
            break
        chosen = begin, tag, inner, at = chance.choice(fields)
        start, end = inner, at
        if chance.random() < 0.25:
            break
    if chosen is None:
        return data
    begin, tag, inner, at = chosen
    way = chance.randrange(5)
    if way == 0:
        return data[:begin] + _varint(tag) + _varint(chance.choice(NUMBERS)) + data[inner:]
    if way == 1:
        return data[:at] + data[begin:at] * chance.choice([1, 3, 100]) + data[at:]
    if way == 2:
        return data[:begin] + data[at:]
    if way == 3:
        return data[:inner] + bytes(at - inner) + data[at:]
    return data[:begin] + _varint(chance.randrange(2**12)) + data[inner - 1 :]


def _delimited(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """The fields of a message that have a length: where they begin, the tag, the contents, where they end."""
    for _ in range(2000):
        begin = at
        tag, at = _read_varint(data, at)
        if tag & 7 == 0:
            _, at = _read_varint(data, at)
        elif tag & 7 == 2:
            length, inner = _read_varint(data, at)
            at = inner + length
            if at <= end:
                yield begin, tag, inner, at
        elif tag & 7 in (1, 5):
            at += 8 if tag & 7 == 1 else 4
        if at >= end or tag & 7 in (3, 4, 6, 7):
            return


def _tokens(chance: random.Random, data: bytes, files: list[bytes]) -> bytes:
    """Change a number, a word or a bracket of a text."""
    text = data.decode("utf-8", "replace")
    start = chance.randrange(max(1, len(text) - 1000))
    found = list(re.compile(r"-?\d+|\w+|[^\w\s]").finditer(text, start, start + 2000))
    if not found:
        return data
    token = chance.choice(found)
    put = chance.choice(
        [str(chance.choice(NUMBERS)), chance.choice(_TOKENS), chance.choice(TEXTS), token[0] * 2]
    )
    return (text[: token.start()] + put + text[token.end() :]).encode("utf-8", "replace")


def _nest(chance: random.Random, data: bytes, files: list[bytes]) -> bytes:
    """Brackets within brackets, more than any parser goes down."""
    at, depth = chance.randrange(len(data) + 1), chance.choice([5, 90, 400, 20_000])
    put = chance.choice([b"[", b"{", b"<", b'{"graph":', b"graph{", b"node{attribute{g{"]) * depth
    return data[:at] + put + data[at:]


_WAYS: list[Callable[[random.Random, bytes, list[bytes]], bytes]] = [
    *(_flip, _flip, _truncate, _remove, _repeat, _splice, _overwrite, _reframe, _reframe, _reframe)
]
_TEXT_WAYS = [
    _flip,
    _truncate,
    _remove,
    _repeat,
    _splice,
    _overwrite,
    _nest,
    _tokens,
    _tokens,
    _tokens,
    _tokens,
]


def _messages(message: Any) -> list[Any]:
    found = [message]
    for current in found:
        for field, value in current.ListFields():
            if _is_map(field):
                found.extend(inner for inner in value.values() if hasattr(inner, "ListFields"))
            elif field.message_type is not None:
                found.extend(value if field.is_repeated else [value])
    return found


def _is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def change_message(chance: random.Random, model: Any) -> None:
    """Set, double, clear or fill a field of one message of the model."""
    messages = _messages(model)
    message = chance.choice([message for message in messages if message.DESCRIPTOR.fields])
    field = chance.choice(message.DESCRIPTOR.fields)
    if chance.random() < 0.6 and message.ListFields():
        field = chance.choice(message.ListFields())[0]
    if chance.random() < 0.1:
        message.ClearField(field.name)
    elif field.message_type is not None:
        key, value = field.message_type.fields[:2] if _is_map(field) else (None, field)
        target = getattr(message, field.name)
        if key is not None and value.message_type is None:
            target[_key(chance, key, target)] = (
                chance.choice(TEXTS) if value.cpp_type == value.CPPTYPE_STRING else 1
            )
            return
        if key is not None:
            target = target[_key(chance, key, target)]
        elif field.is_repeated:
            target = target.add()
        donors = [other for other in messages if other.DESCRIPTOR is value.message_type]
        donor = chance.choice(donors) if donors else None
        if donor is not None and donor.ByteSize() < 20_000:
            copy = type(donor)()
            copy.CopyFrom(donor)
            target.CopyFrom(copy)
        else:
            target.SetInParent()
    else:
        _set(chance, message, field)


def _key(chance: random.Random, field: Any, held: Any) -> Any:
    """A key of a map, one that it has or another."""
    if len(held) and chance.random() < 0.6:
        return chance.choice(list(held))
    return chance.choice(TEXTS) if field.cpp_type == field.CPPTYPE_STRING else chance.randrange(40)


def _set(chance: random.Random, message: Any, field: Any) -> None:
    value: Any
    if field.type == FieldDescriptor.TYPE_STRING:
        value = chance.choice(TEXTS)
    elif field.type == FieldDescriptor.TYPE_BYTES:
        value = chance.choice([b"", b"\xff\xfe", b"\0" * 32, chance.choice(TEXTS).encode()])
    elif field.type in (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE):
        value = chance.choice([0.0, -0.0, float("nan"), float("inf"), 1e30])
    elif field.type == FieldDescriptor.TYPE_ENUM:
        value = chance.choice(field.enum_type.values).number
    else:
        value = chance.choice([*NUMBERS, chance.randrange(40), chance.randrange(40)])
        if field.type == FieldDescriptor.TYPE_INT32:
            value = (value + 2**31) % 2**32 - 2**31
        elif field.type in (FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64):
            value %= 2**64
        elif field.type in (FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_FIXED32):
            value %= 2**32
        elif field.type == FieldDescriptor.TYPE_BOOL:
            value = bool(value)
    if not field.is_repeated:
        setattr(message, field.name, value)
        return
    held = getattr(message, field.name)
    if len(held) and chance.random() < 0.6:
        held[chance.randrange(len(held))] = value
    else:
        held.append(value)
