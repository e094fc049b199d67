"""The product of a transposed matrix and a vector, which onnxruntime computes without the Transpose."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import opsetta.symbolics  # noqa: F401
from opsetta.passes.onnx_graph.products.vectors import PutVectorsFirst
from opsetta.registration import GraphContext, default_registry

from ..onnxruntime_sessions import open_session

SIZE = 5
FLOAT = ir.TensorType(ir.DataType.FLOAT)


def product(
    order: tuple[int, ...] | None, *, cast: bool = False, shared: bool = False, known: bool = True
) -> ir.Model:
    rank = 3 if order is None else len(order)
    x = ir.Value(name="x", type=FLOAT, shape=ir.Shape([SIZE] * rank))
    vector = ir.Value(name="vector", type=FLOAT, shape=ir.Shape([SIZE]) if known else None)
    graph = ir.Graph([x, vector], [], nodes=[], opset_imports={"": 17}, name="g")
    g = GraphContext(graph, 17, default_registry)
    transposed = g.op("Transpose", x) if order is None else g.op("Transpose", x, perm=list(order))
    matrix = g.op("Cast", transposed, to=ir.DataType.FLOAT) if cast else transposed
    results = [g.op("MatMul", matrix, vector), *([transposed] if shared else [])]
    for result in results:
        result.type = FLOAT
        result.shape = result.shape or ir.Shape([None] * (rank - 1))
    graph.outputs.extend(results)
    return ir.Model(graph, ir_version=8)


def computed(model: ir.Model, optimized: bool) -> list[np.ndarray]:
    session = open_session(model, optimized=optimized)
    draw = np.random.RandomState(0).standard_normal
    feeds = {each.name: draw(each.shape).astype(np.float32) for each in session.get_inputs()}
    return session.run(None, feeds)


@pytest.mark.parametrize("cast", [False, True], ids=["plain", "cast"])
@pytest.mark.parametrize("shared", [False, True], ids=["alone", "shared"])
@pytest.mark.parametrize("order", [(1, 0), (0, 2, 1), (1, 2, 0), (2, 0, 1), (2, 1, 0), None], ids=str)
def test_products_are_right_in_onnxruntime(order: tuple[int, ...] | None, cast: bool, shared: bool) -> None:
    model = product(order, cast=cast, shared=shared)
    plain = computed(model, optimized=False)
    assert PutVectorsFirst()(model).modified
    for optimized in (False, True):
        for result, expected in zip(computed(model, optimized), plain, strict=True):
            np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
    assert not PutVectorsFirst()(model).modified


def test_a_transpose_without_other_readers_goes() -> None:
    model = product((0, 2, 1))
    PutVectorsFirst()(model)
    assert [node.op_type for node in model.graph] == ["MatMul"]


def test_what_keeps_the_last_axis_or_is_unknown_stays() -> None:
    assert not PutVectorsFirst()(product((1, 0, 2))).modified
    assert not PutVectorsFirst()(product((0, 2, 1), known=False)).modified
