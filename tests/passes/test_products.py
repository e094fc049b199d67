"""Matrix products: Gemm, factors folded into weights, padding folded into convolutions, quotients."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from opsetta.passes.onnx_graph.images.padded_convolutions import CropPadding, FoldPadding
from opsetta.passes.onnx_graph.products.gemm import WriteGemm
from opsetta.passes.onnx_graph.products.linear_scales import FoldLinearScales
from opsetta.passes.onnx_graph.simplification.reciprocals import DivideByReciprocals

from .graph_case import Case, numbers


@pytest.mark.parametrize(
    ("shape", "opset", "turned", "biased", "expected"),
    [
        ([2, 5], 18, True, True, ["Gemm"]),
        ([2, 5], 18, True, False, ["Gemm"]),
        ([2, 5], 9, True, False, ["Transpose", "MatMul"]),
        ([2, 5], 9, False, True, ["Gemm"]),
        ([2, 5], 18, False, False, ["MatMul"]),
        ([2, 3, 5], 18, False, True, ["MatMul", "Add"]),
        ([2, 3, 5], 18, True, True, ["Reshape", "Gemm", "Reshape"]),
        (["n", 3, 5], 18, True, False, ["Reshape", "Gemm", "Reshape"]),
        (["n", "m", 5], 18, True, True, ["Transpose", "MatMul", "Add"]),
    ],
)
def test_gemm(shape: list[Any], opset: int, turned: bool, biased: bool, expected: list[str]) -> None:
    case = Case(shape, opset)
    weight = case.weight("w", numbers(4, 5) if turned else numbers(5, 4))
    product = case.g.op("MatMul", case.x, case.g.op("Transpose", weight, perm=[1, 0]) if turned else weight)
    case.returns(case.g.op("Add", case.weight("b", numbers(4)), product) if biased else product)
    sizes = [size if isinstance(size, int) else 2 for size in shape]
    case.checked(numbers(*sizes), WriteGemm(case.known), exact=False)
    case.remove_unused()
    assert case.ops() == expected
    if "Gemm" in expected and turned:
        assert "w" in case.model.graph.initializers


def test_a_product_that_others_read_keeps_its_addition() -> None:
    case = Case([2, 5])
    product = case.g.op("MatMul", case.x, case.weight("w", numbers(5, 4)))
    case.returns(product, case.g.op("Add", product, case.weight("b", numbers(4))))
    assert not case.checked(numbers(2, 5), WriteGemm(case.known))


@pytest.mark.parametrize("op_type", ["Mul", "Div"])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("factor", [np.float32(0.37), numbers(4)])
def test_a_factor_behind_a_linear_layer(op_type: str, biased: bool, factor: np.ndarray) -> None:
    case = Case([2, 3, 5])
    value = case.g.op("MatMul", case.x, case.weight("w", numbers(5, 4)))
    if biased:
        value = case.g.op("Add", value, case.weight("b", numbers(4)))
    if not np.ndim(factor):
        value = case.g.op("Transpose", case.g.op("Reshape", value, [2, 3, 2, 2]), perm=[0, 2, 1, 3])
    case.returns(case.g.op(op_type, value, factor))
    assert case.checked(numbers(2, 3, 5), FoldLinearScales(case.known), exact=False)
    assert op_type not in case.ops()
    assert case.model.graph[0].inputs[1].name == "w_scaled"


def test_a_factor_stays_where_the_weight_is_shared() -> None:
    case = Case([2, 4])
    weight = case.weight("w", numbers(4, 4))
    value = case.g.op("MatMul", case.x, weight)
    case.returns(case.g.op("MatMul", case.g.op("Mul", value, np.float32(0.5)), weight))
    assert not case.checked(numbers(2, 4), FoldLinearScales(case.known))


def test_a_factor_stays_where_it_is_infinite() -> None:
    case = Case([2, 4])
    value = case.g.op("MatMul", case.x, case.weight("w", numbers(4, 4)))
    case.returns(case.g.op("Div", value, np.float32(0)))
    assert not case.checked(numbers(2, 4), FoldLinearScales(case.known))


@pytest.mark.parametrize(
    ("pads", "number", "expected"),
    [
        ([0, 0, 1, 0, 0, 0, 2, 3], 0.0, ["Conv"]),
        ([0, 0, 1, 0, 0, 0, 2, 3], 1.0, ["Pad", "Conv"]),
        ([0, 0, -1, 0, 0, 0, 2, 3], 0.0, ["Pad", "Conv"]),
        ([0, 1, 0, 0, 0, 0, 0, 0], 0.0, ["Pad", "Conv"]),
    ],
)
@pytest.mark.parametrize("opset", [9, 18])
def test_padding(pads: list[int], number: float, expected: list[str], opset: int) -> None:
    case = Case([1, 2, 6, 6], opset)
    padded = (
        case.g.op("Pad", case.x, pads=pads, value=number)
        if opset == 9
        else case.g.op("Pad", case.x, pads, np.float32(number))
    )
    channels = 3 if pads[1] else 2
    case.returns(case.g.op("Conv", padded, case.weight("w", numbers(4, channels, 3, 3)), pads=[1, 0, 0, 1]))
    case.checked(numbers(1, 2, 6, 6), FoldPadding(case.known), exact=False)
    case.remove_unused()
    assert case.ops() == expected


@pytest.mark.parametrize(
    ("pads", "bounds", "strides", "expected"),
    [
        ([2, 2], (0, 6), [1], [2, 0]),
        ([2, 3], (0, 7), [1], [2, 1]),
        # The Slice leaves out more than the padding, begins later, or the kernel takes steps of two.
        ([2, 0], (0, 5), [1], None),
        ([2, 2], (1, 7), [1], None),
        ([2, 3], (0, 4), [2], None),
    ],
)
@pytest.mark.parametrize("opset", [9, 18])
def test_padding_that_a_slice_leaves_out(
    opset: int, pads: list[int], bounds: tuple[int, int], strides: list[int], expected: list[int] | None
) -> None:
    case = Case([1, 2, 6], opset)
    options = {"pads": pads, "strides": strides}
    result = case.g.op("Conv", case.x, case.weight("w", numbers(4, 2, 3)), **options)
    result.shape = ir.Shape([1, 4, (6 + sum(pads) - 3) // strides[0] + 1])
    start, end = bounds
    cut = case.g.op("Slice", result, starts=[start], ends=[end], axes=[2])
    cut.shape = ir.Shape([1, 4, end - start])
    case.returns(cut)
    assert case.checked(numbers(1, 2, 6), CropPadding(case.known), exact=False) == (expected is not None)
    assert case.ops() == (["Conv", "Slice"] if expected is None else ["Conv"])
    assert expected is None or [*case.model.graph[0].attributes["pads"].as_ints()] == expected


def test_products_with_reciprocals_become_quotients() -> None:
    case = Case([2, 4])
    shared = case.g.op("Reciprocal", case.x)
    own = case.g.op("Reciprocal", case.g.op("Sqrt", case.x))
    case.returns(case.g.op("Mul", case.x, shared), shared, case.g.op("Mul", own, case.x))
    case.checked(numbers(2, 4), DivideByReciprocals(), exact=False)
    assert case.ops() == ["Reciprocal", "Sqrt", "Mul", "Div"]
