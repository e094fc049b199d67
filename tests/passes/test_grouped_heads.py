"""Attention repeats the heads of keys and values itself."""

from __future__ import annotations

import pytest

from opsetta.passes.onnx_graph.fusions.attention.grouped_heads import GroupHeads
from opsetta.registration import Value

from .graph_case import Case, numbers


def _attention(case: Case, axis: int, times: tuple[int, int], is_cached: bool = False) -> Value:
    g = case.g
    query = g.op("Concat", case.x, g.op("Neg", case.x), axis=1)

    def repeated(value: Value, count: int) -> Value:
        sizes = [1] * 5
        sizes[axis] = count
        copies = g.op("Expand", g.op("Unsqueeze", value, axes=[axis]), sizes)
        return g.op("Reshape", copies, [2, 2 * count, 5, 8])

    key, value = (repeated(g.op(op, case.x), count) for op, count in zip(("Exp", "Relu"), times, strict=True))
    cache = (numbers(2, 4, 3, 8), numbers(2, 4, 3, 8)) if is_cached else ()
    return g.op("Attention", query, key, value, *([None, *cache] if is_cached else []))


def test_repeated_heads() -> None:
    case = Case([2, 2, 5, 8], 23)
    case.returns(_attention(case, 2, (2, 2)))
    assert case.checked(numbers(2, 2, 5, 8), GroupHeads(), exact=False)
    case.remove_unused()
    assert "Expand" not in case.ops()


@pytest.mark.parametrize(("axis", "is_cached"), [(1, False), (2, True)])
def test_heads_that_stay(axis: int, is_cached: bool) -> None:
    case = Case([2, 2, 5, 8], 23)
    case.returns(_attention(case, axis, (2, 2), is_cached))
    assert not GroupHeads()(case.model).modified
