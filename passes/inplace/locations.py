"""Locations of tensors in memory during the in-place pass; each can be loaded and stored.

A location is a whole storage, a view of another location, one of two locations selected by a condition, or
elements of a storage at computed positions.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Sequence

import onnx_ir as ir
from onnx_ir import Value

from ...registration import GraphError
from ...registration.arguments import blocks
from ..source_builder import SourceBuilder, shapes_differ, sizes_of, where
from .storages import BlockScope, Memory, Storage, Truth
from .views import ViewStep


class Location(abc.ABC):
    """The position of a tensor in memory.

    Attributes:
        storages: the storages that may hold the tensor, without duplicates.
    """

    __slots__ = ("storages",)

    def __init__(self, storages: tuple[Storage, ...]):
        self.storages = storages

    @abc.abstractmethod
    def load(self, memory: Memory) -> Value:
        """The current value."""

    @abc.abstractmethod
    def store(self, memory: Memory, new: Value) -> None:
        """Make `new` the current value, and update everything that shares this memory."""


class Whole(Location):
    """A whole storage."""

    __slots__ = ()

    def __init__(self, storage: Storage):
        super().__init__((storage,))

    @property
    def storage(self) -> Storage:
        """The storage."""
        return self.storages[0]

    def load(self, memory: Memory) -> Value:
        """The current value of the storage."""
        return memory.current(self.storage)

    def store(self, memory: Memory, new: Value) -> None:
        """Make `new`, which has the storage's shape, the current value of the storage."""
        # Writes keep the shape of a storage, so a known shape is not lost.
        if new.shape is None and self.storage.initial.shape is not None:
            new = memory.build.reshape(new, memory.entry(self.storage)[0])
        memory.set(self.storage, new)


class Derived(Location):
    """A location whose value is computed from other locations, and cached until one of them is written."""

    __slots__ = ()

    def load(self, memory: Memory) -> Value:
        """The current value."""
        value = memory.cached_value(self, self.storages)
        if value is None:
            value = self._compute(memory)
            memory.cache_value(self, value)
        return value

    def store(self, memory: Memory, new: Value) -> None:
        """Make `new` the current value here, and update everything that shares this memory."""
        self._write_parents(memory, new)
        memory.cache_value(self, new)

    @abc.abstractmethod
    def _compute(self, memory: Memory) -> Value:
        """Compute the value."""

    @abc.abstractmethod
    def _write_parents(self, memory: Memory, new: Value) -> None:
        """Write to the locations that the value is computed from."""


class View(Location):
    """A view of another location, `parent`. Its value is cached until the memory of the parent is written."""

    __slots__ = ("parent", "step")

    def __init__(self, parent: Location, step: ViewStep):
        super().__init__(parent.storages)
        self.parent = parent
        self.step = step

    def load(self, memory: Memory) -> Value:
        """The current value. A view of a view is computed from its nearest base with a cached value."""
        location: Location = self
        missing: list[View] = []
        value: Value | None = None
        while value is None:
            if not isinstance(location, View):
                value = location.load(memory)
                break
            value = memory.cached_value(location, location.storages)
            if value is None:
                missing.append(location)
                location = location.parent
        # Recompute from the nearest base that is still valid, and cache each view on the way.
        for view in reversed(missing):
            value = view.step.make(memory.build, value)
            memory.cache_value(view, value)
        return value

    def store(self, memory: Memory, new: Value) -> None:
        """Make `new` the current value of the view, and write it back to its parents."""
        location: Location = self
        written: list[tuple[View, Value]] = []
        while isinstance(location, View):
            written.append((location, new))
            new = location.step.write(memory.build, location.parent.load(memory), new)
            location = location.parent
        location.store(memory, new)
        for view, value in reversed(written):
            memory.cache_value(view, value)


class ConditionalLocation(Derived):
    """One of two locations, selected by the condition of a branch."""

    __slots__ = ("condition", "no", "yes")

    def __init__(self, condition: Value, yes: Location, no: Location):
        super().__init__(tuple(dict.fromkeys((*yes.storages, *no.storages))))
        self.condition = condition
        self.yes = yes
        self.no = no

    def _compute(self, memory: Memory) -> Value:
        return conditional_value(memory, self.condition, self.yes.load, self.no.load)

    def _write_parents(self, memory: Memory, new: Value) -> None:
        # Selecting between old and new values needs no nested branch that repeats the write.
        if is_whole_storage(self):
            self._select_values(memory, new)
            return
        node, *blocks = memory.build.branch(self.condition)
        scopes = [memory.block(block) for block in blocks]
        for scope, location in zip(scopes, (self.yes, self.no), strict=True):
            with memory.at_end(scope):
                like = _shaped_like(memory, location)
                if like is None:
                    location.store(memory, new)
                # A value of another shape cannot be written here, so this branch never runs.
                elif not shapes_differ(new, like):
                    # The value has the sizes of this location only if the branch runs.
                    sized = memory.build.reshape(new, like) if sizes_of(like) is not None else new
                    location.store(memory, sized)
        join(memory, node, scopes)

    def _select_values(self, memory: Memory, new: Value) -> None:
        """Select the new or the old value of each storage, without nested branches."""
        for storage, condition in memberships(memory, self).items():
            old = memory.current(storage)
            # A storage of another shape cannot be the one that is written.
            if condition is False or shapes_differ(new, old):
                continue
            if condition is True:
                Whole(storage).store(memory, new)
            else:
                memory.set(
                    storage,
                    conditional_value(memory, condition, _in_shape_of(new, old), _in_shape_of(old, old)),
                )


