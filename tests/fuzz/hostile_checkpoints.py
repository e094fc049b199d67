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
from opsetta.exporter.capture.tensorflow.checkpoints.checksums import crc32c, masked
from opsetta.exporter.capture.tensorflow.checkpoints.slice_keys import slice_key
from opsetta.exporter.capture.tensorflow.messages import message_type
from opsetta.exporter.command_line.commands import freeze, inspection, weights
from opsetta.exporter.files.message import varint

from .. import tensorflow_checkpoints as written
from .hostile import Builder

FLOAT, INT, STRING, RESOURCE = 1, 3, 7, 20
OBJECT_GRAPH = b"_CHECKPOINTABLE_OBJECT_GRAPH"


def _entry(dtype: int, shape: Iterable[int], offset: int = 0, size: int = 0, crc: int = 0) -> Any:
    entry = message_type("BundleEntryProto")(dtype=dtype, offset=offset, size=size, crc32c=masked(crc))
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
        entry = _entry(FLOAT, [0]).SerializeToString()
        _write_index(path, {b"v%d" % i: entry for i in range(count)})

    return build


def long_keys(count: int, length: int) -> Builder:
    """Keys that share what they begin with, which each leaves out."""

    def build(path: pathlib.Path) -> None:
        entry = _entry(FLOAT, [0]).SerializeToString()
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
            b"key%d" % key: _entry(FLOAT, [2**18], 2**20 * key, 2**20, crc32c(contents)).SerializeToString()
            for key in range(keys)
        }
        rows[OBJECT_GRAPH] = _entry(STRING, [], 2**20 * keys, len(string), crc).SerializeToString()
        _write_index(path, rows, contents * keys + string)
        _write_graph(path, _variables(count, [2**18]))

    return build


def missing(count: int, stored: int) -> Builder:
    """A graph whose variables the checkpoint does not have, though it has many of a similar name."""

    def build(path: pathlib.Path) -> None:
        entry = _entry(FLOAT, [0]).SerializeToString()
        _write_index(path, {b"other%d/a/b/c/d/e/f" % i: entry for i in range(stored)})
        _write_graph(path, _variables(count, [2]))

    return build


def strings(count: int, key: bytes) -> Builder:
    """A variable of many short strings."""

    def build(path: pathlib.Path) -> None:
        lengths = np.full(count, 2, "<u4").tobytes()
        check = masked(crc32c(lengths)).to_bytes(4, "little")
        contents = b"ab" * count
        crc = crc32c(contents, crc32c(check, crc32c(lengths)))
        data = b"\2" * count + check + contents
        _write_index(path, {key: _entry(STRING, [count], 0, len(data), crc).SerializeToString()}, data)
        _write_graph(path, _variables(1, [count], STRING, key.decode()))

    return build


def slices(count: int, rank: int, reads: int) -> Builder:
    """A variable in many slices, of which a graph reads each on its own."""

    def build(path: pathlib.Path) -> None:
        whole = _entry(FLOAT, [count] + [1] * (rank - 1))
        contents, crc = bytes(4), crc32c(bytes(4))
        rows = {}
        for i in range(count):
            extents = [(i, 1)] + [(0, -1)] * (rank - 1)
            written.add_extents(whole.slices.add(), extents)
            rows[slice_key("v", extents)] = _entry(FLOAT, [1] * rank, 4 * i, 4, crc).SerializeToString()
        rows[b"v"] = whole.SerializeToString()
        _write_index(path, rows, contents * count)
        graph = _variables(reads or 1, [1 if reads else count] + [1] * (rank - 1))
        if not reads:
            graph.node[0].name = "v"
            graph.node[1].input[0] = "v"
            graph.node[-1].input[0] = graph.node[1].name
        else:
            names = [f"v{i}" for i in range(reads)]
            sizes = " ".join(map(str, [count] + [1] * (rank - 1)))
            regions = [f"{sizes} {i},1" + ":-" * (rank - 1) for i in range(reads)]
            _add_saver(graph, names, ["v"] * reads, regions)
        _write_graph(path, graph)

    return build


def slices_of_v1(count: int, rank: int) -> Builder:
    """A variable of format V1 in many slices."""

    def build(path: pathlib.Path) -> None:
        array = np.zeros([count] + [1] * (rank - 1), np.float32)
        pieces = [[(i, 1)] + [(0, -1)] * (rank - 1) for i in range(count)]
        written.write_v1(path.with_name("c"), {"v0": array}, slices={"v0": pieces})
        _write_graph(path, _variables(1, array.shape))

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


