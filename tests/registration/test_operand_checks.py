"""Axes, permutations, sizes and the shapes of operands are refused where a node is emitted."""

import onnx_ir as ir
import pytest

from opsetta.registration import DataType, GraphContext, UnsupportedError, Value, default_registry
from opsetta.registration.functions.operand_shapes import check_operand_shapes, parse_table


@pytest.fixture(params=[9, 18])
def g(request) -> GraphContext:
    graph = ir.Graph([], [], nodes=[], opset_imports={"": request.param}, name="graph")
    return GraphContext(graph, request.param, default_registry)


def given(*sizes, name: str = "x", dtype: DataType = DataType.FLOAT) -> Value:
    return Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(sizes))


@pytest.mark.parametrize(
    ("op_type", "arguments"),
    [
        ("ReduceMax", {"axes": [2]}),
        ("ReduceSum", {"axes": [-3]}),
        ("Unsqueeze", {"axes": [4]}),
        ("Unsqueeze", {"axes": [0, 0]}),
        ("Squeeze", {"axes": [2]}),
        ("Flatten", {"axis": 3}),
        ("Transpose", {"perm": [0, 0]}),
        ("Transpose", {"perm": [0, 1, 2]}),
        ("Slice", {"starts": [0], "ends": [1], "axes": [5]}),
        ("ArgMax", {"axis": 2}),
        ("Reshape", {"shape": [-1, -1]}),
        ("Reshape", {"shape": [4, -1]}),
        ("Reshape", {"shape": [2, -3]}),
        ("Reshape", {"shape": [2, 1, 0]}),
        ("Expand", {"shape": [-2, 3]}),
        ("Tile", {"repeats": [1, 2, 3]}),
        ("ReduceSum", {"axes": [0], "keepdims": 2}),
        ("Cast", {"to": 0}),
    ],
)
def test_what_an_operator_cannot_take_is_refused(g, op_type, arguments):
    with pytest.raises(UnsupportedError):
        g.op(op_type, given(2, 3), **arguments)


@pytest.mark.parametrize(
    ("op_type", "sizes"),
    [("Add", (2, 4)), ("Where", (5, 3)), ("MatMul", (2, 3)), ("Concat", (3,)), ("Concat", (2, 2, 3))],
)
def test_operands_that_do_not_fit_are_refused(g, op_type, sizes):
    x, y = given(2, 3), given(*sizes, name="y")
    operands = [given(2, 3, dtype=DataType.BOOL, name="c"), x, y] if op_type == "Where" else [x, y]
    with pytest.raises(UnsupportedError):
        g.op(op_type, *operands, **({"axis": 0} if op_type == "Concat" else {}))


def test_what_is_unknown_passes(g):
    unknown = Value(name="x", type=ir.TensorType(DataType.FLOAT))
    assert g.op("ReduceMax", unknown, axes=[7]).producer() is not None
    assert g.op("Add", given(None, 3), given(2, None, name="y")).producer() is not None
    assert g.op("Unsqueeze", given(2, 3), axes=[2]).shape.dims == (2, 3, 1)


@pytest.mark.parametrize(("axis", "rank", "found"), [(0, 1, 0), (-1, 3, 2), (-3, 3, 0), (2, 3, 2)])
def test_axes_count_from_the_front(g, axis, rank, found):
    assert g.axis(axis, rank) == found


@pytest.mark.parametrize(("axis", "rank"), [(0, 0), (-1, 0), (3, 3), (-4, 3)])
def test_axes_outside_are_refused(g, axis, rank):
    with pytest.raises(UnsupportedError, match=f"axis {axis} is outside of a tensor"):
        g.axis(axis, rank)


TABLE = parse_table(
    """
    Permuted: perm[r(x)]
    Boxes: boxes[n,4] scores[n]
    Matrices: input[...,*,*]
    Few: shape<=1
    Joined: values[n]
    """.replace("    ", "")
)


@pytest.mark.parametrize(
    ("operator", "arguments"),
    [
        ("Permuted", {"x": given(2, 3), "perm": given(3)}),
        ("Boxes", {"boxes": given(5, 3), "scores": given(5)}),
        ("Boxes", {"boxes": given(5, 4), "scores": given(6)}),
        ("Boxes", {"boxes": given(5, 4), "scores": given()}),
        ("Matrices", {"input": given(3)}),
        ("Few", {"shape": given(1, 1)}),
        ("Joined", {"values": [given(2), given(3)]}),
    ],
)
def test_operands_of_another_shape_are_refused(operator, arguments):
    with pytest.raises(UnsupportedError, match="must have"):
        check_operand_shapes(TABLE[operator], arguments)


@pytest.mark.parametrize(
    ("operator", "arguments"),
    [
        ("Permuted", {"x": given(2, 3), "perm": given(2)}),
        ("Permuted", {"x": given(2, 3), "perm": given(None)}),
        ("Permuted", {"x": given(2, 3), "perm": [1, 0]}),
        ("Boxes", {"boxes": given(None, 4), "scores": given(6)}),
        ("Matrices", {"input": given(1, 2, 3, 4)}),
        ("Few", {"shape": given()}),
    ],
)
def test_operands_of_the_shape_pass(operator, arguments):
    check_operand_shapes(TABLE[operator], arguments)
