"""Shape changes and casts in a row become one."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx_ir import DataType

from opsetta.passes.onnx_graph.shapes.shape_chains import MergeShapeChains

from .graph_case import Case, numbers

X = numbers(2, 3, 4)


def merged(case: Case) -> bool:
    return case.checked(X, MergeShapeChains(case.known))


def unused_removed(case: Case) -> list[str]:
    case.remove_unused()
    return case.ops()


def test_shape_changes_become_one_reshape() -> None:
    case = Case([2, 3, 4])
    value = case.g.op("Unsqueeze", case.g.op("Reshape", case.x, [6, 4]), axes=[0])
    case.returns(case.g.op("Relu", case.g.op("Squeeze", case.g.op("Reshape", value, [1, 4, 6]), axes=[0])))
    assert merged(case)
    assert unused_removed(case) == ["Reshape", "Relu"]


def test_one_unknown_size_is_left_open() -> None:
    case = Case(["n", 3, 4])
    value = case.g.op("Unsqueeze", case.g.op("Reshape", case.x, [-1, 12]), axes=[1])
    case.returns(case.g.op("Relu", value))
    assert merged(case)
    assert unused_removed(case) == ["Reshape", "Relu"]


def test_two_unknown_sizes_stay() -> None:
    case = Case(["n", "m", 4])
    case.returns(case.g.op("Unsqueeze", case.g.op("Unsqueeze", case.x, axes=[0]), axes=[0]))
    assert not MergeShapeChains(case.known)(case.model).modified


def test_an_output_of_a_computed_shape_stays() -> None:
    case = Case([2, 3, 4])
    flat = case.g.op("Reshape", case.x, [6, 4])
    least = case.g.op("ReduceMin", case.g.op("Abs", case.x), keepdims=0)
    shape = case.g.op("Add", case.g.op("Mul", case.g.cast(least, DataType.INT64), 0), [4, 6])
    result = case.g.op("Reshape", flat, shape)
    result.shape = ir.Shape([4, 6])
    case.returns(result)
    assert not merged(case)


def test_a_value_that_others_read_stays() -> None:
    case = Case([2, 3, 4])
    flat = case.g.op("Reshape", case.x, [6, 4])
    case.returns(case.g.op("Relu", flat), case.g.op("Reshape", flat, [24]))
    assert not merged(case)


@pytest.mark.parametrize(
    ("first", "second", "count"),
    [
        (DataType.DOUBLE, DataType.INT32, 1),
        (DataType.DOUBLE, DataType.FLOAT16, 1),
        (DataType.FLOAT16, DataType.DOUBLE, 2),
        (DataType.INT32, DataType.DOUBLE, 2),
        (DataType.BOOL, DataType.FLOAT, 2),
    ],
)
def test_casts_through_a_wider_type_become_one(first: DataType, second: DataType, count: int) -> None:
    case = Case([2, 3, 4])
    case.returns(case.g.cast(case.g.cast(case.x, first), second))
    merged(case)
    assert unused_removed(case) == ["Cast"] * count


def test_sub_graphs_are_rewritten() -> None:
    case = Case([2, 3, 4])
    inner = case.g.op("Reshape", case.g.op("Reshape", case.x, [6, 4]), [24])
    nodes = [inner.producer().inputs[0].producer(), inner.producer()]
    for node in nodes:
        case.model.graph.remove(node)
    branch = ir.Graph([], [inner], nodes=nodes, name="branch")
    other = ir.node("Reshape", [case.x, case.g.constant(np.array([24]))])
    case.g.construction.use(other.inputs[1])
    other.outputs[0].name, other.outputs[0].type = "other", case.x.type
    condition = case.weight("condition", np.array(True))
    chosen = ir.node(
        "If",
        [condition],
        {"then_branch": branch, "else_branch": ir.Graph([], [other.outputs[0]], nodes=[other], name="e")},
    )
    chosen.outputs[0].type = case.x.type
    case.model.graph.append(chosen)
    case.returns(chosen.outputs[0])
    assert merged(case)
    case.remove_unused()
    assert [node.op_type for node in branch] == ["Reshape"]
