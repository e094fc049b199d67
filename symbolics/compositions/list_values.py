"""Represents lists of unknown length in ONNX: as a sequence, or as one tensor of stacked elements.

A list of numbers is always a one-dimensional tensor. A list of tensors is stacked if its elements are known
to have the same shape, else it is a sequence (from opset 11). A list with known elements is a `KnownList`,
and is converted only when it is combined with one that is not.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import onnx_ir as ir

from ...registration import DataType, GraphContext, Number, Value, onnx_symbolic
from .branches import choose
from .size_arithmetic import (
    UNKNOWN,
    Dim,
    Size,
    compute,
    fold_size,
    is_non_negative,
    mark_non_negative,
    same_size,
)


class KnownList(Value):
    """A list with known elements. It is not a value of the ONNX graph.

    Attributes:
        items: its elements.
    """

    def __init__(self, items: Iterable[Value], dtype: DataType | None, shape: ir.Shape | None = None):
        super().__init__(type=None if dtype is None else ir.SequenceType(ir.TensorType(dtype)), shape=shape)
        self.items = list(items)


def is_sequence(self: Value) -> bool:
    """Whether a list is an ONNX sequence."""
    return isinstance(self.type, ir.SequenceType) and not isinstance(self, KnownList)


def is_stacked(self: Value) -> bool:
    """Whether a list is one tensor of stacked elements."""
    return not isinstance(self.type, ir.SequenceType) and not isinstance(self, KnownList)


def common_shape(shapes: Sequence[ir.Shape | Sequence[Dim] | None]) -> list[Dim] | None:
    """The common part of several shapes: differing sizes become unknown; None if the ranks differ."""
    if not shapes or any(shape is None for shape in shapes):
        return None
    first, *following = [list(shape) for shape in shapes if shape is not None]
    if any(len(shape) != len(first) for shape in following):
        return None
    return [
        size if all(same_size(size, shape[i]) for shape in following) else UNKNOWN
        for i, size in enumerate(first)
    ]


def is_settled(shape: ir.Shape | Sequence[Dim] | None) -> bool:
    """Whether every size of a shape is known, as a number or by name."""
    return shape is not None and all(isinstance(size, int) or size.value is not None for size in shape)


def element_shape(self: Value) -> list[Dim] | None:
    """The shape of a list's elements, as far as it is known."""
    if isinstance(self, KnownList) and self.items:
        return common_shape([item.shape for item in self.items])
    if self.shape is None:
        return None
    # The shape of a sequence is that of its elements.
    return list(self.shape)[1:] if is_stacked(self) else list(self.shape)


def may_stack(self: Value) -> bool:
    """Whether the elements of a list are known to have the same shape, as in every stacked list."""
    if not isinstance(self, KnownList):
        return is_stacked(self)
    # Equal names are equal sizes; unknown sizes may differ, and Concat would fail.
    return len(self.items) == 1 or is_settled(element_shape(self))


def element(g: GraphContext, item: Value | Number, self: Value) -> Value:
    """An element for a list; a number becomes a tensor of the list's element type.

    Raises:
        UnsupportedError: it has another element type.
    """
    if not isinstance(item, Value):
        return g.constant(item, self.dtype)
    if item.dtype is not None and self.dtype is not None and item.dtype != self.dtype:
        raise g.refuse(
            f"an element of {item.dtype.name} is added to a list of {self.dtype.name}, but an ONNX "
            "sequence has one element type: convert the element first"
        )
    return item


def stack(g: GraphContext, items: Sequence[Value]) -> Value:
    """Stack values of the same shape along a new first dimension."""
    expanded = [g.op("Unsqueeze", item, axes=[0]) for item in items]
    return expanded[0] if len(expanded) == 1 else g.op("Concat", *expanded, axis=0)


def _dtype_of_empty(g: GraphContext, self: Value, dtype: DataType | None) -> DataType:
    dtype = self.dtype or dtype
    if dtype is None:
        raise g.refuse(
            "a list may be empty, so the type of its elements is unknown: begin it with an element"
        )
    return dtype


