"""The folding of constants is bounded in memory and time, whatever sizes a file requests."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from opsetta.passes.onnx_graph.constants.fold_constants import FoldConstants
from opsetta.registration import Value

from .graph_case import Case, numbers

FREE = 2**22
"""Elements of FLOAT in 16 MiB."""


def repeated(case: Case, *sizes: int) -> Value:
    """A constant of one element, repeated to a shape."""
    weight = case.weight("sizes", np.abs(sizes))
    result = case.g.op("Expand", case.weight("one", numbers(1)), weight)
    # Nodes of files may have negative sizes; emission refuses them.
    weight.const_value = ir.tensor(np.array(sizes), name="sizes")
    return result


def folded(case: Case, total: Value) -> list[str]:
    """The operators that are left of a sum of the input and a constant."""
    case.returns(case.g.op("Add", case.x, total))
    FoldConstants(case.known)(case.model)
    return case.ops()


@pytest.mark.parametrize(
    ("op_type", "attributes"),
    [
        ("Reciprocal", {}),
        ("Tanh", {}),
        ("Transpose", {"perm": [1, 0]}),
        ("Flatten", {}),
        ("Unsqueeze", {"axes": [0]}),
    ],
)
@pytest.mark.parametrize("sizes", [(2**20, 2**3), (2**40, 2**20)])
def test_a_value_in_between_is_not_much_larger_than_its_sources(op_type, attributes, sizes) -> None:
    case = Case([1])
    value = case.g.op(op_type, repeated(case, *sizes), **attributes)
    assert folded(case, case.g.op("ReduceMax", value, keepdims=0)) == ["Expand", op_type, "ReduceMax", "Add"]


@pytest.mark.parametrize(("elements", "operators"), [(FREE, 1), (FREE + 16, 3)])
def test_values_of_16_MiB_are_folded(elements, operators) -> None:
    case = Case([1])
    assert len(folded(case, case.g.op("ReduceSum", repeated(case, elements), keepdims=0))) == operators


def test_large_weights_may_have_large_values_in_between() -> None:
    case = Case([1])
    weight = case.weight("w", np.ones((FREE // 1024 + 64, 1024), np.float32))
    product = case.g.op("Mul", case.g.op("Transpose", weight, perm=[1, 0]), 2.0)
    assert folded(case, case.g.op("ReduceSum", product, keepdims=0)) == ["Add"]


def test_values_that_are_needed_at_the_same_time_are_counted_together() -> None:
    case = Case([1])
    base = repeated(case, FREE)
    parts = [case.g.op("Mul", base, float(number)) for number in range(6)]
    sums = [case.g.op("Add", part, parts[0]) for part in parts]
    total = sums[0]
    for part in sums[1:]:
        total = case.g.op("Sub", total, part)
    assert len(folded(case, case.g.op("ReduceSum", total, keepdims=0))) > 10


@pytest.mark.parametrize(("count", "is_folded"), [(8, True), (40, False)])
def test_the_work_of_all_steps_is_bounded(count, is_folded) -> None:
    case = Case([1])
    value = repeated(case, FREE // 4)
    for _ in range(count):
        value = case.g.op("Cos", value)
    assert (folded(case, case.g.op("ReduceSum", value, keepdims=0)) == ["Add"]) is is_folded


def test_a_weight_with_many_readers_is_not_computed_with_for_each_of_them() -> None:
    case = Case([1])
    weight = case.weight("w", numbers(2**16))
    total = case.x
    for number in range(1_200):
        total = case.g.op(
            "Add", total, case.g.op("ReduceSum", case.g.op("Mul", weight, number / 7), keepdims=0)
        )
    assert "Mul" in folded(case, total)


@pytest.mark.parametrize("sizes", [(-3,), (2**31, -1), (2**62, 2**31)])
def test_sizes_that_no_array_has_stay_in_the_graph(sizes) -> None:
    case = Case([1])
    value = case.g.op("Neg", repeated(case, *sizes))
    assert folded(case, case.g.op("ReduceSum", value, keepdims=0))[0] == "Expand"


def test_a_shape_of_negative_sizes_is_not_filled() -> None:
    case = Case([1])
    weight = case.weight("sizes", np.array([2, 3]))
    value = case.g.op("ConstantOfShape", weight)
    weight.const_value = ir.tensor(np.array([-2, 3]), name="sizes")
    assert folded(case, case.g.op("ReduceSum", value, keepdims=0))[0] == "ConstantOfShape"
