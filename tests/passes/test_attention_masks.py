"""Masks of written-out attention: several in a row, computed, causal, and with rows that have no score."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from opsetta.passes.onnx_graph.fusions.attention.causal_attention import ReadCausalMasks
from opsetta.passes.onnx_graph.fusions.attention.fuse_attention import FuseAttention
from opsetta.passes.onnx_graph.fusions.refined_shapes import RefineShapes
from opsetta.passes.onnx_graph.simplification.nan_replacements import RemoveNaNReplacements
from opsetta.registration import Value

from .graph_case import Case, numbers

_SHAPE = [2, 3, 5, 5]
_LOWEST = float(np.finfo(np.float32).min)
_BIAS = numbers(1, 3, 5, 5, seed=1)
_CAUSAL = np.tri(5, dtype=bool)
Masked = Callable[[Case, Value], Value]


def _attention(
    case: Case, masked: Masked, replaces_nan: bool = False, softmax_type: ir.DataType | None = None
) -> Value:
    g = case.g
    rank = len(case.x.shape or ())
    perm = [*range(rank - 2), rank - 1, rank - 2]
    scores = g.op("MatMul", g.op("Neg", case.x), g.op("Transpose", g.op("Relu", case.x), perm=perm))
    scores = masked(case, scores)
    wide = scores if softmax_type is None else g.cast(scores, softmax_type)
    weights = g.op("Softmax", wide, axis=-1)
    weights = weights if softmax_type is None else g.cast(weights, ir.DataType.FLOAT16)
    if replaces_nan:
        weights = g.op("Where", g.op("IsNaN", weights), 0.0, weights)
    return g.op("MatMul", weights, g.op("Exp", case.x))


def _fused(case: Case) -> ir.Node:
    (node,) = (node for node in case.model.graph if node.op_type == "Attention")
    return node


def _input(*shape: int) -> np.ndarray:
    """Numbers of both signs, and one row of negative numbers for each matrix."""
    x = np.random.RandomState(0).standard_normal(shape).astype(np.float32)
    x[..., 3, :] = -1
    return x


def _positive(case: Case) -> Value:
    """Bools of the size of the scores, one row of which is False."""
    return case.g.op("Less", 0.0, case.x)


def _filled(filler: float, kept: Any = 0.0) -> Masked:
    """A mask that is added, and computed from the input."""

    def masked(case: Case, scores: Value) -> Value:
        mask = case.g.op("Where", _positive(case), kept, filler)
        mask.shape = case.x.shape
        return case.g.op("Add", scores, mask)

    return masked


def _in_a_row(*all_masks: Masked) -> Masked:
    def masked(case: Case, scores: Value) -> Value:
        for each in all_masks:
            scores = each(case, scores)
        return scores

    return masked


def _bias(case: Case, scores: Value) -> Value:
    return case.g.op("Add", case.weight("bias", _BIAS), scores)


def _replaced(filler: float, keeps: bool = True) -> Masked:
    """Scores that are replaced, by a condition that is computed from the input."""

    def masked(case: Case, scores: Value) -> Value:
        pair = (scores, filler) if keeps else (filler, scores)
        return case.g.op("Where", _positive(case), *pair)

    return masked


@pytest.mark.parametrize(
    ("masked", "replaces_nan", "added"),
    [
        (_in_a_row(_bias, _filled(-10.0)), False, ["Where", "Add"]),
        (_in_a_row(_filled(-math.inf), _bias), True, ["Where", "Add"]),
        (_in_a_row(_bias, _replaced(-math.inf)), True, ["Where"]),
        (_in_a_row(_bias, _filled(_LOWEST)), False, ["Where", "Add", "Max"]),
        (_in_a_row(_filled(-math.inf), _filled(_LOWEST)), True, ["Where", "Where", "Add", "Equal", "Where"]),
        (_filled(_LOWEST), True, ["Where", "Max"]),
        (_replaced(_LOWEST), False, ["Where"]),
        (_replaced(-1e9, keeps=False), False, ["Where"]),
    ],
    ids=[
        "bias-and-filled",
        "infinite-and-bias",
        "bias-and-replaced",
        "bias-and-lowest",
        "infinite-and-lowest",
        "lowest",
        "replaced-by-lowest",
        "kept-where-true",
    ],
)
@pytest.mark.parametrize("opset", [23, 24])
def test_computed_masks(masked: Masked, replaces_nan: bool, added: list[str], opset: int) -> None:
    """A row without scores gives zeros or the mean, as it did before."""
    case = Case(_SHAPE, opset)
    case.returns(_attention(case, masked, replaces_nan))
    x = _input(*_SHAPE)
    (before,) = case.run(x)
    assert case.checked(x, FuseAttention(case.known), exact=False)
    case.remove_unused()
    others = {"Neg", "Relu", "Exp", "Less", "Attention"}
    assert sorted(op for op in case.ops() if op not in others) == sorted(added)
    if opset == 23:
        (reference,) = ReferenceEvaluator(ir.to_proto(case.model)).run(None, {"x": x})
        np.testing.assert_allclose(reference, before, rtol=1e-5, atol=1e-6)


def test_nan_that_is_replaced_by_a_comparison() -> None:
    """The form of files that opsetta wrote for earlier opsets."""
    case = Case(_SHAPE, 23)
    case.returns(_attention(case, _filled(-math.inf), replaces_nan=True))
    passes = [RemoveNaNReplacements(case.known), FuseAttention(case.known)]
    assert case.checked(_input(*_SHAPE), *passes, exact=False)
    case.remove_unused()
    assert case.ops() == ["Neg", "Relu", "Less", "Where", "Exp", "Attention"]


def test_layers_share_what_replaces_the_lowest_number() -> None:
    case = Case(_SHAPE, 23)
    mask = case.g.op("Where", _positive(case), 0.0, _LOWEST)
    mask.shape = case.x.shape
    case.returns(*(_attention(case, lambda case, scores: case.g.op("Add", scores, mask)) for _ in range(2)))
    assert case.checked(_input(*_SHAPE), FuseAttention(case.known), exact=False)
    assert case.ops().count("Max") == 1


def test_a_mask_of_unknown_numbers_keeps_the_lowest_apart_from_infinity() -> None:
    def masked(case: Case, scores: Value) -> Value:
        g = case.g
        mask = g.op(
            "Where", _positive(case), 0.0, g.op("Where", g.op("Less", -1.0, case.x), _LOWEST, -math.inf)
        )
        unknown = g.op("Neg", g.op("Neg", mask))
        unknown.shape = case.x.shape
        return g.op("Add", scores, unknown)

    case = Case(_SHAPE, 23)
    case.returns(_attention(case, masked, replaces_nan=True))
    x = _input(*_SHAPE)
    x[:, :, 2] = -0.5
    assert case.checked(x, FuseAttention(case.known), exact=False)


@pytest.mark.parametrize("bits", [ir.DataType.BOOL, ir.DataType.INT64])
def test_flags_times_the_lowest_number(bits: ir.DataType) -> None:
    """The padding mask of BERT: `(1 - mask) * lowest`."""

    def masked(case: Case, scores: Value) -> Value:
        g = case.g
        flags = g.op("Cast", g.op("Cast", _positive(case), to=int(bits)), to=int(ir.DataType.FLOAT))
        mask = g.op("Mul", g.op("Sub", 1.0, flags), _LOWEST)
        mask.shape = case.x.shape
        return g.op("Add", scores, mask)

    case = Case(_SHAPE, 23)
    case.returns(_attention(case, masked))
    assert case.checked(_input(*_SHAPE), FuseAttention(case.known), exact=False)


def _counted(case: Case, axes: list[int]) -> Value:
    length = case.g.op("Gather", case.g.op("Shape", case.x), 2, axis=0)
    counted = case.g.op("Range", 0, length, 1)
    counted.shape = ir.Shape(["length"])
    return case.g.op("Unsqueeze", counted, axes=axes)


def _by_comparison(op: str, *, queries_first: bool, keeps: bool, inverted: bool = False) -> Masked:
    def masked(case: Case, scores: Value) -> Value:
        g = case.g
        pair = [_counted(case, [0]), _counted(case, [1])]
        condition = g.op(op, *(pair[::-1] if queries_first else pair))
        if inverted:
            condition = g.op("Not", condition)
        return g.op("Where", condition, *((scores, -math.inf) if keeps else (-math.inf, scores)))

    return masked


def _triangle(case: Case, filler: float, upper: int, diagonal: int) -> Value:
    length = case.g.op("Slice", case.g.op("Shape", case.x), [2], [3], [0])
    square = case.g.op("Expand", filler, case.g.op("Concat", length, length, axis=0))
    square.shape = ir.Shape(["length", "length"])
    return case.g.op("Trilu", square, diagonal, upper=upper)


def _by_triangle(case: Case, scores: Value) -> Value:
    g = case.g
    return g.op("Add", scores, g.op("Where", g.op("Equal", _triangle(case, 1.0, 0, 0), 0.0), -math.inf, 0.0))


@pytest.mark.parametrize(
    "masked",
    [
        _by_comparison("LessOrEqual", queries_first=False, keeps=True),
        _by_comparison("GreaterOrEqual", queries_first=True, keeps=True),
        _by_comparison("Greater", queries_first=False, keeps=False),
        _by_comparison("Less", queries_first=True, keeps=True, inverted=True),
        _by_triangle,
        lambda case, scores: case.g.op("Add", scores, _triangle(case, _LOWEST, 1, 1)),
    ],
)
def test_causal_masks_of_unknown_length(masked: Masked) -> None:
    case = Case(["batch", 3, "length", 8], 23)
    case.returns(_attention(case, masked))
    assert case.checked(numbers(2, 3, 5, 8), FuseAttention(case.known), exact=False)
    case.remove_unused()
    assert case.ops() == ["Neg", "Relu", "Exp", "Attention"]
    assert _fused(case).attributes["is_causal"].as_int() == 1


@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("by_reshape", [False, True])
@pytest.mark.parametrize("later_keys", [False, True])
def test_causal_masks_that_attention_has(later_keys: bool, by_reshape: bool, added: bool) -> None:
    """A mask of earlier keys stays."""
    case = Case(["batch", 3, "length", 8], 23)
    g = case.g
    row, column = _counted(case, [0]), _counted(case, [1])
    if by_reshape:
        row, column = g.op("Reshape", row, [1, 1, 1, -1]), g.op("Reshape", column, [1, 1, -1, 1])
        row.shape, column.shape = ir.Shape([1, 1, 1, "length"]), ir.Shape([1, 1, "length", 1])
    mask = g.op("LessOrEqual", *((row, column) if later_keys else (column, row)))
    mask = g.op("Where", mask, 0.0, -math.inf) if added else mask
    case.returns(g.op("Attention", case.x, g.op("Neg", case.x), case.x, mask))
    assert case.checked(numbers(2, 3, 5, 8), ReadCausalMasks(case.known), exact=False) is later_keys
    assert ("is_causal" in _fused(case).attributes) is later_keys


def test_a_causal_mask_of_other_keys_than_queries_stays() -> None:
    case = Case(["batch", 3, "length", 8], 23)
    keys = case.weight("keys", numbers(1, 3, 7, 8))
    mask = case.g.op("LessOrEqual", case.g.op("Range", 0, 7, 1), _counted(case, [1]))
    case.returns(case.g.op("Attention", case.x, keys, keys, mask))
    assert not ReadCausalMasks(case.known)(case.model).modified


@pytest.mark.parametrize(
    "masked",
    [
        # The keys behind the query take part, or the query's own position does not.
        _by_comparison("LessOrEqual", queries_first=True, keeps=True),
        _by_comparison("Less", queries_first=False, keeps=True),
        lambda case, scores: case.g.op("Add", scores, _triangle(case, -math.inf, 1, 0)),
        lambda case, scores: case.g.op("Add", scores, _triangle(case, -math.inf, 0, -1)),
    ],
)
def test_other_triangles_stay(masked: Masked) -> None:
    case = Case(["batch", 3, "length", 8], 23)
    case.returns(_attention(case, masked))
    assert not FuseAttention(case.known)(case.model).modified


@pytest.mark.parametrize("mask", [None, _CAUSAL, _CAUSAL[2], _BIAS[0] > 0.8])
def test_three_dimensions_are_one_head(mask: np.ndarray | None) -> None:
    def masked(case: Case, scores: Value) -> Value:
        if mask is None:
            return scores
        return case.g.op("Where", case.weight("mask", mask), scores, _LOWEST)

    case = Case([3, 5, 8], 23)
    case.returns(_attention(case, masked))
    assert case.checked(numbers(3, 5, 8), FuseAttention(case.known), exact=False)
    assert _fused(case).attributes["q_num_heads"].as_int() == 1


@pytest.mark.parametrize("transposed_first", [False, True])
@pytest.mark.parametrize("is_known", [False, True])
def test_heads_that_are_joined_with_the_batch(is_known: bool, transposed_first: bool) -> None:
    """The form of older models of Hugging Face: scores are split for the mask, and joined for the Softmax."""
    case = Case([2, 3, 5, 8] if is_known else ["batch", 3, "length", 8], 23)
    g = case.g
    count, batch, length = (6, 2, 5) if is_known else (None, "batch", "length")

    def joined(value: Value, last: int, second: Any = length) -> Value:
        found = g.op("Reshape", value, [-1, 8 if last == 5 else 5, last])
        found.shape = ir.Shape([count, second, length if last == 5 else last])
        return found

    query, value = joined(g.op("Neg", case.x), 8), joined(g.op("Exp", case.x), 8)
    relu = g.op("Relu", case.x)
    if transposed_first:
        key = joined(g.op("Transpose", relu, perm=[0, 1, 3, 2]), 5, 8)
    else:
        key = g.op("Transpose", joined(relu, 8), perm=[0, 2, 1])
    scores = g.op("Reshape", g.op("MatMul", query, key), [2, 3, 5, 5])
    scores.shape = ir.Shape([batch, 3, length, length])
    mask = g.op("Slice", case.x, [0, 0], [1, 5], [1, 3])
    mask.shape = ir.Shape([batch, 1, length, length])
    masked = g.op(
        "Reshape", g.op("Add", scores, g.op("Where", g.op("Less", mask, 0.0), -10.0, 0.0)), [6, 5, 5]
    )
    masked.shape = ir.Shape([count, length, length])
    result = g.op("MatMul", g.op("Softmax", masked, axis=-1), value)
    result.shape = ir.Shape([count, length, 8])
    case.returns(result)
    x = np.random.RandomState(0).standard_normal((2, 3, 5, 8)).astype(np.float32)
    assert case.checked(x, FuseAttention(case.known), exact=False)
    case.remove_unused()
    assert case.ops() == ["Neg", "Exp", "Relu", "Slice", "Less", "Where", "Attention", "Reshape"]


def test_a_mask_of_keys_is_expanded_to_unknown_lengths() -> None:
    def masked(case: Case, scores: Value) -> Value:
        g = case.g
        first = g.op("Slice", case.x, [0, 0, 0], [1, 1, 1], [1, 2, 3])
        keys = g.op("Transpose", g.op("Slice", case.x, [0, 0], [1, 1], [1, 3]), perm=[0, 1, 3, 2])
        keys.shape = ir.Shape(["batch", 1, 1, "length"])
        assert first is not None
        return g.op("Add", scores, g.op("Where", g.op("Less", 0.0, keys), 0.0, -10000.0))

    case = Case(["batch", 3, "length", 8], 23)
    case.returns(_attention(case, masked))
    x = np.random.RandomState(0).standard_normal((2, 3, 5, 8)).astype(np.float32)
    assert case.checked(x, FuseAttention(case.known), exact=False)
    assert [str(size) for size in _fused(case).inputs[3].shape or ()] == ["batch", "1", "length", "length"]


def test_keys_transposed_as_matrices_of_unknown_length() -> None:
    """The form that torch.onnx writes."""
    case = Case(["batch", 3, "length", 8], 23)
    g = case.g
    matrices = g.op("Reshape", g.op("Relu", case.x), [-1, 5, 8])
    matrices.shape = ir.Shape([None, "length", 8])
    key = g.op("Reshape", g.op("Transpose", matrices, perm=[0, 2, 1]), [2, 3, 8, 5])
    key.shape = ir.Shape(["batch", 3, 8, "length"])
    case.returns(g.op("MatMul", g.op("Softmax", g.op("MatMul", case.x, key), axis=-1), g.op("Exp", case.x)))
    assert case.checked(numbers(2, 3, 5, 8), FuseAttention(case.known), exact=False)
    case.remove_unused()
    assert case.ops() == ["Relu", "Exp", "Attention"]


def test_heads_that_follow_from_other_sizes() -> None:
    case = Case(["batch", "length", 24], 23)
    g = case.g
    sizes = [
        g.op("Unsqueeze", g.op("Gather", g.op("Shape", case.x), place, axis=0), axes=[0]) for place in (0, 1)
    ]
    target = g.op("Concat", *sizes, [-1], [8], axis=0)
    heads = [g.op("Reshape", g.op(op, case.x), target) for op in ("Neg", "Relu", "Exp")]
    query, key, value = (
        g.op("Transpose", each, perm=perm)
        for each, perm in zip(heads, ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]), strict=True)
    )
    scores = g.op("MatMul", query, key)
    for each in (*heads, query, key, value, scores):
        each.shape = ir.Shape([None] * 4)
    case.returns(g.op("MatMul", g.op("Softmax", scores, axis=-1), value))
    assert case.checked(numbers(2, 5, 24), RefineShapes(), FuseAttention(case.known), exact=False)
    assert [str(size) for size in _fused(case).inputs[0].shape or ()] == ["batch", "3", "length", "8"]


def _summed(*numbers: Any) -> Masked:
    """Masks whose sum is added; a number stands for a mask that has it in each place."""

    def masked(case: Case, scores: Value) -> Value:
        g = case.g
        masks = [g.op("Where", _positive(case), 0.0, number) for number in numbers]
        return g.op("Add", scores, functools.reduce(lambda a, b: g.op("Add", a, b), masks))

    return masked


def _zeros(case: Case, scores: Value) -> Value:
    return case.g.op("Add", scores, case.g.op("ConstantOfShape", case.g.op("Shape", case.x)))


@pytest.mark.parametrize(
    "masked", [_summed(-100.0, 2.0), _summed(_LOWEST, -5.0), _in_a_row(_zeros, _filled(_LOWEST))]
)
def test_sums_of_finite_masks(masked: Masked) -> None:
    case = Case(_SHAPE, 23)
    case.returns(_attention(case, masked))
    assert case.checked(_input(*_SHAPE), FuseAttention(case.known), exact=False)
    assert "Softmax" not in case.ops()


def test_masks_that_are_added_to_one_another_very_often_stay() -> None:
    case = Case(_SHAPE, 23)
    case.returns(_attention(case, _summed(*[1.0] * 200)))
    assert not FuseAttention(case.known)(case.model).modified


@pytest.mark.parametrize(
    "masked",
    [
        _filled(-math.inf),
        _replaced(-math.inf),
        _summed(_LOWEST, _LOWEST),
        _summed(-100.0, -math.inf),
        # The sum of two lowest numbers is -inf, and a row of it gives NaN.
        _in_a_row(_filled(_LOWEST), _filled(_LOWEST)),
        # Keys have a weight where all scores are low.
        _replaced(-10000.0),
        _filled(_LOWEST, kept=math.inf),
    ],
)
def test_what_stays(masked: Masked) -> None:
    case = Case(_SHAPE, 23)
    case.returns(_attention(case, masked))
    assert not FuseAttention(case.known)(case.model).modified


@pytest.mark.parametrize("is_added", [True, False])
@pytest.mark.parametrize("is_wide", [True, False])
def test_rows_of_the_lowest_number_in_half_precision_have_equal_weights(
    is_added: bool, is_wide: bool
) -> None:
    def masked(case: Case, scores: Value) -> Value:
        zero, lowest = (case.weight(str(each), np.array(each, np.float16)) for each in (0, -65504))
        kept = case.g.op("Greater", case.x, zero)
        if not is_added:
            return case.g.op("Where", kept, scores, lowest)
        return case.g.op("Add", scores, case.g.op("Where", kept, zero, lowest))

    case = Case(_SHAPE, 23)
    case.x.dtype = ir.DataType.FLOAT16
    case.returns(_attention(case, masked, softmax_type=ir.DataType.FLOAT if is_wide else None))
    assert FuseAttention(case.known)(case.model).modified
    assert ("softmax_precision" in _fused(case).attributes) == is_wide
    x = _input(*_SHAPE).astype(np.float16)
    # onnxruntime does not round what is written out in half precision.
    scores = -x @ np.maximum(x, 0).swapaxes(-1, -2)
    filled = scores + np.float16(-65504) if is_added else np.full_like(scores, -65504)
    scores = np.where(x > 0, scores, filled).astype(np.float64)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    wanted = weights / weights.sum(axis=-1, keepdims=True) @ np.exp(x.astype(np.float64))
    np.testing.assert_allclose(case.run(x)[0], wanted, rtol=5e-3)


def test_a_softmax_that_is_cast_back_to_another_type_stays() -> None:
    case = Case(_SHAPE, 23)
    case.x.dtype = ir.DataType.FLOAT16
    case.returns(_attention(case, lambda _, scores: scores, softmax_type=ir.DataType.DOUBLE))
    assert not FuseAttention(case.known)(case.model).modified
