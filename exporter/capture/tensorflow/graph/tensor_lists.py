"""Finds the element type and the element shape of lists of tensors, through loops and branches.

In TensorFlow, a TensorList is one `variant` value; a TensorArray is a handle (`resource`) and a `flow`. In
the source graph a list is one tensor, [count, *element], with the type and shape of that tensor. The handle
of a TensorArray is a number there: its initial size.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

import onnx_ir as ir

from .....registration import GROWS
from .....registration.arguments import arguments, blocks, every_node, replace_arguments

_PREFIXES = ("TensorList", "EmptyTensorList", "TensorArray")
_ARRAY_OPERATOR = "TensorArrayV3"
_GROWING_WRITES = ("TensorArrayWriteV3", "TensorArrayScatterV3")
"""The operators that append to an array when they write behind its end, if the array may grow."""
_LIST_PRODUCERS = frozenset(
    "TensorListReserve EmptyTensorList TensorListFromTensor TensorListScatter TensorListScatterV2 "
    "TensorListSplit TensorListSetItem TensorListPushBack TensorListPopBack TensorListResize "
    "TensorListScatterIntoExistingList TensorListConcatLists TensorArrayV3 TensorArrayWriteV3 "
    "TensorArrayScatterV3 TensorArraySplitV3".split()
)
"""The operators whose first result is a list; a TensorArrayV3 returns it as its second result."""
_LIST_ARGUMENTS: dict[str, tuple[str, ...]] = dict.fromkeys(
    "TensorListGetItem TensorListStack TensorListGather TensorListConcat TensorListConcatV2 "
    "TensorListElementShape TensorListLength TensorListPopBack TensorListSetItem TensorListPushBack "
    "TensorListResize TensorListScatterIntoExistingList".split(),
    ("input_handle",),
)
_LIST_ARGUMENTS |= dict.fromkeys(
    "TensorArrayReadV3 TensorArrayGatherV3 TensorArrayConcatV3 TensorArraySizeV3 TensorArrayWriteV3 "
    "TensorArrayScatterV3 TensorArraySplitV3".split(),
    ("flow_in",),
)
_LIST_ARGUMENTS["TensorListConcatLists"] = ("input_a", "input_b")
"""The arguments that are lists. A list that the operator returns has elements of the same type."""
_IDENTITIES = frozenset({"Identity", "StopGradient", "PreventGradient", "Snapshot"})
_HAVE_ELEMENT_SHAPE = frozenset(
    "TensorListReserve EmptyTensorList TensorListGetItem TensorListStack TensorListGather "
    "TensorListFromTensor TensorListPopBack TensorListSetItem".split()
)
"""The operators whose argument `element_shape` is the shape of an element."""
_ELEMENT_ARGUMENTS = {
    "TensorListSetItem": "item",
    "TensorListPushBack": "tensor",
    "TensorArrayWriteV3": "value",
}
_STACK_ARGUMENTS = {
    "TensorListFromTensor": "tensor",
    "TensorListScatter": "tensor",
    "TensorListScatterV2": "tensor",
    "TensorListScatterIntoExistingList": "tensor",
    "TensorArrayScatterV3": "value",
}
"""The argument that is an element of the list, and the argument that is a stack of elements."""
_MAXIMUM_RANK = 64


@dataclasses.dataclass(eq=False, slots=True)
class _ListGroup:
    """The element type and shape of a group of lists, or of one merged into its `parent`.

    Handles are numbers. If the lists grow, writing behind the end appends elements.
    """

    parent: _ListGroup | None = None
    dtype: ir.DataType | None = None
    shape: list[int | None] | None = None
    is_handle: bool = False
    grows: bool = False


class _ListGroups:
    """Groups of lists with the same type, in a union-find structure."""

    def __init__(self) -> None:
        self._groups: dict[ir.Value, _ListGroup] = {}

    def group_of(self, value: ir.Value) -> _ListGroup:
        """The group of a value."""
        group = self._groups.setdefault(value, _ListGroup())
        while group.parent is not None:
            group = group.parent
        self._groups[value] = group
        return group

    def join(self, values: Iterable[ir.Value]) -> None:
        """Merge the groups of values that are the same list, or copies of it."""
        first, *remaining = [self.group_of(value) for value in values]
        for group in remaining:
            if group is not first and group.parent is None:
                group.parent = first
                add_type(first, group.dtype, group.shape)
                first.is_handle |= group.is_handle
                first.grows |= group.grows

    def __iter__(self) -> Iterator[tuple[ir.Value, _ListGroup]]:
        for value in list(self._groups):
            yield value, self.group_of(value)


def add_type(group: _ListGroup, dtype: object, shape: Sequence[int | None] | None) -> None:
    """Add the element type and shape that an operator states; the first statement of a size counts."""
    if isinstance(dtype, ir.DataType):
        group.dtype = group.dtype or dtype
    if shape is None:
        return
    if group.shape is None:
        group.shape = list(shape)
    elif len(group.shape) == len(shape):
        pairs = zip(group.shape, shape, strict=True)
        group.shape = [size if known_size is None else known_size for known_size, size in pairs]


def find_lists(graph: ir.Graph) -> None:
    """Set the element types and shapes of the lists in a source graph."""
    nodes = every_node(graph)
    if not any(node.op_type.startswith(_PREFIXES) for node in nodes):
        return
    lists = _ListGroups()
    for node in nodes:
        if node.op_type.startswith(_PREFIXES):
            _read_operator(node, arguments(node), lists)
        elif node.op_type in _IDENTITIES and node.inputs:
            lists.join(_present_values([node.outputs[0], node.inputs[0]]))
        elif node.op_type == "IdentityN":
            for pair in zip(node.inputs, node.outputs, strict=True):
                lists.join(_present_values(pair))
        else:
            _join_blocks(node, lists)
    for node in nodes:
        if node.op_type in _GROWING_WRITES and lists.group_of(node.outputs[0]).grows:
            node.metadata_props[GROWS] = "true"
    for value, group in lists:
        if group.is_handle:
            value.type, value.shape = ir.TensorType(ir.DataType.INT32), ir.Shape([])
        elif group.dtype is not None:
            value.type = ir.TensorType(group.dtype)
            value.shape = None if group.shape is None else ir.Shape([None, *group.shape])
        elif value.type is None:
            # A list of variants, which are the rows of a ragged tensor.
            value.shape = None
    for node in nodes:
        if node.op_type == "TensorListGetItem" and node.outputs[0].type is None:
            node.outputs[0].shape = None
        if node.op_type in _IDENTITIES:
            # The attribute T still is `variant` or `resource`.
            replace_arguments(node, {**arguments(node), "T": node.outputs[0].dtype})


def _present_values(values: Iterable[ir.Value | None]) -> list[ir.Value]:
    return [value for value in values if value is not None]


def _join_blocks(node: ir.Node, lists: _ListGroups) -> None:
    """Merge the groups of values that an operator passes to its blocks and returns from them."""
    graphs = blocks(node)
    if not graphs:
        return
    is_loop = node.op_type == "While"
    # The first input of If and Case is the predicate, which their blocks do not take.
    passed_values = list(node.inputs) if is_loop else list(node.inputs)[1:]
    for graph in graphs:
        for pair in zip(passed_values, graph.inputs, strict=True):
            lists.join(_present_values(pair))
    # The first block of While is its condition, which returns no variables.
    for graph in graphs[1:] if is_loop else graphs:
        for pair in zip(graph.outputs, node.outputs, strict=True):
            lists.join(pair)
    if is_loop:
        for pair in zip(passed_values, node.outputs, strict=True):
            lists.join(_present_values(pair))


def _read_operator(node: ir.Node, argument_values: Mapping[str, object], lists: _ListGroups) -> None:
    """Add the element type and shape that an operator on lists states."""
    op = node.op_type
    dtype = argument_values.get("element_dtype", argument_values.get("dtype"))
    read = [argument_values.get(name) for name in _LIST_ARGUMENTS.get(op, ())]
    members = [value for value in read if isinstance(value, ir.Value)]
    if op in _LIST_PRODUCERS:
        # A TensorArrayV3 returns its handle first.
        members.append(node.outputs[1 if op == _ARRAY_OPERATOR else 0])
    if members:
        lists.join(members)
        group = lists.group_of(members[0])
        add_type(group, dtype, None)
        group.grows |= op == _ARRAY_OPERATOR and bool(argument_values.get("dynamic_size"))
        if op in _HAVE_ELEMENT_SHAPE or op.startswith("TensorArray"):
            add_type(group, None, _stated_sizes(argument_values.get("element_shape")))
        element = argument_values.get(_ELEMENT_ARGUMENTS.get(op, ""))
        if isinstance(element, ir.Value) and element.shape is not None:
            add_type(group, element.dtype, _static_sizes(element.shape))
        stack = argument_values.get(_STACK_ARGUMENTS.get(op, ""))
        if isinstance(stack, ir.Value) and stack.shape is not None:
            add_type(group, stack.dtype, _static_sizes(stack.shape)[1:])
    handles = [argument_values.get("handle"), node.outputs[0] if op == _ARRAY_OPERATOR else None]
    handle_values = [value for value in handles if isinstance(value, ir.Value)]
    if handle_values and op.startswith("TensorArray"):
        lists.join(handle_values)
        lists.group_of(handle_values[0]).is_handle = True


def _static_sizes(shape: ir.Shape) -> list[int | None]:
    return [size if isinstance(size, int) else None for size in shape]


def _stated_sizes(element_shape: object) -> list[int | None] | None:
    """The sizes in an `element_shape` argument; None if it is computed or its rank is unknown."""
    if isinstance(element_shape, ir.Value):
        tensor = element_shape.const_value
        if tensor is None or len(tensor.shape) != 1 or tensor.size > _MAXIMUM_RANK:
            return None
        element_shape = tensor.numpy().tolist()
    if not isinstance(element_shape, list):
        return None
    return [size if size >= 0 else None for size in element_shape]
