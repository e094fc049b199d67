"""Files whose size says little about the work that they ask for, made by code: small ones, and sparse ones.

Each entry of `FILES` writes one file; a sparse one where its contents are not to be held in memory.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable, Iterator

import onnx
from onnx import helper, parser

Builder = Callable[[pathlib.Path], None]
HUGE = 2**33


def _written(make: Callable[[], bytes | onnx.ModelProto]) -> Builder:
    def build(path: pathlib.Path) -> None:
        made = make()
        path.write_bytes(made if isinstance(made, bytes) else made.SerializeToString())

    return build


def _text(graph: str, opset: int = 17) -> Builder:
    return _written(lambda: parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> g {graph}'))


SIZED = {
    "range": "() => (y) { y = Range(zero, huge, one) }",
    "range of floats": "() => (y) { y = Range(zero_f, huge_f, one_f) }",
    "tile": "() => (y) { y = Tile(ones, hugev) }",
    "tile of an input": "(int64[3] x) => (y) { y = Tile(x, hugev) }",
    "expand": "() => (y) { y = Expand(ones, hugev) }",
    "constant of shape": "() => (y) { y = ConstantOfShape(hugev) }",
    "ones of shape": "() => (y) { y = ConstantOfShape<value = int64[1] {1}>(hugev) }",
    "Hann window": "() => (y) { y = HannWindow(huge) }",
    "Blackman window": "() => (y) { y = BlackmanWindow(huge) }",
    "mel weights": "() => (y) { y = MelWeightMatrix(huge, huge, huge, zero_f, huge_f) }",
    "one hot": "(int64[2] x) => (y) { v = Constant<value_floats = [0.0, 1.0]>() y = OneHot(x, huge, v) }",
    "resize": '(float[1,1,4,4] x) => (y) { y = Resize<mode = "linear">(x, , factors) }',
    "pad": "(float[1] x) => (y) { p = Concat<axis = 0>(hugev, hugev) y = Pad(x, p) }",
    "pad of constants": "() => (y) { p = Concat<axis = 0>(hugev, hugev) y = Pad(ones, p) }",
    "eye": f"(float[{HUGE}, {HUGE}] x) => (y) {{ y = EyeLike(x) }}",
    "matrix product": f"(float[{HUGE}, 1] x) => (y) {{ t = Transpose(x) y = MatMul(x, t) }}",
    "cumulative sum": f"(float[{HUGE}] x) => (y) {{ y = CumSum(x, zero) }}",
    "sum along what was concatenated": (
        f"(float[{HUGE}] q) => (y) {{ s = Shape(q) x = ConstantOfShape<value = int64[1] {{1}}>(s) "
        "y = Concat<axis = 0>(x, x) }"
    ),
    "added to": "(int64 q) => (y) { x = ConstantOfShape<value = int64[1] {1}>(hugev) y = Add(x, q) }",
    "sliced": f"(int64[{HUGE}] x) => (y) {{ z = Constant<value_ints = [0]>() y = Slice(x, z, hugev) }}",
    "gathered": f"(int64[{HUGE}] x) => (y) {{ y = Gather(x, zero) z = Gather(x, x) }}",
    "cast": f"(float[{HUGE}] x) => (y) {{ y = Cast<to = 7>(x) }}",
    "squeezed": f"(float[{HUGE}] x, int64[{HUGE}] a) => (y) {{ y = Squeeze(x, a) z = Unsqueeze(x, a) }}",
    "reshaped": f"(float[n] x, int64[{HUGE}] a) => (y) {{ y = Reshape(x, a) z = Expand(x, a) }}",
    "normalized": (
        f"(float[1,2,3] x, float[{HUGE}] s) => (y) {{ y = GroupNormalization<num_groups = 1>(x, s, s) }}"
    ),
    "loop": (
        "(float[2] x) => (y, z) { c = Constant<value = bool {1}>() y, z = Loop(huge, c, x) <body = b "
        "(int64 i, bool d, float[2] v) => (bool e, float[2] w, float[2] s) "
        "{ e = Identity(d) w = Add(v, v) s = Identity(w) }> }"
    ),
    "scan": (
        f"(float[{HUGE}] x) => (y) {{ y = Scan<num_scan_inputs = 1, body = b (float v) => (float w) "
        "{ w = Neg(v) }>(x) }"
    ),
    "sequence": "() => (y) { s = SplitToSequence(ones_of, one) y = ConcatFromSequence<axis = 0>(s) }",
    "random": f"() => (y) {{ y = RandomNormal<shape = [{HUGE}, {HUGE}]>() }}",
    "where": "(bool[1000000, 1000000] c, float[1000000, 1000000] x) => (y) { y = Where(c, x, x) }",
    "expanded input": (
        "(float[1] x) => (y) { s = Constant<value_ints = [1000000, 1000000]>() y = Expand(x, s) }"
    ),
    "transform": "(float[1, 1000003, 1] x) => (y) { y = DFT<axis = 1>(x) }",
    "short-time transform": (
        "(float[1, 10000000, 1] x) => (y) { w = Constant<value_int = 1000003>() y = STFT(x, one, , w) }"
    ),
    "pooling": (
        "(float[1, 1, 1000000, 1000000] x) => (y) { y = AveragePool<kernel_shape = [100000, 100000], "
        "ceil_mode = 1, strides = [3, 3]>(x) }"
    ),
    "dilated pooling": (
        "(float[1, 1, 1000000, 1000000] x) => (y) { y = MaxPool<kernel_shape = [100000, 100000], "
        "dilations = [2, 2], strides = [3, 3]>(x) }"
    ),
    "resized sizes": (
        "(float[1, 1, 1000000, 1000000] x) => (y) { s = Constant<value_ints = [1, 1, 3000000, 3000000]>() "
        'y = Resize<mode = "cubic">(x, , , s) }'
    ),
    "triangle": "(float[1000000, 1000000] x) => (y) { y = Trilu(x) }",
    "reflected": (
        "(float[1000000000] x) => (y) { p = Constant<value_ints = [999999, 999999999]>() "
        'y = Pad<mode = "reflect">(x, p) }'
    ),
    "reversed": (
        "(float[1000000000] x) => (y) { m = Constant<value_ints = [-1]>() "
        "e = Constant<value_ints = [-9223372036854775807]>() a = Constant<value_ints = [0]>() "
        "y = Slice(x, m, e, a, m) }"
    ),
    "gathered by many": f"(float[2, 2] x, int64[1, {HUGE}] i) => (y) {{ y = GatherND(x, i) }}",
    "scattered by many": (
        f"(float[2, 2] x, int64[1, {HUGE}] i, float[1] u) => (y) {{ y = ScatterND(x, i, u) }}"
    ),
    "sorted": f"(float[{HUGE}] x) => (y, z) {{ y, z = TopK<largest = 0>(x, hugev) }}",
    "unique": f"(float[{HUGE}] x) => (y) {{ y = Unique(x) }}",
    "recurrent": (
        f"(float[{HUGE}, 1, 1] x, float[1, 4, 1] w, float[1, 4, 1] r) => (y) "
        "{ y = LSTM<hidden_size = 1, layout = 0>(x, w, r) }"
    ),
    "attribute of a wrong type": "(float[2, 2] x) => (y) { y = Gemm<transA = 1.0>(x, x) }",
    "scan of minus five inputs": (
        "(float[2] x) => (y) { y = Scan<num_scan_inputs = -5, body = b (float v) => (float w) "
        "{ w = Neg(v) }>(x) }"
    ),
    "values of 2**124 bytes": f"(float[{2**61}, {2**61}] x) => (float[{2**61}, {2**61}] y) {{ y = Relu(x) }}",
    "one of many": "(int64[2] x) => (y) { y = Bernoulli(ones_of) }",
    "split": f"(float[{HUGE}] x) => (y) {{ y, z = Split(x) }}",
    "top": f"(float[{HUGE}] x) => (y, z) {{ y, z = TopK(x, hugev) }}",
    "sum of equal letters": f'(float[9,9] x) => (y) {{ y = Einsum<equation = "{"ij," * 20_000}ij->ij">(x) }}',
}
_CONSTANTS = {
    "huge": f"Constant<value_int = {HUGE}>()",
    "hugev": f"Constant<value_ints = [{HUGE}]>()",
    "zero": "Constant<value_int = 0>()",
    "one": "Constant<value_int = 1>()",
    "zero_f": "Constant<value_float = 0.0>()",
    "one_f": "Constant<value_float = 1.0>()",
    "huge_f": f"Constant<value_float = {float(HUGE)}>()",
    "ones": "Constant<value_ints = [1, 1, 1]>()",
    "ones_of": "ConstantOfShape(hugev)",
    "factors": "Constant<value_floats = [1.0, 1.0, 1e9, 1e9]>()",
}


def _sized(name: str) -> Builder:
    graph = SIZED[name]
    head, _, tail = graph.partition("{")
    used = set(re.findall(r"\w+", tail))
    used |= {"hugev"} if "ones_of" in used else set()
    made = " ".join(f"{key} = {text}" for key, text in _CONSTANTS.items() if key in used)
    return _text(f"{head}{{ {made} {tail}", 18 if "GroupNormalization" in graph else 17)


def _model(
    nodes: list[onnx.NodeProto], inputs: list[onnx.ValueInfoProto], outputs: list[str], opset: int = 17
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", inputs, [onnx.ValueInfoProto(name=name) for name in outputs])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def _value(name: str, shape: list[int | str] | None = None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)


def chain(count: int, shape: list[int | str] | None, op_type: str = "Relu") -> onnx.ModelProto:
    """Operators in a row."""
    nodes = [helper.make_node(op_type, [f"v{i}"], [f"v{i + 1}"]) for i in range(count)]
    return _model(nodes, [_value("v0", shape)], [f"v{count}"])


def doubled(count: int, op_type: str) -> onnx.ModelProto:
    """An operator of what it gave before, twice: Gather doubles the rank each time, Concat the length."""
    attributes = {"axis": 0}
    nodes = [helper.make_node(op_type, [f"v{i}"] * 2, [f"v{i + 1}"], **attributes) for i in range(count)]
    value = helper.make_tensor_value_info("v0", onnx.TensorProto.INT64, [2, 2][: 2 - (op_type == "Concat")])
    return _model(nodes, [value], [f"v{count}"])


def unsqueezed(count: int) -> onnx.ModelProto:
    """A dimension more with each node."""
    axes = helper.make_node("Constant", [], ["axes"], value_ints=[0])
    nodes = [helper.make_node("Unsqueeze", [f"v{i}", "axes"], [f"v{i + 1}"]) for i in range(count)]
    return _model([axes, *nodes], [_value("v0", [2])], [f"v{count}"])


def constant_shape(rank: int, count: int) -> onnx.ModelProto:
    """A constant with a size for each of many dimensions."""
    shape = helper.make_tensor("shape", onnx.TensorProto.INT64, [rank], [1] * rank)
    nodes = [helper.make_node("Reshape", ["v", "shape"], ["v0"])]
    nodes += [helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"]) for i in range(count)]
    model = _model(nodes, [_value("v", [1])], [f"v{count}"])
    model.graph.initializer.append(shape)
    return model


def calls(levels: int, width: int, body: list[onnx.NodeProto] | None = None) -> onnx.ModelProto:
    """Functions that each call the next several times."""
    model = _model([helper.make_node("F0", ["x"], ["y"], domain="d")], [_value("x", [2])], ["y"])
    model.opset_import.add(domain="d", version=1)
    for level in range(levels):
        last = level == levels - 1
        nodes = [
            helper.make_node(
                "Neg" if last else f"F{level + 1}", [f"t{i}"], [f"t{i + 1}"], domain="" if last else "d"
            )
            for i in range(width)
        ]
        function = helper.make_function(
            "d", f"F{level}", ["t0"], [f"t{width}"], [*(body or [] if last else []), *nodes],
            [helper.make_opsetid("", 17), helper.make_opsetid("d", 1)],
        )  # fmt: skip
        model.functions.append(function)
    return model


def _call(function: str, given: str, made: str) -> onnx.NodeProto:
    return helper.make_node(function, [given], [made], domain="d")


def calls_in_branches(levels: int) -> onnx.ModelProto:
    """Functions that call the next in both branches of an If."""
    model = calls(levels, 2)
    for function in model.functions[:-1]:
        callee = function.node[0].op_type
        graphs = [
            helper.make_graph(
                [helper.make_node(callee, ["t0"], [name], domain="d")], name, [], [_value(name)]
            )
            for name in ("p", "q")
        ]
        del function.node[:]
        function.node.add(op_type="Constant", output=["c"]).attribute.append(
            helper.make_attribute("value", helper.make_tensor("c", onnx.TensorProto.BOOL, [], [True]))
        )
        branch = helper.make_node("If", ["c"], ["t2"], then_branch=graphs[0], else_branch=graphs[1])
        function.node.append(branch)
    return model


def large_function(contents: int, count: int) -> onnx.ModelProto:
    """A function with much in an attribute, called often."""
    data = helper.make_tensor("w", onnx.TensorProto.FLOAT, [contents // 4], bytes(contents), raw=True)
    constant = helper.make_node("Constant", [], ["w"], value=data)
    model = calls(1, 1, [constant])
    del model.graph.node[:]
    model.graph.node.extend(
        helper.make_node("F0", [f"v{i}"], [f"v{i + 1}"], domain="d") for i in range(count)
    )
    model.graph.input[0].name, model.graph.output[0].name = "v0", f"v{count}"
    model.functions[0].node[1].op_type = "Add"
    model.functions[0].node[1].input.append("w")
    return model


def long_function(nodes: int, count: int) -> onnx.ModelProto:
    """A function of many nodes, called often."""
    model = calls(1, nodes)
    del model.graph.node[:]
    model.graph.node.extend(
        helper.make_node("F0", [f"v{i}"], [f"v{i + 1}"], domain="d") for i in range(count)
    )
    model.graph.input[0].name, model.graph.output[0].name = "v0", f"v{count}"
    return model


def branches(depth: int, nodes: int = 1) -> onnx.ModelProto:
    """Two branches in each branch."""

    def graph(name: str, level: int) -> onnx.GraphProto:
        inner = [helper.make_node("Neg", ["x"], [f"{name}.{i}"]) for i in range(nodes)]
        result = f"{name}.0"
        if level:
            result = f"{name}.r"
            inner.append(
                helper.make_node(
                    "If", ["c"], [result], then_branch=graph(f"{name}t", level - 1),
                    else_branch=graph(f"{name}e", level - 1),
                )
            )  # fmt: skip
        return helper.make_graph(inner, name, [], [_value(result)])

    outer = graph("b", depth)
    model = _model(list(outer.node), [_value("x", [2])], [outer.output[0].name])
    model.graph.input.append(helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, []))
    return model


def nested(depth: int, outside: int) -> onnx.ModelProto:
    """One branch in each branch, all of them after many nodes of the main graph."""
    inner = helper.make_graph([helper.make_node("Neg", ["v1"], ["r0"])], "g", [], [_value("r0")])
    for level in range(1, depth):
        node = helper.make_node("If", ["c"], [f"r{level}"], then_branch=inner, else_branch=inner)
        node.attribute[1].g.CopyFrom(
            helper.make_graph([helper.make_node("Abs", ["v1"], ["e"])], "e", [], [_value("e")])
        )
        inner = helper.make_graph([node], "g", [], [_value(f"r{level}")])
    model = chain(outside, [2])
    model.graph.node.extend(inner.node)
    model.graph.output[0].name = inner.output[0].name
    model.graph.input.append(helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, []))
    return model


def many_branches(count: int) -> onnx.ModelProto:
    """Many Ifs in one graph, each of which may read what any before it made."""
    nodes = []
    for i in range(count):
        graphs = [
            helper.make_graph([helper.make_node(op, [f"v{i}"], [f"{op}{i}"])], op, [], [_value(f"{op}{i}")])
            for op in ("Neg", "Abs")
        ]
        nodes.append(
            helper.make_node("If", ["c"], [f"v{i + 1}"], then_branch=graphs[0], else_branch=graphs[1])
        )
    model = _model(nodes, [_value("v0", [2])], [f"v{count}"])
    model.graph.input.append(helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, []))
    return model


def many(field: str, count: int) -> onnx.ModelProto:
    """Many entries of one field."""
    model = chain(1, [2])
    graph = model.graph
    for i in range(count):
        if field in ("input", "value_info"):
            getattr(graph, field).append(_value(f"i{i}", [2]))
        elif field == "output":
            graph.output.append(_value("v1" if i % 2 else "v0", [2]))
        elif field == "initializer":
            graph.initializer.add(name=f"i{i}", data_type=1, dims=[1], raw_data=b"abcd")
        elif field == "opset_import":
            model.opset_import.add(domain=f"d{i}", version=1)
        elif field == "metadata_props":
            model.metadata_props.add(key=f"k{i}", value="v")
        elif field == "node metadata":
            graph.node[0].metadata_props.add(key=f"k{i}", value="v")
        elif field == "functions":
            function = model.functions.add(domain="d", name=f"f{i}", input=["a"], output=["b"])
            function.node.add(op_type="Neg", input=["a"], output=["b"])
            function.opset_import.add(domain="", version=17)
        elif field == "attribute":
            graph.node[0].attribute.add(name=f"a{i}", type=onnx.AttributeProto.INT, i=1)
        elif field == "text attribute":
            graph.node[0].attribute.add(name=f"a{i}", type=onnx.AttributeProto.STRING, s=b"t")
        elif field == "node input":
            graph.node[0].input.append("v0")
        elif field == "node output":
            graph.node[0].output.append(f"o{i}")
        elif field == "dim":
            graph.input[0].type.tensor_type.shape.dim.add(dim_value=1)
        elif field == "quantization_annotation":
            graph.quantization_annotation.add(tensor_name=f"q{i}")
        elif field == "undocumented value":
            graph.value_info.add(name=f"i{i}")
        elif field == "same name":
            graph.node.add(op_type="Neg", name="same", input=["v0"], output=[f"same_{i}"])
    if field == "functions":
        model.opset_import.add(domain="d", version=1)
    return model


def named(size: int, where: str) -> onnx.ModelProto:
    """A long name, read by many."""
    model = chain(300, [2])
    if where == "value":
        for node in model.graph.node:
            node.input.append("n" * size)
        model.graph.input.append(_value("n" * size, [2]))
    elif where == "operator":
        model.graph.node[0].op_type = "n" * size
    elif where == "node":
        model.graph.node[0].name = "n" * size
    return model


def strings(count: int) -> onnx.ModelProto:
    """An attribute of many strings."""
    model = chain(1, [2])
    model.graph.node[0].domain = "d"
    model.opset_import.add(domain="d", version=1)
    model.graph.node[0].attribute.append(helper.make_attribute("a", [b"s"] * count))
    return model


def declared(dims: list[int], kind: int = onnx.TensorProto.FLOAT) -> onnx.ModelProto:
    """An initializer of great size without contents."""
    model = chain(1, [2])
    model.graph.initializer.add(name="w", data_type=kind, dims=dims)
    return model


def shared_contents(path: pathlib.Path) -> None:
    """Many tensors in the same external data."""
    model = chain(1, [2])
    with open(path.parent / "shared.bin", "wb") as file:
        file.truncate(2**20)
    for i in range(4000):
        tensor = model.graph.initializer.add(name=f"w{i}", data_type=1, dims=[2**18])
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="shared.bin")
    path.write_bytes(model.SerializeToString())


def nested_messages(levels: int) -> bytes:
    """Messages within messages."""
    data = b""
    for _ in range(levels):
        for tag in (0x0A, 0x2A, 0x32):
            data = bytes([tag]) + _varint(len(data)) + data
    return b"\x08\x08\x3a" + _varint(len(data)) + data


def _varint(number: int) -> bytes:
    groups = []
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*groups, number])


def _sparse(size: int, first: bytes = b"") -> Builder:
    def build(path: pathlib.Path) -> None:
        with open(path, "wb") as file:
            file.write(first)
            file.truncate(size)

    return build


def _repeated(piece: bytes, size: int) -> Builder:
    def build(path: pathlib.Path) -> None:
        block = piece * (2**20 // len(piece))
        with open(path, "wb") as file:
            for _ in range(size // len(block)):
                file.write(block)

    return build


def _small() -> Iterator[tuple[str, Builder]]:
    for name in SIZED:
        yield name, _sized(name)
    yield "ranks that double", _written(lambda: doubled(40, "Gather"))
    yield "lengths that double", _written(lambda: doubled(60, "Concat"))
    yield "ranks that grow", _written(lambda: unsqueezed(10_000))
    yield "a shape of 100000 dimensions", _written(lambda: constant_shape(100_000, 5_000))
    yield "32 dimensions at every node", _written(lambda: chain(20_000, ["n"] * 32))
    yield "100000 dimensions at every node", _written(lambda: chain(5_000, [1] * 100_000))
    yield "a long dimension at every node", _written(lambda: chain(5_000, ["n" * 2**20], "Softmax"))
    for levels in (14, 20, 24, 90):
        yield f"{levels} levels of two calls", _written(lambda levels=levels: calls(levels, 2))
    yield "3 levels of 100 calls", _written(lambda: calls(3, 100))
    yield "a chain of 90 functions", _written(lambda: calls(90, 1))
    yield "a chain of 10000 functions", _written(lambda: calls(10_000, 1))
    yield "calls in branches", _written(lambda: calls_in_branches(20))
    yield "a large function called often", _written(lambda: large_function(2**20, 4_000))
    yield "a long function called often", _written(lambda: long_function(10_000, 4_000))
    yield "branches 14 deep", _written(lambda: branches(14))
    yield "branches 11 deep with nodes", _written(lambda: branches(11, 16))
    yield "branches in a line", _written(lambda: nested(30, 20_000))
    yield "branches side by side", _written(lambda: many_branches(5_000))
    yield "a chain of 20000 nodes", _written(lambda: chain(20_000, [2]))
    yield "a chain of 28000 nodes", _written(lambda: chain(28_000, [2]))
    for op_type in ("HardSwish", "LayerNormalization", "Softmax"):
        yield f"10000 nodes of {op_type}", _written(lambda op_type=op_type: chain(10_000, [2], op_type))
    yield "2000 nodes of HardSwish", _written(lambda: chain(2_000, [2], "HardSwish"))
    yield "a chain of 100000 nodes", _written(lambda: chain(100_000, [2]))
    yield "a million empty nodes", _written(lambda: b"\x08\x08\x3a\x80\x89\x7a" + b"\x0a\x00" * 1_000_000)
    yield "a million entries", _written(lambda: b"\x08\x08" + b"\x72\x00" * 1_000_000 + b"\x3a\x00")
    for field in (
        "input", "output", "initializer", "opset_import", "metadata_props", "node metadata", "functions",
        "attribute", "node input", "node output", "dim", "value_info", "quantization_annotation",
        "undocumented value",
    ):  # fmt: skip
        yield f"300000 of {field}", _written(lambda field=field: many(field, 300_000))
    # Attributes of numbers are read in a shorter way than those of text.
    yield "80000 of text attribute", _written(lambda: many("text attribute", 80_000))
    yield "20000 nodes of one name", _written(lambda: many("same name", 20_000))
    for where in ("value", "operator", "node"):
        yield f"a long name of a {where}", _written(lambda where=where: named(2**15, where))
    yield "a million strings", _written(lambda: strings(2**20))
    yield "an initializer without contents", _written(lambda: declared([2**40]))
    yield "strings without contents", _written(lambda: declared([2**40], onnx.TensorProto.STRING))
    yield "tensors in one place", shared_contents
    yield "33 graphs deep", _written(lambda: nested_messages(32))
    yield "1000 graphs deep", _written(lambda: nested_messages(1_000))
    yield "zeros", _sparse(2**24)


SMALL = dict(_small())
"""Files of a few megabytes at most."""
LARGE: dict[str, Builder] = {
    "1.9 GB of zeros": _sparse(1_900_000_000),
    "1.9 GB of zeros after a header": _sparse(1_900_000_000, b"\x08\x08\x3a"),
    "1.9 GB of zeros in a tensor": _sparse(
        1_900_000_000, b"\x08\x08\x3a" + _varint(1_899_999_992) + b"\x2a" + _varint(1_899_999_986)
    ),
    "1.9 GB of newlines": _sparse(1_900_000_000, b"\n" * 2**20),
    "1 GB of empty messages": _repeated(b"\x3a\x00", 10**9),
    "1 GB of text": _repeated(b"ir_version: 8 graph { node { } }\n", 10**9),
    "1 GB of JSON": _repeated(b'{"graph": {"node": [', 10**9),
    "64 MB of text": _repeated(b"ir_version: 8 graph { node { } }\n", 2**26),
    "64 MB of one string": _written(lambda: b'ir_version: 8 doc_string: "' + b"\\n" * 2**24 + b'" graph {}'),
    "a name of 100 MB": _written(lambda: named(100_000_000, "node")),
    "300 uses of a name of 1 MB": _written(lambda: named(2**20, "value")),
}
"""Files of many megabytes."""
FILES = {**SMALL, **LARGE}
