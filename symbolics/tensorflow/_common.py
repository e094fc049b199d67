"""Helpers of TensorFlow's symbolic functions: constant operands, sizes, arithmetic on narrow integers."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from ...registration import DataType, GraphContext, Value, dtypes, onnx_symbolic
from ...registration.size_algebra.dimensions import broadcast
from ..compositions.integers import widen_integers
from ..compositions.size_arithmetic import Size, dimension, fold_size, same_size
from ..compositions.size_arithmetic import set_shape as set_shape

END = 2**63 - 1
"""The end of a slice that takes all remaining elements."""


def is_integral(g: GraphContext, value: Value) -> bool:
    """Whether the element type is known to be an integer type."""
    return g.dtype(value) in dtypes.INTEGERS


def restore_dtype(g: GraphContext, result: Value, dtype: DataType | None) -> Value:
    """Cast a result back to the element type of the operands, if known."""
    return result if dtype is None else g.cast(result, dtype)


def binary(g: GraphContext, op_type: str, x: Value, y: Value) -> Value:
    """Emit an operator on two tensors of one type; runtimes compute narrow integers as INT32 or INT64."""
    second = widen_integers(g, y)
    return restore_dtype(g, g.op(op_type, widen_integers(g, x), second), g.dtype(x))


def call_on_wide(g: GraphContext, function: str, x: Value, y: Value) -> Value:
    """Call a symbolic function on two tensors of one type, like `binary`."""
    result = g.call(function, widen_integers(g, x), widen_integers(g, y))
    return restore_dtype(g, result, g.dtype(x))


def select_elements(g: GraphContext, condition: Value, t: Value, e: Value) -> Value:
    """`t` where the condition is true, else `e`. Runtimes have no Where for narrow integers."""
    wide_t, wide_e = widen_integers(g, t), widen_integers(g, e)
    return restore_dtype(
        g, g.call("composed::where", condition=condition, self=wide_t, other=wide_e), g.dtype(t)
    )


def integers(g: GraphContext, value: Value) -> list[int] | None:
    """The elements of a constant integer tensor, flattened; None if it is computed."""
    array = g.constant_value(value)
    return None if array is None else [int(item) for item in np.asarray(array).reshape(-1)]


def constant_integers(g: GraphContext, value: Value, name: str) -> list[int]:
    """The elements of an integer tensor that must be constant."""
    numbers = integers(g, value)
    if numbers is None:
        raise g.refuse(f"'{name}' must be constant")
    return numbers


def constant_integer(g: GraphContext, value: Value, name: str) -> int:
    """The single element of a constant integer tensor."""
    numbers = constant_integers(g, value, name)
    if len(numbers) != 1:
        raise g.refuse(f"'{name}' must have one element, not {len(numbers)}")
    return numbers[0]


def number(g: GraphContext, value: Value) -> Size:
    """Convert a tensor of one integer to a size: an int, or a zero-dim INT64 value."""
    numbers = integers(g, value)
    if numbers is not None and len(numbers) == 1:
        return numbers[0]
    # The operand may also be a vector of one element, or of unknown rank.
    size = g.cast(value, DataType.INT64)
    return (
        size if g.rank(value) == 0 else set_shape(g.op("Reshape", size, g.constant([], DataType.INT64)), [])
    )


def sizes(g: GraphContext, value: Value) -> list[int] | Value:
    """Convert a shape operand: a list of ints if it is constant, else an INT64 vector."""
    numbers = integers(g, value)
    if numbers is not None:
        return numbers
    vector_int64 = g.cast(value, DataType.INT64)
    # TensorFlow accepts a scalar as a shape of one dimension.
    return g.op("Reshape", vector_int64, [1]) if g.rank(value) == 0 else vector_int64


def elements(g: GraphContext, value: Value, count: int | None = None) -> list[Size] | None:
    """The elements of a vector of integers, one by one; None if their number is unknown.

    Args:
        count: their number, if the caller knows it.
    """
    constant = integers(g, value)
    if constant is not None:
        return list(constant)
    traced = traced_elements(g, value)
    if traced is not None:
        return traced
    shape = g.shape(value)
    length = shape[0] if shape is not None and len(shape) == 1 and isinstance(shape[0], int) else count
    if length is None:
        return None
    vector_int64 = g.cast(value, DataType.INT64)
    return [fold_size(g, g.op("Gather", vector_int64, index, axis=0)) for index in range(length)]


def known_elements(g: GraphContext, value: Value, count: int | None = None) -> list[Size]:
    """Like `elements`, but refuse a vector whose number of elements is unknown."""
    items = elements(g, value, count)
    if items is None:
        raise g.refuse("the number of dimensions is unknown")
    return items


def shape_operand(g: GraphContext, value: Value) -> Sequence[Size] | Value:
    """A shape operand: its sizes one by one if their number is known, else an INT64 vector."""
    items = elements(g, value)
    return sizes(g, value) if items is None else items


def vector(g: GraphContext, items: Sequence[Size] | Value) -> Value:
    """An INT64 vector of sizes."""
    return items if isinstance(items, Value) else g.stack(items)


def check_policy(g: GraphContext, bad_indices_policy: str) -> None:
    """Check the policy of an operator for indices out of range."""
    if bad_indices_policy not in ("", "DEFAULT", "ERROR", "IGNORE"):
        raise g.refuse(f"bad_indices_policy '{bad_indices_policy}' does not exist")
    if bad_indices_policy == "IGNORE":
        raise g.refuse(
            "bad_indices_policy IGNORE is not supported, because ONNX does not allow indices out of range"
        )


def concatenate_strings(g: GraphContext, x: Value, y: Value) -> Value:
    """Concatenate two tensors of strings elementwise."""
    shapes = g.shape(x), g.shape(y)
    known_shapes = [shape for shape in shapes if shape is not None]
    joined_shape = broadcast(known_shapes) if len(known_shapes) == 2 else None
    return set_shape(g.op("StringConcat", x, y), joined_shape)


def without_axis(g: GraphContext, value: Value, axis: int) -> list[int | ir.SymbolicDim] | None:
    """The sizes of a value except for one axis."""
    shape = g.shape(value)
    return (
        None if shape is None else [size for dim, size in enumerate(shape) if dim != g.axis(axis, len(shape))]
    )


def flatten(g: GraphContext, value: Value) -> Value:
    """Reshape a tensor to one dimension."""
    if g.rank(value) == 1:
        return value
    return set_shape(g.op("Reshape", value, [-1]), [None])


def front_axis(g: GraphContext, axis: int, *values: Value, added: int = 0) -> int:
    """Convert an axis to a non-negative one, by the rank of any of the values.

    Args:
        added: the number of dimensions that the result has beyond those of the values; the axis may be one
            of them.
    """
    ranks = [g.rank(value) for value in values]
    rank = next((rank for rank in ranks if rank is not None), None)
    if rank is not None:
        return g.axis(axis, rank + added)
    if axis >= 0:
        return axis
    position: Any = g.call("composed::axis_from_the_end", axis=axis)
    return int(position)


@onnx_symbolic("composed::axis_from_the_end")
def axis_from_the_end(g: GraphContext, axis: int) -> int:
    raise g.refuse("the rank must be known for a negative axis", first_opset=11)


@onnx_symbolic("composed::axis_from_the_end", opset=11)
def negative_axis(g: GraphContext, axis: int) -> int:
    """From opset 11 axes may be negative."""
    return axis


_SIZES = (DataType.INT32, DataType.INT64)


def _size_vector_producer(value: Value) -> ir.Node | None:
    """The node that produces a vector of sizes, ignoring casts between integer types."""
    node = value.producer()
    while node is not None and node.op_type == "Cast":
        source = node.inputs[0]
        if source is None or source.dtype not in _SIZES:
            return None
        node = source.producer()
    return node


def traced_elements(g: GraphContext, value: Value) -> list[Size] | None:
    """The elements of a vector of sizes that a Concat of scalars or a Shape produces; None for others."""
    if g.dtype(value) not in _SIZES:
        return None
    node = _size_vector_producer(value)
    if node is not None and node.op_type == "Shape" and not node.attributes:
        source = node.inputs[0]
        assert source is not None
        rank = g.rank(source)
        return None if rank is None else [g.size(source, axis) for axis in range(rank)]
    if node is None or node.op_type != "Concat":
        return _single_element(g, value)
    collected: list[Size] = []
    for part in node.inputs:
        assert part is not None
        constant = integers(g, part) if g.is_foldable(part) else None
        part_elements: list[Size] | None = (
            list(constant) if constant is not None else traced_elements(g, part)
        )
        if part_elements is None:
            return None
        collected += part_elements
    return collected


def _single_element(g: GraphContext, value: Value) -> list[Size] | None:
    """The element of a vector of length one, in a list; None for other values."""
    if value.shape is None or value.shape.dims != (1,):
        return None
    node = value.producer()
    if node is None:
        return None
    source = node.inputs[0] if node.op_type == "Unsqueeze" else None
    return [number(g, source if source is not None else value)]


def range_vector(g: GraphContext, count: Size) -> Value:
    """The numbers from 0 to `count - 1`."""
    return g.constant(g.call("sym::range", start=0, end=count))


def as_vector(g: GraphContext, items: Sequence[Size], like: Value) -> Value:
    """Convert sizes to a vector with the element type of their source."""
    return g.cast(g.stack(items), g.dtype(like) or DataType.INT32)


def is_dimension(size: Size, dim: int | ir.SymbolicDim, depth: int = 8) -> bool:
    """Whether a size certainly equals a dimension, also through Min and Max."""
    if isinstance(size, int) or isinstance(dim, int):
        return isinstance(size, int) and size == dim
    size = _before_casts(size)
    if same_size(dimension(size), dim):
        return True
    operation, operands = _min_or_max(size)
    # The depth bounds the work for a long chain of Min and Max.
    if not operands or depth == 0:
        return False
    equal = [is_dimension(value, dim, depth - 1) for value in operands]
    unequal = [value for value, is_equal in zip(operands, equal, strict=True) if not is_equal]
    if operation == "Min":
        return any(equal) and all(_is_at_least(value, dim, depth - 1) for value in unequal)
    return any(equal) and all(map(_is_zero, unequal))


def _is_at_least(size: Value, dim: ir.SymbolicDim, depth: int) -> bool:
    """Whether a size is certainly not less than a dimension."""
    if is_dimension(size, dim, depth):
        return True
    operation, operands = _min_or_max(_before_casts(size))
    if operation != "Max" or depth <= 0:
        return False
    return any(_is_at_least(value, dim, depth - 1) for value in operands)


def _min_or_max(size: Value) -> tuple[str, list[Value]]:
    """`Min` or `Max` and its operands, if a size is the result of one, or of a Where with that meaning."""
    node = size.producer()
    if node is not None and node.op_type in ("Max", "Min"):
        return node.op_type, [value for value in node.inputs if value is not None]
    # Where Min and Max take no integers, they are composed of a comparison and Where.
    if node is None or node.op_type != "Where" or node.inputs[0] is None:
        return "", []
    comparison = node.inputs[0].producer()
    if comparison is None or comparison.op_type not in ("Less", "Greater"):
        return "", []
    branches = [value for value in node.inputs[1:] if value is not None]
    compared_values = [value for value in comparison.inputs if value is not None]
    if [id(_before_casts(value)) for value in branches] != [
        id(_before_casts(value)) for value in compared_values
    ]:
        return "", []
    return ("Min" if comparison.op_type == "Less" else "Max"), branches


def _is_zero(size: Value) -> bool:
    array = None if size.const_value is None else size.const_value.numpy()
    return array is not None and not array.any()


def _before_casts(size: Value) -> Value:
    """Trace a size back through casts between integer types, Squeeze, Unsqueeze and Reshape."""
    node = size.producer()
    while node is not None and node.op_type in ("Cast", "Squeeze", "Unsqueeze", "Reshape"):
        source = node.inputs[0]
        if source is None or (source.dtype is not None and source.dtype not in _SIZES):
            break
        size, node = source, source.producer()
    return size
