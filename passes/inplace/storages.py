"""The memory model of the in-place pass: storages and scopes.

A storage has one current value at every point of the program. Each branch and loop body is a scope: a write
inside is visible there, and becomes an output of the node when the scope is left. A loop body reads the
storages that it writes through body inputs, which are created at the first read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

import onnx_ir as ir
from onnx_ir import DataType, Value

from ...registration import GraphError
from ..source_builder import SourceBuilder, where
from .aliases import Aliases

Truth = bool | Value
"""A condition: a known bool, or a zero-dim BOOL value."""


class BlockScope:
    """The state of the memory in one graph; lookups continue in the parent scope.

    Attributes:
        loop: the `prim::Loop` whose body this is.
        sealed: the node that owns this block, if the block may not write to outer tensors.
        entries: the current value of each storage written here, its version, and the reason if it cannot be
            read.
        inputs: the body inputs through which a loop's body reads storages that it writes.
        cache: the value of each location, with its version.
        truths: computed conditions, by operator and operands.
    """

    __slots__ = ("cache", "entries", "graph", "inputs", "loop", "parent", "sealed", "truths")

    def __init__(
        self,
        graph: ir.Graph,
        parent: BlockScope | None = None,
        loop: ir.Node | None = None,
        sealed: ir.Node | None = None,
    ):
        self.graph = graph
        self.parent = parent
        self.loop = loop
        self.sealed = sealed
        self.entries: dict[Storage, tuple[Value, int, str | None]] = {}
        self.inputs: dict[Storage, Value] = {}
        self.cache: dict[object, tuple[Value, int]] = {}
        self.truths: dict[tuple[str | Value, ...], Value] = {}

    def __iter__(self) -> Iterator[BlockScope]:
        """This scope and the enclosing ones, from the inside out."""
        scope: BlockScope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent


class Storage:
    """Memory that tensors share.

    Attributes:
        initial: the value before any write.
        home: the scope in whose graph the storage was created.
        roots: the possible owners of the memory, see `Aliases`.
        list_node: the node that put one of the storage's tensors into a list or read one from it; later
            writes are refused.
    """

    __slots__ = ("home", "initial", "list_node", "roots")

    def __init__(
        self, initial: Value, home: BlockScope, roots: frozenset[Value], list_node: ir.Node | None = None
    ):
        self.initial = initial
        self.home = home
        self.roots = roots
        self.list_node = list_node


class Memory:
    """All storages, and the current scope.

    Attributes:
        node: the node being rewritten, for messages.
    """

    def __init__(self, graph: ir.Graph, aliases: Aliases):
        self.aliases = aliases
        self.build = SourceBuilder(graph)
        self.scope = BlockScope(graph)
        self.root = self.scope
        self.node: ir.Node | None = None
        self._clock = 0

    def tick(self) -> int:
        """Return a new version number, greater than all others."""
        # Versions order the writes of all scopes, so that stale cached values can be recognized.
        self._clock += 1
        return self._clock

    def block(self, graph: ir.Graph) -> BlockScope:
        """Make a scope for a branch, inside the current scope."""
        return BlockScope(graph, self.scope)

    @contextlib.contextmanager
    def inside(self, scope: BlockScope) -> Iterator[None]:
        """Enter another scope temporarily."""
        outer, self.scope = self.scope, scope
        try:
            yield
        finally:
            self.scope = outer

    @contextlib.contextmanager
    def at_end(self, scope: BlockScope) -> Iterator[None]:
        """Enter another scope temporarily, and append nodes to its graph."""
        with self.inside(scope), self.build.at_end(scope.graph):
            yield

    def entry(self, storage: Storage, scope: BlockScope | None = None) -> tuple[Value, int, str | None]:
        """Return the current value of a storage, its version, and the reason if it is unreadable, or None."""
        scope = scope or self.scope
        entry = scope.entries.get(storage)
        if entry is not None:
            return entry
        # Nothing has written to it.
        if storage.home is scope or scope.parent is None:
            return storage.initial, 0, None
        entry = self.entry(storage, scope.parent)
        # The body may read the value before a later iteration has written it.
        if scope.loop is not None and self.aliases.written_in(storage.roots, scope.loop):
            formal = Value(type=entry[0].type, shape=entry[0].shape)
            scope.graph.inputs.append(formal)
            scope.inputs[storage] = formal
            entry = scope.entries[storage] = formal, self.tick(), entry[2]
        return entry

    def current(self, storage: Storage) -> Value:
        """The current value of a storage.

        Raises:
            GraphError: the value is unknown.
        """
        value, _, unknown = self.entry(storage)
        if unknown is not None:
            raise GraphError(unknown)
        return value

    def check_writable(self, storage: Storage) -> None:
        """Refuse a write that the graph cannot express.

        Raises:
            GraphError: the storage must not be written here.
        """
        assert self.node is not None
        if storage.list_node is not None:
            raise GraphError(
                f"{where(self.node)}: it writes to a tensor that {where(storage.list_node)} stored in a "
                "list; write before that, or store a clone()"
            )
        for scope in self.scope:
            if storage.home is scope:
                break
            if scope.sealed is not None:
                raise GraphError(
                    f"{where(self.node)}: a block of {where(scope.sealed)} writes to a tensor from outside "
                    "of it; write to a clone() and return the clone"
                )

    def set(self, storage: Storage, value: Value) -> None:
        """Write a whole storage.

        Raises:
            GraphError: the storage must not be written here.
        """
        self.check_writable(storage)
        self.scope.entries[storage] = value, self.tick(), None

    def forget(self, storage: Storage, reason: str) -> None:
        """Mark the value of a storage as unknown."""
        value = self.entry(storage)[0]
        self.scope.entries[storage] = value, self.tick(), reason

    def cached_value(self, location: object, storages: Iterable[Storage]) -> Value | None:
        """Return the cached value of a location, if no write has made it stale."""
        entries = [self.entry(storage) for storage in storages]
        if any(reason is not None for _, _, reason in entries):
            return None
        version = max((version for _, version, _ in entries), default=0)
        for scope in self.scope:
            entry = scope.cache.get(location)
            # The cached value is at least as new as the last write to any of the storages.
            if entry is not None and entry[1] >= version:
                return entry[0]
        return None

    def cache_value(self, location: object, value: Value) -> None:
        """Cache the current value of a location."""
        self.scope.cache[location] = value, self._clock

    def logical_and(self, a: Truth, b: Truth) -> Truth:
        """The conjunction of two conditions."""
        return self._combine_conditions("logical_and", True, a, b)

    def logical_or(self, a: Truth, b: Truth) -> Truth:
        """The disjunction of two conditions."""
        return self._combine_conditions("logical_or", False, a, b)

    def _combine_conditions(self, name: str, neutral: bool, a: Truth, b: Truth) -> Truth:
        """Combine two conditions with an operator whose neutral element is `neutral`."""
        for constant, condition in ((a, b), (b, a)):
            if isinstance(constant, bool):
                return condition if constant is neutral else constant
        assert isinstance(a, Value)
        assert isinstance(b, Value)
        if a is b:
            return a
        # `(a and b) and b` is `a and b`; `not b and b` is false, and likewise for `or`.
        for whole, part in ((a, b), (b, a)):
            producer = whole.producer()
            if producer is not None and part in producer.inputs and _is_aten(producer, name):
                return whole
            if producer is not None and part in producer.inputs and _is_aten(producer, "logical_not"):
                return not neutral
        return self._truth(name, {"self": a, "other": b})

    def logical_not(self, a: Truth) -> Truth:
        """The negation of a condition."""
        if isinstance(a, bool):
            return not a
        producer = a.producer()
        if producer is not None and _is_aten(producer, "logical_not"):
            [operand] = producer.inputs
            if operand is not None and operand.dtype == DataType.BOOL:
                return operand
        return self._truth("logical_not", {"self": a})

    def _truth(self, name: str, operands: dict[str, Value]) -> Value:
        key: tuple[str | Value, ...] = (name, *operands.values())
        for scope in self.scope:
            if key in scope.truths:
                return scope.truths[key]
        value = self.build.emit(f"aten::{name}", operands, dtype=DataType.BOOL, shape=ir.Shape(()))
        self.scope.truths[key] = value
        return value

    def sees(self, scope: BlockScope, value: Value) -> bool:
        """Whether nodes in a scope can read a value."""
        producer = value.producer()
        graph = value.graph if producer is None else producer.graph
        return graph is None or any(enclosing.graph is graph for enclosing in scope)

    def storage(self, value: Value, list_node: ir.Node | None = None) -> Storage:
        """Make a storage for a value, in the scope whose graph defines the value."""
        producer = value.producer()
        graph = value.graph if producer is None else producer.graph
        home = next((scope for scope in self.scope if scope.graph is graph), self.root)
        return Storage(value, home, self.aliases.roots(value), list_node)

    def as_output(self, value: Value, graph: ir.Graph) -> Value:
        """Return the value if the graph can return it, because it owns the value, else a copy."""
        producer = value.producer()
        # A graph returns each value once.
        if producer is not None and producer.graph is graph and not value.is_graph_output():
            return value
        if producer is None and value.is_graph_input() and value.graph is graph:
            return value
        return self.build.emit("aten::alias", {"self": value}, like=value)


def _is_aten(node: ir.Node, name: str) -> bool:
    """Whether a node is an operator of ATen."""
    return node.op_type == name and node.domain == "aten"
