"""The memory of a source graph whose in-place operators are being rewritten: storages and scopes.

A storage has one current value at every place of the program. Branches and loop bodies are scopes of their
own: what is written inside is known there, and becomes an output of the node when the scope is left. A loop
body reads a storage that the body writes through an input of its own, made when it is first needed.
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
"""A truth that is known, or a zero-dim BOOL."""


class Scope:
    """What is known of the memory inside one graph; what it does not know, its parent does.

    Attributes:
        loop: the `prim::Loop` whose body this is.
        sealed: the node whose block this is, where that may not write to anything outside.
        entries: the current value of each storage written here, its version, and why it cannot be read.
        inputs: the body inputs through which a loop's body reads storages that it writes.
        cache: the value of a location, and the version it is of.
        truths: what was computed of truths, by operator and operands.
    """

    __slots__ = ("cache", "entries", "graph", "inputs", "loop", "parent", "sealed", "truths")

    def __init__(
        self,
        graph: ir.Graph,
        parent: Scope | None = None,
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

    def __iter__(self) -> Iterator[Scope]:
        """The scope, and those around it from the inside out."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent


class Storage:
    """Memory that tensors share.

    Attributes:
        initial: its value where nothing was written to it.
        home: the scope that it was made in; it is gone when that is left.
        roots: what may have made it, as `Aliases` has it.
        kept_by: the node that put a tensor of it into a list, or took one out; writes are refused from there.
    """

    __slots__ = ("home", "initial", "kept_by", "roots")

    def __init__(self, initial: Value, home: Scope, roots: frozenset[Value], kept_by: ir.Node | None = None):
        self.initial = initial
        self.home = home
        self.roots = roots
        self.kept_by = kept_by


