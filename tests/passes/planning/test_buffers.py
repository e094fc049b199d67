"""Buffers and execution order, on graphs of a few nodes."""

import onnx
import onnx_ir as ir
import pytest
from onnx import parser

from opsetta.passes.onnx_graph.inplace.annotations import annotate_inplace
from opsetta.passes.planning import buffers_of, execution_order
from opsetta.registration import GraphError


def graph_of(body: str) -> ir.Model:
    model = ir.from_proto(parser.parse_model(f'<ir_version: 9, opset_import: ["": 17]> {body}'))
    inferred = onnx.shape_inference.infer_shapes(ir.to_proto(model))
    found = ir.from_proto(inferred)
    annotate_inplace(found)
    return found


def spans(model: ir.Model) -> dict[tuple[str, ...], tuple[int, int]]:
    memory = buffers_of(model.graph, execution_order(model.graph))
    return {tuple(v.name or "" for v in b.values): (b.first, b.last) for b in memory.buffers}


def test_lifetimes_and_results_in_place():
    model = graph_of(
        "g (float[4] x) => (float[4] y) { a = Exp(x) b = Relu(a) c = Add(b, x) d = Sin(a) y = Add(c, d) }"
    )
    assert spans(model) == {
        ("x",): (0, 2),
        ("a", "d"): (0, 4),
        ("b", "c", "y"): (1, 4),
    }


def test_views_share_memory():
    model = graph_of(
        "g (float[2, 3] x) => (float[6] y) <int64[1] shape = {6}> { a = Exp(x) b = Reshape(a, shape) "
        "c = Relu(b) d = Flatten <axis = 0> (a) e = Squeeze(d) y = Add(c, e) }"
    )
    assert spans(model)[("a", "b", "d", "e")] == (0, 5)


def test_weights_and_constants_have_no_buffer():
    model = graph_of(
        "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { k = Constant <value = float[2] {3, 4}> () "
        "v = Identity(w) a = Add(x, v) y = Add(a, k) }"
    )
    assert spans(model) == {("x",): (0, 2), ("a", "y"): (2, 3)}


def test_dropout_is_no_view():
    model = graph_of("g (float[2] x) => (float[2] y) { a = Exp(x) b = Dropout(a) y = Relu(b) }")
    memory = buffers_of(model.graph, list(model.graph))
    assert not memory.views


def test_sub_graphs_count_as_reads():
    model = graph_of(
        "g (bool c, float[2] x) => (float[2] y) { a = Exp(x) b = Sin(x) y = If (c) "
        "<then_branch = t () => (float[2] r) { r = Add(a, b) }, "
        "else_branch = e () => (float[2] s) { s = Exp(x) }> }"
    )
    found = spans(model)
    assert found[("a",)] == (0, 2)
    assert found[("b",)] == (1, 2)
    assert found[("x",)] == (0, 2)


def test_the_order_is_topological_and_stable():
    model = graph_of("g (float[2] x) => (float[2] y) { a = Exp(x) b = Sin(x) c = Cos(a) y = Add(c, b) }")
    graph = model.graph
    names = [node.op_type for node in graph]
    assert [node.op_type for node in execution_order(graph)] == names
    nodes = list(graph)
    graph.remove(nodes[0])
    graph.append(nodes[0])
    assert [node.op_type for node in execution_order(graph)] == ["Sin", "Exp", "Cos", "Add"]


def test_a_cycle_is_refused():
    one, other = ir.Node("", "Relu", [None], name="one"), ir.Node("", "Relu", [None], name="other")
    one.replace_input_with(0, other.outputs[0])
    other.replace_input_with(0, one.outputs[0])
    graph = ir.Graph([], [], nodes=[one, other], name="g")
    with pytest.raises(GraphError, match="cycle: node 'one'"):
        execution_order(graph)
