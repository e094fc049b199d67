"""Numbers of a list that are fields of their own: they are counted many at once, like one by one."""

import random

import numpy as np
import onnx
import pytest

from opsetta.exporter.files.reading import BOUNDS, Bounds
from opsetta.exporter.files.reading.encodings import wire

FLOATS, INTS = 0x3D, 0x40
"""The tags of `AttributeProto.floats` and `ints`."""


def varint(number):
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def fields(kind, count, chance):
    if kind == "floats":
        return b"".join(bytes([FLOATS]) + np.float32(chance.random()).tobytes() for _ in range(count))
    return b"".join(
        bytes([INTS]) + varint(chance.choice([0, 1, 0x40, 127, 128, 2**40])) for _ in range(count)
    )


def one_by_one(data, position, end, tag):
    count = 0
    while position < end and data[position] == tag:
        after = position + 5 if tag == FLOATS else wire.varint(data, position + 1, end)[1]
        if after < 0 or after > end:
            break
        count, position = count + 1, after
    return count, position


@pytest.mark.parametrize("kind", ["floats", "ints"])
@pytest.mark.parametrize("part", [16, 64, 2**20])
def test_runs_end_where_they_end(kind, part, monkeypatch):
    monkeypatch.setattr(wire, "_RUN", part)
    chance = random.Random(part)
    for _ in range(200):
        data = fields(kind, chance.randint(1, 40), chance)
        data += chance.choice([b"", b"\x08\x01", bytes([FLOATS, 1, 2]), bytes([INTS, 0x80]), b"\xff" * 20])
        data = data[: chance.randint(1, len(data))]
        tag = FLOATS if kind == "floats" else INTS
        found = wire._run(data, 0, len(data), tag)
        expected = one_by_one(data, 0, len(data), tag)
        assert found == expected


@pytest.mark.parametrize("kind", ["floats", "ints"])
def test_many_numbers_are_read(kind):
    attribute = fields(kind, 200_000, random.Random(0))
    body = b"\x0a\x01y" + attribute
    node = b"\x22\x04Relu" + b"\x2a" + varint(len(body)) + body
    graph = b"\x0a" + varint(len(node)) + node
    model = b"\x08\x07\x3a" + varint(len(graph)) + graph
    assert onnx.ModelProto.FromString(model).graph.node[0].op_type == "Relu"
    wire.check(model, Bounds(parsed=6_000_000, fields=10_000))
    with pytest.raises(wire.BoundError, match="MiB"):
        wire.check(model, Bounds(parsed=300_000))
    wire.check(model, BOUNDS)
