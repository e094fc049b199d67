"""Rotary embedding, written as separate operators, becomes RotaryEmbedding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from opsetta.passes.onnx_graph.fusions.rotary_embedding import FuseRotaryEmbedding
from opsetta.registration import GraphContext, Value

from .graph_case import Case, numbers


def _rotated(
    case: Case,
    tables: list[np.ndarray],
    split: bool = False,
    swapped: bool = False,
    start: int = 4,
    names: str = "cs",
) -> Value:
    g, x = case.g, case.x
    if split:
        lower, upper = g.op("Split", x, axis=-1, num_outputs=2, outputs=2)
        lower.shape = upper.shape = ir.Shape([*x.shape[:3], 4])
    else:
        lower, upper = g.op("Slice", x, [0], [4], [3]), g.op("Slice", x, [start], [start + 4], [3])
    halves = [upper, lower] if swapped else [lower, upper]
    turned = g.op("Concat", g.op("Neg", halves[1]), halves[0], axis=-1)
    cosine, sine = (case.weight(name, table) for name, table in zip(names, tables, strict=True))
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
        (23, [1, 3, "m", 8], _tables(5, 4), {}),
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


@pytest.mark.parametrize(("batch", "targets"), [("n", 1), (None, 2)])
def test_tables_of_constants_are_repeated_for_an_unknown_batch(batch: str | None, targets: int) -> None:
    case = Case([batch, 3, 5, 8], 23)
    other = case.g.op("Concat", case.x, case.x, axis=0 if batch is None else 1)
    first, tables = case.x, _tables(5, 4)
    rotated = _rotated(case, tables)
    case.x = other
    case.returns(rotated, _rotated(case, tables, names="de"))
    case.x = first
    assert case.checked(numbers(2, 3, 5, 8), FuseRotaryEmbedding(case.known), exact=False)
    case.remove_unused()
    counts = Counter(case.ops())
    # One Concat is that of the inputs.
    assert counts == {"Shape": targets, "Concat": targets + 1, "Expand": 2 * targets, "RotaryEmbedding": 2}


Compute = Callable[[GraphContext, Value], Value]


def _angles(g: GraphContext, columns: Value) -> Value:
    """Angles [batch, length, 8] from positions [batch, length], as Llama computes them."""
    positions = g.cast(columns, ir.DataType.FLOAT)
    angles = g.op("Mul", g.op("Unsqueeze", positions, axes=[2]), numbers(4))
    return g.op("Concat", angles, angles, axis=-1)


def _from_cache(op_type: str) -> Compute:
    cache = np.concatenate([numbers(16, 4, seed=3)] * 2, axis=-1)

    def table(g: GraphContext, positions: Value) -> Value:
        found = g.op("Gather", cache, positions, axis=0)
        return g.op("Unsqueeze", found if op_type == "Cos" else g.op("Neg", found), axes=[1])

    return table


TABLES: dict[str, Callable[[str], Compute]] = {
    "computed": lambda op: lambda g, at: g.op("Unsqueeze", g.op(op, _angles(g, at)), axes=[1]),
    "scaled": lambda op: (
        lambda g, at: g.op("Unsqueeze", g.op("Mul", 0.5, g.op(op, _angles(g, at))), axes=[1])
    ),
    "unsqueezed early": lambda op: lambda g, at: g.op(op, g.op("Unsqueeze", _angles(g, at), axes=[1])),
    "reshaped": lambda op: lambda g, at: g.op(op, g.op("Unsqueeze", _angles(g, at), axes=[-3])),
    "cache": _from_cache,
}


def _with_computed_tables(case: Case, tables: Callable[[str], Compute], shared: bool) -> Value:
    g, x = case.g, case.x
    # The positions are those of the sequence, or each batch has its own.
    lengths = g.op("ReduceMax", x, axes=[1, 3], keepdims=0)
    positions = g.cast(g.op("Mul", lengths, 3.0), ir.DataType.INT64)
    positions.shape = ir.Shape([x.shape[0], x.shape[2]])  # type: ignore[index]
    if shared:
        positions = g.op("ReduceMax", positions, axes=[0], keepdims=1)
        positions.shape = ir.Shape([1, x.shape[2]])  # type: ignore[index]
    lower, upper = g.op("Slice", x, [0], [4], [3]), g.op("Slice", x, [4], [8], [3])
    turned = g.op("Concat", g.op("Neg", upper), lower, axis=-1)
    cosine, sine = (tables(op)(g, positions) for op in ("Cos", "Sin"))
    return g.op("Add", g.op("Mul", x, cosine), g.op("Mul", turned, sine))


@pytest.mark.parametrize("shape", [["n", 3, "m", 8], [2, 3, 5, 8], [1, 3, "m", 8]])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("name", TABLES)
def test_computed_tables(shape: list[Any], shared: bool, name: str) -> None:
    case = Case(shape, 23)
    case.returns(_with_computed_tables(case, TABLES[name], shared))
    x = numbers(shape[0] if shape[0] != "n" else 2, 3, 5, 8)
    assert case.checked(x, FuseRotaryEmbedding(case.known), exact=False)
    case.remove_unused()
    assert "RotaryEmbedding" in case.ops()
    assert "Neg" not in case.ops() or name == "cache"
    assert case.ops().count("Expand") == (2 if shared and shape[0] != 1 else 0)


DIFFERENT: dict[str, Callable[[str], Compute]] = {
    "halves": lambda op: (
        lambda g, at: g.op(op, g.op("Mul", g.op("Unsqueeze", _angles(g, at), axes=[1]), numbers(8)))
    ),
    "order": lambda op: (
        lambda g, at: g.op("Unsqueeze", g.op("CumSum", _angles(g, at), np.array(2)), axes=[1])
    ),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_computed_tables_of_other_columns_stay(name: str) -> None:
    case = Case(["n", 3, "m", 8], 23)
    case.returns(_with_computed_tables(case, DIFFERENT[name], False))
    assert not FuseRotaryEmbedding(case.known)(case.model).modified
