"""The `list` dialect: Python lists of tensors or numbers with unknown length."""

import onnx_ir as ir

from ...registration import DataType, GraphContext, Number, Value, onnx_symbolic
from ..compositions.list_values import (
    KnownList,
    append_element,
    concatenate_lists,
    element,
    element_at,
    insert_element,
    is_stacked,
    length,
    part,
    position,
    select_elements,
    stack,
    tensor_or_sequence,
)
from ..compositions.size_arithmetic import Size, compute, fold_size, is_non_negative

_END = 2**63 - 1
"""TorchScript's value for the end of a slice without end."""


@onnx_symbolic("list::construct")
def construct(g: GraphContext, items: list[Value | Number]) -> Value:
    """A list of tensors stays a `KnownList`; a list of numbers becomes a tensor."""
    [expected] = g.expected
    if not isinstance(expected.type, ir.TensorType):
        tensors = [item for item in items if isinstance(item, Value)]
        dtype = expected.dtype or (tensors[0].dtype if tensors else None)
        result = KnownList([], dtype, expected.shape)
        result.items = [element(g, item, result) for item in items]
        return result
    if expected.dtype == DataType.INT64:
        return g.stack(items)  # type: ignore[arg-type]
    if not items:
        return g.constant([], expected.dtype)
    return stack(g, [g.constant(item, expected.dtype) for item in items])


onnx_symbolic("list::len")(length)
onnx_symbolic("list::getitem")(element_at)
onnx_symbolic("list::extend")(concatenate_lists)


@onnx_symbolic("list::append")
def append(g: GraphContext, self: Value, item: Value | Number) -> Value:
    return append_element(g, self, element(g, item, self))


def _make_changeable(g: GraphContext, self: Value, index: Size) -> Value:
    """Make a list changeable at an index; a `KnownList` stays one if the index is constant."""
    return tensor_or_sequence(g, self) if isinstance(self, KnownList) and isinstance(index, Value) else self


@onnx_symbolic("list::insert")
def insert(g: GraphContext, self: Value, index: int | Value, item: Value | Number) -> Value:
    """As in Python, an index beyond an end means that end."""
    index, item = fold_size(g, index), element(g, item, self)
    self = _make_changeable(g, self, index)
    if isinstance(self, KnownList) and isinstance(index, int):
        items = list(self.items)
        items.insert(index, item)
        return KnownList(items, self.dtype, self.shape)
    if is_stacked(self):
        return _replace_part(g, self, index, index, item)
    size = length(g, self)
    if not is_non_negative(index):
        index = compute(g, "max", position(g, self, index), 0)
    return insert_element(g, self, item, compute(g, "min", index, size))


def _replace_part(g: GraphContext, self: Value, start: Size, end: Size, item: Value | None) -> Value:
    """A stacked list with a part replaced by an element, or removed."""
    result = part(g, self, None, start)
    if item is not None:
        result = append_element(g, result, item)
    return concatenate_lists(g, result, part(g, self, end, None))


@onnx_symbolic("list::set")
def set_(g: GraphContext, self: Value, index: int | Value, item: Value | Number) -> Value:
    index, item = fold_size(g, index), element(g, item, self)
    self = _make_changeable(g, self, index)
    if isinstance(self, KnownList) and isinstance(index, int):
        element_at(g, self, index)
        items = list(self.items)
        items[index] = item
        return KnownList(items, self.dtype, self.shape)
    offset = position(g, self, index)
    if is_stacked(self):
        return _replace_part(g, self, offset, compute(g, "add", offset, 1), item)
    # ONNX sequences have no operator that replaces an element.
    return insert_element(g, _erase_element(g, self, offset), item, offset)


def _erase_element(g: GraphContext, self: Value, index: Size) -> Value:
    result = g.op("SequenceErase", self, g.constant(index, DataType.INT64))
    result.shape = self.shape
    return result


@onnx_symbolic("list::delete")
def delete(g: GraphContext, self: Value, index: int | Value) -> Value:
    index = fold_size(g, index)
    self = _make_changeable(g, self, index)
    if isinstance(self, KnownList) and isinstance(index, int):
        element_at(g, self, index)
        items = list(self.items)
        del items[index]
        return KnownList(items, self.dtype, self.shape)
    if not is_stacked(self):
        return _erase_element(g, self, index)
    offset = position(g, self, index)
    return _replace_part(g, self, offset, compute(g, "add", offset, 1), None)


@onnx_symbolic("list::clear")
def clear(g: GraphContext, self: Value) -> Value:
    if isinstance(g.expected[0].type, ir.TensorType):
        return g.constant([], self.dtype)
    return KnownList([], self.dtype, g.expected[0].shape)


@onnx_symbolic("list::slice")
def slice_(
    g: GraphContext,
    self: Value,
    start: int | Value | None = None,
    end: int | Value | None = None,
    step: int = 1,
) -> Value:
    """As in Python, bounds beyond an end mean that end, and a negative step goes backwards."""
    start = None if start is None else fold_size(g, start)
    end = None if end is None or end == _END else fold_size(g, end)
    if isinstance(self, KnownList):
        if not isinstance(start, Value) and not isinstance(end, Value):
            return KnownList(self.items[start:end:step], self.dtype, self.shape)
        if not self.items:
            return self
        self = tensor_or_sequence(g, self)
    if is_stacked(self) and step > 0:
        return g.call("aten::slice", self=self, dim=0, start=start, end=end, step=step)
    size = length(g, self)
    first, last = (0, size) if step > 0 else (compute(g, "sub", size, 1), -1)
    start = first if start is None else _bound(g, start, size, step)
    end = last if end is None else _bound(g, end, size, step)
    if step > 0:
        return select_elements(g, self, g.call("sym::range", start=start, end=end, step=step))
    # onnxruntime turns a Gather by a Range into a Slice, where an end of -1 has another meaning.
    distances = g.call("sym::range", start=0, end=compute(g, "sub", start, end), step=-step)
    return select_elements(g, self, g.op("Sub", start, distances))


