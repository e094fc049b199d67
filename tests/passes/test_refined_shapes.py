"""Sizes that a file leaves unknown follow from constants and from the sizes of other values."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from opsetta.passes.onnx_graph.constants.fold_constants import FoldConstants
from opsetta.passes.onnx_graph.fusions.layer_normalization import FuseLayerNormalization
from opsetta.passes.onnx_graph.fusions.refined_shapes import RefineShapes
from opsetta.registration import Value
from tests.call_counts import count_calls

from .graph_case import Case, numbers


def _forget_shapes(case: Case, *kept: Value) -> None:
    """Leave the shapes of nodes' results unknown, as in a file without them."""
    for node in case.model.graph:
        for value in node.outputs:
            value.shape = value.shape if value in kept else None


def _refined(case: Case, *values: Value) -> list[list[str]]:
    case.returns(case.g.op("Softmax", values[0], axis=-1), *values)
    _forget_shapes(case)
    RefineShapes()(case.model)
    assert not RefineShapes()(case.model).modified
    return [[str(size) for size in value.shape or ["?"]] for value in values]


def _size(case: Case, axis: int) -> Value:
    return case.g.op("Gather", case.g.op("Shape", case.x), np.array(axis), axis=0)


def _vector(case: Case, value: Value) -> Value:
    return case.g.op("Unsqueeze", value, axes=[0])


def test_rows_of_a_table_up_to_a_length_have_that_length_beside_it() -> None:
    case = Case(["batch", "length", 4], 23)
    table = case.weight("table", numbers(1, 512, 4))
    ends = _vector(case, _size(case, 1))
    rows = case.g.op("Slice", table, starts=np.array([0]), ends=ends, axes=np.array([1]))
    found = _refined(case, case.g.op("Add", case.x, rows), rows)
    assert found == [["batch", "length", "4"], ["1", "Min(512, length)", "4"]]


@pytest.mark.parametrize(
    ("starts", "ends", "steps", "wanted"),
    [
        ([1], [2**62], [1], ["3", "?"]),
        ([0], [2**31 - 1], [1], ["4", "length"]),
        ([-1], [-(2**62)], [-2], ["2", "?"]),
        ([0], [-1], [1], ["3", "?"]),
    ],
)
def test_slices_by_constants(starts: list[int], ends: list[int], steps: list[int], wanted: list[str]) -> None:
    case = Case([4, "length"], 23)
    cut = [case.g.op("Slice", case.x, *map(np.array, (starts, ends, [axis], steps))) for axis in (0, 1)]
    found = _refined(case, *cut)
    assert [found[0][0], found[1][1].replace("None", "?")] == wanted


def test_windows_have_a_multiple_of_the_batch() -> None:
    case = Case(["batch", 8, 8, 3], 23)
    g = case.g
    count = g.op("Div", _size(case, 1), np.array(4))
    target = [_size(case, 0), count, np.array(4), count, np.array(4), np.array(3)]
    parts = [each if isinstance(each, np.ndarray) else _vector(case, each) for each in target]
    split = g.op(
        "Concat", *(part.reshape(1) if isinstance(part, np.ndarray) else part for part in parts), axis=0
    )
    windows = g.op("Transpose", g.op("Reshape", case.x, split), perm=[0, 1, 3, 2, 4, 5])
    joined = g.op("Reshape", windows, np.array([-1, 16, 3]))
    number = g.op(
        "Mul", _vector(case, g.op("Gather", g.op("Shape", joined), np.array(0), axis=0)), np.array([2])
    )
    repeated = g.op("Expand", np.ones((1, 3), np.float32), g.op("Concat", number, np.array([3]), axis=0))
    found = _refined(case, joined, repeated)
    assert found == [["4*batch", "16", "3"], ["8*batch", "3"]]


def test_sizes_behind_constant_pads_and_slices_become_constants() -> None:
    case = Case([2, 6, 3], 18)
    g = case.g
    moved = g.op("Add", case.x, g.op("Neg", case.weight("offset", numbers(3))))
    padded = g.op("Pad", moved, np.array([0, 1, 0, 0, 1, 0]))
    rows = g.op(
        "Reshape", g.op("Slice", padded, np.array([2]), np.array([2**62]), np.array([1])), np.array([-1, 3])
    )
    case.returns(g.op("Reshape", rows, g.op("Concat", g.op("Shape", rows), np.array([1]), axis=0)))
    _forget_shapes(case, moved)
    assert case.checked(numbers(2, 6, 3), FoldConstants(case.known))
    assert case.ops() == ["Add", "Pad", "Slice", "Reshape", "Reshape"]


def test_a_normalization_without_shapes_is_fused() -> None:
    case = Case([2, 5, 8], 17)
    g = case.g
    x = g.op("Add", case.x, case.weight("position", numbers(1, 5, 8)))
    centred = g.op("Sub", x, g.op("ReduceMean", x, axes=[-1]))
    variance = g.op("ReduceMean", g.op("Pow", centred, np.array(2, np.float32)), axes=[-1])
    normal = g.op("Div", centred, g.op("Sqrt", g.op("Add", variance, np.array(1e-5, np.float32))))
    case.returns(g.op("Mul", normal, case.weight("scale", numbers(8))))
    _forget_shapes(case)
    assert case.checked(numbers(2, 5, 8), RefineShapes(), FuseLayerNormalization(case.known), exact=False)
    assert case.ops() == ["Add", "LayerNormalization"]


def test_known_shapes_are_left_alone_below_opset_23() -> None:
    case = Case(["batch", 5, 8], 18)
    mean = case.g.op("ReduceMean", case.g.op("Relu", case.x), axes=[-1])
    mean.shape = ir.Shape([None, 5, 1])
    case.returns(case.g.op("Softmax", mean, axis=-1))
    assert not RefineShapes()(case.model).modified


@pytest.mark.parametrize("op_type", ["Mul", "Where"])
def test_long_chains_of_sizes_cost_a_number_of_calls_that_is_linear(op_type: str) -> None:
    def calls_for(length: int) -> int:
        case = Case(["batch", 4], 23)
        g = case.g
        size = _vector(case, _size(case, 0))
        for _ in range(length):
            if op_type == "Mul":
                size = g.op("Mul", g.op("Div", size, size), size)
            else:
                size = g.op("Where", g.op("Equal", size, np.array([-1])), size, size)
            result = g.op("Expand", np.ones(1, np.float32), size)
        case.returns(g.op("Softmax", result, axis=-1))
        _forget_shapes(case)
        return count_calls(lambda: RefineShapes()(case.model))

    assert calls_for(400) < 4.4 * calls_for(100)
