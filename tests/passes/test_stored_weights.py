"""Gemm reads weights in their stored layout, where nothing needs a transposed copy."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from opsetta.passes.onnx_graph.constants.fold_constants import FoldConstants
from opsetta.passes.onnx_graph.constants.initializers import Initializers
from opsetta.passes.onnx_graph.optimize import optimize
from opsetta.passes.onnx_graph.products.stored_weights import ReadStoredWeights

from .graph_case import Case, numbers

SIZES = [8, 96]
"""Columns of weights that are computed at once, and of large ones that are computed as they are written."""


def turned(case: Case, weight: ir.Value) -> ir.Value:
    return case.g.op("Transpose", weight, perm=[1, 0])


def restored(case: Case, size: int, known: Initializers) -> bool:
    FoldConstants(known)(case.model)
    return case.checked(numbers(2, size), ReadStoredWeights(known), exact=False)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("is_named", [True, False])
def test_a_weight_keeps_its_name_and_contents(size: int, is_named: bool) -> None:
    case = Case([2, size])
    weight = case.weight("fc.weight", numbers(size, size))
    contents = weight.const_value
    known = case.known if is_named else Initializers(case.model)
    case.returns(case.g.op("Gemm", case.x, turned(case, weight), case.weight("bias", numbers(size))))
    assert restored(case, size, known)
    [gemm] = case.model.graph
    assert gemm.attributes.get_int("transB") == 1
    assert gemm.inputs[1] is weight
    assert list(case.model.graph.initializers) == ["fc.weight", "bias"][:: 1 if is_named else -1]
    assert weight.const_value is contents
    assert not known.derived


def test_two_transposes_are_none() -> None:
    case = Case([2, 96])
    weight = case.weight("w", numbers(96, 80))
    case.returns(case.g.op("Gemm", case.x, turned(case, weight), numbers(80), transB=1))
    assert restored(case, 96, case.known)
    assert not case.model.graph[0].attributes
    assert case.model.graph[0].inputs[1] is weight


def test_several_gemms_read_one_weight() -> None:
    case = Case([2, 96])
    copy = turned(case, case.weight("w", numbers(96, 96)))
    first = case.g.op("Gemm", case.x, copy, numbers(96))
    case.returns(case.g.op("Gemm", first, copy, numbers(96)))
    assert restored(case, 96, case.known)
    assert {node.inputs[1].name for node in case.model.graph if node.inputs[1]} == {"w"}


@pytest.mark.parametrize("other", ["product", "left operand", "factor", "sum"])
def test_a_copy_that_something_else_needs_stays(other: str) -> None:
    case = Case([2, 96])
    weight = case.weight("w", numbers(96, 96))
    copy = turned(case, weight)
    if other == "factor":
        copy = case.g.op("Mul", copy, case.weight("factor", np.float32(0.3)))
    results = [case.g.op("Gemm", case.x, copy, numbers(96))]
    if other == "product":
        results.append(case.g.op("MatMul", case.x, copy))
    elif other == "left operand":
        results.append(case.g.op("Gemm", copy, case.weight("v", numbers(96, 3)), numbers(3)))
    elif other == "sum":
        total = case.g.op("Add", copy, case.g.op("ReduceMean", case.x, keepdims=0))
        results.append(case.g.op("MatMul", case.x, total))
    case.returns(*results)
    assert not restored(case, 96, case.known)


def test_a_name_that_was_given_away_is_not_taken_back() -> None:
    case = Case([2, 96])
    weight = case.weight("w", numbers(96, 96))
    known = Initializers(case.model)
    copy = known.derive([weight], np.transpose, ir.DataType.FLOAT, (96, 96), readers=2)
    known.transposed[copy] = weight
    case.returns(case.g.op("Gemm", case.x, copy, numbers(96)))
    copy.name = "copy"
    case.weight("w", numbers(3))
    assert case.checked(numbers(2, 96), ReadStoredWeights(known), exact=False)
    assert case.model.graph[0].inputs[1] is weight
    assert weight.name == "w_1"


def linear_layers(case: Case, factor: ir.Value | None = None) -> None:
    """Linear layers as torch writes them, with activations between them, and factors of their results."""
    value: ir.Value = case.x
    for seed, layer in enumerate("abc"):
        weight = case.weight(f"{layer}.w", numbers(96, 96, seed=seed))
        product = case.g.op("MatMul", value, turned(case, weight))
        value = case.g.op("Add", product, case.weight(f"{layer}.b", numbers(96)))
        value = case.g.op("Relu", value if factor is None else case.g.op("Mul", value, factor))
    case.returns(value)


@pytest.mark.parametrize("is_named", [True, False])
@pytest.mark.parametrize("size", [1, 96])
def test_the_stored_rows_are_scaled(is_named: bool, size: int) -> None:
    case = Case([2, 3, 96])
    numbers_of_columns = numbers(size, seed=7)
    linear_layers(case, case.weight("factor", numbers_of_columns))
    before = case.run(numbers(2, 3, 96))
    optimize(case.model, case.known if is_named else None)
    np.testing.assert_allclose(case.run(numbers(2, 3, 96))[0], before[0], rtol=1e-5)
    gemms = [node for node in case.model.graph if node.op_type == "Gemm"]
    assert [gemm.attributes.get_int("transB") for gemm in gemms] == [1, 1, 1]
    for seed, gemm in enumerate(gemms):
        weight = gemm.inputs[1]
        assert weight is not None
        assert weight.const_value is not None
        assert weight.name == f"{'abc'[seed]}.w" + "_scaled" * is_named
        expected = numbers(96, 96, seed=seed) * numbers_of_columns.reshape(-1, 1)
        np.testing.assert_array_equal(weight.const_value.numpy(), expected)


@pytest.mark.parametrize("shape", [[2, 96], [2, 3, 96]])
def test_linear_layers_in_a_row(shape: list[int]) -> None:
    for level in ("basic", "full"):
        case = Case(shape)
        linear_layers(case)
        before = case.run(numbers(*shape))
        assert optimize(case.model, case.known, level)
        np.testing.assert_allclose(case.run(numbers(*shape))[0], before[0], rtol=1e-5)
        gemms = [node for node in case.model.graph if node.op_type == "Gemm"]
        assert [gemm.attributes.get_int("transB") for gemm in gemms] == [1, 1, 1]
        assert {"a.w", "b.w", "c.w"} <= set(case.model.graph.initializers)
        assert "MatMul" not in case.ops()
        assert not optimize(case.model, case.known, level)
