"""RMSNormalization replaces its composition: where it is equivalent, and where it is not."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from opsetta.passes.onnx_graph.constants.initializers import Initializers
from opsetta.passes.onnx_graph.fusions.rms_normalization import FuseRMSNormalization
from opsetta.registration import GraphContext, Registry, Value

from ..opsets import HIGHEST
from .graph_case import Case, numbers


def build(
    opset: int = 23, scale_shape: tuple = (4,), axis: int = -1, second_reader: bool = False
) -> ir.Model:
    x = ir.Value(name="x", shape=ir.Shape(["b", 3, 4]), type=ir.TensorType(ir.DataType.FLOAT))
    graph = ir.Graph([x], [], nodes=[], opset_imports={"": opset})
    g = GraphContext(graph, opset, Registry())
    scale = g.constant(np.ones(scale_shape, dtype=np.float32))
    mean = g.op("ReduceMean", g.op("Pow", x, 2.0), axes=[axis], keepdims=1)
    inverse = g.op("Reciprocal", g.op("Sqrt", g.op("Add", mean, 1e-6)))
    graph.outputs.append(g.op("Mul", scale, g.op("Mul", x, inverse)))
    if second_reader:
        graph.outputs.append(g.op("Neg", inverse))
    return ir.Model(graph, ir_version=11)


def test_composition_becomes_one_node() -> None:
    model = build()
    assert FuseRMSNormalization(Initializers(model))(model).modified
    assert [node.op_type for node in model.graph] == ["RMSNormalization"]
    node = model.graph[0]
    assert node.attributes["epsilon"].as_float() == pytest.approx(1e-6)
    assert model.graph.outputs[0] is node.outputs[0]
    assert not FuseRMSNormalization(Initializers(model))(model).modified


def _inverse(case: Case, total: Value, form: str) -> tuple[str, Value]:
    """How x becomes normalized: an operator, and its second input."""
    g = case.g
    if form in ("power", "root power"):
        is_inverse = form == "power"
        return ("Mul" if is_inverse else "Div"), g.op("Pow", total, -0.5 if is_inverse else 0.5)
    root = g.op("Sqrt", total)
    if form == "root":
        return "Div", root
    return "Mul", g.op("Reciprocal", root) if form == "reciprocal" else g.op("Div", 1.0, root)


def _written_out(
    case: Case, x: Value, form: str = "quotient", cast: ir.DataType | None = None, one: float = 1e-6
) -> Value:
    g = case.g
    mean = g.op("ReduceMean", g.op("Mul", x, x), axes=[-1], keepdims=1)
    op, factor = _inverse(case, g.op("Add", mean, one), form)
    normalized = g.op(op, x, factor)
    if cast is not None:
        normalized = g.op("Cast", normalized, to=int(cast))
    dtype = np.float32 if cast is None else cast.numpy()
    return g.op("Mul", normalized, case.weight("scale", np.linspace(0.5, 2, 4).astype(dtype)))


@pytest.mark.parametrize("form", ["reciprocal", "quotient", "root", "power", "root power"])
@pytest.mark.parametrize("opset", [23, HIGHEST])
def test_forms_of_other_exporters(form: str, opset: int) -> None:
    case = Case([2, 3, 4], opset)
    case.returns(_written_out(case, case.x, form))
    assert case.checked(numbers(2, 3, 4) - 1, FuseRMSNormalization(case.known), exact=False)
    case.remove_unused()
    assert case.ops() == ["RMSNormalization"]


def test_half_precision_that_is_normalized_as_float() -> None:
    """The form of Llama: x is cast to FLOAT, and cast back before the scale."""
    case = Case([2, 3, 4], 23)
    case.x.dtype = ir.DataType.FLOAT16
    wide = case.g.op("Cast", case.x, to=int(ir.DataType.FLOAT))
    case.returns(_written_out(case, wide, cast=ir.DataType.FLOAT16))
    x = (numbers(2, 3, 4) - 1).astype(np.float16)
    (before,) = case.run(x)
    assert FuseRMSNormalization(case.known)(case.model).modified
    (after,) = case.run(x)
    np.testing.assert_allclose(after, before, rtol=2e-3)
    case.remove_unused()
    assert case.ops() == ["RMSNormalization"]


def test_other_casts_stay() -> None:
    case = Case([2, 3, 4], 23)
    wide = case.g.op("Cast", case.x, to=int(ir.DataType.DOUBLE))
    total = case.g.op("ReduceMean", case.g.op("Mul", wide, wide), axes=[-1], keepdims=1)
    root = case.g.op("Sqrt", case.g.op("Add", total, case.weight("epsilon", np.array(1e-6))))
    narrow = case.g.op("Cast", case.g.op("Div", wide, root), to=int(ir.DataType.FLOAT))
    case.returns(case.g.op("Mul", narrow, case.weight("scale", np.ones(4, np.float32))))
    assert not FuseRMSNormalization(case.known)(case.model).modified


@pytest.mark.parametrize(
    "changes",
    [{"opset": 22}, {"axis": 1}, {"second_reader": True}],
    ids=lambda changes: next(iter(changes)),
)
def test_other_graphs_stay(changes: dict) -> None:
    model = build(**changes)
    before = [node.op_type for node in model.graph]
    assert not FuseRMSNormalization(Initializers(model))(model).modified
    assert [node.op_type for node in model.graph] == before


@pytest.mark.parametrize("scale_shape", [(), (1, 4)])
def test_another_scale_stays_behind_the_operator(scale_shape: tuple) -> None:
    model = build(scale_shape=scale_shape)
    assert FuseRMSNormalization(Initializers(model))(model).modified
    assert [node.op_type for node in model.graph] == ["RMSNormalization", "Mul"]


@pytest.mark.parametrize("opset", [22, 23, HIGHEST])
def test_without_a_scale(opset: int) -> None:
    case = Case(["rows", 4], opset)
    mean = case.g.op("ReduceMean", case.g.op("Pow", case.x, 2.0), axes=[-1], keepdims=1)
    case.returns(case.g.op("Div", case.x, case.g.op("Sqrt", case.g.op("Add", mean, 1e-6))))
    assert case.checked(numbers(2, 4) - 1, FuseRMSNormalization(case.known), exact=False) == (opset > 22)
    case.remove_unused()
    assert ("RMSNormalization" in case.ops()) == (opset > 22)
