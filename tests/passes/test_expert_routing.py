"""The nodes of layers of experts: normalized probabilities, and the order that undoes their sorting."""

from __future__ import annotations

import numpy as np
import pytest
from onnx_ir import Shape

from opsetta.passes.onnx_graph.fusions.top_probabilities import NormalizeTopLogits
from opsetta.passes.onnx_graph.simplification.inverted_permutations import (
    ScaleRestoredRows,
    SortPermutations,
)
from opsetta.registration import DataType, Value

from ..opsets import HIGHEST
from .graph_case import Case, numbers

X = np.random.RandomState(0).uniform(-3, 3, (6, 8)).astype(np.float32)


def normalized(case: Case, dtype: DataType = DataType.FLOAT, summed: int = -1) -> tuple[Value, Value, Value]:
    """The largest probabilities, as a router normalizes them: quotients, probabilities and positions."""
    g = case.g
    probabilities = g.op("Softmax", g.cast(case.x, dtype), axis=-1)
    values, indices = g.op("TopK", probabilities, K=[2], axis=-1, outputs=2)
    total = g.op("ReduceSum", values, axes=[summed], keepdims=1)
    return g.op("Div", values, total), probabilities, indices


@pytest.mark.parametrize("opset", [11, 13, HIGHEST])
def test_the_largest_logits_are_normalized(opset: int) -> None:
    case = Case(["rows", 8], opset)
    quotients, _, indices = normalized(case)
    case.returns(quotients, indices)
    assert case.checked(X, NormalizeTopLogits(case.known), exact=False)
    case.remove_unused()
    assert [name for name in case.ops() if name != "Constant"] == ["TopK", "Softmax"]


def test_probabilities_that_are_read_stay() -> None:
    case = Case(["rows", 8])
    case.returns(*normalized(case))
    assert not case.checked(X, NormalizeTopLogits(case.known))


@pytest.mark.parametrize(("dtype", "summed"), [(DataType.FLOAT16, -1), (DataType.FLOAT, 0)])
def test_half_precision_and_sums_of_columns_stay(dtype: DataType, summed: int) -> None:
    case = Case(["rows", 8])
    quotients, _, indices = normalized(case, dtype, summed)
    case.returns(quotients, indices)
    assert not NormalizeTopLogits(case.known)(case.model).modified


def inverse(case: Case, step: int) -> Value:
    """The positions of the elements of x in the order of a TopK, as transformers computes them."""
    g = case.g
    vector = g.cast(case.x, DataType.INT64)
    _, order = g.op("TopK", vector, K=g.op("Shape", case.x), axis=0, largest=0, outputs=2)
    order.shape = case.x.shape
    blank = g.op("ConstantOfShape", g.op("Shape", case.x), value=np.zeros(1, np.int64))
    blank.shape = case.x.shape
    length = g.op("Squeeze", g.op("Shape", case.x), axes=[0])
    numbers = g.op("Range", 0, g.op("Mul", length, np.int64(step)), step)
    return g.op("ScatterND", blank, g.op("Unsqueeze", order, axes=[1]), numbers)


@pytest.mark.parametrize(("opset", "step"), [(11, 1), (28, 1), (18, 2)])
def test_a_permutation_is_inverted_by_sorting(opset: int, step: int) -> None:
    """Numbers other than 0, 1, 2 and so on are no inverse."""
    case = Case(["n"], opset)
    case.returns(inverse(case, step))
    changed = case.checked(np.float32([3, 1, 2, 3, 0]), SortPermutations(case.known))
    case.remove_unused()
    assert changed is (step == 1)
    assert ("ScatterND" in case.ops()) is (step == 2)
    assert case.ops().count("TopK") == (2 if step == 1 else 1)


def restored_rows(case: Case, factors: Value, largest: int = 0) -> Value:
    """The rows of a weight in the order of x, times factors in that order, and back in their own order."""
    g = case.g
    count = g.op("Shape", factors)
    _, order = g.op("TopK", factors, K=count, axis=0, outputs=2)
    _, inverse = g.op("TopK", order, K=count, axis=0, largest=largest, outputs=2)
    order.shape = inverse.shape = factors.shape
    rows = g.op("Gather", case.weight("rows", numbers(12, 3)), order, axis=0)
    rows.shape = Shape([*factors.shape, 3])
    column = g.op("Unsqueeze", g.op("Gather", factors, order, axis=0), axes=[1])
    return g.op("Gather", g.op("Mul", column, rows), inverse, axis=0)


@pytest.mark.parametrize("opset", [11, 13, HIGHEST])
@pytest.mark.parametrize("is_separated", [True, False])
def test_restored_rows_are_scaled_in_their_own_order(opset: int, is_separated: bool) -> None:
    """A Reshape behind the rows is in front of the product: the factors keep the shape that they have."""
    case = Case([6, 2] if is_separated else [12], opset)
    factors = case.g.op("Reshape", case.x, [-1]) if is_separated else case.x
    factors.shape = Shape([12])
    result = restored_rows(case, factors)
    result.shape = Shape([12, 3])
    if is_separated:
        result = case.g.op("Reshape", result, [-1, 2, 3])
        result.shape = Shape([6, 2, 3])
    case.returns(case.g.op("Neg", result))
    assert case.checked(X[:, :2].reshape(case.x.shape.numpy()), ScaleRestoredRows(case.known))
    case.remove_unused()
    assert [name for name in case.ops() if name == "Gather"] == ["Gather"] * 2
    assert case.ops()[-3:] == ["Reshape", "Mul", "Neg"]


def test_rows_in_another_order_stay() -> None:
    """The second TopK sorts from the largest on, so it does not invert the first one."""
    case = Case([12], 13)
    result = restored_rows(case, case.x, largest=1)
    case.returns(result)
    assert not case.checked(X[:, :2].reshape(12), ScaleRestoredRows(case.known))
