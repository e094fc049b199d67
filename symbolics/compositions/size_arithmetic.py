"""Arithmetic on sizes: Python ints stay Python ints, symbolic ints become nodes."""

import math
import operator
import re
from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from ...registration import GraphContext, Value, facts_of, state
from ...registration.kinds import is_value
from ...registration.size_algebra.dimensions import UNKNOWN as UNKNOWN
from ...registration.size_algebra.dimensions import Dim as Dim
from ...registration.size_algebra.dimensions import same_size as same_size

Size = int | Value
"""A size: an int, or a zero-dim INT64 value."""

_EXACT: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "min": min,
    "max": max,
}
_NEUTRAL = {"add": 0, "sub": 0, "mul": 1, "floordiv": 1}
_OF_DATA = re.compile(r"\bu[0-9]+\b")
"""torch's names of sizes that depend on data."""


def fold_size(g: GraphContext, size: Size) -> Size:
    """The size as an int if it is constant, else unchanged."""
    if is_value(size) and g.is_foldable(size):
        array = g.constant_value(size)
        if array is not None and array.size == 1 and array.dtype.kind in "iu":
            return int(array.item())
    return size


def compute(g: GraphContext, operation: str, a: Size, b: Size) -> Size:
    """`a <operation> b` in Python's arithmetic: add, sub, mul, floordiv, mod, min, max."""
    a, b = fold_size(g, a), fold_size(g, b)
    if isinstance(a, int) and isinstance(b, int):
        return _EXACT[operation](a, b)
    # Neutral operands leave no node, so that exported graphs of static models hold no shape arithmetic.
    if isinstance(b, int) and _NEUTRAL.get(operation) == b:
        return a
    if isinstance(a, int) and operation in ("add", "mul") and _NEUTRAL[operation] == a:
        return b
    return g.call(f"sym::{operation}", a=a, b=b)


def product(g: GraphContext, sizes: Sequence[Size]) -> Size:
    """The product of sizes, 1 for none."""
    result: Size = 1
    for size in sizes:
        result = compute(g, "mul", result, size)
    return result


def sizes_of(g: GraphContext, value: Value) -> list[Size]:
    """Every size of a value of known rank."""
    return [g.size(value, dim) for dim in range(known_rank(g, value))]


def where_true(g: GraphContext, mask: Value) -> Value:
    """The positions of the nonzero elements of a one-dimensional tensor."""
    result = g.op("Squeeze", g.op("NonZero", mask), axes=[0])
    if result.producer() is not None:
        result.shape = ir.Shape([None])
    return result


def known_rank(g: GraphContext, value: Value) -> int:
    """The rank of a value.

    Raises:
        UnsupportedError: it is unknown.
    """
    rank = g.rank(value)
    if rank is None:
        raise g.refuse("the rank of its input is unknown")
    return rank


def static_size(g: GraphContext, value: Value, dim: int) -> int | None:
    """One size of a value if it is a number, else None; the dimension is not negative."""
    shape = g.shape(value)
    size = None if shape is None else shape[dim]
    return size if isinstance(size, int) else None


def axis(g: GraphContext, value: Value, dim: int) -> int:
    """A non-negative dimension; a zero-dim tensor counts as one-dimensional.

    Raises:
        UnsupportedError: the value does not have it; PyTorch does not check this for some empty tensors.
    """
    if dim >= 0 and g.rank(value) is None:
        return dim
    return g.axis(dim, max(known_rank(g, value), 1))


def axis_from_front(g: GraphContext, value: Value, axis: int, added: int = 0) -> int:
    """A non-negative axis of a value; unlike in PyTorch, a zero-dim tensor has none.

    Args:
        added: how many dimensions the result has more than the value; the axis may be one of them.

    Raises:
        UnsupportedError: the value does not have it, or it counts from the last one of an unknown number.
    """
    rank = g.rank(value)
    if rank is None and axis >= 0:
        return axis
    return g.axis(axis, known_rank(g, value) + added)


def origin(size: Size) -> tuple[Value, int] | None:
    """The value and the dimension that a symbolic int was read from; None if it was computed otherwise."""
    node = None if isinstance(size, int) else size.producer()
    while node is not None and node.op_type in ("Squeeze", "Unsqueeze", "Identity"):
        node = node.inputs[0].producer() if node.inputs[0] is not None else None
    # A size is read as Gather(Shape(x), dim), maybe with the dimension removed or added.
    if node is None or node.op_type != "Gather":
        return None
    data, indices = node.inputs[:2]
    shape = data.producer() if data is not None else None
    if shape is None or shape.op_type != "Shape" or indices is None or indices.const_value is None:
        return None
    source, position = shape.inputs[0], indices.const_value.numpy()
    if source is None or source.shape is None or position.size != 1 or "start" in shape.attributes:
        return None
    return source, int(position.item())


def dimension(size: Size) -> Dim:
    """Return the int, or the dimension that the size was read from; an unknown dimension otherwise."""
    if isinstance(size, int):
        return size if size >= 0 else UNKNOWN
    value_and_axis = origin(size)
    return UNKNOWN if value_and_axis is None else value_and_axis[0].shape[value_and_axis[1]]  # type: ignore[index]


_ALL_INPUTS = frozenset({"Add", "Mul", "Div", "Min", "Sum", "Concat"})
_FIRST_INPUT = frozenset(
    "Cast Expand Flatten Floor Gather GatherElements Identity Reshape Slice Squeeze Tile Transpose "
    "Unsqueeze".split()
)


def depends_on_data(size: Dim) -> bool:
    """Whether a size depends on elements, as the number of true elements of a mask does; it may be 0."""
    return not isinstance(size, int) and _OF_DATA.search(size.value or "") is not None


def mark_non_negative(value: Value) -> Value:
    """Mark a value without a known producer, such as an iteration number, as non-negative."""
    return state(value, bounds=(0, math.inf))


def is_non_negative(size: Size | None, depth: int = 12) -> bool:
    """Whether a number, or every element of a tensor, is known to be non-negative from its producers."""
    if not isinstance(size, Value):
        return size is not None and size >= 0
    if size.const_value is not None:
        array = size.const_value.numpy()
        return array.dtype.kind in "iu" and bool(np.all(array >= 0))
    if facts_of(size).bounds[0] >= 0:
        return True
    node = size.producer()
    if node is None or depth == 0:
        return False
    inputs = list(node.inputs)
    if node.op_type in ("Shape", "Size", "NonZero", "ArgMax", "ArgMin"):
        return True
    if node.op_type == "TopK" and size.index() == 1:
        # The second output has positions.
        return True
    if node.op_type in _FIRST_INPUT:
        return is_non_negative(inputs[0], depth - 1)
    if node.op_type in _ALL_INPUTS:
        return all(is_non_negative(operand, depth - 1) for operand in inputs)
    if node.op_type == "Max":
        return any(is_non_negative(operand, depth - 1) for operand in inputs)
    if node.op_type == "Where":
        return all(is_non_negative(operand, depth - 1) for operand in inputs[1:])
    if node.op_type == "Mod":
        return not node.attributes.get("fmod") and is_non_negative(inputs[1], depth - 1)
    if node.op_type == "Range":
        return is_non_negative(inputs[0], depth - 1) and is_non_negative(inputs[2], depth - 1)
    return False


def set_shape(value: Value, shape: Sequence[int | ir.SymbolicDim | None] | None) -> Value:
    """Set the shape of the value if emission did not infer it, because a later operator may need the rank."""
    if value.shape is None and shape is not None:
        value.shape = ir.Shape(shape)
    return value
