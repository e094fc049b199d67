"""Layers of one input, heads of queries and keys, and parts of a tensor are computed together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import pytest

from opsetta.passes.onnx_graph.fusions.attention.joint_heads import JoinHeads
from opsetta.passes.onnx_graph.products.parallel_layers import JoinLayers
from opsetta.passes.onnx_graph.shapes.gated_reshapes import ReshapeFactors
from opsetta.passes.onnx_graph.shapes.leading_ones import KeepLeadingOnes
from opsetta.passes.onnx_graph.shapes.rejoined_parts import RejoinParts
from opsetta.passes.onnx_graph.shapes.reshaped_parts import ReshapeOnce
from opsetta.passes.onnx_graph.simplification.sums_of_squares import SumSquares
from opsetta.registration import Value

from ..opsets import HIGHEST
from .graph_case import Case, numbers


def shaped(value: Value, *sizes: Any) -> Value:
    value.shape = ir.Shape(sizes)
    return value


def layers(case: Case, columns: Sequence[int], rows: tuple[Any, ...] = (2, "n")) -> list[Value]:
    """Layers of x; the parts of those of more than two columns are divided again."""
    parts = []
    for index, size in enumerate(columns):
        weight = case.weight(f"w{index}", numbers(4, size, seed=index))
        product = shaped(case.g.op("MatMul", case.x, weight), *rows, size)
        if size > 2:
            parts += case.g.op("Split", product, split=[2, size - 2], axis=-1, outputs=2)
        else:
            parts.append(product)
    return parts


@pytest.mark.parametrize("opset", [11, 13, HIGHEST])
@pytest.mark.parametrize("columns", [(5, 4), (1, 2, 2, 1), (5, 1, 2)])
def test_layers_of_one_input_become_one_product(opset: int, columns: Sequence[int]) -> None:
    case = Case([2, "n", 4], opset)
    case.returns(*(case.g.op("Neg", part) for part in layers(case, columns)))
    assert case.checked(numbers(2, 3, 4), JoinLayers(case.known), exact=False)
    case.remove_unused()
    operators = Counter(case.ops())
    del operators["Neg"]
    assert operators == {"MatMul": 1, "Split": 1}


@pytest.mark.parametrize("columns", [(2, 2), (5, 2), (2, 2, 2)], ids=["gate", "divided", "attention"])
def test_few_layers_stay(columns: Sequence[int]) -> None:
    case = Case([2, "n", 4])
    case.returns(*(case.g.op("Neg", part) for part in layers(case, columns)))
    assert not case.checked(numbers(2, 3, 4), JoinLayers(case.known))


@pytest.mark.parametrize("is_shared", [True, False])
def test_returned_layers_and_shared_weights_stay(is_shared: bool) -> None:
    case = Case([2, "n", 4])
    parts = layers(case, (1, 2, 2, 1))
    others = [case.g.op("ReduceMax", case.model.graph.initializers["w0"])] if is_shared else []
    case.returns(
        *(case.g.op("Neg", part) for part in parts[1 - is_shared :]), *others, *parts[: 1 - is_shared]
    )
    # Three layers remain, which save one node.
    assert not case.checked(numbers(2, 3, 4), JoinLayers(case.known))


def rotated(case: Case, heads: Value, count: int, tables: Sequence[Value]) -> Value:
    """The rotary embedding of heads of four numbers."""
    g = case.g
    rows = shaped(g.op("Transpose", heads, perm=[0, 2, 1, 3]), 2, count, "n", 4)
    halves = g.op("Split", rows, split=[2, 2], axis=3, outputs=2)
    for half in halves:
        shaped(half, 2, count, "n", 2)
    turned = shaped(g.op("Concat", g.op("Neg", halves[1]), halves[0], axis=3), 2, count, "n", 4)
    turned.producer().inputs[0].shape = halves[1].shape
    products = [g.op("Mul", value, table) for value, table in zip((rows, turned), tables, strict=True)]
    return shaped(g.op("Add", *(shaped(value, 2, count, "n", 4) for value in products)), 2, count, "n", 4)


def attention_case(opset: int = 13, *, depends: bool = False, tables: int = 1) -> Case:
    """Queries and keys of four and two heads; or keys that are computed from the queries."""
    case = Case([2, "n", 24], opset)
    g = case.g
    pairs = [
        [
            shaped(g.op(name, g.op("ReduceMax", case.x, axes=[0, 2], keepdims=0)), "n")
            for name in ("Cos", "Sin")
        ]
        for _ in range(tables)
    ]
    pairs = [[shaped(g.op("Unsqueeze", value, axes=[1]), "n", 1) for value in pair] for pair in pairs]
    parts = [shaped(part, 2, "n", 8) for part in g.op("Split", case.x, split=[8, 8, 8], axis=2, outputs=3)]
    query = shaped(g.op("Reshape", parts[0], [0, 0, 2, 4]), 2, "n", 2, 4)
    first = rotated(case, query, 2, pairs[0])
    source = shaped(g.op("Reshape", first, [0, -1, 8]), 2, "n", 8) if depends else parts[1]
    key = shaped(g.op("Reshape", source, [0, 0, 2, 4]), 2, "n", 2, 4)
    second = rotated(case, key, 2, pairs[-1])
    case.returns(g.op("Neg", first), g.op("Abs", second), g.op("Neg", parts[2]))
    return case


@pytest.mark.parametrize("opset", [11, 13, 18])
def test_queries_and_keys_are_rotated_together(opset: int) -> None:
    case = attention_case(opset)
    x = numbers(2, 3, 24)
    before = Counter(case.ops())
    assert case.checked(x, JoinHeads(case.known))
    case.remove_unused()
    after = Counter(case.ops())
    rotation = Counter(["Transpose", "Split", "Neg", "Concat", "Mul", "Mul", "Add"])
    assert after == before - rotation + Counter(["Concat", "Split"])
    assert case.checked(x, RejoinParts(case.known))
    case.remove_unused()
    assert len(case.ops()) == sum(after.values()) - 2


@pytest.mark.parametrize(
    "arguments", [{"depends": True}, {"tables": 2}], ids=["one after the other", "tables"]
)
def test_other_rotations_stay(arguments: dict[str, Any]) -> None:
    case = attention_case(**arguments)
    assert not case.checked(numbers(2, 3, 24), JoinHeads(case.known))


def test_short_computations_stay_apart() -> None:
    case = Case([2, 4, 4])
    g = case.g
    table = shaped(g.op("ReduceMax", case.x, axes=[0, 1], keepdims=1), 1, 1, 4)
    parts = [shaped(part, 2, 2, 4) for part in g.op("Split", case.x, split=[2, 2], axis=1, outputs=2)]
    case.returns(*(g.op("Neg", shaped(g.op("Mul", part, table), 2, 2, 4)) for part in parts))
    assert not case.checked(numbers(2, 4, 4), JoinHeads(case.known))


def gated(case: Case, *, returns_gate: bool = False, computed: bool = False) -> None:
    """Rows of two that are multiplied by a gate, which is computed in them, too."""
    g = case.g
    source, gate = (
        shaped(part, 2, "n", 4) for part in g.op("Split", case.x, split=[4, 4], axis=2, outputs=2)
    )
    rows = shaped(g.op("Reshape", source, [0, 0, 2, 2]), 2, "n", 2, 2)
    rows = shaped(g.op("Softmax", rows, axis=3), 2, "n", 2, 2)
    factor = shaped(g.op("Reshape", gate, [0, 0, 2, 2]), 2, "n", 2, 2)
    sigmoid = shaped(g.op("Sigmoid", factor), 2, "n", 2, 2)
    factor = shaped(g.op("Mul", factor, sigmoid), 2, "n", 2, 2)
    if computed:
        factor = shaped(g.op("Softmax", factor, axis=3), 2, "n", 2, 2)
    product = shaped(g.op("Mul", rows, factor), 2, "n", 2, 2)
    result = g.op("Neg", shaped(g.op("Reshape", product, [0, 0, 4]), 2, "n", 4))
    case.returns(result, *([sigmoid] if returns_gate else []))


def test_a_gate_needs_no_reshape() -> None:
    case = Case([2, "n", 8])
    gated(case)
    assert case.checked(numbers(2, 3, 8), ReshapeFactors(case.known))
    assert case.ops() == ["Split", "Reshape", "Softmax", "Sigmoid", "Mul", "Reshape", "Mul", "Neg"]


@pytest.mark.parametrize("arguments", [{"returns_gate": True}, {"computed": True}], ids=["returned", "rows"])
def test_gates_that_stay_reshaped(arguments: dict[str, bool]) -> None:
    case = Case([2, "n", 8])
    gated(case, **arguments)
    assert not case.checked(numbers(2, 3, 8), ReshapeFactors(case.known))


@pytest.mark.parametrize("opset", [11, 13, HIGHEST])
@pytest.mark.parametrize("width", [2, 4])
def test_all_parts_are_reshaped_at_once(opset: int, width: int) -> None:
    """Rows of different widths stay."""
    case = Case([2, "n", 12], opset)
    g = case.g
    parts = g.op("Split", case.x, split=[8, 4], axis=2, outputs=2)
    rows = [
        shaped(g.op("Reshape", shaped(part, 2, "n", size), [0, 0, -1, row]), 2, "n", size // row, row)
        for part, size, row in zip(parts, (8, 4), (2, width), strict=True)
    ]
    case.returns(*(g.op("Neg", row) for row in rows))
    assert case.checked(numbers(2, 3, 12), ReshapeOnce(case.known)) == (width == 2)
    case.remove_unused()
    assert case.ops().count("Reshape") == (1 if width == 2 else 2)


@pytest.mark.parametrize("rank", [3, 4])
@pytest.mark.parametrize("op_type", ["Gather", "Squeeze"])
def test_tables_keep_their_first_axis_for_readers_of_as_many_axes(op_type: str, rank: int) -> None:
    case = Case([2, 3, "n", 4] if rank == 4 else [3, "n", 4], 13)
    g = case.g
    axes = [0, 1] if rank == 4 else [0]
    table = g.op("ReduceMax", case.x, axes=[*axes, rank - 1], keepdims=0)
    table = shaped(g.op("Unsqueeze", shaped(table, "n"), axes=[0, 1, 3]), 1, 1, "n", 1)
    arguments: dict[str, Any] = {"axis": 0} if op_type == "Gather" else {}
    row = g.op(op_type, table, 0 if op_type == "Gather" else [0], **arguments)
    wide = shaped(g.op("Concat", *[shaped(row, 1, "n", 1)] * 4, axis=2), 1, "n", 4)
    case.returns(shaped(g.op("Mul", case.x, wide), *case.x.shape))
    x = numbers(2, 3, 5, 4) if rank == 4 else numbers(3, 5, 4)
    assert case.checked(x, KeepLeadingOnes(case.known)) == (rank == 4)
    assert (op_type in case.ops()) == (rank == 3)


@pytest.mark.parametrize("opset", [11, 13, 18])
def test_a_sum_of_squares_is_one_operator(opset: int) -> None:
    case = Case([2, "n", 4], opset)
    case.returns(case.g.op("ReduceSum", case.g.op("Mul", case.x, case.x), axes=[2], keepdims=1))
    assert case.checked(numbers(2, 3, 4), SumSquares(case.known), exact=False)
    case.remove_unused()
    assert case.ops() == ["ReduceSumSquare"]


def test_a_sum_of_other_products_stays() -> None:
    case = Case([2, "n", 4])
    squares = case.g.op("Mul", case.x, case.x)
    total = case.g.op("ReduceSum", squares, axes=[2], keepdims=1)
    others = case.g.op("ReduceSum", case.g.op("Mul", case.x, case.g.op("Neg", case.x)), axes=[2], keepdims=1)
    case.returns(total, squares, others)
    assert not case.checked(numbers(2, 3, 4), SumSquares(case.known))
    assert "ReduceSumSquare" not in case.ops()
