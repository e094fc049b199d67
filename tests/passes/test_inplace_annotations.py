"""In-place annotations: which nodes get one, and which must not."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest
import torch

import opsetta
from opsetta.passes.onnx_graph.inplace import memory_sharing
from opsetta.passes.onnx_graph.inplace.annotations import annotate_inplace
from opsetta.registration import INPLACE, MAY_OVERWRITE
from opsetta.registration.schemas import operator_schemas

from ..opsets import HIGHEST

HEADER = '<ir_version: 10, opset_import: ["": {opset}, "mylib": 1]>'


def model(text: str, opset: int = 18) -> ir.Model:
    proto = onnx.parser.parse_model(HEADER.format(opset=opset) + text)
    return ir.from_proto(onnx.shape_inference.infer_shapes(proto, strict_mode=True))


def annotations(annotated: ir.Model) -> dict[str, str]:
    """The annotations by the name of the node's first output."""
    nodes = [*annotated.graph.all_nodes(), *(n for f in annotated.functions.values() for n in f)]
    found = {n.outputs[0].name: n.metadata_props.get(MAY_OVERWRITE) for n in nodes}
    return {name: text for name, text in found.items() if text is not None}


GRAPHS = {
    "a chain, but not over the input": (
        "g (float[n] x) => (float[n] y) { a = Relu(x) b = Exp(a) y = Neg(b) }",
        {"b": "0:0", "y": "0:0"},
    ),
    "the last reader alone": (
        "g (float[n] x) => (float[n] y) { a = Relu(x) b = Exp(a) y = Add(a, b) }",
        {"y": "0:0"},
    ),
    "the second operand": (
        "g (float[n] x) => (float[n] y) { a = Relu(x) y = Sub(x, a) }",
        {"y": "0:1"},
    ),
    "an operand that is broadcast, and one that is not": (
        "g (float[3,4] x, float[1,4] z) => (float[3,4] y) { a = Relu(z) b = Exp(x) y = Mul(a, b) }",
        {"y": "0:1"},
    ),
    "an operand of unknown size": (
        "g (float[n] x, float[m] z) => (float[k] y) { a = Relu(x) y = Add(a, z) }",
        {},
    ),
    "sizes with one name": (
        "g (float[n,4] x, float[n,1] z) => (float[n,4] y) { a = Relu(x) y = Add(a, z) }",
        {"y": "0:0"},
    ),
    "one value as both operands": (
        "g (float[n] x) => (float[n] y) { a = Relu(x) y = Mul(a, a) }",
        {"y": "0:0"},
    ),
    "a view as the other operand": (
        "g (float[4] x) => (float[4] y) { a = Relu(x) b = Identity(a) y = Mul(a, b) }",
        {},
    ),
    "a view that is read later": (
        "g (float[4] x, int64[2] s) => (float[k,l] y, float[4] z) "
        "{ a = Relu(x) r = Reshape(a, s) z = Exp(a) y = Neg(r) }",
        {"y": "0:0"},
    ),
    "views of what nothing else reads": (
        "g (float[4] x, int64[2] s) => (float[k,l] y) "
        "{ a = Relu(x) r = Reshape(a, s) i = Identity(r) y = Neg(i) }",
        {"r": "0:0", "i": "0:0", "y": "0:0"},
    ),
    "a view that is an output": (
        "g (float[4] x, int64[2] s) => (float[k,l] r, float[4] y) "
        "{ a = Relu(x) r = Reshape(a, s) y = Exp(a) }",
        {},
    ),
    "a view of an input": (
        "g (float[4] x, int64[2] s) => (float[k,l] y) { a = Reshape(x, s) y = Exp(a) }",
        {},
    ),
    "an output that is read": (
        "g (float[n] x) => (float[n] a, float[n] y) { a = Relu(x) y = Exp(a) }",
        {},
    ),
    "an initializer": (
        "g (float[1] x) => (float[1] y) <float[1] w = {1}> { y = Add(w, x) }",
        {},
    ),
    "a constant": (
        "g (float[1] x) => (float[1] y) { w = Constant<value = float[1] {1}>() y = Add(w, x) }",
        {},
    ),
    "a comparison": (
        "g (float[n] x) => (bool[n] y) { a = Relu(x) b = Neg(a) c = Less(a, b) y = Not(c) }",
        {"y": "0:0"},
    ),
    "a cast to another type, and to the same": (
        "g (float[n] x) => (int64[n] y) { a = Relu(x) b = Cast<to = 1>(a) y = Cast<to = 7>(b) }",
        {"b": "0:0"},
    ),
    "what reads all before it writes": (
        "g (float[n,4] x) => (float[n,4] y) { a = Relu(x) y = Softmax(a) }",
        {"y": "0:0"},
    ),
    "what reads on while it writes": (
        "g (float[n,4] x, int64 axis) => (float[n,4] y) { a = Relu(x) y = CumSum(a, axis) }",
        {},
    ),
    "updates that share the data's memory": (
        "g (float[1] x, int64[1] i) => (float[1] y) { a = Relu(x) y = ScatterElements(a, i, a) }",
        {},
    ),
    "data that are updated": (
        "g (float[3] x, int64[1] i, float[1] u) => (float[3] y) { a = Relu(x) y = ScatterElements(a, i, u) }",
        {"y": "0:0"},
    ),
    "what a matrix product is added to": (
        "g (float[2,3] a, float[3,4] b, float[2,4] x) => (float[2,4] y) { c = Relu(x) y = Gemm(a, b, c) }",
        {"y": "0:2"},
    ),
    "what another domain's operator took": (
        "g (float[n] x) => (float[n] y) { a = Relu(x) b = mylib.Op(a) c = Exp(a) y = Neg(c) }",
        {"y": "0:0"},
    ),
    "a branch reads it": (
        "g (float[n] x, bool c) => (float[n] y) { a = Relu(x) "
        "b = If(c) <then_branch = t () => (o) { o = Exp(a) }, "
        "else_branch = e () => (p) { q = Neg(a) p = Abs(q) }>"
        " d = Sin(a) y = Add(b, d) }",
        {"p": "0:0", "d": "0:0", "y": "0:0"},
    ),
    "a branch returns it": (
        "g (float[n] x, bool c) => (float[n] y) { a = Relu(x) "
        "b = If(c) <then_branch = t () => (o) { o = Identity(a) }, else_branch = e () => (p) { p = Neg(a) }>"
        " d = Sin(a) y = Add(b, d) }",
        {"y": "0:0"},
    ),
    "a branch returns a constant": (
        "g (float[1] x, bool c) => (float[1] y) { "
        "b = If(c) <then_branch = t () => (o) { o = Constant<value = float[1] {1}>() }, "
        "else_branch = e () => (p) { p = Neg(x) }> y = Exp(b) }",
        {},
    ),
    "a loop carries it": (
        "g (float[n] x, int64 m, bool c) => (float[n] y) { a = Relu(x) "
        "b = Loop(m, c, a) <body = t (int64 i, bool d, float[n] f) => (bool e, float[n] r) "
        "{ e = Identity(d) p = Neg(f) q = Exp(p) r = Sin(q) }> y = Exp(b) }",
        {"q": "0:0", "r": "0:0", "y": "0:0"},
    ),
    "a loop carries it and it is read later": (
        "g (float[n] x, int64 m, bool c) => (float[n] y) { a = Relu(x) "
        "b = Loop(m, c, a) <body = t (int64 i, bool d, float[n] f) => (bool e, float[n] r) "
        "{ e = Identity(d) r = Identity(f) }> z = Exp(b) y = Sub(a, z) }",
        {"y": "0:0"},
    ),
    "a sequence holds it": (
        "g (float[n] x, int64 i) => (float[n] y) { a = Relu(x) s = SequenceConstruct(a, x) "
        "b = Exp(a) t = SequenceAt(s, i) y = Add(b, t) }",
        {"y": "0:0"},
    ),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_annotations_of_a_graph(name: str) -> None:
    text, expected = GRAPHS[name]
    annotated = model(text)
    assert annotate_inplace(annotated) == bool(expected)
    assert annotations(annotated) == expected
    assert not annotate_inplace(annotated)
    assert opsetta.check_inplace(annotated) == len(expected)


def test_stale_annotations_leave() -> None:
    annotated = model("g (float[n] x) => (float[n] y) { a = Relu(x) y = Exp(a) }")
    relu, exp = annotated.graph
    relu.metadata_props[MAY_OVERWRITE] = "0:0"
    exp.metadata_props[MAY_OVERWRITE] = "0:7"
    assert annotate_inplace(annotated)
    assert annotations(annotated) == {"y": "0:0"}


def test_nothing_is_known_below_opset_7() -> None:
    annotated = model("g (float[n] x) => (float[n] y) { a = Relu(x) y = Exp(a) }", opset=6)
    assert not annotate_inplace(annotated)


FUNCTION = """
g (float[n] x) => (float[n] y) { a = Relu(x) b = mylib.Twice(a) y = Exp(b) }
<domain: "mylib", opset_import: ["": 18]>
Twice (f) => (r) { p = Neg(f) q = Exp(p) r = Add(q, q) }
"""


def test_functions_are_annotated_and_their_calls_are_not() -> None:
    annotated = model(FUNCTION)
    assert annotate_inplace(annotated)
    assert annotations(annotated) == {"q": "0:0", "r": "0:0"}
    assert opsetta.check_inplace(annotated) == 2


def test_every_operator_of_the_tables_exists() -> None:
    tables = (
        memory_sharing.VIEWS,
        memory_sharing.CONTAINERS,
        memory_sharing.CONTROL_FLOW,
        memory_sharing._FIRST,
    )
    names = memory_sharing._BROADCASTING.union(*tables)
    assert [name for name in sorted(names) if not operator_schemas(name)] == []


class Residual(torch.nn.Module):
    """In place on an intermediate result, on a slice of one, and on what is read again."""

    def __init__(self) -> None:
        super().__init__()
        self.relu = torch.nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(x * 2)
        y += x
        y[:, 0].mul_(3)
        return y


@pytest.mark.parametrize("opset", [7, 13, HIGHEST])
def test_an_export_keeps_what_was_in_place(opset: int, tmp_path) -> None:
    program = opsetta.export(Residual().eval(), torch.ones(2, 3), opset=opset)
    program.save(tmp_path / "m.onnx")
    saved = onnx.load(tmp_path / "m.onnx")
    found = {n.op_type: {e.key: e.value for e in n.metadata_props} for n in saved.graph.node}
    assert {op: p[MAY_OVERWRITE] for op, p in found.items() if INPLACE in p and op in ("Relu", "Add")} == {
        "Relu": "0:0",
        "Add": "0:0",
    }
    assert sum(e.key == INPLACE for n in saved.graph.node for e in n.metadata_props) == 3
    onnx.checker.check_model(saved, full_check=True)
    assert opsetta.check_inplace(tmp_path / "m.onnx") >= 2
    if opset < 28:
        program.verify()
