"""A Pad of zeros before MaxPool, which onnxruntime would merge into the padding of the MaxPool."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import opsetta.symbolics  # noqa: F401
from opsetta.passes.onnx_graph.images.padded_pooling import SeparatePaddedPools
from opsetta.registration import GraphContext, default_registry

from ..onnxruntime_sessions import run_onnxruntime

X = -np.random.RandomState(0).uniform(0.5, 2.0, (1, 2, 7, 7)).astype(np.float32)


def pool(opset: int, value: float = 0.0, **attributes: object) -> ir.Model:
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(X.shape))
    graph = ir.Graph([x], [], nodes=[], opset_imports={"": opset}, name="g")
    g = GraphContext(graph, opset, default_registry)
    padded = g.op("Pad", x, pads=[0, 0, 1, 1, 0, 0, 1, 1], mode="constant", constant_value=value)
    result = g.op("MaxPool", padded, kernel_shape=[3, 3], strides=[2, 2], **attributes)
    result.shape = ir.Shape([None] * 4)
    graph.outputs.append(result)
    return ir.Model(graph, ir_version=8)


def computed(model: ir.Model, optimized: bool) -> np.ndarray:
    return run_onnxruntime(model, {"x": X}, optimized=optimized)[0]


@pytest.mark.parametrize("opset", [9, 11, 18, 21, 24])
@pytest.mark.parametrize("attributes", [{}, {"pads": [0, 1, 1, 0]}], ids=["plain", "padded"])
def test_zeros_stay_zeros_in_onnxruntime(opset: int, attributes: dict) -> None:
    model = pool(opset, **attributes)
    plain = computed(model, optimized=False)
    assert SeparatePaddedPools()(model).modified
    np.testing.assert_array_equal(computed(model, optimized=False), plain)
    np.testing.assert_array_equal(computed(model, optimized=True), plain)
    assert not SeparatePaddedPools()(model).modified


def test_padding_by_minus_infinity_stays() -> None:
    assert not SeparatePaddedPools()(pool(13, float("-inf"))).modified
