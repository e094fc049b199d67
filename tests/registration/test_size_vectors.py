"""The elements of a vector of sizes are read from the nodes that compute it."""

from __future__ import annotations

import operator

import numpy as np
import onnx_ir as ir
import pytest

from opsetta.registration import DataType, GraphContext, Value, default_registry
from opsetta.registration.inference.constant_integers import argument, integers
from opsetta.registration.inference.size_vectors import elements
from tests.call_counts import count_calls


def _context(opset: int) -> GraphContext:
    return GraphContext(
        ir.Graph([], [], nodes=[], opset_imports={"": opset}, name="graph"), opset, default_registry
    )


@pytest.fixture
def g() -> GraphContext:
    return _context(18)


def _given(g: GraphContext, *sizes: int | str | None, dtype: DataType = DataType.INT64) -> Value:
    value = Value(name=f"x{len(g.graph.inputs)}", type=ir.TensorType(dtype), shape=ir.Shape(sizes))
    g.graph.inputs.append(value)
    return value


def _read(value: Value) -> list[str] | None:
    found = elements(value)
    return None if found is None else [str(each) for each in found]


@pytest.fixture
def shape(g: GraphContext) -> Value:
    """The sizes [n, c, 4, m] as a value that is computed."""
    return g.op("Shape", _given(g, "n", "c", 4, "m"))


def test_sizes_of_a_shape_between_two_axes(g: GraphContext) -> None:
    x = _given(g, "n", "c", 4, "m")
    assert _read(g.op("Shape", x, start=1)) == ["c", "4", "m"]
    assert _read(g.op("Shape", x, start=-3, end=-1)) == ["c", "4"]


def test_parts_of_vectors(g: GraphContext, shape: Value) -> None:
    assert _read(g.op("Gather", shape, [3, 0, -3])) == ["m", "n", "c"]
    assert _read(g.op("Gather", shape, np.array(2))) == ["4"]
    assert _read(g.op("Slice", shape, [1], [2**63 - 1], [0], [2])) == ["c", "m"]
    assert _read(g.op("Slice", shape, [-1], [-(2**63)], [0], [-1])) == ["m", "4", "c", "n"]
    first = g.op("Slice", shape, [0], [1])
    assert _read(g.op("Concat", first, [-1], first, axis=0)) == ["n", "-1", "n"]


def test_bounds_of_a_slice_that_are_attributes() -> None:
    g = _context(9)
    part = g.op("Slice", g.op("Shape", _given(g, "n", "c", 4)), starts=[0], ends=[2])
    assert "starts" in part.producer().attributes
    assert _read(part) == ["n", "c"]


def test_one_size_as_a_number_or_as_a_vector(g: GraphContext, shape: Value) -> None:
    number = g.op("Squeeze", g.op("Gather", shape, [0]), axes=[0])
    vector = g.op("Reshape", g.op("Identity", g.op("Unsqueeze", number, axes=[0])), [1])
    vector.shape = None
    assert [_read(number), _read(vector)] == [["n"], ["n"]]


def test_a_vector_of_several_sizes_may_have_become_a_matrix(g: GraphContext, shape: Value) -> None:
    matrix = g.op("Reshape", shape, [2, 2])
    assert _read(matrix) is None
    matrix.shape = None
    assert _read(matrix) is None


def test_products_and_quotients_of_two_sizes(g: GraphContext, shape: Value) -> None:
    n, c, four = (g.op("Gather", shape, [place]) for place in range(3))
    product = g.op("Mul", n, four)
    assert _read(product) == ["4*n"]
    assert _read(g.op("Div", product, four)) == ["n"]
    assert _read(g.op("Mul", n, c)) == ["c*n"]
    assert _read(g.op("Mul", shape, four)) == ["None"] * 4


def test_casts_between_types_of_integers(g: GraphContext, shape: Value) -> None:
    assert _read(g.cast(g.cast(shape, DataType.INT32), DataType.INT64)) == ["n", "c", "4", "m"]
    assert _read(g.cast(g.cast(shape, DataType.FLOAT), DataType.INT64)) == ["None"] * 4
    large = g.op("Concat", g.op("Gather", shape, [0]), [2**31], axis=0)
    assert _read(g.cast(large, DataType.INT32)) == ["n", "None"]


def test_sizes_of_minus_one_are_replaced(g: GraphContext, shape: Value) -> None:
    sizes = g.op("Concat", g.op("Gather", shape, [0]), [-1], axis=0)
    equal = g.op("Equal", sizes, [-1, -1])
    assert _read(g.op("Where", equal, g.op("Gather", shape, [2, 3]), sizes)) == ["n", "m"]
    assert _read(g.op("Where", equal, [7], sizes)) == ["n", "7"]
    assert _read(g.op("Where", g.op("Equal", sizes, [3, -1]), [7], sizes)) == ["None"] * 2


def test_elements_of_a_known_number_are_unknown(g: GraphContext, shape: Value) -> None:
    assert _read(_given(g, 3)) == ["None"] * 3
    assert _read(_given(g)) == ["None"]
    assert _read(_given(g, "length")) is None
    assert _read(g.op("Concat", g.op("Add", _given(g, 1), 1), [7], axis=0)) == ["None", "7"]
    assert elements(None) is None


def test_a_default_of_an_input_is_no_constant(g: GraphContext) -> None:
    sizes = _given(g, 2)
    sizes.const_value = ir.tensor(np.array([2, 3]))
    assert integers(sizes) is None
    assert _read(sizes) == ["None"] * 2


def test_axes_are_an_attribute_or_an_input() -> None:
    for opset in (11, 13):
        g = _context(opset)
        node = g.op("Unsqueeze", _given(g, 2), axes=[0, -1]).producer()
        assert argument(node, "axes", 1) == [0, -1]
    assert argument(g.op("ReduceSum", _given(g, 2)).producer(), "axes", 1) is None


def test_reading_a_vector_that_is_multiplied_again_and_again_is_linear(g: GraphContext, shape: Value) -> None:
    def calls_for(length: int) -> int:
        vector = g.op("Gather", shape, [0])
        for _ in range(length):
            vector = g.op("Mul", vector, g.op("Mul", vector, vector))
        return count_calls(lambda: operator.eq(_read(vector), ["None"]) or pytest.fail("it has a size"))

    assert calls_for(400) < 4.4 * calls_for(100)


def test_a_vector_that_is_joined_with_itself_again_and_again_is_not_read(
    g: GraphContext, shape: Value
) -> None:
    wide = g.op("Gather", shape, [0])
    for _ in range(12):
        wide = g.op("Concat", wide, wide, axis=0)
    assert _read(wide) is None
