"""`prim::If` in a graph whose in-place operators are being rewritten.

A write inside a branch to an outer tensor becomes an output of the node. If one or both branches return an
outer tensor, the condition selects the location of the result. Storages, conditions and positions from inside
a branch that this selection needs become further outputs.
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
    Choice,
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
from .storages import Scope, Storage
from .tensors import Tensor, Tensors


def rewrite_branch(memory: Tensors, node: ir.Node, visit: Callable[[ir.Graph], None]) -> None:
    """Rewrite both branches, then the node's outputs.

    Args:
        visit: rewrites the nodes of a graph in the current scope of the memory.
    """
    scopes = [Scope(block, memory.scope) for block in blocks(node)]
    outputs = list(node.outputs)
    returned = [list(scope.graph.outputs) for scope in scopes]
    for scope in scopes:
        with memory.inside(scope):
            visit(scope.graph)
    memory.node = node
    aliases = memory.aliases
    later = [
        place
        for place, output in enumerate(outputs)
        if aliases.is_tracked(output)
        and not is_list(output)
        and aliases.written_later(aliases.roots(output), node)
    ]
    tensors: list[dict[int, Tensor]] = []
    for scope, values in zip(scopes, returned, strict=True):
        with memory.at_end(scope):
            tensors.append({place: memory.tensor(values[place]) for place in later})
            return_current(memory, scope.graph, values)
    exporters = [_Exporter(memory, node, scopes, side, tensors[side]) for side in (0, 1)]
    left = [{place: exporter.leave(place) for place in later} for exporter in exporters]
    join(memory, node, scopes)
    condition = arguments(node)["condition"]
    memory.build.after(node)
    for place in later:
        yes, no = (locations[place] for locations in left)
        if isinstance(condition, bool):
            location = yes if condition else no
        elif isinstance(yes, Whole) and isinstance(no, Whole) and yes.storage is no.storage:
            location = yes
        else:
            location = yes if yes is no else limit_choices(memory, Choice(condition, yes, no))
        is_new = isinstance(location, Whole) and location.storage.initial is outputs[place]
        if not isinstance(location, Whole):
            memory.keep(location, outputs[place])
        memory.tensors[outputs[place]] = Tensor(location, memory.scope, crossed=not is_new)
        for side in (0, 1):
            tensors[side][place].crossed = True


def return_current(memory: Tensors, graph: ir.Graph, values: list[Value]) -> None:
    """Replace the first outputs of a block by their current values."""
    for place, value in enumerate(values):
        current = memory.read(value)
        if current is not value:
            graph.outputs[place] = memory.returned(current, graph)


class _Exporter:
    """Translates locations of returned tensors from inside a branch to outside of it."""

    def __init__(
        self, memory: Tensors, node: ir.Node, scopes: list[Scope], side: int, tensors: dict[int, Tensor]
    ):
        self._memory = memory
        self._node = node
        self._scopes = scopes
        self._side = side
        self._tensors = tensors
        self._users = collections.Counter(s for t in tensors.values() for s in t.location.storages)
        self._storages: dict[Storage, Whole] = {}
        self._values: dict[Value, Value] = {}
        self._inner: list[Scope] = []
        """This scope and those around it, up to the body of the innermost loop."""
        for scope in memory.scope:
            self._inner.append(scope)
            if scope.loop is not None:
                break

    @property
    def _scope(self) -> Scope:
        return self._scopes[self._side]

    def leave(self, place: int) -> Location:
        """Return the location outside of the branch of the tensor in output `place`."""
        location = seen_inside = self._tensors[place].location
        own = self._exclusive_storages(place)
        if own:
            whole = flatten_choices(location)
            location = _replaced(whole, own, self._new(place, own))
            content = Storage(self._scope.graph.outputs[place], self._scope, frozenset())
            seen_inside = _replaced(whole, own, Whole(content))
        if self._is_made_inside(location):
            # Compute only the selected branch: the views of the other one may be invalid.
            with self._memory.at_end(self._scope):
                positions = positions_of(self._memory, seen_inside)
            parent = storages_of(self._memory, location)
            return Elements(self._outer_location(parent, place), self._number(positions, 0))
        return self._outer_location(location, place)

    def _is_made_inside(self, location: Location) -> bool:
        """Whether a view in a location uses values that exist only in the branch."""
        if isinstance(location, Choice):
            return self._is_made_inside(location.yes) or self._is_made_inside(location.no)
        reads = location.step.reads() if isinstance(location, View) else ()
        if not all(self._memory.sees(self._memory.scope, value) for value in reads):
            return True
        return isinstance(location, (View, Elements)) and self._is_made_inside(location.parent)

    def _exclusive_storages(self, place: int) -> set[Storage]:
        """Return the storages that only this output refers to; its value becomes a new storage."""
        aliases = self._memory.aliases
        names: set[Value] | None = None
        found = set()
        for storage in self._tensors[place].location.storages:
            if storage.home is self._scope:
                is_own = self._users[storage] == 1
            elif any(storage.home is scope for scope in self._inner):
                output = self._node.outputs[place]
                names = names if names is not None else aliases.descendants(output, until=self._node)
                is_own = not aliases.used_later(storage.roots, self._node, names)
            else:
                is_own = False
            if is_own:
                found.add(storage)
        return found

    def _new(self, place: int, own: set[Storage]) -> Whole:
        """A new storage whose initial value is the node's output at `place`."""
        memory, output = self._memory, self._node.outputs[place]
        tensor = memory.tensors.get(output)
        if tensor is None:
            tensor = memory.tensors[output] = Tensor(Whole(memory.storage(output)), memory.scope)
        location = tensor.location
        assert isinstance(location, Whole)
        keepers = (storage.kept_by for storage in own)
        location.storage.kept_by = next((keeper for keeper in keepers if keeper), location.storage.kept_by)
        return location

    def _outer_location(self, location: Location, place: int) -> Location:
        if isinstance(location, Whole):
            return self._outer_storage(location, place)
        if isinstance(location, Choice):
            condition = self._number(location.condition, False)
            yes, no = self._outer_location(location.yes, place), self._outer_location(location.no, place)
            return Choice(condition, yes, no)
        if isinstance(location, Elements):
            return Elements(self._outer_location(location.parent, place), self._number(location.positions, 0))
        if isinstance(location, View):
            return View(self._outer_location(location.parent, place), location.step)
        raise refusal(self._memory, location)

    def _outer_storage(self, location: Whole, place: int) -> Location:
        storage = location.storage
        if storage.home is not self._scope:
            return location
        known = self._storages.get(storage)
        if known is None:
            with self._memory.at_end(self._scope):
                value = self._memory.current(storage)
            other = self._scopes[1 - self._side].graph
            output = self._append(value, lambda: self._filler(value) or other.outputs[place])
            made = Storage(output, self._memory.scope, storage.roots, storage.kept_by)
            known = self._storages[storage] = Whole(made)
        return known

    def _number(self, value: Value, otherwise: bool | int) -> Value:
        """Return a condition or positions from the branch as an output; the other branch returns a filler."""
        if self._memory.sees(self._memory.scope, value):
            return value
        known = self._values.get(value)
        if known is None:
            known = self._append(value, lambda: self._filler(value) or self._memory.build.constant(otherwise))
            self._values[value] = known
        return known

    def _filler(self, value: Value) -> Value | None:
        """Return zeros with the element type and rank of a value, as far as known."""
        if value.dtype is None or not value.shape or NUMBER in value.metadata_props:
            return None
        sizes = [size if isinstance(size, int) else 1 for size in value.shape]
        given = {"size": sizes, "dtype": value.dtype}
        return self._memory.build.emit("aten::zeros", given, dtype=value.dtype, shape=ir.Shape(sizes))

    def _append(self, value: Value, otherwise: Callable[[], Value]) -> Value:
        """Add an output of the node whose value comes from this branch."""
        memory = self._memory
        with memory.at_end(self._scope):
            self._scope.graph.outputs.append(memory.returned(value, self._scope.graph))
        other = self._scopes[1 - self._side]
        with memory.at_end(other):
            other.graph.outputs.append(memory.returned(otherwise(), other.graph))
        return append_result(self._node)


def _replaced(location: Location, storages: set[Storage], by: Location) -> Location:
    """Replace the parts of a distributed location that are in some storages by another location."""
    if isinstance(location, Choice):
        yes, no = _replaced(location.yes, storages, by), _replaced(location.no, storages, by)
        return yes if yes is no else Choice(location.condition, yes, no)
    return by if storages.issuperset(location.storages) else location
