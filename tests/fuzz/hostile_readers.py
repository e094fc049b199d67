"""Values that many nodes read, nodes that read many, chains whose sizes grow, and constants in sub-blocks.

Each entry of `FILES` writes one file, as those of `hostile` do.
"""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper, parser

from .hostile import Builder, _model, _value, _written, calls, chain
from .hostile_graphs import FLOAT, INT, _constant, _node, _text, _vector

node = helper.make_node


def branches_of_constants(count: int) -> onnx.ModelProto:
    """Ifs with a constant condition, whose branches are constants."""
    nodes = []
    for i in range(count):
        branches = [
            helper.make_graph(
                [
                    node("Constant", [], [f"k{op_type}{i}"], value_floats=[1.0] * 8),
                    node(op_type, [f"k{op_type}{i}"], [f"{op_type}{i}"]),
                ],
                op_type,
                [],
                [_value(f"{op_type}{i}")],
            )
            for op_type in ("Neg", "Abs")
        ]
        nodes.append(node("If", ["c"], [f"r{i}"], then_branch=branches[0], else_branch=branches[1]))
    model = _model(nodes, [], ["r0"])
    model.graph.initializer.append(helper.make_tensor("c", TensorProto.BOOL, [], [True]))
    return model


def string_tensors(count: int) -> onnx.ModelProto:
    """Initializers of many strings."""
    model = chain(1, [2])
    for i in range(count):
        model.graph.initializer.add(name=f"i{i}", data_type=8, dims=[50], string_data=[b"s"] * 50)
    return model


def sparse_tensors(count: int) -> onnx.ModelProto:
    """Sparse initializers of 2**40 elements."""
    model = chain(1, [2])
    for i in range(count):
        sparse = model.graph.sparse_initializer.add(dims=[2**20, 2**20])
        sparse.values.CopyFrom(helper.make_tensor(f"s{i}", 1, [1], [1.0]))
        sparse.indices.CopyFrom(helper.make_tensor("", 7, [1], [2**40 - 1]))
    return model


def concatenated(count: int, other: str) -> onnx.ModelProto:
    """A chain of Concats, whose size is a long sum."""
    nodes = [node("Shape", ["x"], ["s"]), node("ConstantOfShape", ["s"], ["z"])]
    nodes += [node("Concat", [f"v{i}", other], [f"v{i + 1}"], axis=0) for i in range(count)]
    return _model(nodes, [_value("x", ["m"]), _value("v0", ["n"])], [f"v{count}"])


def read_often(maker: str, count: int) -> onnx.ModelProto:
    """A Sum that reads one value many times: a result, or a constant."""
    nodes = [node("Constant", [], ["c"], value_floats=[1.0, 2.0]), node("Neg", ["c"], ["d"])]
    nodes = nodes if maker == "constant" else [node("Identity", ["x"], ["d"])]
    return _model([*nodes, node("Sum", ["d"] * count + ["x"], ["y"])], [_value("x", [2])], ["y"])


def result_of_function(count: int) -> onnx.ModelProto:
    """A Sum that reads the result of a function many times."""
    model = calls(1, 1)
    model.graph.node[0].output[0] = "f"
    model.graph.node.append(node("Sum", ["f"] * count, ["y"]))
    return model


def many_readers(count: int, readers: int) -> onnx.ModelProto:
    """Nodes that read all outputs of one node."""
    outputs = [f"o{i}" for i in range(count)]
    nodes = [node("Split", ["x"], outputs, axis=0)]
    nodes += [node("Sum", outputs, [f"s{j}"]) for j in range(readers)]
    nodes.append(node("Concat", [f"s{j}" for j in range(readers)], ["y"], axis=0))
    return _model(nodes, [_value("x", [count])], ["y"])


def large_constants(op_type: str) -> onnx.ModelProto:
    """A Loop of 2**62 steps, or a Scan over 2**33, that makes a large constant in each step."""
    body = "k = Constant<value_ints = [1000000000]>() f = Constant<value_float = 1.0>() s = Expand(f, k)"
    loop = (
        "y, z = Loop(n, c, x) <body = b (int64 i, bool d, float[2] v) => (bool e, float[2] w, float[m] s)"
        f"{{ e = Identity(d) {body} w = Add(v, v) }}>"
    )
    scan = f"y = Scan<num_scan_inputs = 1, body = b (float[2] v) => (float[m] s) {{ {body} }}>(o)"
    text = (
        f"n = Constant<value_int = {2**62}>() c = Constant<value = bool {{1}}>() {loop}"
        if op_type == "Loop"
        else f"n = Constant<value_ints = [{2**33}, 2]>() o = ConstantOfShape(n) {scan}"
    )
    header = '<ir_version: 8, opset_import: ["": 17]>'
    return parser.parse_model(f"{header} g (float[2] x) => (y) {{ {text} }}")


