"""Equal weights are merged."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from opsetta.passes.onnx_graph.constants.equal_initializers import MergeEqualInitializers

from .graph_case import Case, numbers

X = numbers(2, 32)


def changed(element: int) -> np.ndarray:
    array = numbers(32, 32)
    array.reshape(-1)[element] = -array.reshape(-1)[element]
    return array


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (numbers(32, 32), True),
        (numbers(32, 32, seed=1), False),
        (changed(0), False),
        (changed(511), False),
        (changed(1023), False),
        (numbers(1, 32, 32), False),
    ],
)
def test_equal_weights_are_merged(other: np.ndarray, expected: bool) -> None:
    case = Case([2, 32])
    first, second = case.weight("first", numbers(32, 32)), case.weight("second", other)
    case.returns(case.g.op("MatMul", case.x, first), case.g.op("MatMul", case.x, second))
    assert case.checked(X, MergeEqualInitializers(case.known)) is expected
    assert list(case.model.graph.initializers) == (["first"] if expected else ["first", "second"])


def test_weights_that_differ_little_are_not_read_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case([2, 32])
    # Their samples are equal.
    weights = [case.weight(f"w{i}", changed(1 + i)) for i in range(30)]
    case.returns(*(case.g.op("MatMul", case.x, weight) for weight in weights))
    reads: list[ir.Tensor] = []
    read = ir.Tensor.numpy
    monkeypatch.setattr(ir.Tensor, "numpy", lambda tensor: reads.append(tensor) or read(tensor))
    assert not MergeEqualInitializers(case.known)(case.model).modified
    assert len(reads) <= 3 * len(weights)


def test_zeros_of_both_signs_are_not_equal() -> None:
    case = Case([2, 32])
    zeros = [case.weight(name, np.zeros((32, 32), np.float32) * sign) for name, sign in (("a", 1), ("b", -1))]
    case.returns(*(case.g.op("Sub", case.g.op("Relu", each), each) for each in zeros))
    assert not MergeEqualInitializers(case.known)(case.model).modified


def test_kept_weights_stay() -> None:
    case = Case([2, 32])
    weights = [case.weight(name, numbers(32, 32)) for name in "ab"]
    case.returns(*(case.g.op("MatMul", case.x, each) for each in weights))
    known = case.known
    known.fixed = set(weights)
    assert not MergeEqualInitializers(known)(case.model).modified
