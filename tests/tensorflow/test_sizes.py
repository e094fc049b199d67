"""Which computed sizes are certainly a dimension."""

import onnx_ir as ir
import pytest

from opsetta.symbolics.tensorflow._common import is_dimension

LENGTH = ir.SymbolicDim("length")


def made(op_type: str, *inputs: ir.Value, dtype: ir.DataType = ir.DataType.INT64) -> ir.Value:
    [value] = ir.Node("", op_type, list(inputs), num_outputs=1).outputs
    value.type, value.shape = ir.TensorType(dtype), ir.Shape([])
    return value


def number(content: int) -> ir.Value:
    tensor = ir.tensor(content, dtype=ir.DataType.INT64)
    return ir.Value(type=ir.TensorType(tensor.dtype), shape=ir.Shape([]), const_value=tensor)


def size(axis: int = 0) -> ir.Value:
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(["length", "batch"]))
    return made("Gather", made("Shape", x), number(axis))


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda: size(), True),
        (lambda: size(1), False),
        (lambda: made("Cast", made("Cast", size(), dtype=ir.DataType.INT32)), True),
        (lambda: made("Cast", made("Cast", size(), dtype=ir.DataType.FLOAT)), False),
        (lambda: made("Max", size(), number(0)), True),
        (lambda: made("Max", size(), number(1)), False),
        (lambda: made("Max", size(), size(1)), False),
        (lambda: made("Min", size(), made("Max", number(1), size())), True),
        (lambda: made("Min", size(), number(5)), False),
        (lambda: made("Min", made("Max", number(1), size()), made("Max", size(), number(2))), False),
        (lambda: made("Add", size(), number(0)), False),
    ],
)
def test_computed_sizes(build, expected):
    assert is_dimension(build(), LENGTH) is expected


@pytest.mark.parametrize("comparison", ["Less", "Greater"])
def test_sizes_chosen_by_a_comparison(comparison):
    """Before opset 12 Where chooses the least or greatest of integers."""
    length, one = size(), number(1)
    chosen = made("Where", made(comparison, one, length), one, length)
    assert not is_dimension(chosen, LENGTH)
    whole = made("Where", made("Less", length, chosen), length, chosen)
    assert is_dimension(whole, LENGTH) is (comparison == "Greater")
    assert not is_dimension(made("Where", made("Less", length, one), length, chosen), LENGTH)


def test_numbers():
    assert is_dimension(3, 3)
    assert not is_dimension(3, 4)
    assert not is_dimension(3, LENGTH)
    assert not is_dimension(size(), ir.SymbolicDim(None))
