"""Repetitions, selections and conditions are written with fewer nodes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest

from opsetta.passes.onnx_graph.fusions.attention.repeated_heads import GatherHeads
from opsetta.passes.onnx_graph.shapes.adjacent_slices import SplitSlices
from opsetta.passes.onnx_graph.shapes.concatenated_zeros import PadConcatenated
from opsetta.passes.onnx_graph.shapes.late_broadcasts import BroadcastLate, BroadcastNamed
from opsetta.passes.onnx_graph.shapes.leading_ones import OmitLeadingOnes
from opsetta.passes.onnx_graph.shapes.rejoined_parts import RejoinParts
from opsetta.passes.onnx_graph.shapes.shape_chains import MergeShapeChains
from opsetta.passes.onnx_graph.simplification.identities import RemoveIdentityArithmetic
from opsetta.passes.onnx_graph.simplification.inverted_conditions import ExchangeOperands
from opsetta.passes.onnx_graph.simplification.uniform_values import RemoveUniformValues
from opsetta.registration import Value

from ..opsets import HIGHEST
from .graph_case import Case, numbers

X = numbers(2, 4, 4)


def operators(case: Case, graph_pass: ir.passes.PassBase, x: np.ndarray = X) -> list[str]:
    """The operators after a pass that must change the model."""
    assert case.checked(x, graph_pass)
    case.remove_unused()
    return case.ops()


@pytest.mark.parametrize("opset", [11, 13, HIGHEST])
@pytest.mark.parametrize("axis", [0, 2])
def test_slices_of_a_whole_axis_become_a_split(opset: int, axis: int) -> None:
    case = Case([2, 4, 4], opset)
    size = X.shape[axis]
    second = case.g.op("Slice", case.x, starts=[size // 2], ends=[2**31 - 1], axes=[axis - 3])
    first = case.g.op("Slice", case.x, starts=[0], ends=[size // 2], axes=[axis])
    case.returns(case.g.op("Concat", case.g.op("Neg", second), first, axis=axis))
    assert operators(case, SplitSlices(case.known)) == ["Split", "Neg", "Concat"]


@pytest.mark.parametrize(
    "parts",
    [[(0, 2, 1)], [(0, 2, 1), (3, 4, 1)], [(0, 2, 1), (1, 4, 1)], [(0, 4, 2), (1, 4, 2)]],
    ids=["one", "gap", "overlap", "steps"],
)
def test_slices_that_stay(parts: list[tuple[int, int, int]]) -> None:
    case = Case([2, 4, 4])
    slices = [
        case.g.op("Slice", case.x, starts=[start], ends=[end], axes=[1], steps=[step])
        for start, end, step in parts
    ]
    case.returns(case.g.op("Concat", *slices, axis=1))
    assert not case.checked(X, SplitSlices(case.known))


def test_slices_of_an_unknown_size_stay() -> None:
    case = Case([2, "n", 4])
    slices = [case.g.op("Slice", case.x, starts=[s], ends=[s + 2], axes=[1]) for s in (0, 2)]
    case.returns(case.g.op("Concat", *slices, axis=1))
    assert not case.checked(X, SplitSlices(case.known))


def rejoined_parts(case: Case, sizes: list[int], order: tuple[int, ...], axis: int = 2) -> Value:
    """Parts of x that are divided into rows of two, and joined."""
    g = case.g
    parts = g.op("Split", case.x, split=sizes, axis=2, outputs=len(sizes))
    rows = []
    for index in order:
        parts[index].shape = ir.Shape([2, "n", sizes[index]])
        rows.append(g.op("Reshape", parts[index], [0, 0, sizes[index] // 2, 2]))
        rows[-1].shape = ir.Shape([2, "n", sizes[index] // 2, 2])
    joined: Value = g.op("Concat", *rows, axis=axis)
    others = [part for index, part in enumerate(parts) if index not in order]
    case.returns(g.op("Neg", joined), *(g.op("Abs", part) for part in others))
    return joined


@pytest.mark.parametrize("opset", [11, 13, HIGHEST])
@pytest.mark.parametrize(("sizes", "order"), [([2, 4, 2], (1, 2)), ([2, 2, 2, 2], (1, 2))])
def test_parts_that_are_joined_again_stay_together(
    opset: int, sizes: list[int], order: tuple[int, ...]
) -> None:
    case = Case([2, "n", 8], opset)
    rejoined_parts(case, sizes, order)
    abs_count = len(sizes) - len(order)
    expected = ["Split", "Reshape", "Neg", *["Abs"] * abs_count]
    assert operators(case, RejoinParts(case.known), numbers(2, 3, 8)) == expected


@pytest.mark.parametrize(("order", "axis"), [((1, 0), 2), ((0, 2), 2), ((0, 1, 2), 2), ((0, 1), 1)])
def test_parts_in_another_order_stay(order: tuple[int, ...], axis: int) -> None:
    """So do all parts together, and those joined along another axis."""
    case = Case([2, "n", 6])
    rejoined_parts(case, [2, 2, 2], order, axis)
    assert not case.checked(numbers(2, 3, 6), RejoinParts(case.known))


@pytest.mark.parametrize("is_returned", [True, False])
def test_parts_of_another_axis_and_results_stay(is_returned: bool) -> None:
    case = Case([4, 6] if is_returned else [6, 4])
    first, second, third = case.g.op("Split", case.x, split=[2, 2, 2], axis=int(is_returned), outputs=3)
    rows = [case.g.op("Reshape", part, [0, -1, 2]) for part in (first, second)]
    case.returns(case.g.op("Concat", *rows, axis=1), third if is_returned else case.g.op("Abs", third))
    assert not case.checked(numbers(*case.x.shape.numpy()), RejoinParts(case.known))


def test_repeated_heads_become_a_gather() -> None:
    case = Case([2, "n", 4, 4], 13)
    heads = case.g.op("Transpose", case.x, perm=[0, 2, 1, 3])
    copies = case.g.op("Expand", case.g.op("Unsqueeze", heads, axes=[2]), [1, 1, 3, 1, 1])
    repeated = case.g.op("Reshape", copies, [2, 12, -1, 4])
    copies.shape, repeated.shape = ir.Shape([2, 4, 3, "n", 4]), ir.Shape([2, 12, "n", 4])
    case.returns(repeated)
    assert operators(case, GatherHeads(case.known), numbers(2, 5, 4, 4)) == ["Transpose", "Gather"]


@pytest.mark.parametrize("opset", [10, 13])
@pytest.mark.parametrize("is_first", [True, False])
def test_zeros_of_a_computed_shape_become_a_pad(opset: int, is_first: bool) -> None:
    case = Case([2, "n", 4], opset)
    row = case.g.op("Slice", case.x, starts=[0], ends=[1], axes=[0])
    zeros = case.g.op("ConstantOfShape", case.g.op("Shape", row))
    zeros.shape = ir.Shape([1, "n", 4])
    case.returns(case.g.op("Relu", case.g.op("Concat", *[zeros, case.x][:: 1 if is_first else -1], axis=0)))
    assert operators(case, PadConcatenated(case.known)) == ["Pad", "Relu"]


def test_numbers_other_than_zero_stay() -> None:
    case = Case([2, "n", 4])
    ones = case.g.op("ConstantOfShape", case.g.op("Shape", case.x), value=np.ones(1, np.float32))
    ones.shape = ir.Shape([2, "n", 4])
    case.returns(case.g.op("Relu", case.g.op("Concat", ones, case.x, axis=0)))
    assert not case.checked(X, PadConcatenated(case.known))


def test_conditions_of_where_are_not_inverted() -> None:
    case = Case([2, 4, 4])
    inverted = case.g.op("Not", case.g.op("Less", case.x, 1.0))
    case.returns(
        case.g.op("Add", case.g.op("Where", inverted, 0.0, case.x), case.g.op("Where", inverted, case.x, 1.0))
    )
    assert operators(case, ExchangeOperands()) == ["Less", "Where", "Where", "Add"]


def test_an_inverted_condition_with_another_reader_stays() -> None:
    case = Case([2, 4, 4])
    inverted = case.g.op("Not", case.g.op("Less", case.x, 1.0))
    case.returns(case.g.op("Where", inverted, 0.0, case.x), case.g.op("Xor", inverted, inverted))
    assert not case.checked(X, ExchangeOperands())


def _causal(case: Case, compare: str = "LessOrEqual") -> Value:
    """Scores with a mask of later positions; rows without a position become zeros."""
    g = case.g
    positions = g.op("Range", 0, g.size(case.x, 1), 1)
    positions.shape = ir.Shape(["n"])
    rows, columns = g.op("Unsqueeze", positions, axes=[0, 2]), g.op("Unsqueeze", positions, axes=[0, 1])
    bias = g.op("Where", g.op(compare, columns, rows), np.float32(0), np.float32(-np.inf))
    empty = g.op("Less", g.op("ReduceMax", bias, axes=[2], keepdims=1), np.float32(-3e38))
    return g.op("Where", empty, np.float32(0), g.op("Softmax", g.op("Add", case.x, bias), axis=2))


def test_each_row_of_a_causal_mask_of_any_length_has_a_position() -> None:
    case = Case([2, "n", "n"])
    case.returns(case.g.op("Neg", _causal(case)))
    assert "Less" not in operators(case, RemoveUniformValues(case.known))


def test_the_first_row_may_have_no_position() -> None:
    case = Case([2, "n", "n"])
    case.returns(case.g.op("Neg", _causal(case, "Less")))
    assert not case.checked(X, RemoveUniformValues(case.known))


def test_readers_repeat_along_sizes_with_a_name() -> None:
    case = Case(["b", 4, "n"])
    row = case.g.op("ReduceMax", case.x, axes=[1], keepdims=1)
    wide = case.g.op("Expand", row, case.g.op("Shape", case.x))
    wide.shape = case.x.shape
    case.returns(case.g.op("Add", case.x, case.g.op("Neg", wide)))
    assert not BroadcastLate(case.known)(case.model).modified
    assert operators(case, BroadcastNamed(case.known)) == ["ReduceMax", "Neg", "Add"]


@pytest.mark.parametrize("position", [0, 2, None])
def test_rotary_tables_are_repeated_by_their_readers(position: int | None) -> None:
    """The sum over what is repeated, instead of one position, needs all of it."""
    case = Case(["b", 4, "n"], 15)
    g = case.g
    row = g.op("Unsqueeze", g.op("ReduceMax", case.x, axes=[0, 1], keepdims=0), axes=[0, 1])
    sizes = g.op("Concat", [3], g.op("Shape", case.x, start=0, end=1), [1], axis=0)
    wide = g.op("Expand", row, sizes)
    wide.shape = ir.Shape([3, "b", "n"])
    angles = g.op("Cos", g.op("Unsqueeze", wide, axes=[3]))
    if position is None:
        rows = g.op("ReduceSum", angles, axes=[0], keepdims=0)
    else:
        rows = g.op("Gather", angles, np.int64(position), axis=0)
    table = g.op("Unsqueeze", g.op("Concat", rows, rows, axis=2), axes=[1])
    case.returns(g.op("Mul", g.op("Unsqueeze", case.x, axes=[3]), table))
    assert case.checked(X, BroadcastNamed(case.known)) is (position is not None)
    assert ("Expand" in case.ops()) is (position is None)


@pytest.mark.parametrize("mask_axes", [[0], [0, 1], [2]])
def test_attention_repeats_its_mask_over_texts_and_heads(mask_axes: list[int]) -> None:
    """It does not repeat a mask over the queries."""
    case = Case(["b", 2, 4, 4], 23)
    g = case.g
    row = g.op("Less", g.op("ReduceMax", case.x, axes=mask_axes, keepdims=1), np.float32(0.9))
    wide = g.op("Expand", row, g.op("Shape", case.x))
    wide.shape = case.x.shape
    case.returns(g.op("Attention", case.x, case.x, case.x, wide))
    modified = BroadcastNamed(case.known)(case.model).modified
    assert modified is (mask_axes != [2])
    assert ("Expand" in case.ops()) is not modified


def test_leading_axes_of_one_are_left_out() -> None:
    case = Case([2, "n", 4])
    g = case.g
    row = g.op("Neg", case.weight("row", np.float32([1, 2, 3, 4])))
    wide = g.op("Unsqueeze", row, axes=[0, 1])
    case.returns(g.op("Add", case.x, wide), g.op("Where", g.op("Less", wide, case.x), wide, case.x))
    assert operators(case, OmitLeadingOnes()) == ["Neg", "Add", "Less", "Where"]


@pytest.mark.parametrize("axes", [[0], [1], [0, 1, 2]])
def test_other_axes_of_one_stay(axes: list[int]) -> None:
    """An axis in the middle is no leading one, and a result needs those that no other operand has."""
    case = Case([2, 1, 4])
    wide = case.g.op("Unsqueeze", case.g.op("ReduceMax", case.x, keepdims=0, axes=[1]), axes=axes)
    case.returns(case.g.op("Mul", wide, wide) if axes == [0] else case.g.op("Mul", case.x, wide))
    assert not case.checked(X[:, :1, :4], OmitLeadingOnes())


def test_a_reader_of_another_shape_needs_the_expand() -> None:
    case = Case(["b", 4, "n"])
    row = case.g.op("ReduceMax", case.x, axes=[1], keepdims=1)
    wide = case.g.op("Expand", row, case.g.op("Shape", case.x))
    wide.shape = case.x.shape
    case.returns(case.g.op("MatMul", case.x, wide))
    assert not case.checked(X, BroadcastNamed(case.known))


MERGED: dict[str, Callable[[Case], Value]] = {
    "copied sizes": lambda case: case.g.op("Reshape", case.g.op("Reshape", case.x, [0, 0, 2, 2]), [0, 0, 4]),
    "sizes in front of the added axis": lambda case: case.g.op(
        "Reshape", case.g.op("Unsqueeze", case.x, axes=[2]), [0, 0, 2, 2]
    ),
}
KEPT: dict[str, Callable[[Case], Value]] = {
    "sizes that the first target changes": lambda case: case.g.op(
        "Reshape", case.g.op("Reshape", case.x, [-1, 2, 8]), [0, 0, 4, 2]
    ),
    "a size behind the added axis": lambda case: case.g.op(
        "Reshape", case.g.op("Unsqueeze", case.x, axes=[0]), [0, 0, -1]
    ),
}


@pytest.mark.parametrize("name", MERGED)
def test_shape_changes_that_copy_the_same_sizes(name: str) -> None:
    case = Case(["b", "n", 4])
    case.returns(case.g.op("Relu", MERGED[name](case)))
    assert operators(case, MergeShapeChains(case.known)) == ["Reshape", "Relu"]


@pytest.mark.parametrize("name", KEPT)
def test_shape_changes_that_copy_other_sizes(name: str) -> None:
    case = Case(["b", "n", 4])
    case.returns(case.g.op("Relu", KEPT[name](case)))
    case.checked(X, MergeShapeChains(case.known))
    assert len(case.ops()) == 3


@pytest.mark.parametrize(("start", "is_removed"), [(0, True), (1, False)])
def test_positions_read_from_all_positions(start: int, is_removed: bool) -> None:
    case = Case(["n", 4, 4])
    g = case.g
    count = g.op("Gather", g.op("Shape", case.x), 1)
    table = g.op("Range", start, g.op("Add", count, start), 1)
    indices = g.op("Unsqueeze", g.op("Range", 0, count, 1), axes=[1])
    case.returns(g.op("Neg", g.op("Gather", table, indices)))
    assert case.checked(X, RemoveIdentityArithmetic(case.known)) is is_removed


@pytest.mark.parametrize(
    ("low", "operand", "is_removed"), [(0.0, "Softplus", True), (0.5, "Softplus", False), (0.0, "Neg", False)]
)
def test_bounds_below_all_elements(low: float, operand: str, is_removed: bool) -> None:
    case = Case([2, 4, 4])
    clipped = case.g.op("Clip", case.g.op(operand, case.x), low, np.float32(np.inf))
    case.returns(case.g.op("Neg", clipped))
    assert case.checked(X, RemoveIdentityArithmetic(case.known)) is is_removed
