"""Writes of a loop's iterations to tensors from before the loop.

A row that each iteration writes at its index is written for all of them after the loop. A tensor that the
iterations read, too, is carried from one to the next, and written to once, with its last value.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import sympy
import torch
import torch.fx

from ....torch_boundary.containers import pytree
from ....torch_boundary.fake_tensors import storage_of
from ....torch_boundary.operators.overloads import OpOverload, operator_of, schema_of
from ....torch_boundary.recording.loop_operator import RANGE_LOOP
from ....torch_boundary.recording.replay import Storage, written_storages

_ATEN = torch.ops.aten
_SCATTERS: dict[object, OpOverload] = {
    _ATEN.select.int: _ATEN.select_scatter.default,
    _ATEN.slice.Tensor: _ATEN.slice_scatter.default,
}
"""By the operator of a view, the one that gives a tensor in which the view has other elements."""


class NotRepeated(Exception):
    """The iterations differ; the message says how."""


@dataclasses.dataclass
class SliceWrite:
    """A write to the slice of a tensor at the index.

    Attributes:
        base: the tensor, from before the loop.
        axis: the axis of the index.
        values: what each iteration writes.
        nodes: the nodes of the slices and writes.
    """

    base: torch.fx.Node
    axis: int
    values: list[torch.fx.Node]
    nodes: list[torch.fx.Node]


def take_writes(
    iterations: Sequence[list[torch.fx.Node]], *, takes_rows: bool = True
) -> tuple[list[SliceWrite], dict[torch.fx.Node, list[torch.fx.Node]]]:
    """Take the writes to tensors from before the loop out of the iterations.

    Args:
        takes_rows: whether rows that are written at the index may be written after the loop.

    Returns:
        The writes of rows; and by each other tensor that is written to, its value after each iteration.

    Raises:
        NotRepeated: an iteration writes to such a tensor in another way.
    """
    if not any(map(_storages_written_by, itertools.chain(*iterations))):
        return [], {}
    outer_storages = _storages_before(iterations[0][0])
    rows = _row_writes(iterations, outer_storages) if takes_rows else None
    if rows is not None:
        for write in rows:
            for iteration, nodes in enumerate(iterations):
                # An iteration may write a value of the one before, or one from before the loop.
                row, value = write.nodes[2 * iteration + 1], write.values[iteration]
                write.values[iteration] = _insert_after(row, _ATEN.alias.default, (value,), value, nodes)
                nodes[:] = [node for node in nodes if node not in write.nodes]
        return rows, {}
    updates: dict[torch.fx.Node, list[torch.fx.Node]] = {}
    for nodes in iterations:
        _carry_values(nodes, outer_storages, updates)
    if any(len(values) != len(iterations) for values in updates.values()):
        raise NotRepeated("the iterations write to different tensors")
    written = {storage_of(base.meta["val"]) for base in updates}
    inside = set(itertools.chain(*iterations))
    for operand in (operand for node in inside for operand in node.all_input_nodes):
        if (
            operand not in inside
            and operand not in updates
            and storage_of(operand.meta.get("val")) in written
        ):
            raise NotRepeated(f"an iteration reads '{operand.name}', a view of a tensor that it writes to")
    return [], updates


def carry_writes(
    nodes: list[torch.fx.Node], start: torch.fx.Node, updates: dict[torch.fx.Node, list[torch.fx.Node]]
) -> None:
    """Replace the writes of an iteration to tensors from before a loop by operators that return new values.

    Args:
        start: the first node of the loop.
        updates: the values of the written tensors after the iterations before; this one's are added.

    Raises:
        NotRepeated: there is no such operator.
    """
    if any(map(_storages_written_by, nodes)) or updates:
        _carry_values(nodes, _storages_before(start), updates)


def _row_writes(
    iterations: Sequence[Sequence[torch.fx.Node]], outer_storages: set[int]
) -> list[SliceWrite] | None:
    """The writes if all of them are to rows at the index, of tensors that no iteration reads; else None."""
    writes: list[list[SliceWrite]] = []
    for nodes in iterations:
        writers = [node for node in nodes if _storages_written_by(node) & outer_storages]
        rows = [_row_write(node, nodes) for node in writers]
        writes.append([row for row in rows if row is not None])
        if len(writes[-1]) < len(writers):
            return None
    if not len(writes[0]) == len(writes[1]) == len(writes[2]):
        return None
    result = []
    for first, second, third in zip(*writes, strict=True):
        if not (first.base is second.base is third.base and first.axis == second.axis == third.axis):
            return None
        values = [*first.values, *second.values, *third.values]
        result.append(SliceWrite(first.base, first.axis, values, [*first.nodes, *second.nodes, *third.nodes]))
    written = {storage_of(write.base.meta["val"]) for write in result}
    nodes_of_writes = {node for write in result for node in write.nodes}
    readers = [node for nodes in iterations for node in nodes if node not in nodes_of_writes]
    is_read = any(
        storage_of(operand.meta.get("val")) in written for node in readers for operand in node.all_input_nodes
    )
    # Two writes of one tensor depend on their order, which stacked rows do not have.
    bases = [write.base for write in result]
    return None if is_read or len(set(bases)) < len(bases) else result


def _row_write(node: torch.fx.Node, nodes: Sequence[torch.fx.Node]) -> SliceWrite | None:
    view, value = node.args[0], node.args[1] if len(node.args) > 1 else None
    is_row = (
        node.target is _ATEN.copy_.default
        and isinstance(view, torch.fx.Node)
        and isinstance(value, torch.fx.Node)
        and view.target is _ATEN.select.int
        and view in nodes
        and view.args[2] is nodes[0]
        and view.args[0] not in nodes
        and len(view.users) == 1
        and have_same_type(view, value)
    )
    if not is_row:
        return None
    assert isinstance(view, torch.fx.Node)
    assert isinstance(value, torch.fx.Node)
    base, axis, _ = view.args
    assert isinstance(base, torch.fx.Node)
    return SliceWrite(base, int(str(axis)) % base.meta["val"].dim(), [value], [view, node])


def _carry_values(
    nodes: list[torch.fx.Node], outer_storages: set[int], updates: dict[torch.fx.Node, list[torch.fx.Node]]
) -> None:
    """Replace the writes of one iteration by operators that return new values.

    Args:
        updates: the values of the written tensors after the iterations before; this one's are added.
    """
    before = {base: values[-1] for base, values in updates.items()}
    current = dict(before)
    for node in list(nodes):
        for base, value in current.items():
            # A new value is not the result of a write any more, and may be read like any other.
            if base in node.all_input_nodes and value is not base:
                node.replace_input_with(base, value)
        if not _storages_written_by(node) & outer_storages:
            continue
        target = node.args[0]
        assert isinstance(target, torch.fx.Node)
        views = _views(target, nodes)
        base = views[-1].all_input_nodes[0] if views else target
        origin = next((key for key, value in current.items() if value is base), base)
        if origin in nodes or any(view.target not in _SCATTERS for view in views):
            raise NotRepeated(f"an iteration writes in place to a tensor from before: {call_text(node)}")
        _check_views(node, nodes)
        value = _functional(node, nodes)
        # From the written view outwards: each scatter makes the new value of the tensor that the view is of.
        for view in views:
            scatter = _SCATTERS[view.target]
            value = _insert_after(value, scatter, (view.args[0], value, *view.args[1:]), view.args[0], nodes)
        current[origin] = value
    for base, value in current.items():
        if before.get(base) is not value:
            updates.setdefault(base, []).append(value)


def _check_views(writer: torch.fx.Node, nodes: Sequence[torch.fx.Node]) -> None:
    """Refuse an iteration that reads a view after a write to its memory: the view has the old elements."""
    position, storages = nodes.index(writer), _storages_written_by(writer)
    later = set(nodes[position + 1 :])
    for view in nodes[:position]:
        if storage_of(view.meta.get("val")) in storages and not later.isdisjoint(view.users):
            is_read = any(user in later and user.target not in _SCATTERS.values() for user in view.users)
            if is_read and _shares_storage(view):
                raise NotRepeated(
                    f"an iteration reads '{view.name}', a view of a tensor, after it writes to it"
                )


def _views(node: torch.fx.Node, nodes: Sequence[torch.fx.Node]) -> list[torch.fx.Node]:
    """The views of an iteration, innermost first, from which a tensor is made."""
    views = []
    while node in nodes and node.args and _shares_storage(node):
        views.append(node)
        node = node.all_input_nodes[0]
    return views


def _shares_storage(node: torch.fx.Node) -> bool:
    first = node.args[0]
    if not isinstance(first, torch.fx.Node) or node.target not in _SCATTERS:
        return False
    return storage_of(first.meta.get("val")) == storage_of(node.meta.get("val"))


def _functional(node: torch.fx.Node, nodes: list[torch.fx.Node]) -> torch.fx.Node:
    """The value that an operator writes: the node with the operator that returns it instead.

    Raises:
        NotRepeated: there is no such operator.
    """
    target = node.args[0]
    assert isinstance(node.target, OpOverload)
    assert isinstance(target, torch.fx.Node)
    schema = schema_of(node.target)
    if node.target is _ATEN.copy_.default:
        value = node.args[1]
        if not (isinstance(value, torch.fx.Node) and have_same_type(target, value)):
            raise NotRepeated(f"an iteration writes a value of another shape or type: {call_text(node)}")
        replacement = _insert_after(node, _ATEN.alias.default, (value,), target, nodes)
        node.replace_all_uses_with(replacement, delete_user_cb=lambda user: user is not replacement)
        nodes.remove(node)
        node.graph.erase_node(node)
        return replacement
    functional = operator_of(schema.name.removesuffix("_"), schema.overload_name)
    if functional is None or not schema.name.endswith("_"):
        raise NotRepeated(f"an iteration writes in place to a tensor from before: {call_text(node)}")
    node.target = functional
    return node


def _insert_after(
    node: torch.fx.Node, target: Any, args: tuple[Any, ...], like: Any, nodes: list[torch.fx.Node]
) -> torch.fx.Node:
    """A new node of an iteration, whose value has the type and shape of another one's."""
    with node.graph.inserting_after(node):
        new_node = node.graph.call_function(target, args)
    new_node.meta["val"] = like.meta["val"]
    new_node.meta["nn_module_stack"] = node.meta.get("nn_module_stack", {})
    nodes.insert(nodes.index(node) + 1, new_node)
    return new_node


