"""Writes checkpoints as TensorFlow does, and as it can but seldom does: shards, big-endian, compressed."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from opsetta.exporter.capture.tensorflow.checkpoints.checksums import crc32c
from opsetta.exporter.capture.tensorflow.checkpoints.slice_keys import slice_key
from opsetta.exporter.capture.tensorflow.element_types import type_number
from opsetta.exporter.capture.tensorflow.messages import message_type
from opsetta.exporter.files.weights.message import varint

MAGIC = bytes.fromhex("57fb808b247547db")
NAMES = {
    "float32": "DT_FLOAT",
    "float64": "DT_DOUBLE",
    "float16": "DT_HALF",
    "bfloat16": "DT_BFLOAT16",
    "int32": "DT_INT32",
    "int64": "DT_INT64",
    "uint8": "DT_UINT8",
    "int8": "DT_INT8",
    "bool": "DT_BOOL",
    "complex64": "DT_COMPLEX64",
    "object": "DT_STRING",
}
Slices = Mapping[str, Sequence[Sequence[tuple[int, int]]]]
"""The extents of a variable's slices, by its name; (0, -1) is a whole dimension."""


def mask_checksum(crc: int) -> int:
    """Mask a checksum as it is stored."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def snappy(data: bytes) -> bytes:
    """Compress with literals and with copies of four bytes or more."""
    made, seen, position, start = bytearray(varint(len(data))), {}, 0, 0

    def literal(end: int) -> None:
        for begin in range(start, end, 300):
            piece = data[begin : min(end, begin + 300)]
            size = len(piece) - 1
            made.extend(bytes([size << 2]) if size < 60 else bytes([61 << 2]) + size.to_bytes(2, "little"))
            made.extend(piece)

    while position + 4 <= len(data):
        found = seen.get(data[position : position + 4])
        seen[data[position : position + 4]] = position
        if found is None or position - found >= 1 << 16:
            position += 1
            continue
        length = 4
        while (
            length < 64 and position + length < len(data) and data[found + length] == data[position + length]
        ):
            length += 1
        literal(position)
        distance = position - found
        if length < 12 and distance < 2048:
            made += bytes([1 | (length - 4) << 2 | distance >> 8 << 5, distance & 255])
        elif position % 2:
            made += bytes([3 | (length - 1) << 2]) + distance.to_bytes(4, "little")
        else:
            made += bytes([2 | (length - 1) << 2]) + distance.to_bytes(2, "little")
        position += length
        start = position
    literal(len(data))
    return bytes(made)


def block(entries: Iterable[tuple[bytes, bytes]], restart: int = 16) -> bytes:
    """A block of entries that leave out what they share with the key before."""
    made, restarts, last = bytearray(), [], b""
    for index, (key, value) in enumerate(entries):
        shared = 0
        if index % restart:
            while shared < min(len(key), len(last)) and key[shared] == last[shared]:
                shared += 1
        else:
            restarts.append(len(made))
        made += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        last = key
    return bytes(made) + b"".join(n.to_bytes(4, "little") for n in (*(restarts or [0]), len(restarts) or 1))


def stored(contents: bytes, compression: int = 0) -> bytes:
    """A block with its trailer."""
    return checked(snappy(contents) if compression == 1 else contents, compression)


def checked(held: bytes, compression: int) -> bytes:
    """The bytes of a block that may be compressed, with its trailer."""
    kind = bytes([compression])
    return held + kind + mask_checksum(crc32c(held + kind)).to_bytes(4, "little")


def table(entries: Sequence[tuple[bytes, bytes]], *, size: int = 4096, compression: int = 0) -> bytes:
    """A sorted table, with blocks of about this size."""
    made, index, held = bytearray(), [], []

    def flush() -> None:
        data = stored(block(held), compression)
        index.append((held[-1][0], varint(len(made)) + varint(len(data) - 5)))
        made.extend(data)
        held.clear()

    length = 0
    for key, value in entries:
        held.append((key, value))
        length += len(key) + len(value)
        if length >= size:
            flush()
            length = 0
    if held:
        flush()
    places = []
    for contents in (block([]), block(index, restart=1)):
        data = stored(contents)
        places.append(varint(len(made)) + varint(len(data) - 5))
        made += data
    return bytes(made) + b"".join(places).ljust(40, b"\0") + MAGIC


def element_type(array: np.ndarray) -> int:
    """The number of an array's element type."""
    return type_number(NAMES[array.dtype.name])


