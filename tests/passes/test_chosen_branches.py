"""An If with a constant condition becomes the branch that it takes."""

import numpy as np
import onnx
import onnx.reference
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from opsetta.passes.onnx_graph.constants.chosen_branches import ChooseBranches
from opsetta.passes.onnx_graph.constants.initializers import Initializers
from opsetta.passes.onnx_graph.simplification.unused_nodes import RemoveUnused

FLOAT = TensorProto.FLOAT


def value(name):
    return helper.make_tensor_value_info(name, FLOAT, [2])


def branch(op_type, reads, returned="r", weight=1.0):
    nodes = [helper.make_node(op_type, [reads, "w"], ["t"]), helper.make_node("Abs", ["t"], ["r"])]
    stored = numpy_helper.from_array(np.full(2, weight, np.float32), "w")
    return helper.make_graph(nodes, "branch", [], [value(returned)], [stored])


def model_of(conditions, returned="r"):
    """A chain of Ifs whose branches use the same names; the last result is the output."""
    nodes, stored = [], []
    for i, condition in enumerate(conditions):
        branches = [branch("Add", f"x{i}", returned), branch("Mul", f"x{i}", returned, 2.0)]
        nodes.append(
            helper.make_node("If", [f"c{i}"], [f"x{i + 1}"], then_branch=branches[0], else_branch=branches[1])
        )
        if condition is not None:
            stored.append(numpy_helper.from_array(np.array(condition), f"c{i}"))
    inputs = [value("x0")]
    inputs += [
        helper.make_tensor_value_info(f"c{i}", TensorProto.BOOL, [])
        for i, each in enumerate(conditions)
        if each is None
    ]
    graph = helper.make_graph(nodes, "graph", inputs, [value(f"x{len(conditions)}")], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


@pytest.mark.parametrize("returned", ["r", "w"])
@pytest.mark.parametrize("conditions", [[True], [False], [True, False, True], [True, None, False]])
def test_branches_are_put_in_the_place_of_ifs(conditions, returned):
    proto = model_of(conditions, returned)
    model = ir.from_proto(proto)
    assert ChooseBranches(Initializers(model))(model).modified
    assert not ChooseBranches(Initializers(model))(model).modified
    RemoveUnused()(model)
    assert proto == model_of(conditions, returned)
    chosen = ir.to_proto(model)
    onnx.checker.check_model(chosen, full_check=True)
    count = [node.op_type for node in chosen.graph.node].count("If")
    # A branch that returns its constant reads nothing, so that nothing before it stays.
    assert count == (conditions.count(None) if returned == "r" else 0)
    feed = {"x0": np.array([-3, 2], np.float32)}
    feed |= {f"c{i}": np.array(True) for i, each in enumerate(conditions) if each is None}
    evaluate = onnx.reference.ReferenceEvaluator
    np.testing.assert_array_equal(evaluate(chosen).run(None, feed), evaluate(proto).run(None, feed))


def test_a_condition_that_a_caller_may_replace_stays():
    proto = model_of([True])
    proto.graph.input.append(helper.make_tensor_value_info("c0", TensorProto.BOOL, []))
    model = ir.from_proto(proto)
    assert not ChooseBranches(Initializers(model))(model).modified
