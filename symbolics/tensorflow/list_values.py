"""TensorFlow's lists of tensors: one tensor of stacked elements, [count, *element].

An unwritten list has no such tensor as long as the shape of its elements is unknown. If a loop writes one
element per iteration, the elements become a scan output, and the body sees a marker instead.
"""

from collections.abc import Sequence

import onnx_ir as ir

from ...registration import DataType, GraphContext, Value
from ..compositions.list_values import common_shape, part
from ..compositions.matrices import zeros
from ..compositions.size_arithmetic import UNKNOWN, Dim, Size, compute, same_size
from ._common import integers, is_dimension


class Unwritten(Value):
    """A list without written elements, which TensorFlow reads as zeros. It is not a value of the ONNX graph.

    Attributes:
        count: the number of elements.
        sizes: the shape of an element, UNKNOWN for sizes that are not known; None if the rank is not known.
        stated: the value that the model gives for the number of elements.
    """

    def __init__(
        self, count: Size, dtype: DataType, sizes: Sequence[Dim] | None, stated: Value | None = None
    ):
        super().__init__(type=ir.TensorType(dtype))
        self.count = count
        self.sizes = None if sizes is None else list(sizes)
        self.stated = stated


class Scanned(Value):
    """A list to which iteration i of a loop writes element i.

    Attributes:
        item: the element that this iteration has written.
    """

    def __init__(self, dtype: DataType | None, item: Value | None = None):
        super().__init__(type=None if dtype is None else ir.TensorType(dtype))
        self.item = item


def count_of(g: GraphContext, items: Value) -> Size:
    """The number of elements of a list."""
    return items.count if isinstance(items, Unwritten) else g.size(items, 0)


def element_sizes(items: Value) -> list[Dim] | None:
    """The known part of the shape of a list's elements."""
    if isinstance(items, Unwritten):
        return items.sizes
    return None if items.shape is None else list(items.shape)[1:]


def as_tensor(g: GraphContext, items: Value) -> Value:
    """A list as one tensor.

    Raises:
        UnsupportedError: nothing has been written into it, and the shape of its elements is unknown.
    """
    if isinstance(items, Scanned):
        raise g.refuse("a list that is read in the loop that writes it is not supported")
    if not isinstance(items, Unwritten):
        return items
    if items.sizes is None or not all(isinstance(size, int) for size in items.sizes):
        raise g.refuse("a list is read before it is written to, and the shape of its elements is unknown")
    return zeros(g, [items.count, *[int(size) for size in items.sizes]], _dtype(items))  # type: ignore[arg-type]


def _dtype(items: Value) -> DataType:
    return items.dtype or DataType.FLOAT


def broadcastable(g: GraphContext, items: Unwritten, sizes: Sequence[Dim]) -> Value:
    """The tensor of a list before a loop writes into it; symbolic sizes are 1 until then."""
    found = zeros(g, [items.count, *[size if isinstance(size, int) else 1 for size in sizes]], _dtype(items))
    if found.producer() is None:
        return found
    count = items.count if isinstance(items.count, int) else None
    found.shape = ir.Shape([count, *[size if isinstance(size, int) else UNKNOWN for size in sizes]])
    return found


def like_element(g: GraphContext, items: Value, item: Value) -> Value:
    """A list as one tensor whose elements have the shape of `item`."""
    if not isinstance(items, Unwritten):
        return _expanded(g, as_tensor(g, items), item)
    if item.shape is None:
        shape = g.op("Concat", g.stack([items.count]), g.op("Shape", item), axis=0)
        return g.op("Expand", g.constant(0, _dtype(items)), shape)
    known: Sequence[Dim] = items.sizes if items.sizes is not None else [UNKNOWN] * len(item.shape)
    if len(known) != len(item.shape):
        raise g.refuse(
            f"an element of rank {len(item.shape)} is written to a list of elements of rank {len(known)}"
        )
    sizes = [size if isinstance(size, int) else g.size(item, dim) for dim, size in enumerate(known)]
    return zeros(g, [items.count, *sizes], _dtype(items))


def _expanded(g: GraphContext, items: Value, item: Value) -> Value:
    """Expand a list to the element shape of an item; sizes of an unwritten list may be 1."""
    own = element_sizes(items)
    if own is not None and item.shape is not None and len(own) == len(item.shape):
        if all(map(same_size, own, item.shape)):
            return items
        found = common_shape([own, item.shape])
        sizes: list[Dim] | None = [
            b if isinstance(b, int) else a for a, b in zip(found or (), item.shape, strict=True)
        ]
    else:
        sizes = None
    result = g.op("Expand", items, g.op("Concat", g.constant([1]), g.op("Shape", item), axis=0))
    if result.producer() is not None and items.shape is not None:
        result.shape = None if sizes is None else ir.Shape([items.shape[0], *sizes])
    return result


