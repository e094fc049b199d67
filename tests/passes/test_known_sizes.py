"""Sizes that follow from shapes, and values computed from them, become constants."""

import numpy as np
import onnx_ir as ir
import pytest

from opsetta.passes.onnx_graph.constants.fold_constants import FoldConstants

from ..opsets import HIGHEST
from .graph_case import Case, numbers


def unfolded(case: Case, op_type: str, *inputs: ir.Value, **attributes: int) -> ir.Value:
    """A node that emission would fold, as a converted file has it."""
    node = ir.node(op_type, inputs, attributes)
    result = node.outputs[0]
    result.name, result.dtype = f"{op_type}_{len(case.ops())}", ir.DataType.INT64
    case.model.graph.append(node)
    return result


def integers(case: Case, name: str, *values: int) -> ir.Value:
    return case.weight(name, np.array(values, np.int64))


@pytest.mark.parametrize("opset", [9, 13, HIGHEST])
def test_a_chain_of_known_sizes_goes(opset):
    """Shape, Gather, Concat, ConstantOfShape, Equal and Where, as TorchScript's exporter writes Expand."""
    case = Case([2, 3], opset)
    shape = unfolded(case, "Shape", case.x)
    last = unfolded(case, "Gather", shape, integers(case, "last", 1))
    sizes = unfolded(case, "Concat", integers(case, "first", 4, -1), last, axis=0)
    filled = unfolded(case, "ConstantOfShape", integers(case, "rank", 3))
    filled.dtype = ir.DataType.FLOAT
    ones = case.g.op("Add", case.g.op("Cast", filled, to=7), integers(case, "one", 1))
    wanted = case.g.op("Where", case.g.op("Equal", sizes, integers(case, "minus", -1)), ones, sizes)
    case.returns(case.g.op("Neg", case.g.op("Expand", case.g.op("Unsqueeze", case.x, axes=[0]), wanted)))
    x = numbers(2, 3)
    assert case.checked(x, FoldConstants(case.known))
    case.remove_unused()
    assert case.ops() == ["Unsqueeze", "Expand", "Neg"]


@pytest.mark.parametrize("opset", [15, HIGHEST])
def test_part_of_a_shape_is_known(opset):
    case = Case(["n", 3, 5], opset)
    part = unfolded(case, "Shape", case.x, start=1)
    every = unfolded(case, "Shape", case.x)
    one = unfolded(case, "Gather", every, integers(case, "second", -1))
    first = unfolded(case, "Gather", every, integers(case, "first", 0))
    cut = unfolded(case, "Slice", every, integers(case, "start", 1), integers(case, "end", 9))
    sums = case.g.op("Add", case.g.op("Add", part, one), cut)
    case.returns(case.g.op("Neg", sums), case.g.op("Neg", first))
    assert case.checked(numbers(2, 3, 5), FoldConstants(case.known))
    case.remove_unused()
    assert case.ops() == ["Shape", "Gather", "Neg", "Neg"]


def test_the_size_of_a_known_shape_is_a_constant():
    case = Case([2, 3], 18)
    case.returns(case.g.op("Neg", case.g.op("Add", unfolded(case, "Size", case.x), integers(case, "n", 1))))
    assert case.checked(numbers(2, 3), FoldConstants(case.known))
    assert "Size" not in case.ops()


def test_unknown_sizes_and_large_fillings_stay():
    case = Case(["n", "m"], 18)
    shape = unfolded(case, "Shape", case.x)
    filled = unfolded(case, "ConstantOfShape", integers(case, "size", 4096))
    filled.dtype = ir.DataType.FLOAT
    case.returns(case.g.op("Neg", shape), case.g.op("Neg", filled))
    assert not case.checked(numbers(2, 3), FoldConstants(case.known))
