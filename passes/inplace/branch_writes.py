"""Rewrites `prim::If` in a graph whose in-place operators are being replaced.

A write inside a branch to an outer tensor becomes an output of the node. If one or both branches return an
outer tensor, the condition selects the location of the result. If this selection needs storages, conditions
or positions from inside a branch, these become further outputs.
"""

from __future__ import annotations

import collections
from collections.abc import Callable

import onnx_ir as ir
from onnx_ir import Value

from ...registration import NUMBER
from ...registration.arguments import arguments, blocks
from .aliases import is_list
from .locations import (
    ConditionalLocation,
    Elements,
    Location,
    View,
    Whole,
    append_result,
    flatten_choices,
    join,
    limit_choices,
    positions_of,
    refusal,
    storages_of,
)
from .storages import BlockScope, Storage
from .tensor_objects import TensorObject, Tensors


def rewrite_branch(memory: Tensors, node: ir.Node, visit: Callable[[ir.Graph], None]) -> None:
    """Rewrite both branches, then the node's outputs.

    Args:
        visit: rewrites the nodes of a graph in the current scope of the memory.
    """
    scopes = [BlockScope(block, memory.scope) for block in blocks(node)]
    outputs = list(node.outputs)
    returned = [list(scope.graph.outputs) for scope in scopes]
    for scope in scopes:
        with memory.inside(scope):
            visit(scope.graph)
    memory.node = node
    aliases = memory.aliases
    written_later = [
        index
        for index, output in enumerate(outputs)
        # Only tensors that are written after the branch need their location.
        if aliases.is_tracked(output)
        and not is_list(output)
        and aliases.written_later(aliases.roots(output), node)
    ]
    tensors: list[dict[int, TensorObject]] = []
    for scope, values in zip(scopes, returned, strict=True):
        with memory.at_end(scope):
            tensors.append({index: memory.tensor(values[index]) for index in written_later})
            # Writes inside the branch become visible in its results.
            return_current(memory, scope.graph, values)
    exporters = [_Exporter(memory, node, scopes, side, tensors[side]) for side in (0, 1)]
    outer_locations = [
        {index: exporter.export_location(index) for index in written_later} for exporter in exporters
    ]
    join(memory, node, scopes)
    condition = arguments(node)["condition"]
    memory.build.after(node)
    for index in written_later:
        yes, no = (locations[index] for locations in outer_locations)
        if isinstance(condition, bool):
            location = yes if condition else no
        elif isinstance(yes, Whole) and isinstance(no, Whole) and yes.storage is no.storage:
            location = yes
        else:
            # Both branches may return the same outer tensor.
            location = yes if yes is no else limit_choices(memory, ConditionalLocation(condition, yes, no))
        is_new = isinstance(location, Whole) and location.storage.initial is outputs[index]
        if not isinstance(location, Whole):
            memory.cache_value(location, outputs[index])
        memory.tensors[outputs[index]] = TensorObject(location, memory.scope, crossed=not is_new)
        # A later `unsqueeze_` inside would change the tensor outside too, which is refused.
        for side in (0, 1):
            tensors[side][index].crossed = True


def return_current(memory: Tensors, graph: ir.Graph, values: list[Value]) -> None:
    """Replace the first outputs of a block by their current values."""
    for index, value in enumerate(values):
        current = memory.load(value)
        if current is not value:
            graph.outputs[index] = memory.as_output(current, graph)


