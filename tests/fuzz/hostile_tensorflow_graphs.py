"""Graphs of TensorFlow whose functions, branches, loops and nodes are many, or within each other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from opsetta.exporter.capture.tensorflow.messages import message_type

FLOAT, INT, STRING, RESOURCE = 1, 3, 7, 20


def add(nodes: Any, name: str, op: str, inputs: Iterable[str] = (), **attributes: Any) -> Any:
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


def variables(count: int, shape: Iterable[int], dtype: int = FLOAT, name: str = "v{}") -> Any:
    """A graph that adds variables up."""
    graph = message_type("GraphDef")()
    for i in range(count):
        node = name.format(i)
        add(graph.node, node, "VarHandleOp", dtype=dtype, shape=list(shape), shared_name=node)
        add(graph.node, f"read{i}", "ReadVariableOp", [node], dtype=dtype)
    node = add(
        graph.node, "y", "AddN" if dtype == FLOAT else "Pack", [f"read{i}" for i in range(count)], T=dtype
    )
    node.attr["N"].i = count
    return graph


def add_saver(graph: Any, names: list[str], keys: list[str], regions: list[str]) -> None:
    """Append the nodes that write variables into slices of a checkpoint."""
    for title, texts in (("names", keys), ("slices", regions)):
        node = add(graph.node, title, "Const", dtype=STRING)
        tensor = node.attr["value"].tensor
        tensor.dtype = STRING
        tensor.tensor_shape.dim.add(size=len(texts))
        tensor.string_val.extend(text.encode() for text in texts)
    add(graph.node, "prefix", "Placeholder", dtype=STRING, shape=[])
    reads = [f"read{i}" for i in range(len(names))]
    add(graph.node, "save", "SaveV2", ["prefix", "names", "slices", *reads], dtypes=FLOAT)
    graph.node[-1].attr["dtypes"].list.type.extend([FLOAT] * len(names))


def add_function(graph: Any, name: str, arguments: int = 1) -> Any:
    """Append a function of floats to the library, which returns what its node "r" gives."""
    function = graph.library.function.add()
    function.signature.name = name
    for i in range(arguments):
        function.signature.input_arg.add(name=f"a{i}", type=FLOAT)
    function.signature.output_arg.add(name="out", type=FLOAT)
    function.ret["out"] = "r:y:0"
    return function


def add_placeholder(graph: Any, name: str = "x") -> None:
    add(graph.node, name, "Placeholder", dtype=FLOAT, shape=[2, 2])


def add_call(nodes: Any, name: str, callee: str, inputs: Iterable[str], op: str = "PartitionedCall") -> Any:
    node = add(nodes, name, op, inputs, f=(callee,))
    for key in ("Tin", "Tout"):
        node.attr[key].list.type.append(FLOAT)
    return node


def calls(levels: int, count: int, op: str = "PartitionedCall") -> Any:
    """Functions that call the next, each several times in a row."""
    graph = message_type("GraphDef")()
    add_placeholder(graph)
    for level in range(levels):
        function = add_function(graph, f"f{level}")
        last = "a0"
        for i in range(count):
            add_call(function.node_def, f"c{i}", f"f{level + 1}", [last], op)
            last = f"c{i}:output:0"
        add(function.node_def, "r", "Neg", [last], T=FLOAT)
    add(add_function(graph, f"f{levels}").node_def, "r", "Neg", ["a0"], T=FLOAT)
    add_call(graph.node, "y", "f0", ["x"], op)
    return graph


def recursion(length: int) -> Any:
    """Functions of which the last calls the first."""
    graph = message_type("GraphDef")()
    add_placeholder(graph)
    for i in range(length):
        function = add_function(graph, f"f{i}")
        add_call(function.node_def, "c", f"f{(i + 1) % length}", ["a0"])
        add(function.node_def, "r", "Neg", ["c:output:0"], T=FLOAT)
    add_call(graph.node, "y", "f0", ["x"])
    return graph


def calls_in_branches(levels: int) -> Any:
    """Branches of which both call a function that has such branches."""
    graph = message_type("GraphDef")()
    add_placeholder(graph)
    add(graph.node, "p", "Placeholder", dtype=10, shape=[])
    for level in range(levels + 1):
        function = add_function(graph, f"f{level}")
        function.signature.input_arg.add(name="p", type=10)
        if level == levels:
            add(function.node_def, "r", "Neg", ["a0"], T=FLOAT)
            continue
        names = {"then_branch": (f"f{level + 1}",), "else_branch": (f"f{level + 1}",)}
        node = add(function.node_def, "c", "StatelessIf", ["p", "a0", "p"], Tcond=10, **names)
        node.attr["Tin"].list.type.extend([FLOAT, 10])
        node.attr["Tout"].list.type.append(FLOAT)
        add(function.node_def, "r", "Neg", ["c:output:0"], T=FLOAT)
    node = add(
        graph.node, "y", "StatelessIf", ["p", "x", "p"], Tcond=10, then_branch=("f0",), else_branch=("f0",)
    )
    node.attr["Tin"].list.type.extend([FLOAT, 10])
    node.attr["Tout"].list.type.append(FLOAT)
    return graph


def loops(depth: int) -> Any:
    """Loops in the bodies of loops."""
    graph = message_type("GraphDef")()
    add_placeholder(graph)
    condition = graph.library.function.add()
    condition.signature.name = "cond"
    condition.signature.input_arg.add(name="a0", type=FLOAT)
    condition.signature.output_arg.add(name="out", type=10)
    condition.ret["out"] = "r:output:0"
    constant = add(condition.node_def, "r", "Const", dtype=10)
    constant.attr["value"].tensor.dtype = 10
    constant.attr["value"].tensor.bool_val.append(False)
    constant.attr["value"].tensor.tensor_shape.SetInParent()
    for level in range(depth):
        function = add_function(graph, f"f{level}")
        if level:
            for i in range(2):
                given = f"w{i - 1}:output:0" if i else "a0"
                node = add(function.node_def, f"w{i}", "StatelessWhile", [given])
                node.attr["cond"].func.name, node.attr["body"].func.name = "cond", f"f{level - 1}"
                node.attr["T"].list.type.append(FLOAT)
        add(function.node_def, "r", "Neg", ["w1:output:0" if level else "a0"], T=FLOAT)
    node = add(graph.node, "y", "StatelessWhile", ["x"], cond=("cond",), body=(f"f{depth - 1}",))
    node.attr["T"].list.type.append(FLOAT)
    return graph


def library(count: int, nodes: int, called: int) -> Any:
    """Many functions, or a long one, called many times."""
    graph = message_type("GraphDef")()
    add_placeholder(graph)
    for i in range(count):
        function = add_function(graph, f"f{i}")
        for j in range(nodes - 1):
            add(function.node_def, f"n{j}", "Neg", [f"n{j - 1}:y:0" if j else "a0"], T=FLOAT)
        add(function.node_def, "r", "Neg", [f"n{nodes - 2}:y:0" if nodes > 1 else "a0"], T=FLOAT)
    for i in range(called):
        add_call(graph.node, f"y{i}", f"f{i % count}", [f"y{i - 1}" if i else "x"])
    return graph


def chain(count: int, op: str = "Neg", **attributes: Any) -> Any:
    """Operators in a row."""
    graph = message_type("GraphDef")()
    add_placeholder(graph)
    for i in range(count):
        add(graph.node, f"n{i}", op, [f"n{i - 1}" if i else "x"], **{"T": FLOAT, **attributes})
    return graph


def switches(count: int) -> Any:
    """Conditions in a row, as the first control flow has them; each path goes through one of two branches."""
    graph = message_type("GraphDef")()
    add_placeholder(graph)
    add(graph.node, "p", "Placeholder", dtype=10, shape=[])
    last = "x"
    for i in range(count):
        add(graph.node, f"s{i}", "Switch", [last, "p"], T=FLOAT)
        add(graph.node, f"t{i}", "Neg", [f"s{i}:1"], T=FLOAT)
        add(graph.node, f"e{i}", "Abs", [f"s{i}"], T=FLOAT)
        add(graph.node, f"m{i}", "Merge", [f"e{i}", f"t{i}"], T=FLOAT)
        last = f"m{i}"
    return graph


def nested_switches(depth: int) -> Any:
    """Conditions within conditions, as the first control flow has them."""
    graph = message_type("GraphDef")()
    add_placeholder(graph)
    last = "x"
    for i in range(depth):
        add(graph.node, f"p{i}", "Placeholder", dtype=10, shape=[])
        add(graph.node, f"s{i}", "Switch", [last, f"p{i}"], T=FLOAT)
        last = f"s{i}:1"
    for i in reversed(range(depth)):
        add(graph.node, f"m{i}", "Merge", [f"s{i}", last], T=FLOAT)
        last = f"m{i}"
    return graph


def shape_arithmetic(count: int) -> Any:
    """Sizes that are taken apart and put together again, many times."""
    graph = message_type("GraphDef")()
    add(graph.node, "x", "Placeholder", dtype=FLOAT, shape=[-1, 4])
    for name, number in (("zero", 0), ("one", 1)):
        node = add(graph.node, name, "Const", dtype=INT)
        node.attr["value"].tensor.dtype = INT
        node.attr["value"].tensor.int_val.append(number)
        node.attr["value"].tensor.tensor_shape.dim.add(size=1)
    last = "x"
    for i in range(count):
        add(graph.node, f"s{i}", "Shape", [last], T=FLOAT, out_type=INT)
        add(graph.node, f"b{i}", "StridedSlice", [f"s{i}", "zero", "one", "one"], T=INT, Index=INT)
        add(graph.node, f"e{i}", "StridedSlice", [f"s{i}", "one", "zero", "one"], T=INT, Index=INT)
        graph.node[-1].attr["end_mask"].i = 1
        add(graph.node, f"c{i}", "ConcatV2", [f"b{i}", f"e{i}", "axis"], T=INT, Tidx=INT)
        graph.node[-1].attr["N"].i = 2
        add(graph.node, f"r{i}", "Reshape", [last, f"c{i}"], T=FLOAT, Tshape=INT)
        last = f"r{i}"
    node = add(graph.node, "axis", "Const", dtype=INT)
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
    add_placeholder(graph)
    node = add(graph.node, "y", op, ["x"] * count, T=FLOAT)
    node.attr["N"].i = count
    return graph


def signature(count: int) -> Any:
    """A signature of many inputs and outputs."""
    saved = message_type("SavedModel")(saved_model_schema_version=1)
    meta = saved.meta_graphs.add()
    meta.meta_info_def.tags.append("serve")
    described = meta.signature_def["serving_default"]
    for i in range(count):
        add(meta.graph_def.node, f"x{i}", "Placeholder", dtype=FLOAT, shape=[2])
        add(meta.graph_def.node, f"y{i}", "Neg", [f"x{i}"], T=FLOAT)
        described.inputs[f"i{i}"].name = f"x{i}:0"
        described.outputs[f"o{i}"].name = f"y{i}:0"
    return saved


def meta_graphs(count: int) -> Any:
    """Many graphs with tags."""
    saved = message_type("SavedModel")(saved_model_schema_version=1)
    for i in range(count):
        meta = saved.meta_graphs.add()
        meta.meta_info_def.tags.extend([f"t{i}", "serve"])
        add_placeholder(meta.graph_def)
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
    add(graph.node, "v0", "VarHandleOp", dtype=FLOAT, shape=[2], shared_name="v0")
    for i in range(count):
        function = graph.library.function.add()
        function.signature.name = f"f{i}"
        function.signature.input_arg.add(name="h", type=RESOURCE)
        function.signature.output_arg.add(name="out", type=FLOAT)
        function.ret["out"] = "r:value:0" if i == count - 1 else "r:output:0"
        if i == count - 1:
            add(function.node_def, "r", "ReadVariableOp", ["h"], dtype=FLOAT)
        else:
            node = add(function.node_def, "r", "StatefulPartitionedCall", ["h"], f=(f"f{i + 1}",))
            node.attr["Tin"].list.type.append(RESOURCE)
            node.attr["Tout"].list.type.append(FLOAT)
    node = add(graph.node, "y", "StatefulPartitionedCall", ["v0"], f=("f0",))
    node.attr["Tin"].list.type.append(RESOURCE)
    node.attr["Tout"].list.type.append(FLOAT)
    return graph