def resized(g: GraphContext, items: Value, count: Size) -> Value:
    """Truncate a list, or extend it by unwritten elements."""
    if isinstance(items, Unwritten):
        return Unwritten(count, _dtype(items), items.sizes)
    items = as_tensor(g, items)
    own = count_of(g, items)
    if isinstance(own, int) and isinstance(count, int):
        longer = g.op("Slice", items, starts=[0], ends=[count], axes=[0]) if count < own else items
        return longer if count <= own else _lengthened(g, items, count - own)
    more = compute(g, "max", compute(g, "sub", count, own), 0)
    return part(g, _lengthened(g, items, more), 0, count)


def _lengthened(g: GraphContext, items: Value, more: Size) -> Value:
    """A list with zeros appended."""
    rest = g.op("Slice", g.op("Shape", items), starts=[1], ends=[2**63 - 1], axes=[0])
    shape = g.op("Concat", g.stack([more]), rest, axis=0)
    added = g.op("Expand", g.constant(0, _dtype(items)), shape)
    result = g.op("Concat", items, added, axis=0)
    sizes = element_sizes(items)
    if result.producer() is not None:
        result.shape = None if sizes is None else ir.Shape([None, *sizes])
    return result


def written(g: GraphContext, items: Value, index: Size, item: Value) -> Value:
    """Replace one element of a list."""
    if isinstance(items, Scanned):
        return Scanned(items.dtype, item)
    if count_of(g, items) == 1:
        return g.op("Unsqueeze", item, axes=[0])
    whole = like_element(g, items, item)
    place = g.op("Reshape", g.constant(index, DataType.INT64), [1, 1])
    result = g.op("ScatterND", whole, place, g.op("Unsqueeze", item, axes=[0]))
    if result.producer() is not None:
        result.shape = whole.shape
    return result


def scattered(g: GraphContext, items: Value, indices: Value, values: Value) -> Value:
    """Replace elements of a list by slices of a tensor.

    Raises:
        UnsupportedError: the list does not have an element.
    """
    count, positions = (None if isinstance(items, Scanned) else count_of(g, items)), integers(g, indices)
    if isinstance(count, int) and positions and not 0 <= min(positions) <= max(positions) < count:
        raise g.refuse(f"it writes the elements {positions} of a list of {count} elements")
    if isinstance(items, Unwritten):
        covers = values.shape is not None and is_dimension(items.count, values.shape[0])
        if covers and are_all(g, indices, values):
            return values
        sizes = element_sizes(values)
        own = Unwritten(items.count, _dtype(items), sizes if sizes is not None else items.sizes)
        whole = (
            like_element(g, own, g.op("Gather", values, 0, axis=0))
            if sizes is None
            else _zeros_like(g, own, values)
        )
    else:
        whole = _expanded(g, as_tensor(g, items), g.op("Gather", values, 0, axis=0))
    result = g.op("ScatterND", whole, g.op("Unsqueeze", g.cast(indices, DataType.INT64), axes=[1]), values)
    if result.producer() is not None:
        result.shape = whole.shape
    return result


def are_all(g: GraphContext, indices: Value, items: Value) -> bool:
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


def _zeros_like(g: GraphContext, items: Unwritten, values: Value) -> Value:
    """A list of zeros whose elements have the shape of a tensor's slices; the tensor may be empty."""
    assert items.sizes is not None
    sizes = [
        size if isinstance(size, int) else g.size(values, dim + 1) for dim, size in enumerate(items.sizes)
    ]
    return zeros(g, [items.count, *sizes], _dtype(items))


def appended(g: GraphContext, items: Value, item: Value) -> Value:
    """Append an element to a list."""
    raised = g.op("Unsqueeze", item, axes=[0])
    if isinstance(items, Unwritten) and items.count == 0:
        return raised
    whole = like_element(g, items, item)
    result = g.op("Concat", whole, raised, axis=0)
    sizes = element_sizes(whole)
    if result.producer() is not None:
        count = count_of(g, whole)
        result.shape = (
            None if sizes is None else ir.Shape([count + 1 if isinstance(count, int) else None, *sizes])
        )
    return result