def contents_of(array: np.ndarray, order: str = "<") -> tuple[bytes, int]:
    """The bytes of a tensor in a bundle, and their checksum."""
    if array.dtype == object:
        strings = array.reshape(-1).tolist()
        lengths = np.array([len(s) for s in strings], f"{order}u4").tobytes()
        crc = crc32c(lengths)
        check = mask_checksum(crc).to_bytes(4, "little" if order == "<" else "big")
        data = b"".join(varint(len(s)) for s in strings) + check + b"".join(strings)
        return data, crc32c(b"".join(strings), crc32c(check, crc))
    words = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    if order == ">":
        size = array.dtype.itemsize // (2 if array.dtype.kind == "c" else 1)
        words = words.reshape(-1, size)[:, ::-1].reshape(-1)
    return words.tobytes(), crc32c(words.tobytes())


def entry_of(array: np.ndarray, shape: Sequence[int] | None = None) -> Any:
    """An entry with the type and the shape of an array."""
    entry = message_type("BundleEntryProto")(dtype=element_type(array))
    entry.shape.SetInParent()
    for size in array.shape if shape is None else shape:
        entry.shape.dim.add(size=size)
    return entry


def part_of(array: np.ndarray, extents: Sequence[tuple[int, int]]) -> np.ndarray:
    """The slice of an array."""
    return array[tuple(slice(start, None if length < 0 else start + length) for start, length in extents)]


def add_extents(message: Any, extents: Sequence[tuple[int, int]]) -> None:
    """Write extents into a TensorSliceProto."""
    for start, length in extents:
        extent = message.extent.add(start=start)
        if length >= 0:
            extent.length = length


def write_bundle(
    prefix: pathlib.Path,
    tensors: Mapping[str, np.ndarray],
    *,
    shards: int = 1,
    order: str = "<",
    slices: Slices | None = None,
    change: Any = None,
    **options: Any,
) -> None:
    """Write a checkpoint of format V2; tensors go to the shards by turns.

    Args:
        change: called with the entries by key, to change them before they are written.
    """
    data = [bytearray() for _ in range(shards)]
    entries: dict[bytes, Any] = {}

    def add(key: bytes, array: np.ndarray) -> None:
        shard = len(entries) % shards
        contents, crc = contents_of(array, order)
        entries[key] = entry = entry_of(array)
        entry.shard_id, entry.offset, entry.size = shard, len(data[shard]), len(contents)
        entry.crc32c = mask_checksum(crc)
        data[shard] += contents

    for name, array in tensors.items():
        parts = (slices or {}).get(name)
        if parts is None:
            add(name.encode(), array)
            continue
        whole = entry_of(array)
        for extents in parts:
            add_extents(whole.slices.add(), extents)
            add(slice_key(name, extents), part_of(array, extents))
        entries[name.encode()] = whole
    header = message_type("BundleHeaderProto")(num_shards=shards, endianness="<>".index(order))
    header.version.producer = 1
    entries[b""] = header
    if change is not None:
        change(entries)
    rows = sorted((key, message.SerializeToString()) for key, message in entries.items())
    prefix.with_name(f"{prefix.name}.index").write_bytes(table(rows, **options))
    for number, contents in enumerate(data):
        prefix.with_name(f"{prefix.name}.data-{number:05}-of-{shards:05}").write_bytes(contents)


FIELDS = {
    "float32": "float_val",
    "float64": "double_val",
    "int64": "int64_val",
    "bool": "bool_val",
    "object": "string_val",
    "int32": "int_val",
    "uint8": "int_val",
    "int8": "int_val",
}


def write_v1(
    path: pathlib.Path, tensors: Mapping[str, np.ndarray], *, slices: Slices | None = None, **options: Any
) -> None:
    """Write a checkpoint of format V1."""
    first = message_type("SavedTensorSlices")()
    first.meta.versions.producer = 1
    rows = []
    for name, array in tensors.items():
        meta = first.meta.tensor.add(name=name, type=element_type(array))
        meta.shape.SetInParent()
        for size in array.shape:
            meta.shape.dim.add(size=size)
        for extents in (slices or {}).get(name, [[(0, -1)] * array.ndim]):
            add_extents(meta.slice.add(), extents)
            row = message_type("SavedTensorSlices")()
            row.data.name = name
            add_extents(row.data.slice, extents)
            field = FIELDS[array.dtype.name]
            getattr(row.data.data, field).extend(part_of(array, extents).reshape(-1).tolist())
            rows.append((slice_key(name, extents), row.SerializeToString()))
    path.write_bytes(table([(b"", first.SerializeToString()), *sorted(rows)], **options))
