"""Large models of few operators: what each pass looks for, thousands of times, in a row or side by side.

Time that grows with the square of the nodes shows here. Each entry of `FILES` writes one file; `WAYS` are
ways of reading it that small models do not need.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator

import onnx
from onnx import parser

import opsetta
from opsetta.exporter.command_line.commands import deployment, realize, targets

from .hostile import Builder

_CONSTANTS = """<float[4] c = {1, 2, 3, 4},
float[4, 4] w4 = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, float[1, 1, 1, 1] k = {1},
float two = {2}, float half = {0.5}, float root = {1.4142135}, float eps = {0.00001}, float one = {1},
int64[1] zero_i = {0}, int64[1] one_i = {1}, int64[1] last_i = {-1}, int64[1] end_i = {9223372036854775807},
int64[2] rows_i = {-1, 4}, int64[3] flat_i = {1, -1, 4}, bool yes = {1}, float[1] k1 = {1},
uint8 zero_u = {0}, int64[4] pads_i = {0, 0, 0, 0}, int64[8] images_i = {0, 0, 0, 0, 0, 0, 0, 0},
float[4] four = {1, 1, 1, 1}, float[4] none = {0, 0, 0, 0}>"""
CHAINS = {
    "transposes": "a = Transpose<perm = [1, 0]>(v) b = Relu(a) w = Transpose<perm = [1, 0]>(b)",
    "pushed transposes": "a = Transpose<perm = [1, 0]>(v) w = Add(a, c)",
    "additions": "w = Add(v, c)",
    "scales": "a = Mul(v, c) w = Add(a, c)",
    "products": "a = MatMul(v, w4) w = Add(a, c)",
    "products alone": "w = MatMul(v, w4)",
    "Gemm": "a = MatMul(v, w4) b = Mul(a, c) w = Add(b, c)",
    "reshapes": "s = Shape(v) a = Gather(s, zero_i) b = Gather(s, one_i) t = Concat<axis = 0>(a, "
    "b) w = Reshape(v, t)",
    "shape arithmetic": "s = Shape(v) a = Slice(s, zero_i, one_i) b = Mul(a, one_i) "
    "d = Concat<axis = 0>(b, last_i) w = Reshape(v, d)",
    "rows": "a = Reshape(v, flat_i) b = MatMul(a, w4) w = Reshape(b, rows_i)",
    "identities": "a = Identity(v) w = Identity(a)",
    "casts": "a = Cast<to = 11>(v) b = Cast<to = 1>(a) d = Cast<to = 10>(b) w = Cast<to = 1>(d)",
    "squeezes": "a = Unsqueeze(v, zero_i) w = Squeeze(a, zero_i)",
    "slices": "w = Slice(v, zero_i, end_i, zero_i)",
    "changing slices": "w = Slice(v, one_i, end_i, zero_i)",
    "splits": "a, b = Split<axis = 1>(v) w = Concat<axis = 1>(b, a)",
    "conditions": "a = Where(yes, v, c) w = Where(yes, c, a)",
    "constant branches": "w = If(yes) <then_branch = t () => (float[n, 4] r) { r = Neg(v) }, "
    "else_branch = e () => (float[n, 4] q) { q = Abs(v) }>",
    "powers": "a = Pow(v, two) b = Sqrt(a) d = Reciprocal(b) e = Div(one, d) w = Exp(e)",
    "gelu": "a = Div(v, root) b = Erf(a) d = Add(b, one) e = Mul(v, d) w = Mul(e, half)",
    "layer normalization": "m = ReduceMean<axes = [-1]>(v) a = Sub(v, m) b = Pow(a, two) d = "
    "ReduceMean<axes = [-1]>(b) "
    "e = Add(d, eps) f = Sqrt(e) g = Div(a, f) h = Mul(g, c) w = Add(h, c)",
    "RMS normalization": "b = Mul(v, v) d = ReduceMean<axes = [-1]>(b) e = Add(d, eps) f = Sqrt(e) "
    "g = Div(v, f) "
    "w = Mul(g, c)",
    "attention": "q = MatMul(v, w4) t = Transpose<perm = [1, 0]>(q) a = MatMul(q, t) b = Mul(a, half) "
    "d = Softmax<axis = -1>(b) w = MatMul(d, v)",
    "rotations": "a = Slice(v, zero_i, one_i, one_i) b = Slice(v, one_i, end_i, one_i) d = Neg(b) "
    "e = Concat<axis = -1>(d, a) f = Mul(e, c) g = Mul(v, c) w = Add(f, g)",
    "quantized": "a = QuantizeLinear(v, one, zero_u) w = DequantizeLinear(a, one, zero_u)",
    "dropouts": "w, m = Dropout(v)",
    "clipped": "w = Clip(v, one, two)",
    "hard swishes": "w = HardSwish(v)",
    "sums": "a = ReduceSum(v, one_i) w = Add(v, a)",
    "expansions": "s = Shape(v) a = Expand(c, s) w = Add(v, a)",
    "shapes of ones": "s = Shape(v) a = ConstantOfShape(s) w = Add(v, a)",
    "one-hot": "a = ArgMax<axis = 1, keepdims = 0>(v) d = Constant<value_int = 4>() e = "
    "Constant<value_floats = [0.0, 1.0]>() "
    "w = OneHot(a, d, e)",
    "cumulative": "z = Constant<value_int = 0>() w = CumSum(v, z)",
    "ranges": "s = Shape(v) z = Constant<value_int = 0>() o = Constant<value_int = 1>() l = "
    "Gather(s, z) r = Range(z, l, o) "
    "w = Gather(v, r)",
    "Einsum": 'w = Einsum<equation = "ij,jk->ik">(v, w4)',
    "padded": "w = Pad(v, pads_i)",
    "duplicates": "a = Relu(x) b = Relu(x) d = Add(a, b) w = Add(v, d)",
    "constants": "a = Constant<value_floats = [1.0, 2.0, 3.0, 4.0]>() w = Add(v, a)",
    "folded constants": "a = Add(c, c) b = Mul(a, c) w = Add(v, b)",
    "selected": "a = Greater(v, one) w = Where(a, v, c)",
    "not a number": "a = IsNaN(v) w = Where(a, none, v)",
}
"""A block of nodes from `v` to `w`, and the chain that they make; other values are of the block alone."""
IMAGES = {
    "convolutions": "w = Conv(v, k, k1)",
    "normalized convolutions": "a = Conv(v, k) w = BatchNormalization(a, k1, k1, k1, k1)",
    "padded convolutions": "a = Pad(v, images_i) w = Conv(a, k)",
    "padded pooling": "a = Pad(v, images_i) w = AveragePool<kernel_shape = [1, 1]>(a)",
    "normalizations": "w = BatchNormalization(v, k1, k1, k1, k1)",
    "instance normalizations": "w = InstanceNormalization(v, k1, k1)",
    "resizes": 'w = Resize<mode = "linear">(v, , four)',
    "images transposed": "a = Transpose<perm = [0, 2, 3, 1]>(v) b = Add(a, k1) w = Transpose<perm "
    "= [0, 3, 1, 2]>(b)",
    "images of channels": "a = DepthToSpace<blocksize = 1>(v) w = SpaceToDepth<blocksize = 1>(a)",
    "whole pooling": "a = GlobalAveragePool(v) w = Mul(v, a)",
}
NODES = 16_000
"""Nodes of a chain, about."""
_WORDS = frozenset(
    "c w4 two half root eps one zero_i one_i last_i end_i rows_i flat_i yes k k1 zero_u pads_i images_i four "
    "none x".split()
)
"""The names of values that blocks share."""


def _renamed(block: str, number: int) -> str:
    """A block with names of its own; it reads `v<number>` and writes the next."""
    defined = set(re.findall(r"(\w+)(?:, (\w+))? = [A-Z]", block.replace("<", " < ")))
    names = {name for pair in defined for name in pair if name}
    names |= {"v", "r", "q"} & set(re.findall(r"\b\w+\b", block))

    def rename(match: re.Match[str]) -> str:
        name = match[0]
        if name == "v":
            return f"v{number}"
        if name == "w":
            return f"v{number + 1}"
        return f"{name}_{number}" if name in names and name not in _WORDS else name

    return re.sub(r"\b[a-z]\w*\b(?!\s*=\s*[\[\"\d-])", rename, block)


def chain(block: str, head: str, nodes: int = NODES) -> onnx.ModelProto:
    """A block again and again."""
    count = max(1, nodes // max(1, block.count(" = ") - block.count("<")))
    text = "\n".join(_renamed(block, number) for number in range(count))
    return parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g ({head} x) => (y) {_CONSTANTS} '
        f"{{ v0 = Identity(x) {text} y = Identity(v{count}) }}"
    )


def side_by_side(block: str, nodes: int = NODES) -> onnx.ModelProto:
    """A block that reads the same value again and again, and the sum of the results."""
    count = nodes // 2
    text = "\n".join(block.format(i=i) for i in range(count))
    results = ", ".join(f"r{i}" for i in range(count))
    return parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g (float[4, 4] x) => (y) <float[4] c = {{1, 2, 3, 4}}> '
        f"{{ t = Transpose<perm = [1, 0]>(x) {text} y = Sum({results}) }}"
    )


WIDE = {
    "equal nodes": "r{i} = Relu(t)",
    "readers of one value": "a{i} = Neg(t) r{i} = Add(a{i}, c)",
    "readers that transpose": "a{i} = Transpose<perm = [1, 0]>(t) r{i} = Neg(a{i})",
    "readers that multiply": "r{i} = MatMul(t, x)",
}


def polynomial(names: int, count: int) -> onnx.ModelProto:
    """A size that is a product of many sums of dimensions."""
    shape = ", ".join(f"n{i}" for i in range(names))
    sizes = " ".join(f"d{i} = Gather(s, i{i})" for i in range(names))
    constants = ", ".join(f"int64[1] i{i} = {{{i}}}" for i in range(names))
    total = " ".join(f"t{i} = Add(t{i - 1}, d{i})" for i in range(1, names))
    products = " ".join(f"p{i + 1} = Mul(p{i}, t{names - 1})" for i in range(count))
    nodes = (
        f"s = Shape(x) {sizes} t0 = Identity(d0) {total} p0 = Identity(t{names - 1}) {products} "
        f"e = Expand(c, p{count}) y = Relu(e)"
    )
    return parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g (float[{shape}] x) => (y) '
        f"<{constants}, float[1] c = {{1}}> {{ {nodes} }}"
    )


def carried(count: int) -> onnx.ModelProto:
    """A loop with many values that it carries on."""
    inputs = ", ".join(f"float[2] a{i}" for i in range(count))
    formal = ", ".join(f"float[2] b{i}" for i in range(count))
    body = " ".join(f"d{i} = Neg(b{i})" for i in range(count))
    results = ", ".join(f"float[2] d{i}" for i in range(count))
    outer = ", ".join(f"y{i}" for i in range(count))
    given = ", ".join(f"a{i}" for i in range(count))
    return parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g ({inputs}, int64 n, bool go) => ({outer}) '
        f"{{ {outer} = Loop(n, go, {given}) <body = l (int64 i, bool q, {formal}) => "
        f"(bool o, {results}) {{ o = Identity(q) {body} }}> }}"
    )


def initializers(count: int, size: int) -> onnx.ModelProto:
    """Many equal initializers, each of which is added."""
    model = chain("w = Relu(v)", "float[n, 4]", 1)
    graph = model.graph
    del graph.node[:]
    for i in range(count):
        graph.initializer.add(name=f"i{i}", data_type=1, dims=[size], raw_data=bytes(4 * size))
        graph.node.add(op_type="Add", input=[f"v{i}" if i else "x", f"i{i}"], output=[f"v{i + 1}"])
    graph.output[0].name = f"v{count}"
    return model


def _written(make: object) -> Builder:
    def build(path: pathlib.Path) -> None:
        path.write_bytes(make().SerializeToString())  # type: ignore[operator]

    return build


def _files() -> Iterator[tuple[str, Builder]]:
    for name, block in CHAINS.items():
        yield f"a chain of {name}", _written(lambda block=block: chain(block, "float[n, 4]"))
    for name, block in IMAGES.items():
        yield f"a chain of {name}", _written(lambda block=block: chain(block, "float[b, 1, 4, 4]"))
    for name, block in WIDE.items():
        yield f"{name} side by side", _written(lambda block=block: side_by_side(block))
    yield "a product of sums of sizes", _written(lambda: polynomial(12, 30))
    yield "a long product of sums of sizes", _written(lambda: polynomial(2, 3_000))
    yield "3000 values of a loop", _written(lambda: carried(3_000))
    yield "10000 equal initializers", _written(lambda: initializers(10_000, 4))
    yield "2000 equal initializers of 4 kB", _written(lambda: initializers(2_000, 1_000))


FILES = dict(_files())


def _target(name: str) -> object:
    def convert(path: pathlib.Path) -> None:
        opsetta.load(path).lower(target=name).save(path.with_name("converted.onnx"))

    return convert


def _check_target(path: pathlib.Path) -> None:
    targets.check_target(path, "tensorrt", False, True)


def _plan(path: pathlib.Path) -> None:
    sizes = [size for value in onnx.load(path).graph.input for size in value.type.tensor_type.shape.dim]
    names = sorted({size.dim_param for size in sizes if size.dim_param})
    deployment.plan(path, path.with_name("plan"), dim=[f"{name}=2" for name in names])


WAYS = {
    "for opencv": _target("opencv"),
    "check target": _check_target,
    "plan": _plan,
    "stream": lambda path: deployment.stream(path, path.with_name("stream")),
    "flatten": lambda path: realize.realize(path, path.with_name("realized.onnx"), ["flatten-to-reshape"]),
}