def _add(nodes: Any, name: str, op: str, inputs: Iterable[str] = (), **attributes: Any) -> Any:
    """Append a node; attributes are element types, shapes, texts, and functions as `("name",)`."""
    node = nodes.add(name=name, op=op, input=inputs)
    for key, value in attributes.items():
        attribute = node.attr[key]
        if isinstance(value, tuple):
            attribute.func.name = value[0]
        elif isinstance(value, str):
            attribute.s = value.encode()
        elif isinstance(value, list) and key.startswith("T"):
            attribute.list.type.extend(value)
        elif isinstance(value, list):
            attribute.shape.SetInParent()
            for size in value:
                attribute.shape.dim.add(size=size)
        elif isinstance(value, bool):
            attribute.b = value
        else:
            attribute.type = value
    return node


def _variables(count: int, shape: Iterable[int], dtype: int = FLOAT, name: str = "v{}") -> Any:
    """A graph that adds variables up."""
    graph = message_type("GraphDef")()
    for i in range(count):
        node = name.format(i)
        _add(graph.node, node, "VarHandleOp", dtype=dtype, shape=list(shape), shared_name=node)
        _add(graph.node, f"read{i}", "ReadVariableOp", [node], dtype=dtype)
    node = _add(
        graph.node, "y", "AddN" if dtype == FLOAT else "Pack", [f"read{i}" for i in range(count)], T=dtype
    )
    node.attr["N"].i = count
    return graph


def _add_saver(graph: Any, names: list[str], keys: list[str], regions: list[str]) -> None:
    """Append the nodes that write variables into slices of a checkpoint."""
    for title, texts in (("names", keys), ("slices", regions)):
        node = _add(graph.node, title, "Const", dtype=STRING)
        tensor = node.attr["value"].tensor
        tensor.dtype = STRING
        tensor.tensor_shape.dim.add(size=len(texts))
        tensor.string_val.extend(text.encode() for text in texts)
    _add(graph.node, "prefix", "Placeholder", dtype=STRING, shape=[])
    reads = [f"read{i}" for i in range(len(names))]
    _add(graph.node, "save", "SaveV2", ["prefix", "names", "slices", *reads], dtypes=FLOAT)
    graph.node[-1].attr["dtypes"].list.type.extend([FLOAT] * len(names))


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


def _function(graph: Any, name: str, arguments: int = 1) -> Any:
    """Append a function of floats to the library, which returns what its node "r" gives."""
    function = graph.library.function.add()
    function.signature.name = name
    for i in range(arguments):
        function.signature.input_arg.add(name=f"a{i}", type=FLOAT)
    function.signature.output_arg.add(name="out", type=FLOAT)
    function.ret["out"] = "r:y:0"
    return function


def _placeholder(graph: Any, name: str = "x") -> None:
    _add(graph.node, name, "Placeholder", dtype=FLOAT, shape=[2, 2])


def _call(nodes: Any, name: str, callee: str, inputs: Iterable[str], op: str = "PartitionedCall") -> Any:
    node = _add(nodes, name, op, inputs, f=(callee,))
    for key in ("Tin", "Tout"):
        node.attr[key].list.type.append(FLOAT)
    return node


def calls(levels: int, count: int, op: str = "PartitionedCall") -> Any:
    """Functions that call the next, each several times in a row."""
    graph = message_type("GraphDef")()
    _placeholder(graph)
    for level in range(levels):
        function = _function(graph, f"f{level}")
        last = "a0"
        for i in range(count):
            _call(function.node_def, f"c{i}", f"f{level + 1}", [last], op)
            last = f"c{i}:output:0"
        _add(function.node_def, "r", "Neg", [last], T=FLOAT)
    _add(_function(graph, f"f{levels}").node_def, "r", "Neg", ["a0"], T=FLOAT)
    _call(graph.node, "y", "f0", ["x"], op)
    return graph


def recursion(length: int) -> Any:
    """Functions of which the last calls the first."""
    graph = message_type("GraphDef")()
    _placeholder(graph)
    for i in range(length):
        function = _function(graph, f"f{i}")
        _call(function.node_def, "c", f"f{(i + 1) % length}", ["a0"])
        _add(function.node_def, "r", "Neg", ["c:output:0"], T=FLOAT)
    _call(graph.node, "y", "f0", ["x"])
    return graph