def _bound(g: GraphContext, bound: Size, size: Size, step: int) -> Size:
    """Convert a bound of a slice to a position from 0 to the size, or one less for a negative step."""
    if not is_non_negative(bound):
        if isinstance(bound, int):
            bound = compute(g, "add", bound, size)
        else:
            bound = g.call("composed::wrap", index=bound, size=size)
        bound = compute(g, "max", bound, 0 if step > 0 else -1)
    return compute(g, "min", bound, size if step > 0 else compute(g, "sub", size, 1))


@onnx_symbolic("list::reverse")
def reverse(g: GraphContext, self: Value) -> Value:
    return g.call("list::slice", self=self, step=-1)


@onnx_symbolic("list::repeat")
def repeat(g: GraphContext, self: Value, times: int | Value) -> Value:
    """A negative number of repetitions counts as 0."""
    times = fold_size(g, times)
    if isinstance(self, KnownList):
        if isinstance(times, int):
            return KnownList(self.items * times, self.dtype, self.shape)
        if not self.items:
            return self
        self = tensor_or_sequence(g, self)
    size = length(g, self)
    count = compute(g, "mul", size, times if is_non_negative(times) else compute(g, "max", times, 0))
    numbers = g.call("sym::range", start=0, end=count)
    # Avoids a remainder by 0 for an empty list.
    return select_elements(g, self, g.call("sym::mod", a=numbers, b=compute(g, "max", size, 1)))


@onnx_symbolic("list::from_tensor")
def from_tensor(g: GraphContext, self: Value, dim: int = 0) -> Value:
    """The slices of a tensor along a dimension."""
    return self if dim == 0 else g.call("aten::movedim", self=self, source=dim, destination=0)


@onnx_symbolic("list::from_parts")
def from_parts(
    g: GraphContext, self: Value, split_size: int | Value | list[int | Value], dim: int = 0
) -> Value:
    """Parts of a dimension: of a fixed size, with the remainder last, or of the sizes in a list."""
    sizes = g.stack(split_size) if isinstance(split_size, list) else g.constant(split_size, DataType.INT64)
    result = g.op("SplitToSequence", self, sizes, axis=dim)
    if self.shape is not None:
        axis = dim % len(self.shape)
        result.shape = ir.Shape([*self.shape[:axis], None, *self.shape[axis + 1 :]])
    return result


def _numbers(g: GraphContext, self: Value) -> Value:
    """A list of numbers."""
    if not is_stacked(self) or g.rank(self) not in (None, 1):
        raise g.refuse("comparing and sorting lists of tensors is not supported")
    return self


def _matches(g: GraphContext, self: Value, item: Value | Number) -> Value:
    return g.call("aten::eq", self=_numbers(g, self), other=g.constant(item, self.dtype))


@onnx_symbolic("list::count")
def count(g: GraphContext, self: Value, item: Value | Number) -> Value:
    return g.op("ReduceSum", g.cast(_matches(g, self, item), DataType.INT64), keepdims=0)


@onnx_symbolic("list::contains")
def contains(g: GraphContext, self: Value, item: Value | Number) -> Value:
    return g.call("sym::gt", a=count(g, self, item), b=0)


@onnx_symbolic("list::index")
def index(g: GraphContext, self: Value, item: Value | Number) -> Value:
    """The first position of an element. A missing element is a run-time error, as in Python."""
    # The Gather of the first match fails if there is none.
    matches = g.call("aten::nonzero", self=_matches(g, self, item))
    return g.op("Squeeze", g.op("Gather", matches, 0, axis=0), axes=[0])


@onnx_symbolic("list::sum")
def sum_(g: GraphContext, self: Value) -> Value:
    """The sum; for bools, the number of true ones."""
    self = _numbers(g, self)
    # ReduceSum does not take BOOL.
    counted = g.cast(self, DataType.INT64) if self.dtype == DataType.BOOL else self
    return g.op("ReduceSum", counted, keepdims=0)


def _register_extreme(name: str, op_type: str) -> None:
    @onnx_symbolic(f"list::{name}")
    def extreme(g: GraphContext, self: Value) -> Value:
        return g.op(op_type, _numbers(g, self), keepdims=0)


_register_extreme("max", "ReduceMax")
_register_extreme("min", "ReduceMin")


@onnx_symbolic("list::sort")
def sort(g: GraphContext, self: Value, descending: bool = False) -> Value:
    return g.call_outputs("aten::sort", self=_numbers(g, self), dim=0, descending=descending)[0]


@onnx_symbolic("list::any")
def any_(g: GraphContext, self: Value) -> Value:
    return g.call("sym::gt", a=count(g, self, True), b=0)


@onnx_symbolic("list::all")
def all_(g: GraphContext, self: Value) -> Value:
    return g.call("sym::eq", a=count(g, self, False), b=0)


@onnx_symbolic("list::equal")
def equal(g: GraphContext, self: Value, other: Value) -> Value:
    """Whether the number of equal elements, up to the shorter length, is the length of the longer list."""
    sizes = [length(g, _numbers(g, operand)) for operand in (self, other)]
    shorter, longer = compute(g, "min", *sizes), compute(g, "max", *sizes)
    equal_elements = g.call("aten::eq", self=part(g, self, 0, shorter), other=part(g, other, 0, shorter))
    return g.call(
        "sym::eq", a=g.op("ReduceSum", g.cast(equal_elements, DataType.INT64), keepdims=0), b=longer
    )
