"""Tensors of one number: masks of True, biases of 0."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
import pytest

from opsetta.passes.onnx_graph.optimize import optimize
from opsetta.passes.onnx_graph.simplification.uniform_values import RemoveUniformValues

from .graph_case import Case, numbers

X = numbers(2, 100, 100)


def masked_softmax(case: Case, mask: np.ndarray) -> None:
    """As attention writes it: the mask becomes a bias, and rows without a key become zeros."""
    g = case.g
    visible = g.op("Expand", case.weight("mask", mask), [1, 100, 100])
    bias = g.op("Where", visible, np.float32(0), np.float32(-np.inf))
    empty = g.op("Less", g.op("ReduceMax", bias, axes=[2], keepdims=1), np.float32(-3e38))
    weights = g.op("Softmax", g.op("Add", case.x, bias), axis=2)
    case.returns(g.op("Where", empty, np.float32(0), weights))


def simplified(case: Case) -> list[str]:
    case.checked(X, RemoveUniformValues(case.known))
    case.remove_unused()
    return case.ops()


def test_a_mask_that_masks_nothing_goes() -> None:
    case = Case([2, 100, 100])
    masked_softmax(case, np.ones((1, 100, 1), bool))
    assert simplified(case) == ["Softmax", "Identity"]


def test_a_bias_of_zeros_goes() -> None:
    case = Case([2, 100, 100])
    zeros = case.g.constant(np.zeros((1, 100, 100), np.float32))
    case.returns(case.g.op("Softmax", case.g.op("Add", case.x, zeros), axis=2))
    assert simplified(case) == ["Softmax"]


def test_a_mask_that_masks_something_stays() -> None:
    case = Case([2, 100, 100])
    masked_softmax(case, np.arange(100).reshape(1, 100, 1) > 0)
    before = case.ops()
    assert simplified(case) == before


def test_a_shape_that_only_the_mask_has_stays() -> None:
    case = Case([100])
    zeros = case.g.op("Expand", case.weight("zero", np.zeros((1, 1), np.float32)), [100, 100])
    case.returns(case.g.op("Softmax", case.g.op("Add", case.x, zeros), axis=1))
    assert not case.checked(numbers(100), RemoveUniformValues(case.known))


@pytest.mark.parametrize("sign", [1, -1])
def test_a_broadcast_number_is_read_as_a_scalar(sign: int) -> None:
    case = Case([2, 100, 100])
    zeros = case.g.op("Expand", case.g.constant(np.zeros((1, 1), np.float32) * sign), [100, 100])
    case.returns(case.g.op("Neg", case.g.op("Add", case.x, zeros)))
    assert simplified(case) == ["Add", "Neg"]
    assert case.model.graph[0].inputs[1].shape == ir.Shape([])


@pytest.mark.parametrize("op_type", ["Max", "Min"])
def test_a_filled_tensor_is_read_as_a_scalar_at_any_size(op_type: str) -> None:
    case = Case([2, 100, 100])
    filled = case.g.op("ConstantOfShape", case.weight("sizes", np.array([100, 100])))
    case.returns(case.g.op(op_type, case.x, filled))
    assert simplified(case) == [op_type]
    assert case.model.graph[0].inputs[1].shape == ir.Shape([])


def test_positions_that_a_filled_tensor_limits_are_folded() -> None:
    case = Case([100, 100])
    filled = case.g.op("ConstantOfShape", case.weight("sizes", np.array([100, 100])), value=ir.tensor([7]))
    limited = case.g.op("Min", case.weight("positions", np.arange(10000).reshape(100, 100)), filled)
    case.returns(case.g.op("Add", case.x, case.g.op("Cast", limited, to=ir.DataType.FLOAT)))
    before = case.run(numbers(100, 100))
    assert optimize(case.model, case.known, "basic")
    np.testing.assert_array_equal(case.run(numbers(100, 100)), before)
    assert case.ops() == ["Add"]


def test_a_filled_tensor_without_a_size_that_others_have_stays() -> None:
    case = Case([100])
    filled = case.g.op("ConstantOfShape", case.weight("sizes", np.array([50, 100])))
    case.returns(case.g.op("Max", case.x, filled))
    assert not case.checked(numbers(100), RemoveUniformValues(case.known))


def test_weights_of_one_number_keep_their_names() -> None:
    case = Case([2, 100, 100])
    case.returns(case.g.op("Mul", case.x, case.weight("scale", np.ones(100, np.float32))))
    assert not case.checked(X, RemoveUniformValues(case.known))


def borders_of_sequences(case: Case, first: int, length: ir.Value, axes: Sequence[int] = (0,)) -> None:
    """As transformers numbers packed sequences: sums over the positions that do not follow the one before."""
    g = case.g
    counted = g.op("Range", np.int64(3), length, np.int64(1))
    counted.shape = ir.Shape(["length"])
    positions = g.op("Unsqueeze", counted, axes=list(axes))
    if len(axes) > 1:
        positions = g.op("Squeeze", positions, axes=list(axes[1:]))
    before = g.op("Sub", g.op("Slice", positions, [0], [1], [1]), np.int64(first))
    extended = g.op("Concat", before, positions, axis=1)
    later, earlier = g.op("Slice", extended, [1], [2**63 - 1], [1]), g.op("Slice", extended, [0], [-1], [1])
    difference = g.op("Sub", later, earlier)
    difference.shape = positions.shape
    borders = g.op("Not", g.op("Equal", difference, np.int64(1)))
    sequence = g.op("CumSum", g.cast(borders, ir.DataType.INT64), np.int64(-1))
    case.returns(g.op("Add", case.x, g.cast(g.op("Greater", sequence, np.int64(0)), ir.DataType.FLOAT)))


@pytest.mark.parametrize(("first", "axes"), [(1, [0]), (2, [0]), (1, [0, 1])])
def test_consecutive_positions_have_no_border(first: int, axes: list[int]) -> None:
    """With another number before the first position, all nodes stay."""
    case = Case([1, "length"])
    length = case.g.op("Add", case.g.op("Gather", case.g.op("Shape", case.x), np.int64(1)), np.int64(3))
    borders_of_sequences(case, first, length, axes)
    case.checked(numbers(1, 7), RemoveUniformValues(case.known))
    case.remove_unused()
    assert ("CumSum" in case.ops()) == (first == 2)


def test_positions_of_one_number_are_a_constant() -> None:
    case = Case([2, 100, 100])
    g = case.g
    types = case.weight("types", np.zeros((2, 512), np.int64))
    computed = g.op("Cast", g.op("Clip", g.op("Slice", case.x, [0], [3], [2]), 0.0, 9.0), to=7)
    computed.shape = ir.Shape([2, 100, 3])
    rows = g.op("Reshape", computed, [2, 300])
    rows.shape = ir.Shape([2, 300])
    selected = g.op("GatherElements", types, rows, axis=1)
    selected.shape, selected.dtype = ir.Shape([2, 300]), ir.DataType.INT64
    case.returns(g.op("Gather", case.weight("table", numbers(2, 4)), selected))
    assert simplified(case) == ["Gather"]
    assert case.model.graph[0].inputs[1].shape == ir.Shape([2, 300])
