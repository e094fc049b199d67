"""Runs a pass on a small model, and compares the results of onnxruntime before and after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper

from ...onnxruntime_sessions import run_onnxruntime

OPSETS = (9, 13, 17, 21)
F = TensorProto.FLOAT


def model_of(
    opset: int,
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple],
    outputs: Sequence[str],
    weights: Mapping[str, np.ndarray] | None = None,
    domains: Mapping[str, int] | None = None,
) -> ir.Model:
    """A model of float inputs of these shapes; a shape may begin with the name of another element type."""
    stored = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(
        nodes,
        "graph",
        [_info(name, shape) for name, shape in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        stored,
    )
    imports = [
        helper.make_opsetid("", opset),
        *(helper.make_opsetid(d, v) for d, v in (domains or {}).items()),
    ]
    proto = helper.make_model(graph, opset_imports=imports, ir_version=8 if opset < 19 else 10)
    return ir.from_proto(onnx.shape_inference.infer_shapes(proto, data_prop=True))


def _info(name: str, shape: tuple) -> onnx.ValueInfoProto:
    kind = F
    if shape and isinstance(shape[0], str) and shape[0].isupper():
        kind, shape = getattr(TensorProto, shape[0]), shape[1:]
    return helper.make_tensor_value_info(name, kind, shape)


def run(model: ir.Model, feed: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """What onnxruntime computes, without optimizations."""
    return run_onnxruntime(model, feed, optimized=False)


def realized(
    model: ir.Model,
    realizer: ir.passes.PassBase,
    feed: Mapping[str, np.ndarray],
    tolerance: float | None = None,
    **after: np.ndarray,
) -> list[str]:
    """Run a pass; check its results against those before, the model, and that a second run changes nothing.

    Args:
        tolerance: the largest difference; None if results are equal bit for bit.
        after: inputs that differ in the new model; None for one that it lacks.

    Returns:
        The operators of the new model, in order.
    """
    expected = run(model, feed)
    names = [value.name for value in model.graph.outputs]
    result = realizer(model)
    assert result.modified
    check(result.model)
    assert [value.name for value in result.model.graph.outputs] == names
    given = {name: array for name, array in {**feed, **after}.items() if array is not None}
    for wanted, found in zip(expected, run(result.model, given), strict=True):
        if tolerance is None:
            np.testing.assert_array_equal(found, wanted)
        else:
            np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)
    again = realizer(result.model)
    assert not again.modified
    return operators(again.model)


def check(model: ir.Model) -> None:
    """Check a model with onnx, shape inference included."""
    proto = ir.to_proto(model)
    for graph in [proto.graph]:
        del graph.value_info[:]
    onnx.checker.check_model(proto, full_check=True)


def operators(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph]


def unchanged(model: ir.Model, realizer: ir.passes.PassBase) -> None:
    """Check that a pass has nothing to do."""
    before = operators(model)
    assert not realizer(model).modified
    assert operators(model) == before


def numbers(*shape: int, dtype: type = np.float32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)
