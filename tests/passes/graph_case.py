"""ONNX graphs of a few nodes and weights, for tests of ONNX passes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx_ir.passes import common

import opsetta.symbolics  # noqa: F401
from opsetta.passes.onnx_graph.constants.initializers import Initializers
from opsetta.registration import GraphContext, Value, default_registry

from ..onnxruntime_sessions import run_onnxruntime


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.RandomState(seed).uniform(0.5, 1.5, shape).astype(np.float32)


class Case:
    """A graph under construction, with weights as initializers."""

    def __init__(self, shape: list[Any] | None, opset: int = 18):
        self.x = ir.Value(
            name="x",
            type=ir.TensorType(ir.DataType.FLOAT),
            shape=None if shape is None else ir.Shape(shape),
        )
        graph = ir.Graph([self.x], [], nodes=[], opset_imports={"": opset}, name="g")
        self.g = GraphContext(graph, opset, default_registry)
        self.model = ir.Model(graph, ir_version=8)
        self._weights: list[Value] = []

    @property
    def known(self) -> Initializers:
        """The initializers; the names of weights identify their contents."""
        return Initializers(self.model, named=self._weights)

    def weight(self, name: str, array: np.ndarray) -> Value:
        value = ir.Value(
            name=name,
            type=ir.TensorType(ir.DataType.from_numpy(array.dtype)),
            shape=ir.Shape(array.shape),
            const_value=ir.Tensor(array, name=name),
        )
        self.model.graph.initializers.add(value)
        self._weights.append(value)
        return value

    def returns(self, *values: Value) -> None:
        for index, value in enumerate(values):
            value.name = f"out{index}"
            self.model.graph.outputs.append(value)

    def remove_unused(self) -> None:
        """Remove the nodes that no output depends on."""
        common.RemoveUnusedNodesPass()(self.model)

    def ops(self) -> list[str]:
        return [node.op_type for node in self.model.graph]

    def checked(self, x: np.ndarray, *passes: ir.passes.PassBase, exact: bool = True) -> bool:
        """Run passes; the model must compute the same, and a second run must change nothing.

        Returns:
            Whether the passes changed the model.
        """
        before = self.run(x)
        modified = ir.passes.Sequential(*passes)(self.model).modified
        after = self.run(x)
        for old, new in zip(before, after, strict=True):
            if exact:
                np.testing.assert_array_equal(new, old, strict=True)
                np.testing.assert_array_equal(np.signbit(new), np.signbit(old))
            else:
                np.testing.assert_allclose(new, old, rtol=1e-5, atol=1e-6)
        assert not ir.passes.Sequential(*passes)(self.model).modified
        return modified

    def run(self, x: np.ndarray) -> list[np.ndarray]:
        found = run_onnxruntime(self.model, {"x": x}, optimized=False)
        shapes = [value.shape for value in self.model.graph.outputs]
        for value, array in zip(self.model.graph.outputs, found, strict=True):
            value.shape = ir.Shape([None] * array.ndim)
        onnx.checker.check_model(ir.to_proto(self.model))
        for value, shape in zip(self.model.graph.outputs, shapes, strict=True):
            value.shape = shape
        return found
