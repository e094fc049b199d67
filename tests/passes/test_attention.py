"""Attention, written as separate operators, becomes Attention."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from opsetta.passes.onnx_graph.fusions.attention.fuse_attention import FuseAttention
from opsetta.passes.onnx_graph.fusions.attention.grouped_heads import GroupHeads
from opsetta.passes.onnx_graph.shapes.split_batches import SplitBatchesEarly
from opsetta.registration import Value

from .graph_case import Case, numbers

_SHAPE = [2, 3, 5, 8]
_LOWEST = float(np.finfo(np.float32).min)
_CAUSAL = np.where(np.tri(5, dtype=bool), 0, -np.inf).astype(np.float32)
_RANDOM = np.random.RandomState(1).rand(2, 1, 5, 5) > 0.4
_RANDOM[..., 2] = True
Scores = Callable[[Case, Value], Value]


def _attention(
    case: Case,
    masked: Scores = lambda _, scores: scores,
    *,
    scales: tuple[Any, Any, Any] = (None, None, 0.25),
    replaces_nan: bool = False,
) -> Value:
    """Attention of the input to functions of itself, with factors of queries, transposed keys and scores."""
    g = case.g
    query, value = g.op("Neg", case.x), g.op("Exp", case.x)
    key = g.op("Transpose", g.op("Relu", case.x), perm=[0, 1, 3, 2])
    query, key = (
        each if by is None else g.op("Mul", each, by) for each, by in zip((query, key), scales, strict=False)
    )
    scores = g.op("MatMul", query, key)
    if scales[2] is not None:
        scores = g.op("Mul", scores, scales[2])
    weights = g.op("Softmax", masked(case, scores), axis=-1)
    if replaces_nan:
        weights = g.op("Where", g.op("IsNaN", weights), 0.0, weights)
    return g.op("MatMul", weights, value)


def _added(mask: np.ndarray) -> Scores:
    return lambda case, scores: case.g.op("Add", scores, case.weight("mask", mask))


def _chosen(mask: np.ndarray, filler: float, keeps: bool = True) -> Scores:
    def masked(case: Case, scores: Value) -> Value:
        pair = (scores, filler) if keeps else (filler, scores)
        return case.g.op("Where", case.weight("mask", mask), *pair)

    return masked


def _computed(filler: float, sizes: list[int]) -> Scores:
    """A mask by the sign of the input, which fills whole rows where that is negative."""

    def masked(case: Case, scores: Value) -> Value:
        g = case.g
        positive = g.op("Less", 0.0, g.op("Slice", case.x, [0, 0, 0, 0], sizes, [0, 1, 2, 3]))
        mask = g.op("Where", positive, 0.0, filler)
        mask.shape = ir.Shape(sizes)
        return g.op("Add", scores, mask)

    return masked


def _fused(case: Case) -> ir.Node:
    (node,) = (node for node in case.model.graph if node.op_type == "Attention")
    return node


@pytest.mark.parametrize("opset", [23, 24])
@pytest.mark.parametrize(
    ("scales", "scale"),
    [
        ((None, None, 8**-0.5), None),
        ((8**-0.25, 8**-0.25, None), None),
        ((0.5, None, None), 0.5),
        ((None, 2.0, 0.125), 0.25),
        ((None, None, None), 1.0),
    ],
)
def test_scales_are_one_attribute(opset: int, scales: tuple[Any, Any, Any], scale: float | None) -> None:
    case = Case(_SHAPE, opset)
    case.returns(_attention(case, scales=scales))
    assert case.checked(numbers(*_SHAPE), FuseAttention(case.known), exact=False)
    assert case.ops() == ["Neg", "Exp", "Relu", "Attention"]
    given = _fused(case).attributes.get("scale")
    assert (None if given is None else given.as_float()) == scale


@pytest.mark.parametrize(
    ("masked", "inputs", "is_causal"),
    [
        (_added(_CAUSAL), 3, True),
        (_added(np.maximum(_CAUSAL, np.float32(_LOWEST))[None, None]), 3, True),
        (_chosen(_CAUSAL == 0, -math.inf), 3, True),
        (_chosen(_CAUSAL != 0, _LOWEST, keeps=False), 3, True),
        (_added(np.maximum(_CAUSAL, np.float32(-10))), 4, False),
        (_added(numbers(2, 1, 5, 5)), 4, False),
        (_added(numbers(1, 3, 1, 5)), 4, False),
        (_added(numbers(5)), 4, False),
        (_chosen(_RANDOM, -math.inf), 4, False),
        (_chosen(_RANDOM[0, 0, 0], _LOWEST, keeps=False), 4, False),
    ],
)
def test_constant_masks(masked: Scores, inputs: int, is_causal: bool) -> None:
    case = Case(_SHAPE, 23)
    case.returns(_attention(case, masked))
    assert case.checked(numbers(*_SHAPE), FuseAttention(case.known), exact=False)
    node = _fused(case)
    assert (len(node.inputs), "is_causal" in node.attributes) == (inputs, is_causal)


@pytest.mark.parametrize("sizes", [[2, 1, 5, 5], [2, 1, 1, 5], [1, 1, 5, 1]])
@pytest.mark.parametrize("opset", [23, 24])
def test_a_row_without_scores_gives_zeros_as_before(sizes: list[int], opset: int) -> None:
    case = Case([2, 3, 5, 5], opset)
    case.returns(_attention(case, _computed(-math.inf, sizes), replaces_nan=True))
    x = np.random.RandomState(0).standard_normal((2, 3, 5, 5)).astype(np.float32)
    x[:, :, 3] = -1
    before = case.run(x)[0]
    assert case.checked(x, FuseAttention(case.known), exact=False)
    (reference,) = ReferenceEvaluator(ir.to_proto(case.model)).run(None, {"x": x})
    np.testing.assert_allclose(reference, before, rtol=1e-5, atol=1e-6)
    assert _fused(case).inputs[3] is not None


def _replaced_rows(case: Case, filler: float, axis: int) -> Value:
    """Attention below opset 23: rows whose mask is -inf become zeros behind the last product."""
    g, masks = case.g, []

    def masked(case: Case, scores: Value) -> Value:
        total = _computed(filler, [2, 1, 5, 5])(case, scores)
        masks.append(total.producer().inputs[1])  # type: ignore[union-attr]
        return total

    result = _attention(case, masked)
    highest = g.op("ReduceMax", masks[0], axes=[axis], keepdims=1)
    return g.op("Where", g.op("Less", highest, _LOWEST), 0.0, result)


@pytest.mark.parametrize(
    ("filler", "axis", "is_fused", "remains"),
    [(-math.inf, 3, True, False), (-math.inf, 2, False, True), (-1.0, 3, True, True)],
)
def test_replaced_rows_are_part_of_attention(filler: float, axis: int, is_fused: bool, remains: bool) -> None:
    case = Case([2, 3, 5, 5], 23)
    case.returns(_replaced_rows(case, filler, axis))
    x = np.random.RandomState(0).standard_normal((2, 3, 5, 5)).astype(np.float32)
    x[:, :, 3] = -1
    assert case.checked(x, FuseAttention(case.known), exact=False) == is_fused
    assert ("ReduceMax" in case.ops()) == remains


def test_layers_share_an_expanded_mask() -> None:
    case = Case([2, 3, 5, 5], 23)
    mask = case.weight("mask", np.where(_RANDOM[:, :, :1], 0, -np.inf).astype(np.float32))
    case.returns(*(_attention(case, lambda case, scores: case.g.op("Add", scores, mask)) for _ in range(2)))
    assert case.checked(numbers(2, 3, 5, 5), FuseAttention(case.known), exact=False)
    first, second = (node.inputs[3] for node in case.model.graph if node.op_type == "Attention")
    assert first is second
    assert first.shape == [2, 1, 5, 5]


def test_half_precision() -> None:
    case = Case(_SHAPE, 23)
    case.x.dtype = ir.DataType.FLOAT16
    mask = np.where(np.tri(5, dtype=bool), 0, np.finfo(np.float16).min).astype(np.float16)
    case.returns(_attention(case, _added(mask)))
    x = numbers(*_SHAPE).astype(np.float16)
    (before,) = case.run(x)
    assert FuseAttention(case.known)(case.model).modified
    (after,) = case.run(x)
    np.testing.assert_allclose(after, before, rtol=4e-3, atol=2e-3)


def test_transposed_keys_are_transposed_once() -> None:
    case = Case([2, 5, 3, 8], 23)
    g = case.g
    query, value = (g.op("Transpose", g.op(op, case.x), perm=[0, 2, 1, 3]) for op in ("Neg", "Exp"))
    key = g.op("Transpose", case.x, perm=[0, 2, 3, 1])
    case.returns(g.op("MatMul", g.op("Softmax", g.op("MatMul", query, key), axis=-1), value))
    assert case.checked(numbers(2, 5, 3, 8), FuseAttention(case.known), exact=False)
    perms = [list(n.attributes["perm"].as_ints()) for n in case.model.graph if n.op_type == "Transpose"]
    assert perms == [[0, 2, 1, 3]] * 3


def test_unknown_sizes_of_one_name() -> None:
    case = Case(["batch", 3, "length", 8], 23)
    case.returns(_attention(case))
    assert case.checked(numbers(*_SHAPE), FuseAttention(case.known), exact=False)


@pytest.mark.parametrize("masked", [lambda _, scores: scores, _computed(_LOWEST, [2, 1, 5, 5])])
def test_in_a_branch(masked: Scores) -> None:
    case = Case(_SHAPE, 23)
    body = Case(_SHAPE, 23)
    body.x = case.x
    body.model.graph.inputs.clear()
    body.returns(_attention(body, masked))
    body.model.graph.outputs[0].name = "branch"
    for value in list(body.model.graph.initializers.values()):
        del body.model.graph.initializers[value.name or ""]
        case.model.graph.initializers.add(value)
    branch = ir.AttrGraph("then_branch", body.model.graph)
    other = ir.Graph([], [], nodes=[ir.node("Identity", [case.x])], name="other")
    other.outputs.append(other[0].outputs[0])
    other[0].outputs[0].name = "other_branch"
    positive = case.weight("positive", np.array(True))
    choice = ir.Node("", "If", [positive], [branch, ir.AttrGraph("else_branch", other)], num_outputs=1)
    case.model.graph.append(choice)
    choice.outputs[0].type = case.x.type
    choice.outputs[0].shape = ir.Shape(_SHAPE)
    case.returns(choice.outputs[0])
    assert case.checked(numbers(*_SHAPE), FuseAttention(case.known), exact=False)
    assert "Attention" in [node.op_type for node in body.model.graph]


def _repeated(case: Case, value: Value, target: list[int]) -> Value:
    g = case.g
    return g.op("Reshape", g.op("Expand", g.op("Unsqueeze", value, axes=[2]), [2, 3, 2, 5, 8]), target)


def test_repeated_heads_and_keys_transposed_as_matrices() -> None:
    """The form that torch.onnx writes for grouped-query attention."""
    case = Case(_SHAPE, 23)
    g = case.g
    query = g.op("Concat", case.x, g.op("Neg", case.x), axis=1)
    matrices = _repeated(case, g.op("Relu", case.x), [-1, 5, 8])
    matrices.shape = ir.Shape([12, 5, 8])
    key = g.op("Reshape", g.op("Transpose", matrices, perm=[0, 2, 1]), [2, 6, 8, 5])
    value = _repeated(case, g.op("Exp", case.x), [2, 6, 5, 8])
    case.returns(g.op("MatMul", g.op("Softmax", g.op("MatMul", query, key), axis=-1), value))
    passes = [SplitBatchesEarly(case.known), FuseAttention(case.known), GroupHeads()]
    assert case.checked(numbers(*_SHAPE), *passes, exact=False)
    case.remove_unused()
    assert sorted(case.ops()) == ["Attention", "Concat", "Exp", "Neg", "Relu"]


@pytest.mark.parametrize(
    ("shape", "opset", "masked", "options"),
    [
        (_SHAPE, 22, _added(_CAUSAL), {}),
        # onnxruntime has no kernel.
        (_SHAPE, 25, _added(_CAUSAL), {}),
        (None, 23, _added(_CAUSAL), {}),
        ([2, None, 5, 8], 23, _added(_CAUSAL), {}),
        # A row without scores gives NaN, or the mean.
        (_SHAPE, 23, _added(np.full((5, 5), -np.inf, np.float32)), {}),
        (_SHAPE, 23, _chosen(np.zeros((5, 5), bool), -math.inf), {}),
        ([2, 3, 5, 5], 23, _computed(-math.inf, [2, 1, 5, 5]), {}),
        # Masked keys have a score.
        (_SHAPE, 23, _chosen(_RANDOM, -1.0), {}),
        (_SHAPE, 23, _added(_CAUSAL), {"scales": (None, None, -0.5)}),
    ],
)
def test_what_stays(shape: list[Any] | None, opset: int, masked: Scores, options: dict[str, Any]) -> None:
    case = Case(shape, opset)
    case.returns(_attention(case, masked, **options))
    assert not FuseAttention(case.known)(case.model).modified


@pytest.mark.parametrize("place", ["scores", "weights"])
def test_what_others_read_stays(place: str) -> None:
    case = Case(_SHAPE, 23)
    result = _attention(case)
    softmax = next(node for node in case.model.graph if node.op_type == "Softmax")
    read = softmax.inputs[0] if place == "scores" else softmax.outputs[0]
    case.returns(result, case.g.op("Neg", read))
    assert not FuseAttention(case.known)(case.model).modified


@pytest.mark.parametrize(
    ("keys", "is_split"), [([2, 3, 8, 5], True), ([6, 1, 8, 5], True), ([2, 3, 4, 10], False)]
)
def test_batches_are_split_early(keys: list[int], is_split: bool) -> None:
    case = Case(_SHAPE, 18)
    g = case.g
    matrices = g.op("Reshape", case.x, [6, 5, 8])
    case.returns(g.op("Reshape", g.op("Transpose", matrices, perm=[0, 2, 1]), keys))
    assert case.checked(numbers(*_SHAPE), SplitBatchesEarly(case.known)) == is_split
    assert case.ops() == (["Reshape", "Transpose"] if is_split else ["Reshape", "Transpose", "Reshape"])
    onnx.checker.check_model(ir.to_proto(case.model))
