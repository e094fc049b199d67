"""TensorFlow's lists of tensors: one tensor of stacked elements, [count, *element].

An unwritten list whose element shape is unknown has no tensor; `UnwrittenList` represents it. If a loop
writes one element per iteration, the elements become a scan output, and the body sees a `ScannedList`.
"""

from collections.abc import Sequence

import onnx_ir as ir

from ...registration import DataType, GraphContext, Value
from ..compositions.list_values import common_shape, part
from ..compositions.matrices import zeros
from ..compositions.size_arithmetic import UNKNOWN, Dim, Size, compute, same_size
from ._common import integers, is_dimension


class UnwrittenList(Value):
    """A list without written elements, which TensorFlow reads as zeros. It is not a value of the ONNX graph.

    Attributes:
        count: the number of elements.
        sizes: the shape of an element, UNKNOWN for unknown sizes; None if the rank is unknown.
        stated_count: the operand of the model that states the number of elements.
    """

    def __init__(
        self, count: Size, dtype: DataType, sizes: Sequence[Dim] | None, stated_count: Value | None = None
    ):
        super().__init__(type=ir.TensorType(dtype))
        self.count = count
        self.sizes = None if sizes is None else list(sizes)
        self.stated_count = stated_count


class ScannedList(Value):
    """A list to which iteration i of a loop writes element i; `item` is the one of this iteration."""

    def __init__(self, dtype: DataType | None, item: Value | None = None):
        super().__init__(type=None if dtype is None else ir.TensorType(dtype))
        self.item = item


def element_count(g: GraphContext, items: Value) -> Size:
    """The number of elements of a list."""
    return items.count if isinstance(items, UnwrittenList) else g.size(items, 0)


def element_sizes(items: Value) -> list[Dim] | None:
    """The known part of the shape of a list's elements."""
    if isinstance(items, UnwrittenList):
        return items.sizes
    return None if items.shape is None else list(items.shape)[1:]


def as_tensor(g: GraphContext, items: Value) -> Value:
    """The list as one tensor."""
    if isinstance(items, ScannedList):
        raise g.refuse("a list that is read in the loop that writes it is not supported")
    if not isinstance(items, UnwrittenList):
        return items
    if items.sizes is None or not all(isinstance(size, int) for size in items.sizes):
        raise g.refuse("a list is read before it is written to, and the shape of its elements is unknown")
    return zeros(g, [items.count, *[int(size) for size in items.sizes]], _dtype(items))  # type: ignore[arg-type]


def _set_computed_shape(result: Value, dims: ir.Shape | Sequence[Dim | None] | None) -> Value:
    """Set the shape of a result; a folded constant has its exact shape already."""
    if result.producer() is not None:
        result.shape = None if dims is None else ir.Shape(list(dims))
    return result


def _dtype(items: Value) -> DataType:
    return items.dtype or DataType.FLOAT


def broadcastable_tensor(g: GraphContext, items: UnwrittenList, sizes: Sequence[Dim]) -> Value:
    """The tensor of a list before a loop writes into it; unknown sizes are 1 until the first write."""
    tensor = zeros(g, [items.count, *[size if isinstance(size, int) else 1 for size in sizes]], _dtype(items))
    if tensor.producer() is None:
        return tensor
    count = items.count if isinstance(items.count, int) else None
    tensor.shape = ir.Shape([count, *[size if isinstance(size, int) else UNKNOWN for size in sizes]])
    return tensor


def tensor_like_element(g: GraphContext, items: Value, item: Value) -> Value:
    """The list as one tensor whose elements have the shape of `item`."""
    if not isinstance(items, UnwrittenList):
        return _expand_to_element(g, as_tensor(g, items), item)
    if item.shape is None:
        shape = g.op("Concat", g.stack([items.count]), g.op("Shape", item), axis=0)
        return g.op("Expand", g.constant(0, _dtype(items)), shape)
    stated_sizes: Sequence[Dim] = items.sizes if items.sizes is not None else [UNKNOWN] * len(item.shape)
    if len(stated_sizes) != len(item.shape):
        raise g.refuse(
            f"an element of rank {len(item.shape)} is written to a list of elements of rank "
            f"{len(stated_sizes)}"
        )
    sizes = [size if isinstance(size, int) else g.size(item, dim) for dim, size in enumerate(stated_sizes)]
    return zeros(g, [items.count, *sizes], _dtype(items))


def _expand_to_element(g: GraphContext, items: Value, item: Value) -> Value:
    """Expand a list to the element shape of an item; sizes of an unwritten list may be 1."""
    list_sizes = element_sizes(items)
    if list_sizes is not None and item.shape is not None and len(list_sizes) == len(item.shape):
        if all(map(same_size, list_sizes, item.shape)):
            return items
        common_sizes = common_shape([list_sizes, item.shape])
        sizes: list[Dim] | None = [
            b if isinstance(b, int) else a for a, b in zip(common_sizes or (), item.shape, strict=True)
        ]
    else:
        sizes = None
    result = g.op("Expand", items, g.op("Concat", g.constant([1]), g.op("Shape", item), axis=0))
    if items.shape is None:
        return result
    return _set_computed_shape(result, None if sizes is None else [items.shape[0], *sizes])


