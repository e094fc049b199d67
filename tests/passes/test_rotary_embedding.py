"""Rotary embedding, written as separate operators, becomes RotaryEmbedding."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from opsetta.passes.target.fusions.rotary_embedding import FuseRotaryEmbedding
from opsetta.registration import Value

from .target_graph import Case, numbers


def _rotated(
    case: Case, tables: list[np.ndarray], split: bool = False, swapped: bool = False, start: int = 4
) -> Value:
    g, x = case.g, case.x
    if split:
        lower, upper = g.op("Split", x, axis=-1, num_outputs=2, outputs=2)
        lower.shape = upper.shape = ir.Shape([*x.shape[:3], 4])
    else:
        lower, upper = g.op("Slice", x, [0], [4], [3]), g.op("Slice", x, [start], [start + 4], [3])
    halves = [upper, lower] if swapped else [lower, upper]
    turned = g.op("Concat", g.op("Neg", halves[1]), halves[0], axis=-1)
    cosine, sine = (case.weight(name, table) for name, table in zip("cs", tables, strict=True))
    return g.op("Add", g.op("Mul", x, cosine), g.op("Mul", turned, sine))


def _tables(*shape: int) -> list[np.ndarray]:
    return [np.concatenate([half, half], axis=-1) for half in (numbers(*shape), numbers(*shape, seed=1))]


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("shape", [(5, 4), (1, 1, 5, 4)])
@pytest.mark.parametrize("split", [False, True])
def test_rotary_embedding(batch: int, shape: tuple[int, ...], split: bool) -> None:
    case = Case([batch, 3, 5, 8], 23)
    case.returns(_rotated(case, _tables(*shape), split))
    assert case.checked(numbers(batch, 3, 5, 8), FuseRotaryEmbedding(case.known), exact=False)
    case.remove_unused()
    assert case.ops() == ["RotaryEmbedding"]


@pytest.mark.parametrize(
    ("opset", "shape", "tables", "options"),
    [
        (22, [1, 3, 5, 8], _tables(5, 4), {}),
        (23, ["n", 3, 5, 8], _tables(5, 4), {}),
        (23, [1, 3, 5, 8], [numbers(5, 8), numbers(5, 8)], {}),
        (23, [1, 3, 5, 8], _tables(3, 5, 4), {}),
        (23, [1, 3, 5, 8], _tables(5, 4), {"swapped": True}),
        (23, [1, 3, 5, 8], _tables(5, 4), {"start": 3}),
    ],
)
def test_what_is_no_rotary_embedding(
    opset: int, shape: list[Any], tables: list[np.ndarray], options: dict[str, Any]
) -> None:
    case = Case(shape, opset)
    case.returns(_rotated(case, tables, **options))
    assert not FuseRotaryEmbedding(case.known)(case.model).modified
