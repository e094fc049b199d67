"""The ONNX passes that write forms that more targets support."""

import numpy as np
import onnx_ir as ir
import pytest

from opsetta.passes.onnx_graph.constants.fold_constants import FoldConstants
from opsetta.passes.onnx_graph.conventions.default_attributes import WriteDefaultAttributes
from opsetta.passes.onnx_graph.conventions.joined_directions import JoinDirections
from opsetta.passes.onnx_graph.images.single_pixels import RepeatSinglePixels
from opsetta.passes.onnx_graph.shapes.late_broadcasts import BroadcastLate
from opsetta.passes.onnx_graph.simplification.uniform_values import RemoveUniformValues

from ..opsets import HIGHEST
from .graph_case import Case, numbers


def _resized(shape: list, sizes: list[int], opset: int = 18, **attributes: str) -> Case:
    case = Case(shape, opset)
    result = case.g.op("Resize", case.x, sizes=sizes, **attributes)
    result.shape = ir.Shape(sizes)
    case.returns(case.g.op("Neg", result))
    return case


@pytest.mark.parametrize("opset", [11, 17, HIGHEST])
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
    assert node.attributes["epsilon"].as_float() == np.float32(1e-5)


def test_a_resize_without_coordinates_stays():
    case = Case([1, 2, 3, 3], 10)
    case.returns(case.g.op("Resize", case.x, scales=[1.0, 1.0, 2.0, 2.0], mode="nearest"))
    assert not case.checked(numbers(1, 2, 3, 3), WriteDefaultAttributes())


@pytest.mark.parametrize("opset", [11, 18, HIGHEST])
@pytest.mark.parametrize("shape", [[1, 2, 1, 1], [2, 1, 1, 1]])
def test_single_pixels_are_repeated(opset, shape):
    case = _resized(shape, [*shape[:2], 4, 5], opset, mode="linear")
    assert case.checked(numbers(*shape), RepeatSinglePixels())
    assert next(iter(case.model.graph)).attributes["mode"].as_string() == "nearest"


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
    assert not case.checked(found, RepeatSinglePixels())


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


@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("shape", [[1, 5, 6], [5, 1, 6]])
def test_directions_are_joined_by_transpose_and_reshape(shape, is_transposed):
    case = Case([5, 1, 4])
    g, size = case.g, 3
    weights = [numbers(2, 4 * size, 4), numbers(2, 4 * size, size, seed=1)]
    given = [case.weight(name, array) for name, array in zip("WR", weights, strict=True)]
    layer = g.op("LSTM", case.x, *given, hidden_size=size, direction="bidirectional", outputs=3)
    sequence = _typed(layer[0], 5, 2, 1, size)
    if is_transposed:
        sequence = _typed(g.op("Transpose", sequence, perm=[0, 2, 1, 3]), 5, 1, 2, size)
    case.returns(g.op("Neg", _typed(g.op("Reshape", sequence, shape), *shape)))
    # A Reshape behind the Transpose may be merged with one that moves the batch to the front.
    is_merged = shape[0] == 1
    assert case.checked(numbers(5, 1, 4), JoinDirections(case.known)) == (is_merged or not is_transposed)
    assert case.ops() == ["LSTM", "Transpose", *["Reshape"] * (1 + is_merged), "Neg"]


@pytest.mark.parametrize("batch", [1, 2])
def test_other_layers_are_not_joined(batch):
    case = Case([5, batch, 4])
    g, count = case.g, 2 if batch == 2 else 1
    weights = [numbers(count, 12, 4), numbers(count, 12, 3, seed=1)]
    given = [case.weight(name, array) for name, array in zip("WR", weights, strict=True)]
    direction = "bidirectional" if count == 2 else "forward"
    layer = g.op("LSTM", case.x, *given, hidden_size=3, direction=direction, outputs=3)
    sequence = _typed(layer[0], 5, count, batch, 3)
    case.returns(g.op("Neg", _typed(g.op("Reshape", sequence, [-1]), 15 * count * batch)))
    assert not case.checked(numbers(5, batch, 4), JoinDirections(case.known))


def test_comparisons_of_weights_are_folded():
    case = Case([2, 3])
    low = case.g.op("Less", case.weight("mask", numbers(2, 3)), case.g.constant(-3.0e38))
    case.returns(case.g.op("Neg", _typed(case.g.op("Where", low, case.g.constant(0.0), case.x), 2, 3)))
    known = case.known
    assert case.checked(numbers(2, 3), FoldConstants(known), RemoveUniformValues(known))
    assert case.ops() == ["Neg"]