def as_stacked(
    g: GraphContext, self: Value, shape: ir.Shape | Sequence[Dim] | None = None, dtype: DataType | None = None
) -> Value:
    """A list as one tensor. Without elements, every size that is not a number becomes 0.

    Args:
        shape, dtype: the shape and element type of its elements, for a list that may be empty.

    Raises:
        UnsupportedError: the list has no elements, and their shape or type is unknown.
    """
    if is_stacked(self):
        return self
    if isinstance(self, KnownList) and self.items:
        return stack(g, self.items)
    shape = shape if shape is not None else element_shape(self)
    if shape is None:
        raise g.refuse(
            "a list that may be empty cannot be stacked, because the rank of its elements is unknown",
            first_opset=13,
        )
    sizes = [size if isinstance(size, int) else 0 for size in shape]
    empty = g.constant(np.empty((0, *sizes)), _dtype_of_empty(g, self, dtype))
    if isinstance(self, KnownList):
        return empty
    result = g.op(
        "If",
        g.op("Equal", g.op("SequenceLength", self), 0),
        then_branch=g.subgraph(lambda: [empty], name="empty"),
        else_branch=g.subgraph(
            lambda: [g.op("ConcatFromSequence", self, axis=0, new_axis=1)], name="stacked"
        ),
    )
    result.type, result.shape = empty.type, ir.Shape([None, *(element_shape(self) or shape)])
    return result


def as_sequence(g: GraphContext, self: Value, dtype: DataType | None = None) -> Value:
    """A list as a sequence, which begins at opset 11.

    Args:
        dtype: the element type of its elements, for a list that may be empty.

    Raises:
        EmissionError: the opset is below 11.
        UnsupportedError: the list has no elements, and their type is unknown.
    """
    if is_sequence(self):
        return self
    if isinstance(self, KnownList):
        if self.items:
            result = g.op("SequenceConstruct", *self.items)
        else:
            result = g.op("SequenceEmpty", dtype=int(_dtype_of_empty(g, self, dtype)))
    elif not g.has_kernel("SplitToSequence", self):
        return _append_in_loop(g, as_sequence(g, KnownList([], self.dtype)), self, positions(g, self))
    else:
        result = g.op("SplitToSequence", self, axis=0, keepdims=0)
    shape = element_shape(self)
    result.shape = None if shape is None else ir.Shape(shape)
    return result


def tensor_or_sequence(g: GraphContext, self: Value) -> Value:
    """A list as a graph value: a stacked tensor if possible, else a sequence."""
    return as_stacked(g, self) if may_stack(self) else as_sequence(g, self)


def length(g: GraphContext, self: Value) -> Size:
    """The number of elements."""
    if isinstance(self, KnownList):
        return len(self.items)
    if is_sequence(self):
        return g.op("SequenceLength", self)
    return g.size(self, 0)


def element_at(g: GraphContext, self: Value, index: Size) -> Value:
    """One element; a negative index counts from the end."""
    index = fold_size(g, index)
    if isinstance(self, KnownList):
        if isinstance(index, int):
            if not -len(self.items) <= index < len(self.items):
                raise g.refuse(f"index {index} is outside a list of {len(self.items)}")
            return self.items[index]
        if not may_stack(self):
            return g.call("composed::one_of", items=self.items, index=position(g, self, index))
        self = as_stacked(g, self)
    if is_sequence(self):
        result = g.op("SequenceAt", self, g.constant(index, DataType.INT64))
        result.shape = self.shape
        return result
    return g.call("aten::select", self=self, dim=0, index=index)


