"""Constant exponents have the type of the base."""

from __future__ import annotations

import numpy as np
import pytest

from opsetta.passes.onnx_graph.simplification.exponents import AlignExponents

from .graph_case import Case, numbers


@pytest.mark.parametrize(
    ("exponent", "expected"),
    [
        (np.array(2, np.int64), np.float32),
        (np.array([[2], [-1]], np.int32), np.float32),
        (np.array(2**24 + 1, np.int64), np.int64),
        (np.array(2, np.float32), np.float32),
    ],
)
def test_exponents_have_the_type_of_the_base(exponent: np.ndarray, expected: type) -> None:
    case = Case([2, 3])
    case.returns(case.g.op("Pow", case.x, case.weight("e", exponent)))
    changed = case.checked(numbers(2, 3), AlignExponents(case.known))
    assert changed is (exponent.dtype != expected)
    assert case.model.graph[0].inputs[1].dtype.numpy() == expected