class Memory:
    """The storages and the scope that the program stands in.

    Attributes:
        node: the node being rewritten, for messages.
    """

    def __init__(self, graph: ir.Graph, aliases: Aliases):
        self.aliases = aliases
        self.build = SourceBuilder(graph)
        self.scope = Scope(graph)
        self.root = self.scope
        self.node: ir.Node | None = None
        self._clock = 0

    def tick(self) -> int:
        """A version later than every other."""
        self._clock += 1
        return self._clock

    def block(self, graph: ir.Graph) -> Scope:
        """A scope for a branch, inside the one that the memory stands in."""
        return Scope(graph, self.scope)

    @contextlib.contextmanager
    def inside(self, scope: Scope) -> Iterator[None]:
        """Stand in another scope for a while."""
        outer, self.scope = self.scope, scope
        try:
            yield
        finally:
            self.scope = outer

    @contextlib.contextmanager
    def at_end(self, scope: Scope) -> Iterator[None]:
        """Stand in another scope for a while, and add nodes at its end."""
        with self.inside(scope), self.build.at_end(scope.graph):
            yield

    def entry(self, storage: Storage, scope: Scope | None = None) -> tuple[Value, int, str | None]:
        """The current value of a storage, its version, and why it must not be read if so."""
        scope = scope or self.scope
        entry = scope.entries.get(storage)
        if entry is not None:
            return entry
        if storage.home is scope or scope.parent is None:
            return storage.initial, 0, None
        entry = self.entry(storage, scope.parent)
        if scope.loop is not None and self.aliases.written_in(storage.roots, scope.loop):
            formal = Value(type=entry[0].type, shape=entry[0].shape)
            scope.graph.inputs.append(formal)
            scope.inputs[storage] = formal
            entry = scope.entries[storage] = formal, self.tick(), entry[2]
        return entry

    def current(self, storage: Storage) -> Value:
        """The current value of a storage.

        Raises:
            GraphError: it is unknown.
        """
        value, _, unknown = self.entry(storage)
        if unknown is not None:
            raise GraphError(unknown)
        return value

    def check_writable(self, storage: Storage) -> None:
        """Refuse a write that the graph could not express.

        Raises:
            GraphError: nothing may write to the storage here.
        """
        assert self.node is not None
        if storage.kept_by is not None:
            raise GraphError(
                f"{where(self.node)}: it writes to a tensor that {where(storage.kept_by)} shares with a "
                "list; write before it is put there, or put a clone() there"
            )
        for scope in self.scope:
            if storage.home is scope:
                break
            if scope.sealed is not None:
                raise GraphError(
                    f"{where(self.node)}: a block of {where(scope.sealed)} writes to a tensor from outside; "
                    "write to a clone() and return that"
                )

    def set(self, storage: Storage, value: Value) -> None:
        """Write all of a storage.

        Raises:
            GraphError: nothing may write to it here.
        """
        self.check_writable(storage)
        self.scope.entries[storage] = value, self.tick(), None

    def forget(self, storage: Storage, why: str) -> None:
        """Say that the value of a storage is unknown from here on."""
        value = self.entry(storage)[0]
        self.scope.entries[storage] = value, self.tick(), why

    def cached(self, location: object, storages: Iterable[Storage]) -> Value | None:
        """The value of a location, where all of it is known and nothing was written since it was read."""
        entries = [self.entry(storage) for storage in storages]
        if any(why is not None for _, _, why in entries):
            return None
        version = max((version for _, version, _ in entries), default=0)
        for scope in self.scope:
            entry = scope.cache.get(location)
            if entry is not None and entry[1] >= version:
                return entry[0]
        return None

    def keep(self, location: object, value: Value) -> None:
        """Note the current value of a location."""
        self.scope.cache[location] = value, self._clock

    def both(self, a: Truth, b: Truth) -> Truth:
        """Whether both are true."""
        if isinstance(a, bool) or isinstance(b, bool):
            return (b if a else False) if isinstance(a, bool) else (a if b else False)
        if a is b:
            return a
        for whole, part in ((a, b), (b, a)):
            producer = whole.producer()
            if producer is not None and part in producer.inputs and producer.op_type == "logical_and":
                return whole
            if producer is not None and part in producer.inputs and producer.op_type == "logical_not":
                return False
        return self._truth("logical_and", {"self": a, "other": b})

    def either(self, a: Truth, b: Truth) -> Truth:
        """Whether one of them is true."""
        if isinstance(a, bool) or isinstance(b, bool):
            return (True if a else b) if isinstance(a, bool) else (True if b else a)
        if a is b:
            return a
        for whole, part in ((a, b), (b, a)):
            producer = whole.producer()
            if producer is not None and part in producer.inputs and producer.op_type == "logical_not":
                return True
        return self._truth("logical_or", {"self": a, "other": b})

    def negated(self, a: Truth) -> Truth:
        """Whether it is false."""
        if isinstance(a, bool):
            return not a
        producer = a.producer()
        if producer is not None and producer.op_type == "logical_not":
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

    def sees(self, scope: Scope, value: Value) -> bool:
        """Whether the nodes of a scope can read a value."""
        producer = value.producer()
        graph = value.graph if producer is None else producer.graph
        return graph is None or any(each.graph is graph for each in scope)

    def storage(self, value: Value, kept_by: ir.Node | None = None) -> Storage:
        """A new storage that holds a value, in the scope whose graph defines the value."""
        producer = value.producer()
        graph = value.graph if producer is None else producer.graph
        home = next((scope for scope in self.scope if scope.graph is graph), self.root)
        return Storage(value, home, self.aliases.roots(value), kept_by)

    def returned(self, value: Value, graph: ir.Graph) -> Value:
        """A value that the graph can return: itself where it is the graph's own, else a copy made there."""
        producer = value.producer()
        if producer is not None and producer.graph is graph and not value.is_graph_output():
            return value
        if producer is None and value.is_graph_input() and value.graph is graph:
            return value
        return self.build.emit("aten::alias", {"self": value}, like=value)