def _storages_written_by(node: torch.fx.Node) -> set[Storage]:
    """The storages that a call writes to. A normalization writes to its statistics in training alone."""
    if node.target is RANGE_LOOP:
        # The writes of an inner loop stand after it.
        return set()
    if isinstance(node.target, OpOverload):
        names = [formal.name for formal in schema_of(node.target).arguments]
        arguments = dict(zip(names, node.args, strict=False)) | node.kwargs
        if arguments.get("training", arguments.get("use_input_stats")) is False:
            return set()
    return written_storages(node)


def _storages_before(start: torch.fx.Node) -> set[int]:
    storages: set[int | None] = set()
    for node in start.graph.nodes:
        if node is start:
            break
        storages.update(storage_of(leaf) for leaf in pytree.tree_leaves(node.meta.get("val")))
    return {storage for storage in storages if storage is not None}


def have_same_type(first: torch.fx.Node, second: torch.fx.Node) -> bool:
    """Whether the values of two nodes have the same element type and shape."""
    types = [
        (value.dtype, tuple(map(_expression, value.shape)))
        for value in (node.meta.get("val") for node in (first, second))
        if isinstance(value, torch.Tensor)
    ]
    return len(types) == 2 and types[0] == types[1]


def _expression(size: int | torch.SymInt) -> sympy.Expr:
    return size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(size)


def call_text(node: torch.fx.Node) -> str:
    """A call of a graph, for a message: operands are named by the operators that compute them."""
    operands = torch.fx.node.map_arg(node.args, lambda operand: _Text(operand_text(operand)))
    return f"{node.target} with {operands}"


def operand_text(node: torch.fx.Node) -> str:
    """What a node computes, without the names of the recording."""
    if not isinstance(node.meta.get("val"), torch.Tensor):
        return "a number"
    if node.op != "call_function":
        return "a tensor from before"
    return f"a tensor from {str(node.target).removeprefix('aten.').partition('.')[0]}"


class _Text(str):
    """A text that is written without quotation marks."""

    __repr__ = str.__str__
