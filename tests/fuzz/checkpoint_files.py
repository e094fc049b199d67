"""TensorFlow's checkpoints, and graphs that are frozen: which are changed, how, and how each is read.

A case is one file that has those of a checkpoint, by their names.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import random
import tempfile

import numpy as np
from google.protobuf.message import DecodeError

import opsetta
from opsetta.exporter.capture.tensorflow.checkpoints import keys_by_name, open_checkpoint
from opsetta.exporter.capture.tensorflow.checkpoints.sorted_table import SortedTable
from opsetta.exporter.capture.tensorflow.freezing import frozen_graph
from opsetta.exporter.capture.tensorflow.graph_reading import read_graph
from opsetta.exporter.capture.tensorflow.messages import message_type
from opsetta.exporter.capture.tensorflow.weights import weights_of_graph

from .. import tensorflow_checkpoints as written
from . import mutations, tensorflow_files

DATA = pathlib.Path(__file__).parents[1] / "data" / "tensorflow"
GRAPHS = ("training", "training_resources", "loop", "loop_resources", "average")
OUTPUTS = {"training": "net/logits", "training_resources": "net/logits"}


def pack(files: dict[str, bytes]) -> bytes:
    """Several files as one."""
    return json.dumps({name: data.hex() for name, data in files.items()}).encode()


def unpack(data: bytes) -> dict[str, bytes]:
    """The files of one."""
    return {name: bytes.fromhex(text) for name, text in json.loads(data).items()}


def files() -> list[bytes]:
    """Checkpoints of TensorFlow, and written ones: shards, slices, both byte orders, both formats."""
    tensors = {
        "a": np.arange(12, dtype=np.float32).reshape(3, 4),
        "b": np.array([b"ab", b"", b"c" * 40], object),
        "c": np.arange(6).reshape(2, 3),
        "d": np.array([True, False]),
    }
    slices = {"a": [[(0, 2), (0, -1)], [(2, 1), (0, -1)]]}
    found = []
    for name in ("obj", "str", "v1.ckpt"):
        paths = (DATA / "checkpoints").glob(f"{name}*")
        found.append(
            {path.name.replace(name, "c", 1): path.read_bytes() for path in paths if "npz" not in path.name}
        )
    with tempfile.TemporaryDirectory() as made:
        prefix = pathlib.Path(made) / "c"
        for options in ({"shards": 2}, {"order": ">"}, {"compression": 1}, {"size": 20}):
            written.write_bundle(prefix, tensors, slices=slices, **options)
            found.append(_taken(prefix.parent))
        for options in ({"compression": 1}, {"size": 20}):
            written.write_v1(prefix, tensors, slices=slices, **options)
            found.append(_taken(prefix.parent))
    return [pack(held) for held in found]


def _taken(folder: pathlib.Path) -> dict[str, bytes]:
    held = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    for path in folder.iterdir():
        path.unlink()
    return held


def mutate(chance: random.Random, packed: list[bytes]) -> bytes:
    """One changed checkpoint: its bytes, or what its table says, with checksums that are right."""
    held = unpack(chance.choice(packed))
    others = [data for other in packed[:3] for data in unpack(other).values()]
    name = chance.choice([*held, *(name for name in held if not name.endswith("-of-00001"))])
    index = next((name for name in held if name in ("c", "c.index")), name)
    if chance.random() < 0.4:
        held[name] = mutations.change_bytes(chance, held[name], others)
        return pack(held)
    rows = [(key, bytes(value)) for key, value in SortedTable(np.frombuffer(held[index], np.uint8), "x")]
    if chance.random() < 0.7:
        for _ in range(chance.choice([1, 1, 2, 4])):
            rows = _change_rows(chance, rows, index, others)
        options = {"compression": chance.choice([0, 0, 1]), "size": chance.choice([10, 200, 4096])}
        held[index] = written.table(rows, **options)
    else:
        held[index] = _table_of_changed_block(chance, rows, others)
    return pack(held)


def _change_rows(
    chance: random.Random, rows: list[tuple[bytes, bytes]], index: str, others: list[bytes]
) -> list[tuple[bytes, bytes]]:
    at = chance.randrange(len(rows))
    key, value = rows[at]
    way = chance.random()
    if way < 0.6:
        kind = "SavedTensorSlices" if index == "c" else "BundleEntryProto" if key else "BundleHeaderProto"
        message = message_type(kind)()
        # An earlier change may have left no message.
        with contextlib.suppress(DecodeError):
            message.ParseFromString(value)
        mutations.change_message(chance, message)
        value = message.SerializeToString()
    elif way < 0.7:
        value = mutations.change_bytes(chance, value, others)
    elif way < 0.85:
        key = mutations.change_bytes(chance, key, others)[:200]
    elif way < 0.95:
        return [*rows[:at], *rows[at + 1 :]] if len(rows) > 1 else rows
    else:
        value = rows[chance.randrange(len(rows))][1]
    changed = [*rows[:at], (key, value), *rows[at + 1 :]]
    return sorted(changed) if chance.random() < 0.9 else changed


def _table_of_changed_block(
    chance: random.Random, rows: list[tuple[bytes, bytes]], others: list[bytes]
) -> bytes:
    """A table of one block, whose bytes are changed before its checksum is computed."""
    compression = chance.choice([0, 1, 1])
    contents = written.block(rows)
    if compression == 0 or chance.random() < 0.3:
        contents = mutations.change_bytes(chance, contents, others)
        data = written.stored(contents, compression)
    else:
        data = written.checked(mutations.change_bytes(chance, written.snappy(contents), others), 1)
    index = written.block([(rows[-1][0], written.varint(0) + written.varint(len(data) - 5))])
    if chance.random() < 0.2:
        index = mutations.change_bytes(chance, index, others)
    last = written.stored(index)
    place = b"\0\0" + written.varint(len(data)) + written.varint(len(last) - 5)
    return data + last + place.ljust(40, b"\0") + written.MAGIC


def read_everything(path: pathlib.Path) -> str:
    """Read all of a checkpoint; anything but our own errors goes on to the caller."""
    folder = path.parent / "checkpoint"
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for name, data in unpack(path.read_bytes()).items():
        (folder / name).write_bytes(data)
    try:
        found = open_checkpoint(folder / "c")
    except opsetta.ModelFileError:
        return "refused"
    refused = 0
    try:
        keys_by_name(found)
    except opsetta.ModelFileError:
        refused += 1
    for variable in found.values():
        try:
            array = variable.read()
        except opsetta.ModelFileError:
            refused += 1
            continue
        assert array.shape == variable.shape
        assert array.nbytes < 100_000
    return "read" if not refused else "read, with refused variables"


def graphs() -> list[bytes]:
    """Graphs that are frozen."""
    found = [(DATA / "freezing" / name / "graph.pb").read_bytes() for name in GRAPHS]
    return [*found, (DATA / "freezing" / "saved_model" / "saved_model.pb").read_bytes()]


def mutate_graph(chance: random.Random, held: list[bytes]) -> bytes:
    """One changed graph."""
    return mutations.mutate(chance, held, tensorflow_files.SOURCE)


def freeze_everything(path: pathlib.Path) -> str:
    """Freeze a graph with the checkpoints of all, and list its weights."""
    ends = set()
    try:
        file = read_graph(path, need_signature=False)
    except opsetta.ModelFileError:
        return "refused"
    names = {node.name for node in file.graph_def.node}
    for name in ("saved_model", *GRAPHS):
        of_training = name.startswith("training")
        if name != "saved_model" and of_training != ("net/logits" in names):
            continue
        prefix = DATA / "freezing" / name / ("variables/variables" if name == "saved_model" else "model.ckpt")
        try:
            outputs = OUTPUTS.get(name, None if name == "saved_model" else "y")
            frozen_graph(file, prefix, outputs).message()
            ends.add("frozen")
        except opsetta.OpsettaError:
            ends.add("refused")
    with contextlib.suppress(opsetta.OpsettaError):
        weights_of_graph(file)
    return "frozen" if "frozen" in ends else "refused"
