"""Operators that exporters write as several nodes are recognised."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest

from opsetta.passes.onnx_graph.fusions.gelu import FuseGelu
from opsetta.passes.onnx_graph.fusions.layer_normalization import FuseLayerNormalization
from opsetta.registration import Value
from tests.call_counts import count_calls

from .graph_case import Case, numbers

X = numbers(2, 3, 8) * 3 - 3


def number(value: float) -> np.ndarray:
    return np.asarray(value, dtype=np.float32)


def erf_gelu(
    case: Case, root: float = 2**0.5, one: float = 1, half: float = 0.5, first: bool = False
) -> Value:
    g = case.g
    total = g.op("Add", g.op("Erf", g.op("Div", case.x, number(root))), number(one))
    if first:
        return g.op("Mul", case.x, g.op("Mul", number(half), total))
    return g.op("Mul", g.op("Mul", case.x, total), number(half))


def tanh_gelu(case: Case) -> Value:
    g = case.g
    cubed = g.op("Mul", g.op("Pow", case.x, number(3)), number(0.044715))
    inner = g.op("Mul", g.op("Add", case.x, cubed), number((2 / np.pi) ** 0.5))
    total = g.op("Add", g.op("Tanh", inner), number(1))
    return g.op("Mul", g.op("Mul", number(0.5), case.x), total)


def distributed_gelu(case: Case, factor: float = 0.044715, power: int = 2) -> Value:
    """The form of GPT-J and of "gelu_fast": `x * c * (1 + 0.044715 * x * x)` in the Tanh."""
    g = case.g
    product = g.op("Mul", case.x, number(factor))
    for _ in range(power - 1):
        product = g.op("Mul", product, case.x)
    outer = g.op("Mul", case.x, number((2 / np.pi) ** 0.5))
    inner = g.op("Mul", outer, g.op("Add", number(1), product))
    total = g.op("Add", number(1), g.op("Tanh", inner))
    return g.op("Mul", g.op("Mul", case.x, number(0.5)), total)


def multiplied_gelu(case: Case) -> Value:
    """The third power is a product, as TensorFlow's files have it."""
    g = case.g
    cubed = g.op("Mul", case.x, g.op("Mul", case.x, case.x))
    inner = g.op("Add", case.x, g.op("Mul", number(0.044715), cubed))
    total = g.op("Add", g.op("Tanh", g.op("Mul", number((2 / np.pi) ** 0.5), inner)), number(1))
    return g.op("Mul", case.x, g.op("Mul", total, number(0.5)))


@pytest.mark.parametrize(
    ("written", "opset", "expected"),
    [
        (distributed_gelu, 20, True),
        (multiplied_gelu, 28, True),
        (lambda case: distributed_gelu(case, factor=0.05), 20, False),
        (lambda case: distributed_gelu(case, power=3), 20, False),
        (erf_gelu, 20, True),
        (lambda case: erf_gelu(case, first=True), 20, True),
        (tanh_gelu, 20, True),
        (erf_gelu, 19, False),
        (lambda case: erf_gelu(case, root=1.5), 20, False),
        (lambda case: erf_gelu(case, one=0.5), 20, False),
        (lambda case: erf_gelu(case, half=0.25), 20, False),
    ],
)
def test_gelu(written: Callable[[Case], Value], opset: int, expected: bool) -> None:
    case = Case([2, 3, 8], opset)
    case.returns(written(case))
    assert case.checked(X, FuseGelu(), exact=False) is expected
    case.remove_unused()
    assert (case.ops() == ["Gelu"]) is expected


def test_gelu_of_which_a_part_is_read_stays() -> None:
    case = Case([2, 3, 8], 20)
    result = erf_gelu(case)
    erf = next(node for node in case.model.graph if node.op_type == "Erf").outputs[0]
    case.returns(result, erf)
    assert not case.checked(X, FuseGelu())