def calls_in_branches(levels: int) -> Any:
    """Branches of which both call a function that has such branches."""
    graph = message_type("GraphDef")()
    _placeholder(graph)
    _add(graph.node, "p", "Placeholder", dtype=10, shape=[])
    for level in range(levels + 1):
        function = _function(graph, f"f{level}")
        function.signature.input_arg.add(name="p", type=10)
        if level == levels:
            _add(function.node_def, "r", "Neg", ["a0"], T=FLOAT)
            continue
        names = {"then_branch": (f"f{level + 1}",), "else_branch": (f"f{level + 1}",)}
        node = _add(function.node_def, "c", "StatelessIf", ["p", "a0", "p"], Tcond=10, **names)
        node.attr["Tin"].list.type.extend([FLOAT, 10])
        node.attr["Tout"].list.type.append(FLOAT)
        _add(function.node_def, "r", "Neg", ["c:output:0"], T=FLOAT)
    node = _add(
        graph.node, "y", "StatelessIf", ["p", "x", "p"], Tcond=10, then_branch=("f0",), else_branch=("f0",)
    )
    node.attr["Tin"].list.type.extend([FLOAT, 10])
    node.attr["Tout"].list.type.append(FLOAT)
    return graph


def loops(depth: int) -> Any:
    """Loops in the bodies of loops."""
    graph = message_type("GraphDef")()
    _placeholder(graph)
    condition = graph.library.function.add()
    condition.signature.name = "cond"
    condition.signature.input_arg.add(name="a0", type=FLOAT)
    condition.signature.output_arg.add(name="out", type=10)
    condition.ret["out"] = "r:output:0"
    constant = _add(condition.node_def, "r", "Const", dtype=10)
    constant.attr["value"].tensor.dtype = 10
    constant.attr["value"].tensor.bool_val.append(False)
    constant.attr["value"].tensor.tensor_shape.SetInParent()
    for level in range(depth):
        function = _function(graph, f"f{level}")
        if level:
            for i in range(2):
                given = f"w{i - 1}:output:0" if i else "a0"
                node = _add(function.node_def, f"w{i}", "StatelessWhile", [given])
                node.attr["cond"].func.name, node.attr["body"].func.name = "cond", f"f{level - 1}"
                node.attr["T"].list.type.append(FLOAT)
        _add(function.node_def, "r", "Neg", ["w1:output:0" if level else "a0"], T=FLOAT)
    node = _add(graph.node, "y", "StatelessWhile", ["x"], cond=("cond",), body=(f"f{depth - 1}",))
    node.attr["T"].list.type.append(FLOAT)
    return graph


def library(count: int, nodes: int, called: int) -> Any:
    """Many functions, or a long one, called many times."""
    graph = message_type("GraphDef")()
    _placeholder(graph)
    for i in range(count):
        function = _function(graph, f"f{i}")
        for j in range(nodes - 1):
            _add(function.node_def, f"n{j}", "Neg", [f"n{j - 1}:y:0" if j else "a0"], T=FLOAT)
        _add(function.node_def, "r", "Neg", [f"n{nodes - 2}:y:0" if nodes > 1 else "a0"], T=FLOAT)
    for i in range(called):
        _call(graph.node, f"y{i}", f"f{i % count}", [f"y{i - 1}" if i else "x"])
    return graph


def chain(count: int, op: str = "Neg", **attributes: Any) -> Any:
    """Operators in a row."""
    graph = message_type("GraphDef")()
    _placeholder(graph)
    for i in range(count):
        _add(graph.node, f"n{i}", op, [f"n{i - 1}" if i else "x"], **{"T": FLOAT, **attributes})
    return graph


def switches(count: int) -> Any:
    """Conditions in a row, as the first control flow has them; each path goes through one of two branches."""
    graph = message_type("GraphDef")()
    _placeholder(graph)
    _add(graph.node, "p", "Placeholder", dtype=10, shape=[])
    last = "x"
    for i in range(count):
        _add(graph.node, f"s{i}", "Switch", [last, "p"], T=FLOAT)
        _add(graph.node, f"t{i}", "Neg", [f"s{i}:1"], T=FLOAT)
        _add(graph.node, f"e{i}", "Abs", [f"s{i}"], T=FLOAT)
        _add(graph.node, f"m{i}", "Merge", [f"e{i}", f"t{i}"], T=FLOAT)
        last = f"m{i}"
    return graph


