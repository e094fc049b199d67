"""Memory plans in `.tflite` files, which the test writes with flatbuffers."""

import json
import struct

import flatbuffers
import numpy as np
import pytest

import opsetta
from opsetta.exporter.command_line.cli import main
from opsetta.exporter.devices.plan.forms.tflite_plan import plan_tflite

WEIGHT = np.arange(32 * 64, dtype=np.float32)
SIZES = {"x": 64, "w": 0, "a": 32, "b": 32, "c": 32}


def vector(builder, put, entries) -> int:
    builder.StartVector(4, len(entries), 4)
    for entry in reversed(entries):
        put(entry)
    return builder.EndVector()


def table(builder, fields: dict[int, tuple[str, int]]) -> int:
    """A table of fields by number: references, or numbers of a type of the builder."""
    builder.StartObject(12)
    for number, (put, entry) in fields.items():
        getattr(builder, f"Prepend{put}Slot")(number, entry, 0)
    return builder.EndObject()


def tflite(width: int = 64, graphs: int = 1, offset: int = 0) -> bytes:
    """x and the weight w give a; a gives b; b and a give c."""
    builder = flatbuffers.Builder(0)
    at = "UOffsetTRelative"

    def references(entries):
        return vector(builder, builder.PrependUOffsetTRelative, entries)

    def integers(entries):
        return vector(builder, builder.PrependInt32, entries)

    builder.Prep(16, WEIGHT.nbytes)
    weight = builder.CreateByteVector(WEIGHT.tobytes())
    buffers = [table(builder, {1: ("Uint64", offset)}), table(builder, {0: (at, weight)})]
    shapes = {"x": [1, width], "w": [32, 64], "a": [1, 32], "b": [1, 32], "c": [1, 32]}
    names = {name: builder.CreateString(name) for name in shapes}
    tensors = [
        table(builder, {0: (at, integers(shape)), 2: ("Uint32", int(name == "w")), 3: (at, names[name])})
        for name, shape in shapes.items()
    ]
    steps = [([0, 1, -1], [2]), ([2], [3]), ([3, 2], [4])]
    operators = [
        table(builder, {1: (at, integers(inputs)), 2: (at, integers(outputs))}) for inputs, outputs in steps
    ]
    lists = [references(tensors), integers([0]), integers([4]), references(operators)]
    graph = table(builder, {number: (at, entry) for number, entry in enumerate(lists)})
    fields = {2: references([graph] * graphs), 3: builder.CreateString("test"), 4: references(buffers)}
    builder.Finish(
        table(builder, {0: ("Uint32", 3), **{number: (at, entry) for number, entry in fields.items()}}),
        b"TFL3",
    )
    return bytes(builder.Output())


def field(content: bytes, position: int, number: int) -> int:
    """The position of the table, vector or text of a field."""
    entries = position - struct.unpack_from("<i", content, position)[0]
    begin = position + struct.unpack_from("<H", content, entries + 4 + 2 * number)[0]
    return begin + struct.unpack_from("<I", content, begin)[0]


def elements(content: bytes, position: int) -> list[int]:
    """The tables of a vector."""
    count = struct.unpack_from("<I", content, position)[0]
    begins = range(position + 4, position + 4 + 4 * count, 4)
    return [begin + struct.unpack_from("<I", content, begin)[0] for begin in begins]


def planned_offsets(content: bytes) -> list[int]:
    """The numbers of the plan in a file, as TensorFlow Lite Micro finds them."""
    root = struct.unpack_from("<I", content, 0)[0]
    [metadata] = elements(content, field(content, root, 6))
    name = field(content, metadata, 0)
    assert content[name + 4 : name + 27] == b"OfflineMemoryAllocation"
    entries = metadata - struct.unpack_from("<i", content, metadata)[0]
    index = struct.unpack_from("<I", content, metadata + struct.unpack_from("<H", content, entries + 6)[0])[0]
    buffers = elements(content, field(content, root, 4))
    weight = field(content, buffers[1], 0)
    assert content[weight + 4 : weight + 4 + WEIGHT.nbytes] == WEIGHT.tobytes()
    data = field(content, buffers[index], 0)
    assert (data + 4) % 16 == 0
    count = struct.unpack_from("<I", content, data)[0]
    return list(struct.unpack_from(f"<{count // 4}i", content, data + 4))


def test_a_plan_is_written_into_the_file(tmp_path):
    content = tflite()
    (tmp_path / "model.tflite").write_bytes(content)
    plan = opsetta.plan_tflite(tmp_path / "model.tflite", tmp_path / "planned.tflite")
    planned = (tmp_path / "planned.tflite").read_bytes()
    assert planned_offsets(planned) == [1, 1, 5, *plan.offsets]
    assert planned.rstrip(b"\0").endswith(content.rstrip(b"\0"))
    assert plan.peak == plan.lower_bound == 384
    offsets = dict(zip(SIZES, plan.offsets, strict=True))
    assert offsets.pop("w") == -1
    # Tensors that are alive at the same operator.
    for first, second in ("xa", "ab", "ac", "bc"):
        low, high = sorted((first, second), key=offsets.__getitem__)
        assert offsets[low] + 4 * SIZES[low] <= offsets[high]


def test_a_plan_replaces_the_one_of_the_file(tmp_path, capsys):
    path = tmp_path / "model.tflite"
    path.write_bytes(tflite())
    with pytest.raises(SystemExit, match="0"):
        main(["plan-tflite", str(path), "-o", str(path), "--json"])
    first = json.loads(capsys.readouterr().out)
    assert plan_tflite(path, path).offsets == tuple(first["offsets"])
    assert planned_offsets(path.read_bytes())[3:] == first["offsets"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": -1}, r"tensor 'x' has the shape \[1, -1\]"),
        ({"graphs": 2}, "one sub-graph, but this has 2"),
        ({"offset": 4096}, "outside the flatbuffer"),
    ],
)
def test_a_model_without_a_plan_is_refused(options, message, tmp_path):
    (tmp_path / "model.tflite").write_bytes(tflite(**options))
    with pytest.raises(opsetta.PlanError, match=message):
        plan_tflite(tmp_path / "model.tflite", tmp_path / "planned.tflite")
    assert not (tmp_path / "planned.tflite").exists()


def test_a_damaged_file_is_refused(tmp_path):
    content = tflite()
    for end in range(8, len(content) - WEIGHT.nbytes, 40):
        (tmp_path / "model.tflite").write_bytes(content[:end])
        with pytest.raises(opsetta.ModelFileError, match=r"damaged|TFL3"):
            plan_tflite(tmp_path / "model.tflite", tmp_path / "planned.tflite")
    (tmp_path / "model.tflite").write_bytes(b"no model")
    with pytest.raises(opsetta.ModelFileError, match="not a .tflite file"):
        plan_tflite(tmp_path / "model.tflite", tmp_path / "planned.tflite")
