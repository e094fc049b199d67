"""Keras's exact GELU becomes ONNX's."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir
import pytest

from .test_shape_arithmetic import FLOAT, Graph, computed

X = np.linspace(-6, 6, 24, dtype=np.float32).reshape(2, 12)
WANTED = np.array([[0.5 * x * math.erfc(-x * math.sqrt(0.5)) for x in row] for row in X.tolist()])


def gelu(opset: int, factor: float = 0.5, swapped: bool = False) -> ir.Model:
    graph = Graph(None, 12)
    half = graph.op("Mul", FLOAT, x=graph.const(factor, np.float32), y=graph.x)
    negative = graph.op("Neg", FLOAT, x=graph.x)
    argument = graph.op("Mul", FLOAT, x=negative, y=graph.const(math.sqrt(0.5), np.float32))
    tail = graph.op("Erfc", FLOAT, x=argument)
    first, second = (tail, half) if swapped else (half, tail)
    return graph.model(graph.op("Mul", FLOAT, x=first, y=second), opset)


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize(("opset", "count"), [(9, 5), (13, 5), (20, 1), (28, 1)])
def test_gelu_is_found(opset: int, count: int, swapped: bool) -> None:
    model = gelu(opset, swapped=swapped)
    assert len(model.graph) == count
    np.testing.assert_allclose(computed(model, X), WANTED, atol=1e-6)


def test_another_factor_is_no_gelu() -> None:
    model = gelu(20, factor=0.4)
    assert len(model.graph) > 10
    np.testing.assert_allclose(computed(model, X), WANTED * 0.8, rtol=1e-5, atol=1e-7)
