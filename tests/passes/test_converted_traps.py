"""The ONNX passes that rewrite forms of torch.onnx that few targets support."""

import numpy as np
import onnx_ir as ir
import pytest

from opsetta.passes.onnx_graph.fusions.gelu import OrderGelu
from opsetta.passes.onnx_graph.optimize import optimize
from opsetta.passes.onnx_graph.shapes.constant_gathers import SimplifyGathers
from opsetta.passes.onnx_graph.simplification.nan_replacements import RemoveNaNReplacements
from opsetta.passes.realizers.operators.compose_operators import ComposeOperators
from opsetta.registration import default_registry

from ..opsets import HIGHEST
from .graph_case import Case, numbers

CAUSAL = np.triu(np.full((4, 4), -np.inf, np.float32), 1)
FULL_ROW = np.where(np.arange(4)[:, None] == 2, -np.inf, 0).astype(np.float32)


def attention(mask: np.ndarray | None, opset: int = 18, axis: int = -1, computed: bool = False) -> Case:
    """Softmax over masked scores with its NaN replaced, as torch.onnx writes attention."""
    case = Case([2, 4, 3], opset)
    scores = case.g.op("MatMul", case.x, case.weight("k", numbers(3, 4)))
    scores = case.g.op("Mul", scores, case.weight("scale", np.array(0.5, np.float32)))
    scores.shape = ir.Shape([2, 4, 4])
    if mask is not None:
        added = case.weight("mask", mask)
        if computed:
            added = case.g.op("Mul", added, case.g.op("ReduceMax", case.x, keepdims=0, axes=[0, 1, 2]))
        scores = case.g.op("Add", scores, added)
        scores.shape = ir.Shape([2, 4, 4])
    weights = case.g.op("Softmax", scores, axis=axis)
    weights.shape = scores.shape
    kept = case.g.op("Where", case.g.op("IsNaN", weights), case.weight("zero", np.float32(0)), weights)
    case.returns(case.g.op("Neg", kept))
    return case


@pytest.mark.parametrize("opset", [13, 18, HIGHEST])
@pytest.mark.parametrize("mask", [None, CAUSAL, np.zeros((1, 4, 4), np.float32)])
def test_a_replacement_of_nan_goes_where_each_row_has_a_score(opset, mask):
    case = attention(mask, opset)
    assert case.checked(numbers(2, 4, 3), RemoveNaNReplacements(case.known))
    case.remove_unused()
    assert "IsNaN" not in case.ops()
    assert "Where" not in case.ops()


@pytest.mark.parametrize(
    ("mask", "axis", "computed"),
    [
        (FULL_ROW, -1, False),
        (CAUSAL, 1, False),
        (CAUSAL, -1, True),
        (np.full((4, 4), np.nan, np.float32), -1, False),
    ],
    ids=["full row", "other axis", "computed mask", "NaN"],
)
def test_a_replacement_is_written_by_a_comparison_where_a_row_may_be_empty(mask, axis, computed):
    case = attention(mask, 18, axis, computed)
    assert case.checked(numbers(2, 4, 3), RemoveNaNReplacements(case.known))
    case.remove_unused()
    assert case.ops()[-4:] == ["Softmax", "Greater", "Where", "Neg"]


@pytest.mark.parametrize(
    ("filler", "remains"), [(np.finfo(np.float32).min, []), (-np.inf, ["Greater", "Where"])]
)
def test_a_computed_mask_of_finite_numbers_leaves_no_nan(filler: float, remains: list[str]) -> None:
    """The padding mask of BERT, in which one row is full."""
    case = Case([2, 4, 4], 17)
    g = case.g
    mask = g.op("Where", g.op("Less", case.x, 1.0), 0.0, filler)
    scores = g.op("Add", g.op("MatMul", case.x, case.x), mask)
    scores.shape = ir.Shape([2, 4, 4])
    weights = g.op("Softmax", scores, axis=-1)
    case.returns(g.op("Neg", g.op("Where", g.op("IsNaN", weights), 0.0, weights)))
    x = numbers(2, 4, 4)
    x[1, 2] = 1.5
    assert case.checked(x, RemoveNaNReplacements(case.known))
    case.remove_unused()
    assert case.ops() == ["Less", "Where", "MatMul", "Add", "Softmax", *remains, "Neg"]


def test_a_mask_that_is_repeated_and_expanded_without_effect_is_read_as_it_is() -> None:
    """The padding mask of BERT in files of torch.onnx's TorchScript exporter; OpenCV 4 does not know And."""
    case = Case([2, 1, 1, 4], 17)
    g = case.g
    both = g.op("And", case.weight("true", np.ones((1, 1, 4, 1), bool)), g.op("Less", case.x, 1.0))
    expanded = g.op("Expand", both, case.g.constant(np.array([2, 1, 4, 4])))
    scores = g.op("MatMul", g.op("Transpose", case.x, perm=[0, 1, 3, 2]), case.x)
    case.returns(g.op("Add", scores, g.op("Where", expanded, 0.0, -np.inf)))
    (before,) = case.run(numbers(2, 1, 1, 4))
    optimize(case.model, case.known, "basic")
    np.testing.assert_array_equal(case.run(numbers(2, 1, 1, 4))[0], before)
    assert not {"And", "Expand"} & set(case.ops())