class _Exporter:
    """Translates locations of returned tensors from inside a branch to outside of it."""

    def __init__(
        self,
        memory: Tensors,
        node: ir.Node,
        scopes: list[BlockScope],
        side: int,
        tensors: dict[int, TensorObject],
    ):
        self._memory = memory
        self._node = node
        self._scopes = scopes
        self._side = side
        self._tensors = tensors
        self._users = collections.Counter(s for t in tensors.values() for s in t.location.storages)
        self._storages: dict[Storage, Whole] = {}
        self._values: dict[Value, Value] = {}
        self._inner: list[BlockScope] = []
        """The branch's scope and the enclosing scopes, up to the body of the innermost loop."""
        for scope in memory.scope:
            self._inner.append(scope)
            if scope.loop is not None:
                break

    @property
    def _scope(self) -> BlockScope:
        return self._scopes[self._side]

    def export_location(self, index: int) -> Location:
        """Return the location outside of the branch of the tensor in output `index`."""
        location = seen_inside = self._tensors[index].location
        exclusive = self._exclusive_storages(index)
        # Memory that nothing else refers to needs no location: the output's value is a new storage.
        if exclusive:
            whole = flatten_choices(location)
            location = _replace_location(whole, exclusive, self._new_storage(index, exclusive))
            content = Storage(self._scope.graph.outputs[index], self._scope, frozenset())
            seen_inside = _replace_location(whole, exclusive, Whole(content))
        if self._is_defined_inside(location):
            # Compute only the selected branch: the views of the other one may be invalid.
            with self._memory.at_end(self._scope):
                positions = positions_of(self._memory, seen_inside)
            parent = storages_of(self._memory, location)
            return Elements(self._outer_location(parent, index), self._export_value(positions, 0))
        return self._outer_location(location, index)

    def _is_defined_inside(self, location: Location) -> bool:
        """Whether a view in a location uses values that exist only in the branch."""
        if isinstance(location, ConditionalLocation):
            return self._is_defined_inside(location.yes) or self._is_defined_inside(location.no)
        reads = location.step.reads() if isinstance(location, View) else ()
        if not all(self._memory.sees(self._memory.scope, value) for value in reads):
            return True
        return isinstance(location, (View, Elements)) and self._is_defined_inside(location.parent)

    def _exclusive_storages(self, index: int) -> set[Storage]:
        """Return the storages that only this output refers to; its value becomes a new storage."""
        aliases = self._memory.aliases
        names: set[Value] | None = None
        exclusive = set()
        for storage in self._tensors[index].location.storages:
            if storage.home is self._scope:
                is_exclusive = self._users[storage] == 1
            elif any(storage.home is scope for scope in self._inner):
                output = self._node.outputs[index]
                names = names if names is not None else aliases.descendants(output, until=self._node)
                is_exclusive = not aliases.used_later(storage.roots, self._node, names)
            else:
                is_exclusive = False
            if is_exclusive:
                exclusive.add(storage)
        return exclusive

    def _new_storage(self, index: int, replaced_storages: set[Storage]) -> Whole:
        """Make a storage whose initial value is the node's output at `index`."""
        memory, output = self._memory, self._node.outputs[index]
        tensor = memory.tensors.get(output)
        if tensor is None:
            tensor = memory.tensors[output] = TensorObject(Whole(memory.storage(output)), memory.scope)
        location = tensor.location
        assert isinstance(location, Whole)
        list_nodes = (storage.list_node for storage in replaced_storages)
        location.storage.list_node = next(
            (list_node for list_node in list_nodes if list_node), location.storage.list_node
        )
        return location

    def _outer_location(self, location: Location, index: int) -> Location:
        if isinstance(location, Whole):
            return self._outer_storage(location, index)
        if isinstance(location, ConditionalLocation):
            condition = self._export_value(location.condition, False)
            yes, no = self._outer_location(location.yes, index), self._outer_location(location.no, index)
            return ConditionalLocation(condition, yes, no)
        if isinstance(location, Elements):
            return Elements(
                self._outer_location(location.parent, index), self._export_value(location.positions, 0)
            )
        if isinstance(location, View):
            return View(self._outer_location(location.parent, index), location.step)
        raise refusal(self._memory, location)

    def _outer_storage(self, location: Whole, index: int) -> Location:
        storage = location.storage
        # Storages from outside of the branch exist after it as well.
        if storage.home is not self._scope:
            return location
        outer = self._storages.get(storage)
        if outer is None:
            with self._memory.at_end(self._scope):
                value = self._memory.current(storage)
            other_branch = self._scopes[1 - self._side].graph
            output = self._append(value, lambda: self._filler(value) or other_branch.outputs[index])
            outer_storage = Storage(output, self._memory.scope, storage.roots, storage.list_node)
            outer = self._storages[storage] = Whole(outer_storage)
        return outer

    def _export_value(self, value: Value, otherwise: bool | int) -> Value:
        """Return a condition or positions from the branch as an output; the other branch returns a filler."""
        if self._memory.sees(self._memory.scope, value):
            return value
        output = self._values.get(value)
        if output is None:
            output = self._append(
                value, lambda: self._filler(value) or self._memory.build.constant(otherwise)
            )
            self._values[value] = output
        return output

    def _filler(self, value: Value) -> Value | None:
        """Return zeros with the element type and rank of a value, as far as known."""
        # Zeros need a type; a scalar or number is taken from the fallback instead.
        if value.dtype is None or not value.shape or NUMBER in value.metadata_props:
            return None
        sizes = [size if isinstance(size, int) else 1 for size in value.shape]
        zeros_arguments = {"size": sizes, "dtype": value.dtype}
        return self._memory.build.emit(
            "aten::zeros", zeros_arguments, dtype=value.dtype, shape=ir.Shape(sizes)
        )

    def _append(self, value: Value, otherwise: Callable[[], Value]) -> Value:
        """Add an output of the node whose value comes from this branch."""
        memory = self._memory
        with memory.at_end(self._scope):
            self._scope.graph.outputs.append(memory.as_output(value, self._scope.graph))
        other_branch = self._scopes[1 - self._side]
        with memory.at_end(other_branch):
            other_branch.graph.outputs.append(memory.as_output(otherwise(), other_branch.graph))
        return append_result(self._node)


def _replace_location(location: Location, storages: set[Storage], by: Location) -> Location:
    """Replace the parts of a distributed location that are in some storages by another location."""
    if isinstance(location, ConditionalLocation):
        yes, no = _replace_location(location.yes, storages, by), _replace_location(location.no, storages, by)
        return yes if yes is no else ConditionalLocation(location.condition, yes, no)
    return by if storages.issuperset(location.storages) else location
