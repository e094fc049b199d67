"""The nodes that an ONNX pass visits: those of the main graph and of all sub-graphs, in order."""

from __future__ import annotations

import onnx_ir as ir

from opsetta.passes.onnx_graph.constants.fold_constants import FoldConstants
from opsetta.passes.onnx_graph.constants.initializers import Initializers
from opsetta.passes.onnx_graph.node_pass import (
    IndexedPass,
    NodePass,
    NodesByOperator,
    replace_node,
    run_in_order,
)
from opsetta.registration.arguments import every_node, graphs_of

MODEL = """
<ir_version: 10, opset_import: ["" : 18]>
main (float[2] x, bool c) => (float[2] y) {
   a = Abs(x)
   b = If (c) <
      then_branch = one () => (float[2] p) {
         q = Neg(a)
         p = If (c) <
            then_branch = two () => (float[2] r) { r = Exp(q) },
            else_branch = three () => (float[2] s) { s = Relu(q) }
         >
      },
      else_branch = four () => (float[2] t) { t = Sin(a) }
   >
   y = Cos(b)
}
"""


def test_nodes_of_sub_graphs_follow_their_node() -> None:
    graph = ir.from_onnx_text(MODEL).graph
    found = every_node(graph)
    assert [node.op_type for node in found] == "Abs If Neg If Exp Relu Sin Cos".split()
    assert found == list(ir.traversal.RecursiveGraphIterator(graph))


def test_deep_nesting_needs_no_recursion() -> None:
    graph = ir.Graph([], [], nodes=[], name="innermost")
    for depth in range(2000):
        node = ir.Node("", "If", [], [ir.AttrGraph("then_branch", graph)], name=str(depth))
        graph = ir.Graph([], [], nodes=[node], name=f"graph{depth}")
    assert [node.name for node in every_node(graph)] == [str(depth) for depth in reversed(range(2000))]


def test_nodes_of_several_operators_keep_their_order() -> None:
    graph = ir.from_onnx_text(MODEL).graph
    foreign = ir.Node("com.example", "Neg", [graph.inputs[0]], num_outputs=1)
    graph.append(foreign)
    nodes = NodesByOperator(graph)
    assert nodes.all[-1] is foreign
    assert [node.op_type for node in nodes.of({"Relu", "Neg", "Cos", "Tan"})] == ["Neg", "Relu", "Cos"]
    assert nodes.of(None) == nodes.all[:-1]


class Renamed(NodePass):
    """Replaces an operator by another one."""

    def __init__(self, before: str, after: str):
        super().__init__()
        self.op_types, self._after = (before,), after

    def rewrite(self, node: ir.Node) -> bool:
        replace_node(node, self._after, node.inputs)
        return True


def test_a_pass_sees_the_nodes_that_the_one_before_it_wrote() -> None:
    model = ir.from_onnx_text(MODEL)
    passes = [Renamed("Exp", "Neg"), Renamed("Tan", "Exp"), Renamed("Neg", "Abs"), Renamed("Abs", "Sign")]
    assert run_in_order(model, passes)
    found = [node.op_type for node in every_node(model.graph)]
    assert found == "Sign If Sign If Sign Relu Sin Cos".split()
    assert not run_in_order(model, [Renamed("Tan", "Exp")])


class Seen(IndexedPass):
    """Keeps the index that it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.index: NodesByOperator | None = None

    def run(self, model: ir.Model, nodes: NodesByOperator) -> bool:
        self.index = nodes
        return False


def test_the_index_has_the_graphs_in_the_order_of_their_nodes() -> None:
    graph = ir.from_onnx_text(MODEL).graph
    assert NodesByOperator(graph).graphs == graphs_of(graph)


def test_passes_share_an_index_until_one_changes_the_graph() -> None:
    model = ir.from_onnx_text(
        """
        <ir_version: 10, opset_import: ["" : 18]>
        main (float[2] x) => (float[2] y) {
           a = Abs(x)
           y = Cos(a)
        }
        """
    )
    first, second, third, fourth = Seen(), Seen(), Seen(), Seen()
    run_in_order(model, [first, second, Renamed("Abs", "Neg"), third, Renamed("Cos", "Sin"), fourth])
    assert first.index is second.index is not None
    assert third.index is not None
    assert fourth.index is not None
    assert [node.op_type for node in third.index.all] == ["Neg", "Cos"]
    assert [node.op_type for node in fourth.index.all] == ["Neg", "Sin"]
    assert fourth.index.graphs == [model.graph]


def test_constants_that_a_branch_returns_stay() -> None:
    model = ir.from_onnx_text(
        """
        <ir_version: 10, opset_import: ["" : 18]>
        main (float[2] x, bool c) => (float[2] y) <float[2] w = {1.0, 2.0}> {
           y = If (c) <
              then_branch = one () => (float[2] p) { p = Neg(w) },
              else_branch = two () => (float[2] q) { r = Exp(w) q = Add(r, x) }
           >
        }
        """
    )
    assert FoldConstants(Initializers(model))(model).modified
    assert [node.op_type for node in every_node(model.graph)] == ["If", "Neg", "Add"]