def constants_in_function(size: int) -> onnx.ModelProto:
    """A function whose body computes on constants of size x size elements."""
    model = _model([node("F", ["x"], ["y"], domain="d")], [_value("x", [2])], ["y"])
    model.opset_import.add(domain="d", version=1)
    nodes = [
        node("Constant", [], ["k"], value_ints=[size, size]),
        node("ConstantOfShape", ["k"], ["c"]),
        node("MatMul", ["c", "c"], ["m"]),
        node("ReduceSum", ["m"], ["s"]),
        node("Add", ["a", "s"], ["b"]),
    ]
    model.functions.append(helper.make_function("d", "F", ["a"], ["b"], nodes, [helper.make_opsetid("", 17)]))
    return model


def nested_type(field: str, depth: int) -> onnx.ModelProto:
    """An input that is a sequence or an optional, many levels deep."""
    model = chain(1, [2])
    innermost = model.graph.input.add(name="q").type
    for _ in range(depth):
        innermost = getattr(innermost, field).elem_type
    innermost.tensor_type.elem_type = TensorProto.FLOAT
    return model


def sparse_constants(count: int) -> onnx.ModelProto:
    """Sums of sparse constants of 2**34 elements."""
    nodes = []
    for i in range(count):
        one, index = helper.make_tensor("v", 1, [1], [1.0]), helper.make_tensor("i", 7, [1], [2**33])
        nodes.append(
            node("Constant", [], [f"c{i}"], sparse_value=helper.make_sparse_tensor(one, index, [2**34]))
        )
        nodes.append(node("ReduceSum", [f"c{i}"], [f"r{i}"], keepdims=0))
    nodes.append(node("Sum", [f"r{i}" for i in range(count)], ["y"]))
    return _model(nodes, [], ["y"])


def calls_in_a_circle(count: int) -> onnx.ModelProto:
    """Functions of which the last calls the first."""
    model = calls(count, 2)
    last = model.functions[-1].node[0]
    last.op_type, last.domain = "F0", "d"
    return model


def segment() -> onnx.ModelProto:
    """A tensor that is a segment of one of 2**40 elements."""
    model = chain(1, [2])
    tensor = model.graph.initializer.add(name="w", data_type=1, dims=[2**20], raw_data=b"abcd")
    tensor.segment.end = 2**40
    return model


_X = _node("x", "Placeholder", "", dtype=FLOAT, shape="shape { dim { size: 2 } }")
_FLAG = _node("p", "Placeholder", "", dtype="type: DT_BOOL", shape="shape { }")


def _switches(count: int) -> str:
    """A chain of TensorFlow's old conditions."""
    text = _X + _FLAG
    for i in range(count):
        text += _node(f"s{i}", "Switch", f"{f'm{i - 1}' if i else 'x'} p", T=FLOAT)
        text += _node(f"n{i}", "Neg", f"s{i}:0", T=FLOAT) + _node(f"a{i}", "Abs", f"s{i}:1", T=FLOAT)
        text += _node(f"m{i}", "Merge", f"n{i} a{i}", T=FLOAT, N="i: 2")
    return text


def _list_writes(count: int) -> str:
    """A TensorFlow list that is written element by element."""
    text = _X + _constant("n", count) + _vector("sh", 2)
    text += _node("l0", "TensorListReserve", "sh n", element_dtype=FLOAT, shape_type=INT)
    for i in range(count):
        text += _constant(f"k{i}", i)
        text += _node(f"l{i + 1}", "TensorListSetItem", f"l{i} k{i} x", element_dtype=FLOAT)
    return text + _node(
        "y", "TensorListStack", f"l{count} sh", element_dtype=FLOAT, num_elements=f"i: {count}"
    )


FILES: dict[str, Builder] = {
    "branches of constants in a line": _written(lambda: branches_of_constants(3_000)),
    "20000 string tensors": _written(lambda: string_tensors(20_000)),
    "4000 sparse tensors": _written(lambda: sparse_tensors(4_000)),
    "concatenated sizes": _written(lambda: concatenated(3_000, "x")),
    "zeros read by 5000 concatenations": _written(lambda: concatenated(5_000, "z")),
    "a result read 50000 times": _written(lambda: read_often("result", 50_000)),
    "a constant read 30000 times": _written(lambda: read_often("constant", 30_000)),
    "the result of a function read 50000 times": _written(lambda: result_of_function(50_000)),
    "many readers of many outputs": _written(lambda: many_readers(1_500, 200)),
    "a loop around large constants": _written(lambda: large_constants("Loop")),
    "a scan of large constants": _written(lambda: large_constants("Scan")),
    "large constants in a function": _written(lambda: constants_in_function(2**20)),
    "sequences 40 levels deep": _written(lambda: nested_type("sequence_type", 40)),
    "optionals 40 levels deep": _written(lambda: nested_type("optional_type", 40)),
    "sparse constants": _written(lambda: sparse_constants(500)),
    "functions that call each other in a circle": _written(lambda: calls_in_a_circle(50)),
    "a segment of a tensor": _written(segment),
    "TensorFlow chain of Switch": _text(_switches(1_000)),
    "TensorFlow list of 2000 writes": _text(_list_writes(2_000)),
}
