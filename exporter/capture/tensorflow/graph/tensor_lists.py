"""Finds the element type and the element shape of lists of tensors, through loops and branches.

A TensorList is a `variant` to TensorFlow, a TensorArray a handle (`resource`) and a `flow`. In the source
graph a list is one tensor, [count, *element], and its type and shape are those of that tensor.
The handle of a TensorArray is a number, its size when it was made.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import onnx_ir as ir

from .....registration import GROWS
from .....registration.arguments import arguments, blocks, replace_arguments

_PREFIXES = ("TensorList", "EmptyTensorList", "TensorArray")
_ARRAY = "TensorArrayV3"
_WRITES = ("TensorArrayWriteV3", "TensorArrayScatterV3")
"""The operators that write behind the end of an array that grows."""
_MAKES = frozenset(
    "TensorListReserve EmptyTensorList TensorListFromTensor TensorListScatter TensorListScatterV2 "
    "TensorListSplit TensorListSetItem TensorListPushBack TensorListPopBack TensorListResize "
    "TensorListScatterIntoExistingList TensorListConcatLists TensorArrayV3 TensorArrayWriteV3 "
    "TensorArrayScatterV3 TensorArraySplitV3".split()
)
"""The operators that return a list, as their first result; a TensorArray is their second."""
_READS: dict[str, tuple[str, ...]] = dict.fromkeys(
    "TensorListGetItem TensorListStack TensorListGather TensorListConcat TensorListConcatV2 "
    "TensorListElementShape TensorListLength TensorListPopBack TensorListSetItem TensorListPushBack "
    "TensorListResize TensorListScatterIntoExistingList".split(),
    ("input_handle",),
)
_READS |= dict.fromkeys(
    "TensorArrayReadV3 TensorArrayGatherV3 TensorArrayConcatV3 TensorArraySizeV3 TensorArrayWriteV3 "
    "TensorArrayScatterV3 TensorArraySplitV3".split(),
    ("flow_in",),
)
_READS["TensorListConcatLists"] = ("input_a", "input_b")
"""The arguments that are lists; what an operator returns is a list of the same elements."""
_SAME = frozenset({"Identity", "StopGradient", "PreventGradient", "Snapshot"})
_HAVE_ELEMENT_SHAPE = frozenset(
    "TensorListReserve EmptyTensorList TensorListGetItem TensorListStack TensorListGather "
    "TensorListFromTensor TensorListPopBack TensorListSetItem".split()
)
"""The operators whose argument `element_shape` is the shape of an element."""
_ELEMENTS = {"TensorListSetItem": "item", "TensorListPushBack": "tensor", "TensorArrayWriteV3": "value"}
_STACKS = {
    "TensorListFromTensor": "tensor",
    "TensorListScatter": "tensor",
    "TensorListScatterV2": "tensor",
    "TensorListScatterIntoExistingList": "tensor",
    "TensorArrayScatterV3": "value",
}
"""The arguments that are elements, or stacks of them."""
_MAXIMUM_RANK = 64


@dataclasses.dataclass(eq=False, slots=True)
class _List:
    """The element type and shape of a group of lists.

    Attributes:
        parent: the group that it has joined.
        dtype: the element type.
        shape: the element shape, None for sizes that are not known.
        handle: whether the values are handles, which are numbers.
        grows: whether writing behind the end adds elements.
    """

    parent: _List | None = None
    dtype: ir.DataType | None = None
    shape: list[int | None] | None = None
    handle: bool = False
    grows: bool = False


class _Lists:
    """Groups of lists with the same type."""

    def __init__(self) -> None:
        self._groups: dict[ir.Value, _List] = {}

    def of(self, value: ir.Value) -> _List:
        """The group of a value."""
        group = self._groups.setdefault(value, _List())
        while group.parent is not None:
            group = group.parent
        self._groups[value] = group
        return group

    def join(self, values: Iterable[ir.Value]) -> None:
        """Merge the groups of values that are the same list, or copies of it."""
        first, *others = [self.of(value) for value in values]
        for other in others:
            if other is not first and other.parent is None:
                other.parent = first
                learn(first, other.dtype, other.shape)
                first.handle |= other.handle
                first.grows |= other.grows

    def __iter__(self) -> Iterator[tuple[ir.Value, _List]]:
        for value in list(self._groups):
            yield value, self.of(value)


def learn(group: _List, dtype: Any, shape: Sequence[int | None] | None) -> None:
    """Add the element type and shape that an operator states; the first statement of a size counts."""
    if isinstance(dtype, ir.DataType):
        group.dtype = group.dtype or dtype
    if shape is None:
        return
    if group.shape is None:
        group.shape = list(shape)
    elif len(group.shape) == len(shape):
        pairs = zip(group.shape, shape, strict=True)
        group.shape = [size if known is None else known for known, size in pairs]


def find_lists(graph: ir.Graph) -> None:
    """Set the element types and shapes of the lists in a source graph."""
    nodes = list(graph.all_nodes())
    if not any(node.op_type.startswith(_PREFIXES) for node in nodes):
        return
    lists = _Lists()
    for node in nodes:
        if node.op_type.startswith(_PREFIXES):
            _read_operator(node, arguments(node), lists)
        elif node.op_type in _SAME and node.inputs:
            lists.join(_values([node.outputs[0], node.inputs[0]]))
        elif node.op_type == "IdentityN":
            for pair in zip(node.inputs, node.outputs, strict=True):
                lists.join(_values(pair))
        else:
            _join_blocks(node, lists)
    for node in nodes:
        if node.op_type in _WRITES and lists.of(node.outputs[0]).grows:
            node.metadata_props[GROWS] = "true"
    for value, group in lists:
        if group.handle:
            value.type, value.shape = ir.TensorType(ir.DataType.INT32), ir.Shape([])
        elif group.dtype is not None:
            value.type = ir.TensorType(group.dtype)
            value.shape = None if group.shape is None else ir.Shape([None, *group.shape])
    for node in nodes:
        if node.op_type in _SAME:
            replace_arguments(node, {**arguments(node), "T": node.outputs[0].dtype})


def _values(items: Iterable[ir.Value | None]) -> list[ir.Value]:
    return [item for item in items if item is not None]


def _join_blocks(node: ir.Node, lists: _Lists) -> None:
    """Merge the groups of values that an operator passes to its blocks and returns from them."""
    graphs = blocks(node)
    if not graphs:
        return
    loop = node.op_type == "While"
    given = list(node.inputs) if loop else list(node.inputs)[1:]
    for graph in graphs:
        for pair in zip(given, graph.inputs, strict=True):
            lists.join(_values(pair))
    for graph in graphs[1:] if loop else graphs:
        for pair in zip(graph.outputs, node.outputs, strict=True):
            lists.join(pair)
    if loop:
        for pair in zip(given, node.outputs, strict=True):
            lists.join(_values(pair))


def _read_operator(node: ir.Node, given: Mapping[str, Any], lists: _Lists) -> None:
    """Add the element type and shape that an operator on lists states."""
    op = node.op_type
    dtype = given.get("element_dtype", given.get("dtype"))
    read = [given.get(name) for name in _READS.get(op, ())]
    members = [item for item in read if isinstance(item, ir.Value)]
    if op in _MAKES:
        members.append(node.outputs[1 if op == _ARRAY else 0])
    if members:
        lists.join(members)
        group = lists.of(members[0])
        learn(group, dtype, None)
        group.grows |= op == _ARRAY and bool(given.get("dynamic_size"))
        if op in _HAVE_ELEMENT_SHAPE or op.startswith("TensorArray"):
            learn(group, None, _sizes(given.get("element_shape")))
        element = given.get(_ELEMENTS.get(op, ""))
        if isinstance(element, ir.Value) and element.shape is not None:
            learn(group, element.dtype, _static_sizes(element.shape))
        stack = given.get(_STACKS.get(op, ""))
        if isinstance(stack, ir.Value) and stack.shape is not None:
            learn(group, stack.dtype, _static_sizes(stack.shape)[1:])
    handles = [given.get("handle"), node.outputs[0] if op == _ARRAY else None]
    found = [item for item in handles if isinstance(item, ir.Value)]
    if found and op.startswith("TensorArray"):
        lists.join(found)
        lists.of(found[0]).handle = True


def _static_sizes(shape: ir.Shape) -> list[int | None]:
    return [size if isinstance(size, int) else None for size in shape]


def _sizes(element_shape: Any) -> list[int | None] | None:
    """A shape that an operator states; None if it is computed or its rank is unknown."""
    if isinstance(element_shape, ir.Value):
        tensor = element_shape.const_value
        if tensor is None or len(tensor.shape) != 1 or tensor.size > _MAXIMUM_RANK:
            return None
        element_shape = tensor.numpy().tolist()
    if not isinstance(element_shape, list):
        return None
    return [size if size >= 0 else None for size in element_shape]