def test_long_products_are_not_followed() -> None:
    def calls_for(length: int) -> int:
        case = Case([2, 3, 8], 20)
        g, inner = case.g, case.x
        for _ in range(length):
            inner = g.op("Mul", inner, number(1.0))
        total = g.op("Add", g.op("Tanh", inner), number(1))
        case.returns(g.op("Mul", g.op("Mul", case.x, total), number(0.5)))
        calls = count_calls(lambda: FuseGelu()(case.model))
        assert [node.op_type for node in case.model.graph].count("Tanh") == 1
        return calls

    assert calls_for(2000) < 4.4 * calls_for(500)


def layer_norm(
    case: Case,
    twice: bool = False,
    biased: bool = True,
    epsilon: float = 1e-5,
    width: int = 8,
    square: str = "Pow",
) -> Value:
    g = case.g
    mean = g.op("ReduceMean", case.x, axes=[-1], keepdims=1)
    centred = g.op("Sub", case.x, mean)
    other = g.op("Sub", case.x, mean) if twice else centred
    power = g.op("Pow", other, number(2)) if square == "Pow" else g.op("Mul", other, other)
    variance = g.op("ReduceMean", power, axes=[2], keepdims=1)
    root = g.op("Sqrt", g.op("Add", variance, number(epsilon)))
    scaled = g.op("Mul", g.op("Div", centred, root), case.weight("scale", numbers(width)))
    return g.op("Add", scaled, case.weight("bias", numbers(width))) if biased else scaled


@pytest.mark.parametrize(
    ("options", "opset", "expected"),
    [
        ({}, 17, ["LayerNormalization"]),
        ({"twice": True}, 18, ["LayerNormalization"]),
        ({"biased": False}, 17, ["LayerNormalization"]),
        ({"square": "Mul", "epsilon": 1e-12}, 17, ["LayerNormalization"]),
        ({}, 16, None),
        ({"width": 1}, 17, None),
    ],
)
def test_layer_normalization(options: dict, opset: int, expected: list[str] | None) -> None:
    case = Case([2, 3, 8], opset)
    case.returns(layer_norm(case, **options))
    assert case.checked(X, FuseLayerNormalization(case.known), exact=False) is (expected is not None)
    case.remove_unused()
    if expected is not None:
        assert case.ops() == expected


@pytest.mark.parametrize("wide", [ir.DataType.FLOAT, ir.DataType.DOUBLE])
@pytest.mark.parametrize("is_all_cast", [True, False])
@pytest.mark.parametrize("is_cast_back", [True, False])
def test_layer_normalization_of_half_precision(
    wide: ir.DataType, is_all_cast: bool, is_cast_back: bool
) -> None:
    case = Case([2, 3, 8], 17)
    g, half = case.g, ir.DataType.FLOAT16
    case.x.dtype = half
    x = g.cast(case.x, wide) if is_all_cast else case.x
    difference = g.op("Sub", x, g.op("ReduceMean", x, axes=[-1]))
    centred = difference if is_all_cast else g.cast(difference, wide)
    two, epsilon = (np.array(each, wide.numpy()) for each in (2, 1e-5))
    variance = g.op("ReduceMean", g.op("Pow", centred, two), axes=[-1])
    normal = g.op("Div", centred, g.op("Sqrt", g.op("Add", variance, epsilon)))
    scale = numbers(8).astype(np.float16 if is_cast_back else wide.numpy())
    scaled = g.op("Mul", g.cast(normal, half) if is_cast_back else normal, case.weight("scale", scale))
    case.returns(scaled)
    before = case.run(X.astype(np.float16))[0]
    # A result of another type than x is not that of the operator.
    is_fused = is_cast_back or (wide == ir.DataType.FLOAT and is_all_cast)
    assert FuseLayerNormalization(case.known)(case.model).modified is is_fused
    case.remove_unused()
    assert ("LayerNormalization" in case.ops()) is is_fused
    assert (case.ops() == ["LayerNormalization"]) is is_cast_back
    np.testing.assert_allclose(case.run(X.astype(np.float16))[0], before, rtol=4e-3, atol=2e-3)


def test_layer_normalization_whose_mean_is_read_stays() -> None:
    case = Case([2, 3, 8], 17)
    result = layer_norm(case)
    case.returns(result, case.model.graph[0].outputs[0])
    assert not case.checked(X, FuseLayerNormalization(case.known))
