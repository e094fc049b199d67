"""TensorList and TensorArray operators.

The handle of a TensorArray is a number, and its flow is the list.
"""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from ....registration import GROWS, DataType, GraphContext, Value, onnx_symbolic
from ...compositions.list_values import merge_dimensions
from ...compositions.operator_tables import register_variant
from ...compositions.size_arithmetic import UNKNOWN, Dim, Size, compute
from .._common import constant_integers, integers, number
from ..list_values import (
    ScannedList,
    UnwrittenList,
    append_element,
    as_tensor,
    covers_all_elements,
    element_count,
    element_sizes,
    resize_list,
    scatter_elements,
    write_element,
)

ElementType = DataType | str


def _unwritten(
    g: GraphContext, count: Size, dtype: ElementType, stated_count: Value | None = None, output: int = 0
) -> UnwrittenList:
    """Make an unwritten list with the element shape that the source graph states for the output."""
    if not isinstance(dtype, DataType):
        raise g.refuse(f"lists of {dtype} are not supported")
    shape = g.expected[output].shape
    sizes: list[Dim] | None = None
    if shape is not None:
        sizes = [size if isinstance(size, int) else UNKNOWN for size in list(shape)[1:]]
    return UnwrittenList(count, dtype, sizes, stated_count)


@onnx_symbolic("tf::TensorListReserve")
def tensor_list_reserve(
    g: GraphContext, element_shape: Value, num_elements: Value, element_dtype: ElementType
) -> Value:
    return _unwritten(g, number(g, num_elements), element_dtype, num_elements)


@onnx_symbolic("tf::EmptyTensorList")
def empty_tensor_list(
    g: GraphContext, element_shape: Value, max_num_elements: Value, element_dtype: ElementType
) -> Value:
    return _unwritten(g, 0, element_dtype)


@onnx_symbolic("tf::TensorListFromTensor")
def tensor_list_from_tensor(g: GraphContext, tensor: Value, element_shape: Value) -> Value:
    return tensor


@onnx_symbolic("tf::TensorListStack")
def tensor_list_stack(
    g: GraphContext,
    input_handle: Value,
    element_shape: Value,
    element_dtype: ElementType,
    num_elements: int = -1,
) -> Value:
    """Stack all elements; `num_elements` is only a check in TensorFlow."""
    return _stated_tensor(g, input_handle, element_shape)


def _stated_tensor(g: GraphContext, items: Value, element_shape: Value) -> Value:
    """The list as one tensor; an unwritten list gets the operator's `element_shape`, if that is constant."""
    stated_sizes = integers(g, element_shape)
    if isinstance(items, UnwrittenList) and stated_sizes is not None and g.rank(element_shape) != 0:
        sizes = [UNKNOWN if size < 0 else size for size in stated_sizes]
        items = UnwrittenList(items.count, items.dtype or DataType.FLOAT, sizes)
    return as_tensor(g, items)


@onnx_symbolic("tf::TensorListGetItem")
def tensor_list_get_item(
    g: GraphContext, input_handle: Value, index: Value, element_shape: Value, element_dtype: ElementType
) -> Value:
    return _element(g, _stated_tensor(g, input_handle, element_shape), index)


def _element(g: GraphContext, items: Value, index: Value | int) -> Value:
    result = g.op("Gather", items, index, axis=0)
    sizes = element_sizes(items)
    if result.producer() is not None and sizes is not None and result.shape is None:
        result.shape = ir.Shape(sizes)
    return result


@onnx_symbolic("tf::TensorListSetItem")
def tensor_list_set_item(
    g: GraphContext,
    input_handle: Value,
    index: Value,
    item: Value,
    resize_if_index_out_of_bounds: bool = False,
) -> Value:
    """Replace an element of a list; extend the list up to the index if it may grow."""
    position = number(g, index)
    # The loop that writes a scanned list decides its size.
    if resize_if_index_out_of_bounds and not isinstance(input_handle, ScannedList):
        count = compute(g, "max", element_count(g, input_handle), compute(g, "add", position, 1))
        input_handle = resize_list(g, input_handle, count)
    return write_element(g, input_handle, position, item)


@onnx_symbolic("tf::TensorListPushBack")
def tensor_list_push_back(g: GraphContext, input_handle: Value, tensor: Value) -> Value:
    return append_element(g, input_handle, tensor)


@onnx_symbolic("tf::TensorListPopBack")
def tensor_list_pop_back(
    g: GraphContext, input_handle: Value, element_shape: Value, element_dtype: ElementType
) -> list[Value]:
    """Remove the last element; return the list and that element."""
    items = _stated_tensor(g, input_handle, element_shape)
    last = compute(g, "sub", element_count(g, items), 1)
    return [resize_list(g, items, last), _element(g, items, g.constant(last))]


