"""What is known of values beyond type and shape."""

import math

import onnx_ir as ir
import pytest
from onnx_ir import DataType, Value

from opsetta.registration import (
    GraphContext,
    Registry,
    UnsupportedError,
    facts_of,
    held_in,
    holder_of,
    state,
)
from opsetta.symbolics.compositions import affine_quantization
from opsetta.symbolics.compositions.affine_quantization import Grid, integer_type_for
from opsetta.symbolics.compositions.size_arithmetic import is_non_negative, mark_non_negative


def tensor(dtype: DataType = DataType.FLOAT) -> Value:
    return Value(name="x", type=ir.TensorType(dtype), shape=ir.Shape([2]))


def context(opset: int = 13) -> GraphContext:
    graph = ir.Graph([], [], nodes=[], opset_imports={"": opset}, name="graph")
    return GraphContext(graph, opset, Registry())


def test_nothing_is_known_of_a_value_at_first():
    assert facts_of(tensor()).bounds == (-math.inf, math.inf)
    assert holder_of(tensor()) is None


def test_facts_add_up():
    value = state(state(tensor(), bounds=(0, 255)), exact_in=DataType.BFLOAT16)
    assert facts_of(value).bounds == (0, 255)
    assert facts_of(value).exact_in == DataType.BFLOAT16


def test_a_value_marked_as_non_negative_is_so():
    value = tensor(DataType.INT64)
    assert not is_non_negative(value)
    assert is_non_negative(mark_non_negative(value))


def test_a_held_value_reaches_no_node():
    held = held_in(tensor(), DataType.BFLOAT16)
    with pytest.raises(UnsupportedError, match="Abs does not take BFLOAT16"):
        context().op("Abs", held)


@pytest.mark.parametrize(("bounds", "fits"), [((0, 255), True), ((-128, 127), False), (None, False)])
def test_a_computed_zero_point_is_quantized_only_within_the_type(bounds, fits):
    """QuantizeLinear would wrap a zero point outside of its type."""
    zero_point = tensor(DataType.INT64)
    if bounds is not None:
        state(zero_point, bounds=bounds)
    grid = Grid(tensor(), zero_point, 0, 255)
    assert affine_quantization._fits(context(), grid, DataType.UINT8) is fits
    assert integer_type_for(context(), Grid(tensor(), zero_point, 0, 200), False) == (
        DataType.UINT8 if fits else None
    )