def _shaped_like(memory: Memory, location: Location) -> Value | None:
    """Return a value with the shape of a location, if one exists."""
    if isinstance(location, View):
        return location.step.output
    if isinstance(location, Elements):
        return location.positions
    return memory.current(location.storage) if isinstance(location, Whole) else None


def _in_shape_of(new: Value, old: Value) -> Callable[[Memory], Value]:
    def make(memory: Memory) -> Value:
        has_known_shape = new.shape is not None and sizes_of(old) is None
        return new if has_known_shape or old.shape is None else memory.build.reshape(new, old)

    return make


class Elements(Derived):
    """Elements of a whole storage, or of one of several storages, at row-major positions.

    Attributes:
        positions: an INT64 tensor with the shape of this location.
    """

    __slots__ = ("parent", "positions")

    def __init__(self, parent: Location, positions: Value):
        super().__init__(parent.storages)
        self.parent = parent
        self.positions = positions

    def _compute(self, memory: Memory) -> Value:
        build, base = memory.build, self.parent.load(memory)
        # Row-major positions index the flattened storage.
        flat, flat_positions = flatten(build, base), flatten(build, self.positions)
        arguments = {"self": flat, "dim": 0, "index": flat_positions}
        picked = build.emit("aten::index_select", arguments, dtype=base.dtype, shape=flat_positions.shape)
        return build.reshape(picked, self.positions)

    def _write_parents(self, memory: Memory, new: Value) -> None:
        build, base = memory.build, self.parent.load(memory)
        flat, flat_positions = flatten(build, base), flatten(build, self.positions)
        arguments = {"self": flat, "indices": [flat_positions], "values": flatten(build, new)}
        written = build.emit("aten::index_put", arguments, like=flat)
        self.parent.store(memory, build.reshape(written, base))


class Undecided(Location):
    """A location of which it is unknown whether it is a view or a copy: a write to it spoils its parent."""

    __slots__ = ("_storage", "_valid_since", "description", "parent")

    def __init__(self, memory: Memory, parent: Location, storage: Storage, description: str):
        super().__init__((storage, *parent.storages))
        self.parent = parent
        self.description = description
        self._storage = storage
        # Later versions of the argument's memory mean that it was written since.
        self._valid_since = memory.tick()

    def _message(self) -> str:
        return (
            f"{self.description}: it is unknown whether this shares memory with its argument, and one of "
            "them is written while the other is in use; say clone() where a copy is meant"
        )

    def load(self, memory: Memory) -> Value:
        """The current value, if the other location was not written since."""
        if any(memory.entry(storage)[1] > self._valid_since for storage in self.parent.storages):
            raise GraphError(self._message())
        return memory.current(self._storage)

    def store(self, memory: Memory, new: Value) -> None:
        """Make `new` the current value, and mark the other location as unknown."""
        if self._storage.home is not memory.scope:
            raise GraphError(self._message())
        memory.set(self._storage, new)
        for storage in self.parent.storages:
            memory.forget(storage, self._message())
        self._valid_since = memory.tick()


def flatten(build: SourceBuilder, value: Value) -> Value:
    """Reshape a value to one dimension."""
    if value.shape is not None and len(value.shape) == 1:
        return value
    sizes = sizes_of(value)
    shape = ir.Shape([None if sizes is None else math.prod(sizes)])
    return build.emit("aten::reshape", {"self": value, "shape": [-1]}, dtype=value.dtype, shape=shape)


def conditional_value(
    memory: Memory, condition: Value, yes: Callable[[Memory], Value], no: Callable[[Memory], Value]
) -> Value:
    """Insert a `prim::If` with one output; two functions without side effects build its branches."""
    node, *blocks = memory.build.branch(condition)
    for block, make in zip(blocks, (yes, no), strict=True):
        with memory.at_end(memory.block(block)):
            block.outputs.append(memory.as_output(make(memory), block))
    return append_result(node)


def append_result(node: ir.Node) -> Value:
    """Append an output to a `prim::If` for the last value that its branches return."""
    first, second = (block.outputs[-1] for block in blocks(node))
    node.resize_outputs(len(node.outputs) + 1)
    output = node.outputs[-1]
    # The branches may differ in what the capture recorded; take what both agree on.
    output.type = first.type if second.type is None or first.type is not None else second.type
    if first.shape is not None and second.shape is not None and len(first.shape) == len(second.shape):
        output.shape = ir.Shape(
            [a if a == b else None for a, b in zip(first.shape, second.shape, strict=True)]
        )
    return output