@onnx_symbolic("tf::TensorListLength")
def tensor_list_length(g: GraphContext, input_handle: Value) -> Value:
    return g.constant(element_count(g, input_handle), DataType.INT32)


@onnx_symbolic("tf::TensorListElementShape")
def tensor_list_element_shape(g: GraphContext, input_handle: Value, shape_type: DataType) -> Value:
    sizes = element_sizes(input_handle)
    if sizes is not None and all(isinstance(size, int) for size in sizes):
        return g.constant(np.asarray(sizes, dtype=shape_type.numpy()))
    if isinstance(input_handle, UnwrittenList):
        # TensorFlow's shape of unknown rank is the scalar -1.
        stated_sizes = [size if isinstance(size, int) else -1 for size in sizes] if sizes is not None else -1
        return g.constant(np.asarray(stated_sizes, dtype=shape_type.numpy()))
    shape = g.op("Slice", g.op("Shape", input_handle), starts=[1], ends=[np.iinfo(np.int64).max], axes=[0])
    return g.cast(shape, shape_type)


@onnx_symbolic("tf::TensorListGather")
def tensor_list_gather(
    g: GraphContext, input_handle: Value, indices: Value, element_shape: Value, element_dtype: ElementType
) -> Value:
    return g.op("Gather", _stated_tensor(g, input_handle, element_shape), indices, axis=0)


@onnx_symbolic("tf::TensorListScatterIntoExistingList")
def tensor_list_scatter_into_existing_list(
    g: GraphContext, input_handle: Value, tensor: Value, indices: Value
) -> Value:
    """Write elements into a list, which grows up to the highest index."""
    return scatter_elements(g, _grow_to_indices(g, input_handle, indices), indices, tensor)


def _grow_to_indices(g: GraphContext, items: Value, indices: Value) -> Value:
    """Extend a list, if necessary, so that it has an element for the highest index."""
    if isinstance(items, ScannedList) or (
        not isinstance(items, UnwrittenList) and covers_all_elements(g, indices, items)
    ):
        return items
    count = element_count(g, items)
    grown_count = compute(g, "max", count, _count_to_highest(g, indices))
    return items if grown_count is count or grown_count == count else resize_list(g, items, grown_count)


@onnx_symbolic("tf::TensorListScatterV2")
def tensor_list_scatter_v2(
    g: GraphContext,
    tensor: Value,
    indices: Value,
    element_shape: Value,
    num_elements: Value | int,
    element_dtype: ElementType,
) -> Value:
    """A list of `num_elements` elements; if that is negative, of as many as the highest index needs."""
    count: Size = number(g, num_elements) if isinstance(num_elements, Value) else num_elements
    if isinstance(count, Value):
        count_to_highest = _count_to_highest(g, indices)
        count = g.op("Where", g.op("Less", count, 0), g.constant(count_to_highest), count)
    elif count < 0:
        count = _count_to_highest(g, indices)
    return scatter_elements(g, _unwritten(g, count, element_dtype), indices, tensor)


register_variant("tf::TensorListScatter", tensor_list_scatter_v2, num_elements=-1)


def _count_to_highest(g: GraphContext, indices: Value) -> Size:
    """The number of elements that a list needs for the highest of some indices."""
    positions = integers(g, indices)
    if positions is not None:
        return max(positions, default=-1) + 1
    # Of no indices, ReduceMax returns the lowest integer: the count is 0.
    highest_index = g.op("ReduceMax", g.cast(indices, DataType.INT64), keepdims=0)
    return compute(g, "max", compute(g, "add", highest_index, 1), 0)


@onnx_symbolic("tf::TensorListResize")
def tensor_list_resize(g: GraphContext, input_handle: Value, size: Value) -> Value:
    return resize_list(g, input_handle, number(g, size))


@onnx_symbolic("tf::TensorListConcatLists")
def tensor_list_concat_lists(
    g: GraphContext, input_a: Value, input_b: Value, element_dtype: ElementType
) -> Value:
    # The elements of an empty list have no shape, so there is nothing to concatenate.
    for empty, remaining in ((input_a, input_b), (input_b, input_a)):
        if isinstance(empty, UnwrittenList) and empty.count == 0:
            return remaining
    return g.op("Concat", as_tensor(g, input_a), as_tensor(g, input_b), axis=0)


