"""Names of the sizes that a Slice of opset 10 leaves unknown."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from opsetta.passes.onnx_graph.shapes.sliced_dimensions import NameSlicedDimensions
from opsetta.registration import GraphContext, Registry


def build(opset: int = 10, axes: list[int] | None = None, sizes: tuple[str | int | None, ...] = ("rows", 4)):
    x = ir.Value(name="x", shape=ir.Shape(sizes), type=ir.TensorType(ir.DataType.FLOAT))
    bounds = ir.Value(name="bounds", shape=ir.Shape([1]), type=ir.TensorType(ir.DataType.INT64))
    graph = ir.Graph([x, bounds], [], nodes=[], opset_imports={"": opset})
    g = GraphContext(graph, opset, Registry())
    given = [] if axes is None else [g.constant(np.array(axes, dtype=np.int64))]
    graph.outputs.append(g.op("Slice", x, bounds, bounds, *given))
    return ir.Model(graph, ir_version=9)


@pytest.mark.parametrize(
    ("axes", "expected"),
    [
        ([0], ["Slice_output_0_dim_0", None]),
        ([-1], [None, "Slice_output_0_dim_1"]),
        (None, ["Slice_output_0_dim_0", "Slice_output_0_dim_1"]),
    ],
)
def test_a_cut_dimension_has_a_name_of_its_own(axes, expected):
    model = build(axes=axes)
    assert NameSlicedDimensions()(model).modified
    shape = model.graph.outputs[0].shape
    assert [getattr(dim, "value", dim) for dim in shape] == expected
    assert not NameSlicedDimensions()(model).modified


def test_the_name_is_no_other_dimensions():
    model = build(axes=[0], sizes=("Slice_output_0_dim_0", 4))
    NameSlicedDimensions()(model)
    assert model.graph.outputs[0].shape[0] == ir.SymbolicDim("Slice_output_0_dim_0_1")


def test_a_size_that_is_known_stays():
    model = build(axes=[0])
    model.graph.outputs[0].shape = ir.Shape([2, 4])
    assert not NameSlicedDimensions()(model).modified


def test_an_unknown_shape_gets_the_names():
    model = build(axes=[0])
    model.graph.outputs[0].shape = None
    assert NameSlicedDimensions()(model).modified
    assert model.graph.outputs[0].shape[0] == ir.SymbolicDim("Slice_output_0_dim_0")


@pytest.mark.parametrize("opset", [11, 13])
def test_later_versions_need_no_name(opset):
    assert not NameSlicedDimensions()(build(opset, axes=[0])).modified