def gathered(shape: list, dtype: np.dtype, positions: np.ndarray, opset: int = 18) -> Case:
    case = Case(shape, opset)
    data = case.x if dtype == np.float32 else case.g.op("Greater", case.x, case.g.constant(0.0))
    data.shape = ir.Shape(shape)
    result = case.g.op("GatherND", data, case.weight("positions", positions))
    case.returns(case.g.op("Cast", result, to=ir.DataType.FLOAT))
    return case


GRID = np.stack(np.meshgrid(np.arange(2), np.arange(3), indexing="ij"), -1)[None]


@pytest.mark.parametrize("opset", [11, 13, HIGHEST])
@pytest.mark.parametrize(
    ("shape", "dtype", "positions", "expected"),
    [
        ([2, 3, 4], np.bool_, GRID, ["Greater", "Reshape", "Cast"]),
        ([2, 3], np.float32, GRID, ["Reshape", "Cast"]),
        ([2, 3, "n"], np.bool_, GRID[:, ::-1], ["Greater", "Reshape", "Gather", "Cast"]),
        ([5, "n"], np.float32, np.array([[[4], [-5]]]), ["Gather", "Cast"]),
    ],
    ids=["bools in order", "floats in order", "bools in another order", "one dimension"],
)
def test_constant_positions_need_no_gather_nd(opset, shape, dtype, positions, expected):
    case = gathered(shape, dtype, positions, opset)
    sizes = [size if isinstance(size, int) else 4 for size in shape]
    assert case.checked(numbers(*sizes), SimplifyGathers(case.known))
    assert case.ops() == expected


@pytest.mark.parametrize(
    ("shape", "dtype", "positions"),
    [([2, "n"], np.bool_, GRID), ([2, 3], np.float32, GRID[:, ::-1]), ([4, 4], np.bool_, np.full((1, 0), 0))],
    ids=["unknown size", "floats in another order", "no positions"],
)
def test_other_gathers_stay(shape, dtype, positions):
    case = gathered(shape, dtype, positions)
    sizes = [size if isinstance(size, int) else 3 for size in shape]
    assert not case.checked(numbers(*sizes), SimplifyGathers(case.known))


@pytest.mark.parametrize("opset", [9, 17, HIGHEST])
def test_an_operator_that_is_not_taken_is_composed(opset):
    case = Case([2, 3], opset)
    case.returns(case.g.op("Where", case.g.op("IsNaN", case.x), case.weight("w", numbers(3)), case.x))
    x = np.array([[0, np.nan, 1], [np.inf, -np.inf, -0.0]], np.float32)
    taken = lambda name: name != "IsNaN"  # noqa: E731
    assert case.checked(x, ComposeOperators(taken, default_registry))
    assert "IsNaN" not in case.ops()


@pytest.mark.parametrize("refused", [{"GatherND"}, {"GatherND", "Gather"}, {"Softmax"}, {"Where"}])
def test_what_has_no_composition_of_taken_operators_stays(refused):
    case = Case([2, 3], 18)
    positions = case.g.op("Cast", case.g.op("Clip", case.x, 0.0, 1.0), to=ir.DataType.INT64)
    positions.shape = ir.Shape([2, 3])
    found = case.g.op("GatherND", case.weight("w", numbers(2, 2, 2, 3)), positions)
    case.returns(case.g.op("Softmax", found))
    composed = refused == {"GatherND"}
    assert (
        case.checked(numbers(2, 3), ComposeOperators(lambda op: op not in refused, default_registry))
        == composed
    )
    assert ("GatherND" in case.ops()) != composed


@pytest.mark.parametrize("swapped", [False, True])
def test_a_gelu_is_halved_last(swapped):
    case = Case([2, 3], 17)
    half, one, root = (
        case.weight(n, np.float32(v)) for n, v in (("half", 0.5), ("one", 1), ("root", 2**0.5))
    )
    total = case.g.op("Add", case.g.op("Erf", case.g.op("Div", case.x, root)), one)
    factor = case.g.op("Mul", half, total) if swapped else case.g.op("Mul", total, half)
    case.returns(case.g.op("Mul", factor, case.x) if swapped else case.g.op("Mul", case.x, factor))
    assert case.checked(numbers(2, 3) * 4, OrderGelu())
    *_, product, halving = case.model.graph
    assert [*product.inputs] == [case.x, total]
    assert [*halving.inputs] == [product.outputs[0], half]