@onnx_symbolic("tf::TensorListConcatV2")
def tensor_list_concat(
    g: GraphContext,
    input_handle: Value,
    element_dtype: ElementType,
    element_shape: Value | Sequence[int] | None = None,
    leading_dims: Value | None = None,
) -> list[Value]:
    """Concatenate the elements, which all have the same shape; also return the first size of each."""
    return _concatenate_elements(g, as_tensor(g, input_handle))


register_variant("tf::TensorListConcat", tensor_list_concat, leading_dims=None)


def _concatenate_elements(g: GraphContext, items: Value) -> list[Value]:
    lengths = g.op("Expand", g.stack([g.size(items, 1)]), g.stack([g.size(items, 0)]))
    return [merge_dimensions(g, items), lengths]


@onnx_symbolic("tf::TensorListSplit")
def tensor_list_split(g: GraphContext, tensor: Value, element_shape: Value, lengths: Value) -> Value:
    return _split_to_list(g, tensor, lengths)


def _split_to_list(g: GraphContext, tensor: Value, lengths: Value) -> Value:
    """Split a tensor along its first dimension into a list of parts, which must have the same length."""
    sizes = constant_integers(g, lengths, "lengths")
    if len(set(sizes)) != 1:
        raise g.refuse("the parts of a list must have the same length")
    element_shape = g.op("Slice", g.op("Shape", tensor), starts=[1], ends=[np.iinfo(np.int64).max], axes=[0])
    return g.op("Reshape", tensor, g.op("Concat", g.constant([len(sizes), sizes[0]]), element_shape, axis=0))


@onnx_symbolic("tf::TensorArrayV3")
def tensor_array_v3(
    g: GraphContext,
    size: Value,
    dtype: ElementType,
    element_shape: Sequence[int] | None = None,
    dynamic_size: bool = False,
    clear_after_read: bool = True,
    identical_element_shapes: bool = False,
    tensor_array_name: str = "",
) -> list[Value]:
    """An array of `size` elements, and its flow, which is the list."""
    return [g.cast(size, DataType.INT32), _unwritten(g, number(g, size), dtype, size, output=1)]


@onnx_symbolic("tf::TensorArrayReadV3")
def tensor_array_read_v3(
    g: GraphContext, handle: Value, index: Value, flow_in: Value, dtype: ElementType
) -> Value:
    return _element(g, as_tensor(g, flow_in), index)


@onnx_symbolic("tf::TensorArrayWriteV3")
def tensor_array_write_v3(
    g: GraphContext, handle: Value, index: Value, value: Value, flow_in: Value
) -> Value:
    """Write an element, as TensorListSetItem does."""
    return tensor_list_set_item(g, flow_in, index, value, _grows(g))


def _grows(g: GraphContext) -> bool:
    """Whether the capture marked the node as a write to an array that may grow."""
    return g.node is not None and g.node.metadata_props.get(GROWS) == "true"


@onnx_symbolic("tf::TensorArrayGatherV3")
def tensor_array_gather_v3(
    g: GraphContext,
    handle: Value,
    indices: Value,
    flow_in: Value,
    dtype: ElementType,
    element_shape: Sequence[int] | None = None,
) -> Value:
    items = as_tensor(g, flow_in)
    # All elements in order are the list itself.
    return items if covers_all_elements(g, indices, items) else g.op("Gather", items, indices, axis=0)


@onnx_symbolic("tf::TensorArrayScatterV3")
def tensor_array_scatter_v3(
    g: GraphContext, handle: Value, indices: Value, value: Value, flow_in: Value
) -> Value:
    """Write elements; an array of dynamic size grows up to the highest index."""
    return scatter_elements(
        g, _grow_to_indices(g, flow_in, indices) if _grows(g) else flow_in, indices, value
    )


@onnx_symbolic("tf::TensorArraySizeV3")
def tensor_array_size_v3(g: GraphContext, handle: Value, flow_in: Value) -> Value:
    return g.constant(element_count(g, flow_in), DataType.INT32)


@onnx_symbolic("tf::TensorArrayConcatV3")
def tensor_array_concat_v3(
    g: GraphContext,
    handle: Value,
    flow_in: Value,
    dtype: ElementType,
    element_shape_except0: Sequence[int] | None = None,
) -> list[Value]:
    return _concatenate_elements(g, as_tensor(g, flow_in))


@onnx_symbolic("tf::TensorArraySplitV3")
def tensor_array_split_v3(
    g: GraphContext, handle: Value, value: Value, lengths: Value, flow_in: Value
) -> Value:
    return _split_to_list(g, value, lengths)