def resize_list(g: GraphContext, items: Value, count: Size) -> Value:
    """Truncate a list, or extend it by unwritten elements."""
    if isinstance(items, UnwrittenList):
        return UnwrittenList(count, _dtype(items), items.sizes)
    items = as_tensor(g, items)
    current_count = element_count(g, items)
    if isinstance(current_count, int) and isinstance(count, int):
        truncated = (
            g.op("Slice", items, starts=[0], ends=[count], axes=[0]) if count < current_count else items
        )
        return truncated if count <= current_count else _append_zeros(g, items, count - current_count)
    # Append as many zeros as may be missing, then cut: one form for a longer and a shorter list.
    extra_count = compute(g, "max", compute(g, "sub", count, current_count), 0)
    return part(g, _append_zeros(g, items, extra_count), 0, count)


def _append_zeros(g: GraphContext, items: Value, count: Size) -> Value:
    """Append zeros to a list."""
    element_shape = g.op("Slice", g.op("Shape", items), starts=[1], ends=[2**63 - 1], axes=[0])
    shape = g.op("Concat", g.stack([count]), element_shape, axis=0)
    zeros_appended = g.op("Expand", g.constant(0, _dtype(items)), shape)
    result = g.op("Concat", items, zeros_appended, axis=0)
    sizes = element_sizes(items)
    return _set_computed_shape(result, None if sizes is None else [None, *sizes])


def write_element(g: GraphContext, items: Value, index: Size, item: Value) -> Value:
    """Replace one element of a list."""
    if isinstance(items, ScannedList):
        return ScannedList(items.dtype, item)
    # The only element is the whole list; another index is an error in TensorFlow.
    if element_count(g, items) == 1:
        return g.op("Unsqueeze", item, axes=[0])
    tensor = tensor_like_element(g, items, item)
    index_vector = g.op("Reshape", g.constant(index, DataType.INT64), [1, 1])
    result = g.op("ScatterND", tensor, index_vector, g.op("Unsqueeze", item, axes=[0]))
    return _set_computed_shape(result, tensor.shape)


def scatter_elements(g: GraphContext, items: Value, indices: Value, values: Value) -> Value:
    """Replace elements of a list by slices of a tensor."""
    count = None if isinstance(items, ScannedList) else element_count(g, items)
    positions = integers(g, indices)
    if isinstance(count, int) and positions and not 0 <= min(positions) <= max(positions) < count:
        raise g.refuse(f"it writes the elements {positions} of a list of {count} elements")
    if isinstance(items, UnwrittenList):
        covers_list = values.shape is not None and is_dimension(items.count, values.shape[0])
        # All elements are written, so no zeros are needed.
        if covers_list and covers_all_elements(g, indices, values):
            return values
        sizes = element_sizes(values)
        sized_list = UnwrittenList(items.count, _dtype(items), sizes if sizes is not None else items.sizes)
        if sizes is None:
            tensor = tensor_like_element(g, sized_list, g.op("Gather", values, 0, axis=0))
        else:
            tensor = _zeros_like(g, sized_list, values)
    else:
        tensor = _expand_to_element(g, as_tensor(g, items), g.op("Gather", values, 0, axis=0))
    result = g.op("ScatterND", tensor, g.op("Unsqueeze", g.cast(indices, DataType.INT64), axes=[1]), values)
    return _set_computed_shape(result, tensor.shape)


def covers_all_elements(g: GraphContext, indices: Value, items: Value) -> bool:
    """Whether indices are certainly the positions of all elements in order."""
    if items.shape is None:
        return False
    count, positions = items.shape[0], integers(g, indices)
    if positions is not None:
        return isinstance(count, int) and positions == list(range(count))
    node = indices.producer()
    while node is not None and node.op_type == "Cast" and node.inputs[0] is not None:
        node = node.inputs[0].producer()
    if node is None or node.op_type != "Range":
        return False
    start, limit, delta = node.inputs
    if start is None or limit is None or delta is None or not is_dimension(limit, count):
        return False
    return integers(g, start) == [0] and integers(g, delta) == [1]


def _zeros_like(g: GraphContext, items: UnwrittenList, values: Value) -> Value:
    """A list of zeros whose elements have the shape of a tensor's slices.

    The tensor may be empty, so the shape cannot come from a Gather of its first slice.
    """
    assert items.sizes is not None
    sizes = [
        size if isinstance(size, int) else g.size(values, dim + 1) for dim, size in enumerate(items.sizes)
    ]
    return zeros(g, [items.count, *sizes], _dtype(items))


def append_element(g: GraphContext, items: Value, item: Value) -> Value:
    """Append an element to a list."""
    item_row = g.op("Unsqueeze", item, axes=[0])
    if isinstance(items, UnwrittenList) and items.count == 0:
        return item_row
    tensor = tensor_like_element(g, items, item)
    result = g.op("Concat", tensor, item_row, axis=0)
    sizes = element_sizes(tensor)
    if sizes is None:
        return _set_computed_shape(result, None)
    count = element_count(g, tensor)
    return _set_computed_shape(result, [count + 1 if isinstance(count, int) else None, *sizes])
