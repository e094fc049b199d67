"""Axes of emitted nodes below opset 11, which count from the first dimension."""

import onnx_ir as ir
import pytest

from opsetta.registration import DataType, GraphContext, Value, default_registry

from ..opsets import HIGHEST


def axes_of(op_type: str, opset: int, shape: tuple[int | None, ...] | None, **arguments: object) -> object:
    """The axes that the node has when an operator of a tensor is emitted."""
    graph = ir.Graph([], [], nodes=[], opset_imports={"": opset}, name="graph")
    known = None if shape is None else ir.Shape(shape)
    x = Value(name="x", type=ir.TensorType(DataType.FLOAT), shape=known)
    operands = [x, x] if op_type == "Concat" else [x]
    node = GraphContext(graph, opset, default_registry).op(op_type, *operands, **arguments).producer()
    [attribute] = [node.attributes[name] for name in ("axis", "axes") if name in node.attributes]
    return list(attribute.value) if isinstance(attribute.value, tuple) else attribute.value


CASES = [
    ("Squeeze", {"axes": [-1, 0]}, [2, 0]),
    ("Unsqueeze", {"axes": [-1, 0]}, [4, 0]),
    ("Flatten", {"axis": -1}, 2),
    ("Concat", {"axis": -2}, 1),
    ("ArgMax", {"axis": -1}, 2),
    ("ReduceMax", {"axes": [-3]}, [0]),
]


@pytest.mark.parametrize("opset", [7, 10])
@pytest.mark.parametrize(("op_type", "arguments", "expected"), CASES)
def test_negative_axes_count_from_the_end(op_type, arguments, expected, opset):
    assert axes_of(op_type, opset, (1, None, 1), **arguments) == expected


def test_constant_axes_that_are_an_input_count_from_the_end():
    graph = ir.Graph([], [], nodes=[], opset_imports={"": 10}, name="graph")
    x = Value(name="x", type=ir.TensorType(DataType.FLOAT), shape=ir.Shape((2, None, 4)))
    result = GraphContext(graph, 10, default_registry).op("Slice", x, starts=[0], ends=[1], axes=[-1])
    assert result.producer().inputs[3].const_value.numpy().tolist() == [2]


def test_axes_of_a_tensor_of_unknown_rank_stay():
    assert axes_of("Concat", 9, None, axis=-1) == -1


def test_later_opsets_take_negative_axes():
    assert axes_of("Concat", 11, (2, 3), axis=-1) == -1
    assert axes_of("Flatten", HIGHEST, (2, 3), axis=-1) == -1
