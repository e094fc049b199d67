"""Passes that write a graph in the form that one target needs: the rewrites, and equal results."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from opsetta.passes.onnx_graph.constants.initializers import Initializers
from opsetta.passes.onnx_graph.conventions.bool_constants import StoreBools
from opsetta.passes.onnx_graph.conventions.constant_forms import WriteConstantNodes, WriteInitializers
from opsetta.passes.onnx_graph.conventions.default_attributes import WriteDefaultAttributes
from opsetta.passes.onnx_graph.conventions.int64_constants import NarrowConstants
from opsetta.passes.onnx_graph.conventions.resize import ResizeBy

from .graph_case import Case, numbers


def chosen(case: Case) -> Case:
    mask = case.weight("mask", np.array([True, False, True]))
    case.returns(case.g.op("Where", mask, case.x, case.weight("other", numbers(3))))
    return case


@pytest.mark.parametrize("dtype", [ir.DataType.FLOAT, ir.DataType.UINT8])
def test_bools_are_stored_as_numbers(dtype):
    case = chosen(Case([2, 3], 13))
    assert case.checked(numbers(2, 3), StoreBools(dtype, Initializers(case.model)))
    assert case.ops() == ["Cast", "Where"]
    kinds = {value.dtype for value in case.model.graph.initializers.values()}
    assert kinds == {dtype, ir.DataType.FLOAT}


def test_an_initializer_that_is_an_input_stays_bool():
    case = chosen(Case([2, 3], 13))
    mask = case.model.graph.initializers["mask"]
    case.model.graph.inputs.append(mask)
    assert not StoreBools(ir.DataType.FLOAT, Initializers(case.model))(case.model).modified


@pytest.mark.parametrize("opset", [9, 18])
def test_constant_nodes_become_initializers_and_back(opset):
    case = Case([2, 3], opset)
    shape = ir.node("Constant", [], attributes={"value": ir.tensor(np.array([3, 2], np.int64))}, name="c")
    shape.outputs[0].name = "shape"
    shape.outputs[0].type = ir.TensorType(ir.DataType.INT64)
    case.model.graph.append(shape)
    weight = case.weight("w", numbers(3, 2))
    case.returns(case.g.op("Mul", case.g.op("Reshape", case.x, shape.outputs[0]), weight))
    assert case.checked(numbers(2, 3), WriteInitializers())
    assert case.ops() == ["Reshape", "Mul"]
    assert case.checked(numbers(2, 3), WriteConstantNodes())
    assert case.ops() == ["Constant", "Reshape", "Mul"]
    assert list(case.model.graph.initializers) == ["w"]


def resized(shape, opset, **inputs) -> Case:
    case = Case(shape, opset)
    given = {name: case.weight(name, np.array(array)) for name, array in inputs.items()}
    case.returns(case.g.op("Resize", case.x, mode="nearest", **given))
    return case


@pytest.mark.parametrize("opset", [13, 18])
def test_resize_by_scales_becomes_by_sizes_and_back(opset):
    case = resized([1, 2, 4, 6], opset, scales=np.array([1, 1, 2, 0.5], np.float32))
    x = numbers(1, 2, 4, 6)
    assert case.checked(x, ResizeBy("sizes", Initializers(case.model)))
    [node] = case.model.graph
    assert node.inputs[2] is None
    assert node.inputs[3].const_value.numpy().tolist() == [1, 2, 8, 3]
    assert case.checked(x, ResizeBy("scales", Initializers(case.model)))
    assert node.inputs[2].const_value.numpy().tolist() == [1, 1, 2, 0.5]
    assert len(node.inputs) == 3


@pytest.mark.parametrize(
    ("shape", "scales"),
    [
        ([1, 1, "h", 4], [1, 1, 2, 2]),
        (None, [1, 1, 2, 2]),
        ([1, 1, 5, 4], [1, 1, 0.5, 1]),  # 2.5 rows: sizes would change the scale
    ],
)
def test_resize_stays_where_the_other_form_is_unknown_or_says_something_else(shape, scales):
    case = resized(shape, 13, scales=np.array(scales, np.float32))
    assert not ResizeBy("sizes", Initializers(case.model))(case.model).modified


def test_sizes_that_no_single_precision_scale_gives_stay():
    """The scale 11/49 in single precision times 49 rounds below 11, or gives another size."""
    for length in range(1, 60):
        for size in range(1, 60):
            case = resized([1, 1, length, 1], 13, sizes=np.array([1, 1, size, 1], np.int64))
            if ResizeBy("scales", Initializers(case.model))(case.model).modified:
                scale = next(iter(case.model.graph)).inputs[2].const_value.numpy()[2]
                assert np.floor(np.float32(length) * scale) == size


def test_indices_become_int32_where_the_schema_takes_them():
    case = Case([4, 3], 13)
    indices = case.weight("i", np.array([2, 0], np.int64))
    ends = [case.weight(name, np.array([n], np.int64)) for name, n in (("s", 0), ("e", 2), ("a", 1))]
    shape = case.weight("shape", np.array([2, 2, 1], np.int64))
    sliced = case.g.op("Slice", case.g.op("Gather", case.x, indices), *ends)
    case.returns(case.g.op("Reshape", sliced, shape))
    assert case.checked(numbers(4, 3), NarrowConstants(Initializers(case.model)))
    found = {node.op_type: [v.dtype for v in node.inputs[1:]] for node in case.model.graph}
    assert found["Gather"] == [ir.DataType.INT32]
    assert found["Slice"] == [ir.DataType.INT32] * 3
    assert found["Reshape"] == [ir.DataType.INT64]


def test_a_bound_beyond_int32_keeps_all_bounds_of_its_slice():
    case = Case([4, 3], 13)
    bounds = [case.weight(n, np.array([v], np.int64)) for n, v in (("s", 0), ("e", 2**62), ("a", 1))]
    case.returns(case.g.op("Slice", case.x, *bounds))
    assert not NarrowConstants(Initializers(case.model))(case.model).modified


def test_a_default_is_written():
    case = Case([1, 1, 2, 2], 13)
    case.returns(case.g.op("Resize", case.x, scales=case.weight("s", np.array([1, 1, 2, 2], np.float32))))
    assert "mode" not in next(iter(case.model.graph)).attributes
    assert case.checked(numbers(1, 1, 2, 2), WriteDefaultAttributes(["Resize.mode"]))
    assert next(iter(case.model.graph)).attributes["mode"].as_string() == "nearest"