def join(memory: Memory, node: ir.Node, scopes: list[BlockScope]) -> None:
    """Leave both branches of a `prim::If`; their writes to outer storages become its outputs."""
    # Storages that a branch created end with it.
    outer = [storage for scope in scopes for storage in scope.entries if storage.home not in scopes]
    for storage in dict.fromkeys(outer):
        reasons = []
        for scope in scopes:
            with memory.at_end(scope):
                value, _, unknown = memory.entry(storage)
                reasons.append(unknown)
                scope.graph.outputs.append(memory.as_output(value, scope.graph))
        output = append_result(node)
        memory.scope.entries[storage] = output, memory.tick(), next((r for r in reasons if r), None)


def positions_of(memory: Memory, location: Location) -> Value:
    """Compute the row-major positions of a location's elements in its storage."""
    if isinstance(location, Whole):
        return memory.build.positions(memory.current(location.storage))
    if isinstance(location, View):
        return location.step.make(memory.build, positions_of(memory, location.parent))
    if isinstance(location, Elements):
        return location.positions
    if isinstance(location, ConditionalLocation):
        yes, no = location.yes, location.no
        return conditional_value(
            memory, location.condition, lambda m: positions_of(m, yes), lambda m: positions_of(m, no)
        )
    raise refusal(memory, location)


def storages_of(memory: Memory, location: Location) -> Location:
    """Return the storage of a location, or a choice of storages if conditions select it."""
    if isinstance(location, (View, Elements)):
        return storages_of(memory, location.parent)
    if isinstance(location, ConditionalLocation):
        yes, no = storages_of(memory, location.yes), storages_of(memory, location.no)
        # The condition selects positions only, not the storage.
        if len({*yes.storages, *no.storages}) == 1:
            return yes
        return ConditionalLocation(location.condition, yes, no)
    if isinstance(location, Whole):
        return location
    raise refusal(memory, location)


def refusal(memory: Memory, location: Location) -> GraphError:
    """Return the reason why a location cannot be used after a branch or a loop."""
    description = location.description if isinstance(location, Undecided) else "a tensor"
    assert memory.node is not None
    return GraphError(
        f"{description}: it is unknown whether this shares memory with its argument, and "
        f"{where(memory.node)} passes it to a place where one of them is "
        "written; call clone() if a copy is meant"
    )


def is_whole_storage(location: Location) -> bool:
    """Whether a location is always a whole storage."""
    if isinstance(location, ConditionalLocation):
        return is_whole_storage(location.yes) and is_whole_storage(location.no)
    return isinstance(location, Whole)


def memberships(memory: Memory, location: Location) -> dict[Storage, Truth]:
    """Return the possible storages of a location, each with its condition."""
    conditions: dict[Storage, Truth] = {}
    stack: list[tuple[Location, Truth]] = [(location, True)]
    while stack:
        current, condition = stack.pop()
        if isinstance(current, (View, Elements)):
            stack.append((current.parent, condition))
        elif isinstance(current, ConditionalLocation) and len(current.storages) > 1:
            # A stack reverses the order, so the branch for true comes out first.
            stack.append((current.no, memory.logical_and(condition, memory.logical_not(current.condition))))
            stack.append((current.yes, memory.logical_and(condition, current.condition)))
        else:
            [storage] = current.storages
            conditions[storage] = memory.logical_or(conditions.get(storage, False), condition)
    return conditions


def select_storage(storages: Sequence[Storage], flags: Sequence[Value]) -> Location:
    """Select one of several whole storages by a condition for each; the last needs none."""
    location: Location = Whole(storages[-1])
    for flag, storage in reversed(list(zip(flags, storages[:-1], strict=False))):
        location = ConditionalLocation(flag, Whole(storage), location)
    return location


def _choices(location: Location) -> int:
    if isinstance(location, ConditionalLocation):
        return 1 + _choices(location.yes) + _choices(location.no)
    return _choices(location.parent) if isinstance(location, (View, Elements)) else 0


MAXIMUM_CHOICES = 4


def limit_choices(memory: Memory, location: Location) -> Location:
    """If a location has more choices than `MAXIMUM_CHOICES`, reduce them to one per storage.

    Otherwise each branch could double the number of nodes that read a tensor.
    """
    if _choices(location) <= MAXIMUM_CHOICES:
        return location
    conditions = memberships(memory, location)
    storages = list(conditions)
    flags = [flag if isinstance(flag, Value) else memory.build.constant(flag) for flag in conditions.values()]
    compacted = select_storage(storages, flags[:-1])
    return compacted if is_whole_storage(location) else Elements(compacted, positions_of(memory, location))


def flatten_choices(location: Location) -> Location:
    """Rewrite a location as a choice between locations without choices."""
    if isinstance(location, ConditionalLocation):
        return ConditionalLocation(
            location.condition, flatten_choices(location.yes), flatten_choices(location.no)
        )
    if isinstance(location, (View, Elements)):
        parent = flatten_choices(location.parent)

        def distribute(base: Location) -> Location:
            if isinstance(base, ConditionalLocation):
                return ConditionalLocation(base.condition, distribute(base.yes), distribute(base.no))
            if isinstance(location, View):
                return View(base, location.step)
            assert isinstance(location, Elements)
            return Elements(base, location.positions)

        return distribute(parent)
    return location