@onnx_symbolic("composed::one_of")
def one_of(g: GraphContext, items: list[Value], index: Value) -> Value:
    """One of several tensors of any shapes, with an If branch for each."""
    first, *remaining_items = items
    if not remaining_items:
        return first
    shape = common_shape([item.shape for item in remaining_items])
    [result] = choose(
        g,
        g.op("Equal", index, 0),
        [lambda: [first], lambda: [one_of(g, remaining_items, g.op("Sub", index, 1))]],
        [[first.shape], [None if shape is None else ir.Shape(shape)]],
    )
    items_shape = common_shape([item.shape for item in items])
    result.type, result.shape = first.type, None if items_shape is None else ir.Shape(items_shape)
    return result


@onnx_symbolic("composed::one_of", opset=11)
def one_of_11(g: GraphContext, items: list[Value], index: Value) -> Value:
    """From 11: SequenceAt."""
    return element_at(g, g.op("SequenceConstruct", *items), index)


def position(g: GraphContext, self: Value, index: Size) -> Size:
    """Convert an index that may be negative to a position."""
    index = fold_size(g, index)
    if is_non_negative(index):
        return index
    if isinstance(index, int):
        return compute(g, "add", length(g, self), index)
    return g.call("composed::wrap", index=index, size=length(g, self))


def part(g: GraphContext, self: Value, start: Size | None, end: Size | None) -> Value:
    """Consecutive elements of a stacked list."""
    return g.call("aten::slice", self=self, dim=0, start=start, end=end)


def _expand_like(g: GraphContext, self: Value, template: Value) -> Value:
    """A stacked list, expanded to the element sizes of another one.

    The elements of an empty list may have sizes of 0. If elements have different sizes, the runtime raises an
    error.
    """
    shape, template_shape = element_shape(self), element_shape(template)
    if (
        shape is None
        or template_shape is None
        or (is_settled(shape) and common_shape([shape, template_shape]) == shape)
    ):
        return self
    sizes = [_dimensions(g, item) for item in (self, template)]
    # The larger of both sizes: an empty list has 0 where its elements' sizes were unknown.
    count = g.op("Slice", g.op("Shape", self), starts=[0], ends=[1], axes=[0])
    target = g.op("Concat", count, g.call("sym::max", a=sizes[0], b=sizes[1]), axis=0)
    result = g.op("Reshape", self, target)
    result.shape = ir.Shape([self.shape[0], *(common_shape([shape, template_shape]) or template_shape)])  # type: ignore[index]
    return result


def _dimensions(g: GraphContext, self: Value) -> Value:
    """The shape of the elements of a stacked list, as a tensor."""
    return g.op("Slice", g.op("Shape", self), starts=[1], ends=[np.iinfo(np.int64).max], axes=[0])


def concatenate_lists(g: GraphContext, self: Value, other: Value) -> Value:
    """The concatenation of two lists."""
    if isinstance(self, KnownList) and isinstance(other, KnownList):
        return KnownList([*self.items, *other.items], self.dtype or other.dtype, self.shape)
    # An empty list has no element type or shape that could disagree.
    for empty, other_list in ((self, other), (other, self)):
        if isinstance(empty, KnownList) and not empty.items:
            return other_list
    if may_stack(self) and may_stack(other):
        return concatenate_stacked(g, as_stacked(g, self), as_stacked(g, other))
    if isinstance(other, KnownList):
        result = as_sequence(g, self)
        for item in other.items:
            result = insert_element(g, result, item)
        return result
    return _append_in_loop(g, as_sequence(g, self), other, positions(g, other))


def concatenate_stacked(g: GraphContext, self: Value, following: Value) -> Value:
    """The concatenation of two stacked lists; an empty one may have any element sizes."""
    first, second = _expand_like(g, self, following), _expand_like(g, following, self)
    result = g.op("Concat", first, second, axis=0)
    shape = common_shape([element_shape(first), element_shape(second)])
    if result.producer() is not None:
        result.shape = None if shape is None else ir.Shape([None, *shape])
    return result


