"""TensorFlow's checkpoints and SavedModels whose size says little about the work that they ask for.

Each entry of `FILES` writes the files of a model beside the path that it gets: a checkpoint `c`, or a graph
and a checkpoint, or a SavedModel. `WAYS` are the ways in which they are read.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

import opsetta
from opsetta.exporter.capture.tensorflow.checkpoints.checksums import crc32c
from opsetta.exporter.capture.tensorflow.checkpoints.slice_keys import slice_key
from opsetta.exporter.capture.tensorflow.messages import message_type
from opsetta.exporter.command_line.commands import freeze, inspection, weights
from opsetta.exporter.files.weights.message import varint

from .. import tensorflow_checkpoints as written
from ..tensorflow_checkpoints import mask_checksum
from . import hostile_tensorflow_graphs as graphs
from .hostile import Builder

OBJECT_GRAPH = b"_CHECKPOINTABLE_OBJECT_GRAPH"


def _entry(dtype: int, shape: Iterable[int], offset: int = 0, size: int = 0, crc: int = 0) -> Any:
    entry = message_type("BundleEntryProto")(dtype=dtype, offset=offset, size=size, crc32c=mask_checksum(crc))
    entry.shape.SetInParent()
    for length in shape:
        entry.shape.dim.add(size=length)
    return entry


def _write_index(path: pathlib.Path, rows: dict[bytes, bytes], data: bytes = b"", **options: Any) -> None:
    """Write a checkpoint of format V2 from the entries of its table."""
    header = message_type("BundleHeaderProto")(num_shards=1)
    rows = {b"": header.SerializeToString(), **rows}
    table = written.table(sorted(rows.items()), size=2**16, **options)
    path.with_name("c.index").write_bytes(table)
    path.with_name("c.data-00000-of-00001").write_bytes(data)


def entries(count: int) -> Builder:
    """Many scalars without contents."""

    def build(path: pathlib.Path) -> None:
        entry = _entry(graphs.FLOAT, [0]).SerializeToString()
        _write_index(path, {b"v%d" % i: entry for i in range(count)})

    return build


def long_keys(count: int, length: int) -> Builder:
    """Keys that share what they begin with, which each leaves out."""

    def build(path: pathlib.Path) -> None:
        entry = _entry(graphs.FLOAT, [0]).SerializeToString()
        _write_index(path, {b"v" * length + b"%08d" % i: entry for i in range(count)})

    return build


def objects(count: int, keys: int) -> Builder:
    """A graph of variables that the objects of a checkpoint name, each under several keys."""

    def build(path: pathlib.Path) -> None:
        graph = message_type("TrackableObjectGraph")()
        node = graph.nodes.add()
        for i in range(count):
            for key in range(keys):
                node.attributes.add(full_name=f"v{i}", checkpoint_key=f"key{key}")
        text = graph.SerializeToString()
        contents = bytes(2**20)
        array = np.array([text], object)
        string, crc = written.contents_of(array)
        rows = {
            b"key%d" % key: _entry(
                graphs.FLOAT, [2**18], 2**20 * key, 2**20, crc32c(contents)
            ).SerializeToString()
            for key in range(keys)
        }
        rows[OBJECT_GRAPH] = _entry(graphs.STRING, [], 2**20 * keys, len(string), crc).SerializeToString()
        _write_index(path, rows, contents * keys + string)
        _write_graph(path, graphs.variables(count, [2**18]))

    return build


def missing(count: int, stored: int) -> Builder:
    """A graph whose variables the checkpoint does not have, though it has many of a similar name."""

    def build(path: pathlib.Path) -> None:
        entry = _entry(graphs.FLOAT, [0]).SerializeToString()
        _write_index(path, {b"other%d/a/b/c/d/e/f" % i: entry for i in range(stored)})
        _write_graph(path, graphs.variables(count, [2]))

    return build


def strings(count: int, key: bytes) -> Builder:
    """A variable of many short strings."""

    def build(path: pathlib.Path) -> None:
        lengths = np.full(count, 2, "<u4").tobytes()
        check = mask_checksum(crc32c(lengths)).to_bytes(4, "little")
        contents = b"ab" * count
        crc = crc32c(contents, crc32c(check, crc32c(lengths)))
        data = b"\2" * count + check + contents
        _write_index(path, {key: _entry(graphs.STRING, [count], 0, len(data), crc).SerializeToString()}, data)
        _write_graph(path, graphs.variables(1, [count], graphs.STRING, key.decode()))

    return build


def slices(count: int, rank: int, reads: int) -> Builder:
    """A variable in many slices, of which a graph reads each on its own."""

    def build(path: pathlib.Path) -> None:
        whole = _entry(graphs.FLOAT, [count] + [1] * (rank - 1))
        contents, crc = bytes(4), crc32c(bytes(4))
        rows = {}
        for i in range(count):
            extents = [(i, 1)] + [(0, -1)] * (rank - 1)
            written.add_extents(whole.slices.add(), extents)
            rows[slice_key("v", extents)] = _entry(
                graphs.FLOAT, [1] * rank, 4 * i, 4, crc
            ).SerializeToString()
        rows[b"v"] = whole.SerializeToString()
        _write_index(path, rows, contents * count)
        graph = graphs.variables(reads or 1, [1 if reads else count] + [1] * (rank - 1))
        if not reads:
            graph.node[0].name = "v"
            graph.node[1].input[0] = "v"
            graph.node[-1].input[0] = graph.node[1].name
        else:
            names = [f"v{i}" for i in range(reads)]
            sizes = " ".join(map(str, [count] + [1] * (rank - 1)))
            regions = [f"{sizes} {i},1" + ":-" * (rank - 1) for i in range(reads)]
            graphs.add_saver(graph, names, ["v"] * reads, regions)
        _write_graph(path, graph)

    return build


def slices_of_v1(count: int, rank: int) -> Builder:
    """A variable of format V1 in many slices."""

    def build(path: pathlib.Path) -> None:
        array = np.zeros([count] + [1] * (rank - 1), np.float32)
        pieces = [[(i, 1)] + [(0, -1)] * (rank - 1) for i in range(count)]
        written.write_v1(path.with_name("c"), {"v0": array}, slices={"v0": pieces})
        _write_graph(path, graphs.variables(1, array.shape))

    return build


def compressed(size: int) -> Builder:
    """A block of zeros that Snappy makes 21 times smaller, as the value of one entry."""

    def build(path: pathlib.Path) -> None:
        copies = (size - 1) // 64
        length = 1 + 64 * copies
        data = varint(length) + b"\0\0" + b"\xfe\x01\x00" * copies
        held = written.checked(data, 1)
        index = written.stored(written.block([(b"v", varint(0) + varint(len(held) - 5))], restart=1))
        empty = written.stored(written.block([]))
        places = [varint(len(held)) + varint(len(empty) - 5)]
        places.append(varint(len(held) + len(empty)) + varint(len(index) - 5))
        footer = b"".join(places).ljust(40, b"\0") + written.MAGIC
        path.with_name("c.index").write_bytes(held + empty + index + footer)

    return build


def many_tables(count: int) -> Builder:
    """A checkpoint of format V1 in many files."""

    def build(path: pathlib.Path) -> None:
        first = message_type("SavedTensorSlices")()
        first.meta.versions.producer = 1
        table = written.table([(b"", first.SerializeToString())])
        for i in range(count):
            path.with_name(f"c-{i:05}-of-{count:05}").write_bytes(table)

    return build


def state(path: pathlib.Path) -> None:
    """A file of the newest checkpoint with many names."""
    path.with_name("checkpoint").write_bytes(b'all_model_checkpoint_paths: "x"\n' * 30_000)


def _write_graph(path: pathlib.Path, graph: Any) -> None:
    path.with_name("graph.pb").write_bytes(graph.SerializeToString())


def _saved(make: Callable[[], Any]) -> Builder:
    """A SavedModel of one graph, or of a message that is one."""

    def build(path: pathlib.Path) -> None:
        message = make()
        if message.DESCRIPTOR.name == "GraphDef":
            saved = message_type("SavedModel")(saved_model_schema_version=1)
            meta = saved.meta_graphs.add()
            meta.meta_info_def.tags.append("serve")
            meta.graph_def.CopyFrom(message)
            message = saved
        path.with_name("saved_model.pb").write_bytes(message.SerializeToString())

    return build


def with_variables(count: int, shape: list[int]) -> Builder:
    """A SavedModel with many variables."""

    def build(path: pathlib.Path) -> None:
        _saved(lambda: graphs.variables(count, shape))(path)
        folder = path.with_name("variables")
        folder.mkdir()
        entry = _entry(graphs.FLOAT, shape)
        size = 4 * int(np.prod(shape))
        crc = crc32c(bytes(size))
        rows = {}
        for i in range(count):
            entry = _entry(graphs.FLOAT, shape, i * size, size, crc)
            rows[b"v%d" % i] = entry.SerializeToString()
        _write_index(folder / "c", rows, bytes(size * count))
        (folder / "c.index").rename(folder / "variables.index")
        (folder / "c.data-00000-of-00001").rename(folder / "variables.data-00000-of-00001")

    return build


def _files() -> Iterator[tuple[str, Builder]]:
    yield "110000 entries of a checkpoint", entries(110_000)
    yield "130000 entries of a checkpoint", entries(130_000)
    yield "long keys of a checkpoint", long_keys(1_000, 60_000)
    yield "variables of many keys", objects(2_000, 2)
    yield "variables of a hundred keys", objects(200, 100)
    yield "variables that are missing", missing(10_000, 10_000)
    yield "a variable of a million strings", strings(1_000_000, b"v0")
    yield "ten million strings", strings(10_000_000, OBJECT_GRAPH)
    yield "10000 slices read at once", slices(10_000, 2, 0)
    yield "5000 slices read one by one", slices(5_000, 2, 5_000)
    yield "10000 slices of 32 dimensions", slices(10_000, 32, 0)
    yield "10000 slices of format V1", slices_of_v1(10_000, 2)
    yield "10000 slices of format V1 of 32 dimensions", slices_of_v1(10_000, 32)
    yield "a compressed table", compressed(200_000_000)
    yield "3000 tables", many_tables(3_000)
    yield "many names of checkpoints", state
    for levels in (14, 24, 90):
        yield (
            f"SavedModel of {levels} levels of two calls",
            _saved(lambda levels=levels: graphs.calls(levels, 2)),
        )
        yield (
            f"SavedModel of {levels} levels of stateful calls",
            _saved(lambda levels=levels: graphs.calls(levels, 2, "StatefulPartitionedCall")),
        )
    yield "SavedModel of 3 levels of 100 calls", _saved(lambda: graphs.calls(3, 100))
    yield "SavedModel of a chain of 10000 functions", _saved(lambda: graphs.calls(10_000, 1))
    yield "SavedModel of a function that calls itself", _saved(lambda: graphs.recursion(1))
    yield "SavedModel of 10000 functions in a circle", _saved(lambda: graphs.recursion(10_000))
    yield "SavedModel of 12 levels of branches", _saved(lambda: graphs.calls_in_branches(12))
    yield "SavedModel of 90 levels of branches", _saved(lambda: graphs.calls_in_branches(90))
    yield "SavedModel of loops 12 deep", _saved(lambda: graphs.loops(12))
    yield "SavedModel of loops 60 deep", _saved(lambda: graphs.loops(60))
    yield "SavedModel of 100000 functions", _saved(lambda: graphs.library(100_000, 1, 10))
    yield "SavedModel of a long function called often", _saved(lambda: graphs.library(1, 10_000, 4_000))
    yield "SavedModel of 28000 nodes", _saved(lambda: graphs.chain(28_000))
    yield "SavedModel of 28000 Identity", _saved(lambda: graphs.chain(28_000, "Identity"))
    yield "SavedModel of 100000 nodes", _saved(lambda: graphs.chain(100_000))
    yield "SavedModel of 5000 conditions", _saved(lambda: graphs.switches(5_000))
    yield "SavedModel of conditions 200 deep", _saved(lambda: graphs.nested_switches(200))
    yield "SavedModel of conditions 5000 deep", _saved(lambda: graphs.nested_switches(5_000))
    yield "SavedModel of shape arithmetic", _saved(lambda: graphs.shape_arithmetic(4_000))
    yield "SavedModel of control inputs", _saved(lambda: graphs.controls(4_000, 200))
    for op in ("AddN", "Pack", "ConcatV2"):
        yield f"SavedModel of {op} of 200000", _saved(lambda op=op: graphs.inputs_of_one(200_000, op))
    yield "SavedModel of 12000 inputs", _saved(lambda: graphs.signature(12_000))
    yield "SavedModel of 10000 graphs", _saved(lambda: graphs.meta_graphs(10_000))
    yield "SavedModel of 300000 operators", _saved(lambda: graphs.operator_list(300_000))
    yield "SavedModel of nested attributes", _saved(lambda: graphs.nested_attributes(30))
    yield "SavedModel of a handle through 80 functions", _saved(lambda: graphs.captured(80))
    yield "SavedModel of a handle through 5000 functions", _saved(lambda: graphs.captured(5_000))
    yield "SavedModel of 8000 variables", with_variables(8_000, [2])
    yield "SavedModel of 8000 large variables", with_variables(8_000, [2_000])


FILES = dict(_files())


def _graph_of(path: pathlib.Path) -> pathlib.Path:
    """The graph or the SavedModel; the checkpoint if there is none."""
    graph, saved = path.with_name("graph.pb"), path.with_name("saved_model.pb")
    newest = path.parent if path.with_name("checkpoint").exists() else path.with_name("c")
    return graph if graph.exists() else saved.parent if saved.exists() else newest


def _checkpoint_of(path: pathlib.Path) -> pathlib.Path | None:
    return path.with_name("c") if path.with_name("graph.pb").exists() else None


def _outputs_of(path: pathlib.Path) -> list[str] | None:
    return ["y"] if path.with_name("graph.pb").exists() else None


def _load(path: pathlib.Path) -> None:
    model = opsetta.load(_graph_of(path), checkpoint=_checkpoint_of(path), outputs=_outputs_of(path))
    model.lower(17).save(path.parents[1] / "converted.onnx")


def _info(path: pathlib.Path) -> None:
    inspection.info(_graph_of(path))


def _weights(path: pathlib.Path) -> None:
    weights.weights(_graph_of(path), _checkpoint_of(path))


def _weights_alone(path: pathlib.Path) -> None:
    weights.weights(path.with_name("c"), output=path.parents[1] / "weights.npz")


def _freeze(path: pathlib.Path) -> None:
    outputs = "y" if _outputs_of(path) else None
    freeze.freeze(_graph_of(path), path.parents[1] / "frozen.pb", _checkpoint_of(path), outputs)


WAYS = {
    "convert": _load,
    "info": _info,
    "weights": _weights,
    "weights alone": _weights_alone,
    "freeze": _freeze,
}