def nested_switches(depth: int) -> Any:
    """Conditions within conditions, as the first control flow has them."""
    graph = message_type("GraphDef")()
    _placeholder(graph)
    last = "x"
    for i in range(depth):
        _add(graph.node, f"p{i}", "Placeholder", dtype=10, shape=[])
        _add(graph.node, f"s{i}", "Switch", [last, f"p{i}"], T=FLOAT)
        last = f"s{i}:1"
    for i in reversed(range(depth)):
        _add(graph.node, f"m{i}", "Merge", [f"s{i}", last], T=FLOAT)
        last = f"m{i}"
    return graph


def shape_arithmetic(count: int) -> Any:
    """Sizes that are taken apart and put together again, many times."""
    graph = message_type("GraphDef")()
    _add(graph.node, "x", "Placeholder", dtype=FLOAT, shape=[-1, 4])
    for name, number in (("zero", 0), ("one", 1)):
        node = _add(graph.node, name, "Const", dtype=INT)
        node.attr["value"].tensor.dtype = INT
        node.attr["value"].tensor.int_val.append(number)
        node.attr["value"].tensor.tensor_shape.dim.add(size=1)
    last = "x"
    for i in range(count):
        _add(graph.node, f"s{i}", "Shape", [last], T=FLOAT, out_type=INT)
        _add(graph.node, f"b{i}", "StridedSlice", [f"s{i}", "zero", "one", "one"], T=INT, Index=INT)
        _add(graph.node, f"e{i}", "StridedSlice", [f"s{i}", "one", "zero", "one"], T=INT, Index=INT)
        graph.node[-1].attr["end_mask"].i = 1
        _add(graph.node, f"c{i}", "ConcatV2", [f"b{i}", f"e{i}", "axis"], T=INT, Tidx=INT)
        graph.node[-1].attr["N"].i = 2
        _add(graph.node, f"r{i}", "Reshape", [last, f"c{i}"], T=FLOAT, Tshape=INT)
        last = f"r{i}"
    node = _add(graph.node, "axis", "Const", dtype=INT)
    node.attr["value"].tensor.dtype = INT
    node.attr["value"].tensor.int_val.append(0)
    node.attr["value"].tensor.tensor_shape.SetInParent()
    return graph


def controls(count: int, each: int) -> Any:
    """Nodes with many control inputs."""
    graph = chain(count)
    for i, node in enumerate(graph.node):
        if i > each:
            node.input.extend(f"^n{j}" for j in range(i - each, i - 1))
    return graph


def inputs_of_one(count: int, op: str) -> Any:
    """A node with many inputs."""
    graph = message_type("GraphDef")()
    _placeholder(graph)
    node = _add(graph.node, "y", op, ["x"] * count, T=FLOAT)
    node.attr["N"].i = count
    return graph


def signature(count: int) -> Any:
    """A signature of many inputs and outputs."""
    saved = message_type("SavedModel")(saved_model_schema_version=1)
    meta = saved.meta_graphs.add()
    meta.meta_info_def.tags.append("serve")
    described = meta.signature_def["serving_default"]
    for i in range(count):
        _add(meta.graph_def.node, f"x{i}", "Placeholder", dtype=FLOAT, shape=[2])
        _add(meta.graph_def.node, f"y{i}", "Neg", [f"x{i}"], T=FLOAT)
        described.inputs[f"i{i}"].name = f"x{i}:0"
        described.outputs[f"o{i}"].name = f"y{i}:0"
    return saved


def meta_graphs(count: int) -> Any:
    """Many graphs with tags."""
    saved = message_type("SavedModel")(saved_model_schema_version=1)
    for i in range(count):
        meta = saved.meta_graphs.add()
        meta.meta_info_def.tags.extend([f"t{i}", "serve"])
        _placeholder(meta.graph_def)
    return saved


def operator_list(count: int) -> Any:
    """A list of many operators that are defined in the file."""
    saved = message_type("SavedModel")(saved_model_schema_version=1)
    meta = saved.meta_graphs.add()
    meta.graph_def.CopyFrom(chain(3))
    for i in range(count):
        meta.meta_info_def.stripped_op_list.op.add(name=f"Op{i}")
    return saved


def nested_attributes(depth: int) -> Any:
    """Attributes of functions in attributes of functions."""
    graph = chain(2)
    attribute = graph.node[1].attr["f"]
    for _ in range(depth):
        attribute.func.name = "f"
        attribute = attribute.func.attr["f"]
    return graph


