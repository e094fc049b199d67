"""The target passes that write forms that more consumers read."""

import numpy as np
import onnx_ir as ir
import pytest

from opsetta.passes.target.conventions.default_attributes import WriteDefaultAttributes
from opsetta.passes.target.simplification.late_broadcasts import BroadcastLate
from opsetta.passes.target.simplification.single_pixels import ExpandSinglePixels

from .target_graph import Case, numbers


def _resized(shape: list, sizes: list[int], opset: int = 18, **attributes: str) -> Case:
    case = Case(shape, opset)
    result = case.g.op("Resize", case.x, sizes=sizes, **attributes)
    result.shape = ir.Shape(sizes)
    case.returns(case.g.op("Neg", result))
    return case


@pytest.mark.parametrize("opset", [11, 17, 26])
def test_resize_says_its_coordinates(opset):
    case = _resized([1, 2, 3, 3], [1, 2, 6, 6], opset, mode="linear")
    assert case.checked(numbers(1, 2, 3, 3), WriteDefaultAttributes())
    (node, _) = case.model.graph
    assert node.attributes["coordinate_transformation_mode"].as_string() == "half_pixel"


def test_layer_normalization_says_its_axis():
    case = Case([2, 3, 4], 17)
    case.returns(case.g.op("LayerNormalization", case.x, case.weight("scale", numbers(4))))
    assert case.checked(numbers(2, 3, 4), WriteDefaultAttributes(), exact=False)
    (node,) = case.model.graph
    assert node.attributes["axis"].as_int() == -1


def test_a_resize_without_coordinates_stays():
    case = Case([1, 2, 3, 3], 10)
    case.returns(case.g.op("Resize", case.x, scales=[1.0, 1.0, 2.0, 2.0], mode="nearest"))
    assert not case.checked(numbers(1, 2, 3, 3), WriteDefaultAttributes())


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("shape", [[1, 2, 1, 1], [2, 1, 1, 1]])
def test_single_pixels_are_expanded(mode, shape):
    case = _resized(shape, [*shape[:2], 4, 5], mode=mode)
    assert case.checked(numbers(*shape), ExpandSinglePixels(case.known))
    assert case.ops() == ["Expand", "Neg"]


@pytest.mark.parametrize(
    ("shape", "sizes", "attributes"),
    [
        ([1, 2, 1, 3], [1, 2, 4, 6], {"mode": "linear"}),
        ([1, 2, 1, 1], [1, 2, 4, 6], {"mode": "cubic"}),
        (["n", 2, 1, 1], [1, 2, 4, 6], {"mode": "linear"}),
        ([1, 2, 1, 1], [1, 2, 1, 1], {"mode": "linear"}),
    ],
)
def test_other_images_are_resized(shape, sizes, attributes):
    case = _resized(shape, sizes, **attributes)
    found = numbers(*[size if isinstance(size, int) else 1 for size in shape])
    assert not case.checked(found, ExpandSinglePixels(case.known))


def _masked(shape: list, size: int = 3, opset: int = 18) -> tuple[Case, ir.Value]:
    """Whether numbers are over 1, repeated along axis 1."""
    case = Case(shape, opset)
    over = case.g.op("Greater", case.x, case.g.constant(1.0))
    every = case.weight("every", np.ones((1, size, 1), bool))
    wide = case.g.op("And", every, over)
    wide.shape = ir.Shape([shape[0], size, shape[2]])
    return case, wide


def _typed(value: ir.Value, *shape: int) -> ir.Value:
    value.shape = ir.Shape(shape)
    return value


@pytest.mark.parametrize("opset", [13, 18])
def test_a_mask_is_repeated_by_its_readers(opset):
    case, wide = _masked([2, 1, 4], opset=opset)
    g = case.g
    scores = case.weight("scores", numbers(2, 3, 4))
    bias = _typed(g.op("Where", wide, g.constant(0.0), g.constant(-np.inf)), 2, 3, 4)
    none = _typed(g.op("ReduceMax", bias, axes=[2], keepdims=1), 2, 3, 1)
    empty = _typed(g.op("Less", none, g.constant(-1.0)), 2, 3, 1)
    total = _typed(g.op("Add", scores, bias), 2, 3, 4)
    case.returns(g.op("Neg", _typed(g.op("Where", empty, g.constant(0.0), total), 2, 3, 4)))
    assert case.checked(numbers(2, 1, 4), BroadcastLate(case.known))
    assert "And" not in case.ops()
    assert [tuple(value.shape) for value in (bias, none, empty)] == [(2, 1, 4), (2, 1, 1), (2, 1, 1)]


@pytest.mark.parametrize("reader", ["output", "reduced", "flattened", "narrow operand", "unknown size"])
def test_a_mask_stays_where_it_may_be_read_repeated(reader):
    case, wide = _masked([2, 1, 4])
    g = case.g
    number = _typed(g.op("Cast", wide, to=ir.DataType.FLOAT), 2, 3, 4)
    if reader == "output":
        result = number
    elif reader == "reduced":
        result = _typed(g.op("ReduceSum", number, axes=[1], keepdims=1), 2, 1, 4)
    elif reader == "flattened":
        result = _typed(g.op("Reshape", number, [2, 12]), 2, 12)
    elif reader == "narrow operand":
        result = _typed(g.op("Add", number, case.weight("row", numbers(1, 1, 4))), 2, 3, 4)
    else:
        result = g.op("Add", number, case.weight("all", numbers(2, 3, 4)))
        result.shape = None
    case.returns(result if reader == "output" else g.op("Neg", result))
    assert not case.checked(numbers(2, 1, 4), BroadcastLate(case.known))