def merge_dimensions(g: GraphContext, self: Value, axis: int = 0) -> Value:
    """Merge two adjacent dimensions."""
    if self.shape is None:
        if axis != 0:
            raise g.refuse("the rank of the elements of a list is unknown")
        # Without a rank the trailing sizes cannot be listed, so they are sliced from the shape.
        count = compute(g, "mul", g.size(self, 0), g.size(self, 1))
        trailing_sizes = g.op(
            "Slice", g.op("Shape", self), starts=[2], ends=[np.iinfo(np.int64).max], axes=[0]
        )
        return g.op("Reshape", self, g.op("Concat", g.stack([count]), trailing_sizes, axis=0))
    sizes = [g.size(self, dim) for dim in range(len(self.shape))]
    merged_size = compute(g, "mul", sizes[axis], sizes[axis + 1])
    return g.call("aten::reshape", self=self, shape=[*sizes[:axis], merged_size, *sizes[axis + 2 :]])


def append_element(g: GraphContext, self: Value, item: Value) -> Value:
    """A list with an element of any sizes appended."""
    if isinstance(self, KnownList):
        return KnownList([*self.items, item], self.dtype or item.dtype, self.shape)
    if is_sequence(self):
        return insert_element(g, self, item)
    expanded = stack(g, [item])
    result = g.op("Concat", _expand_like(g, self, expanded), expanded, axis=0)
    shape = common_shape([element_shape(self), item.shape])
    if result.producer() is not None:
        result.shape = None if shape is None else ir.Shape([None, *shape])
    return result


def insert_element(g: GraphContext, self: Value, item: Value, index: Size | None = None) -> Value:
    """A sequence with an element inserted at a position, by default at the end."""
    result = g.op("SequenceInsert", self, item, None if index is None else g.constant(index, DataType.INT64))
    shape = common_shape([self.shape, item.shape])
    result.shape = None if shape is None else ir.Shape(shape)
    return result


def positions(g: GraphContext, self: Value) -> Value:
    """The positions of all elements, as a one-dimensional tensor."""
    return g.call("sym::range", start=0, end=length(g, self))


def select_elements(g: GraphContext, self: Value, positions: Value) -> Value:
    """The elements at the given positions, in that order.

    Args:
        positions: one-dimensional, not negative.
    """
    self = tensor_or_sequence(g, self) if isinstance(self, KnownList) else self
    if is_stacked(self):
        return g.op("Gather", self, positions, axis=0)
    return _append_in_loop(g, as_sequence(g, KnownList([], self.dtype, self.shape)), self, positions)


def _append_in_loop(g: GraphContext, sequence: Value, self: Value, positions: Value) -> Value:
    """A sequence with the elements at positions of another list appended."""

    def build(iteration: Value, keep_going: Value, items: Value) -> list[Value]:
        # A position needs no test for a negative index in the loop.
        index = mark_non_negative(g.op("Gather", positions, iteration, axis=0))
        return [keep_going, insert_element(g, items, element_at(g, self, index))]

    formal = Value(name="list", type=sequence.type)
    body = g.subgraph(build, [*loop_inputs(), formal], "elements")
    result = g.op("Loop", g.size(positions, 0), None, sequence, body=body)
    shape = common_shape([element_shape(self), sequence.shape])
    result.type, result.shape = sequence.type, None if shape is None else ir.Shape(shape)
    return result


def loop_inputs(condition: str = "condition_in") -> list[Value]:
    """The first two inputs of every Loop body: the iteration number and the condition."""
    return [
        Value(name="iteration", type=ir.TensorType(DataType.INT64), shape=ir.Shape([])),
        Value(name=condition, type=ir.TensorType(DataType.BOOL), shape=ir.Shape([])),
    ]


@onnx_symbolic("composed::copied_list")
def copied_list(g: GraphContext, self: Value) -> Value:
    """A copy of a sequence. Identity takes only tensors, so an element is inserted and removed again."""
    one_more = g.op("SequenceInsert", self, g.constant(0, self.dtype))
    result = g.op("SequenceErase", one_more)
    result.shape = self.shape
    return result


@onnx_symbolic("composed::copied_list", opset=14)
def copied_list_14(g: GraphContext, self: Value) -> Value:
    """From 14: Identity."""
    return g.op("Identity", self)