def captured(count: int) -> Any:
    """Variables whose handles go through many functions."""
    graph = message_type("GraphDef")()
    _add(graph.node, "v0", "VarHandleOp", dtype=FLOAT, shape=[2], shared_name="v0")
    for i in range(count):
        function = graph.library.function.add()
        function.signature.name = f"f{i}"
        function.signature.input_arg.add(name="h", type=RESOURCE)
        function.signature.output_arg.add(name="out", type=FLOAT)
        function.ret["out"] = "r:value:0" if i == count - 1 else "r:output:0"
        if i == count - 1:
            _add(function.node_def, "r", "ReadVariableOp", ["h"], dtype=FLOAT)
        else:
            node = _add(function.node_def, "r", "StatefulPartitionedCall", ["h"], f=(f"f{i + 1}",))
            node.attr["Tin"].list.type.append(RESOURCE)
            node.attr["Tout"].list.type.append(FLOAT)
    node = _add(graph.node, "y", "StatefulPartitionedCall", ["v0"], f=("f0",))
    node.attr["Tin"].list.type.append(RESOURCE)
    node.attr["Tout"].list.type.append(FLOAT)
    return graph


def with_variables(count: int, shape: list[int]) -> Builder:
    """A SavedModel with many variables."""

    def build(path: pathlib.Path) -> None:
        _saved(lambda: _variables(count, shape))(path)
        folder = path.with_name("variables")
        folder.mkdir()
        entry = _entry(FLOAT, shape)
        size = 4 * int(np.prod(shape))
        crc = crc32c(bytes(size))
        rows = {}
        for i in range(count):
            entry = _entry(FLOAT, shape, i * size, size, crc)
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
        yield f"SavedModel of {levels} levels of two calls", _saved(lambda levels=levels: calls(levels, 2))
        yield (
            f"SavedModel of {levels} levels of stateful calls",
            _saved(lambda levels=levels: calls(levels, 2, "StatefulPartitionedCall")),
        )
    yield "SavedModel of 3 levels of 100 calls", _saved(lambda: calls(3, 100))
    yield "SavedModel of a chain of 10000 functions", _saved(lambda: calls(10_000, 1))
    yield "SavedModel of a function that calls itself", _saved(lambda: recursion(1))
    yield "SavedModel of 10000 functions in a circle", _saved(lambda: recursion(10_000))
    yield "SavedModel of 12 levels of branches", _saved(lambda: calls_in_branches(12))
    yield "SavedModel of 90 levels of branches", _saved(lambda: calls_in_branches(90))
    yield "SavedModel of loops 12 deep", _saved(lambda: loops(12))
    yield "SavedModel of loops 60 deep", _saved(lambda: loops(60))
    yield "SavedModel of 100000 functions", _saved(lambda: library(100_000, 1, 10))
    yield "SavedModel of a long function called often", _saved(lambda: library(1, 10_000, 4_000))
    yield "SavedModel of 28000 nodes", _saved(lambda: chain(28_000))
    yield "SavedModel of 28000 Identity", _saved(lambda: chain(28_000, "Identity"))
    yield "SavedModel of 100000 nodes", _saved(lambda: chain(100_000))
    yield "SavedModel of 5000 conditions", _saved(lambda: switches(5_000))
    yield "SavedModel of conditions 200 deep", _saved(lambda: nested_switches(200))
    yield "SavedModel of conditions 5000 deep", _saved(lambda: nested_switches(5_000))
    yield "SavedModel of shape arithmetic", _saved(lambda: shape_arithmetic(4_000))
    yield "SavedModel of control inputs", _saved(lambda: controls(4_000, 200))
    for op in ("AddN", "Pack", "ConcatV2"):
        yield f"SavedModel of {op} of 200000", _saved(lambda op=op: inputs_of_one(200_000, op))
    yield "SavedModel of 12000 inputs", _saved(lambda: signature(12_000))
    yield "SavedModel of 10000 graphs", _saved(lambda: meta_graphs(10_000))
    yield "SavedModel of 300000 operators", _saved(lambda: operator_list(300_000))
    yield "SavedModel of nested attributes", _saved(lambda: nested_attributes(30))
    yield "SavedModel of a handle through 80 functions", _saved(lambda: captured(80))
    yield "SavedModel of a handle through 5000 functions", _saved(lambda: captured(5_000))
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
