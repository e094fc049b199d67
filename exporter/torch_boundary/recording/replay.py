"""Runs recorded calls on real tensors, to compute values that fake tensors do not have.

The calls run in a separate thread, because the modes of a recording are active in its own thread.
"""

from __future__ import annotations

import concurrent.futures
import functools
import operator
from collections.abc import Callable, Iterable, Sequence, Set
from typing import Any

import torch
import torch.fx

from ..capture_patches import original_operator
from ..containers import pytree
from ..fake_tensors import is_without_data, storage_of
from ..operators.overloads import MEMORY_REPLACING, OpOverload, schema_of
from .possible_elements import NotKnown, only_value

_ARITHMETIC = ("_operator", "operator", "math")
_OF_SHAPE = frozenset(
    f"aten::{name}"
    for name in "empty_like full_like new_empty new_full new_ones new_zeros ones_like zeros_like".split()
)
"""Operators whose results do not depend on the elements of their first argument."""
_SIZES = frozenset(f"aten::sym_{name}" for name in ("numel", "size", "storage_offset", "stride"))
Convert = Callable[[torch.Tensor], object]
Storage = int | torch.fx.node.Target
"""The key of a storage, or for a constant the name in its `get_attr` node."""


class NotReplayable(Exception):
    """A value that cannot be computed; the message says why."""


class Replay:
    """Computes the values of the nodes of a graph that is being recorded.

    Args:
        graph: the graph with its placeholders; its nodes are in the order in which they ran.
        root: the module whose attributes the `get_attr` nodes name.
        weights: the real tensors for the first placeholders.
        inputs: the flattened example arguments, for the other placeholders.
        size_of: returns the value of a symbolic size that only weights decide; else raises NotReplayable.
    """

    def __init__(
        self,
        graph: torch.fx.Graph,
        root: torch.nn.Module,
        weights: Sequence[object],
        inputs: Sequence[object],
        size_of: Callable[[object], int],
    ):
        self._graph = graph
        self._root = root
        self._weights = weights
        self._real_leaves = [*weights, *inputs]
        self._size_of = size_of
        # Modes are per thread, so this one runs without those of the recording.
        self._thread = concurrent.futures.ThreadPoolExecutor(1)
        self._values: dict[torch.fx.Node, object] = {}
        self._of_example: dict[int, torch.UntypedStorage] = {}
        self._copies = self._of_example

    @functools.cached_property
    def _positions(self) -> dict[torch.fx.Node, int]:
        """The position of each placeholder; the graph has all of them before the first other node."""
        placeholders = (node for node in self._graph.nodes if node.op == "placeholder")
        return {node: position for position, node in enumerate(placeholders)}

    @functools.cached_property
    def _parameter_storages(self) -> set[Storage]:
        """The storages of parameters; a replayed call must not write to them."""
        pairs = zip(self._positions, self._weights, strict=False)
        return _storages_of(node for node, item in pairs if isinstance(item, torch.nn.Parameter))

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown()

    def value_from_weights(self, node: torch.fx.Node, convert: Convert | None = None) -> Any:
        """Return the value of a node that depends on weights and constants alone.

        Args:
            convert: converts the value in the replay's thread, where no mode is active.

        Raises:
            NotReplayable: the value depends on an input, a dynamic size or random numbers.
        """
        # Fresh copies, because the calls of an earlier replay may have written to theirs.
        self._copies = {}
        dependencies = self._slice(node)
        sizes: dict[torch.fx.Node, object] = {}
        for dependency in dependencies:
            if _reads_size(dependency):
                sizes[dependency] = self._size_of(dependency.meta["val"])
            else:
                self._check_constant(dependency)
        self._run([dependency for dependency in dependencies if dependency not in sizes], sizes)
        return self._convert_in_thread(sizes[node], convert)

    def number_of_all_sizes(self, node: torch.fx.Node) -> bool | int | float:
        """Return the number that a node reads from a tensor, if it is the same for all sizes and inputs.

        Raises:
            NotReplayable: the number may depend on sizes or inputs.
        """

        @functools.cache
        def writers() -> dict[Storage, list[torch.fx.Node]]:
            calls_by_storage: dict[Storage, list[torch.fx.Node]] = {}
            for call in self._graph.nodes:
                for storage in written_storages(call) | _written_constants(call):
                    calls_by_storage.setdefault(storage, []).append(call)
            return calls_by_storage

        def writers_of(node: torch.fx.Node) -> list[torch.fx.Node]:
            return [call for storage in _storages(node) for call in writers().get(storage, ())]

        try:
            return self._thread.submit(only_value, node, self._root, writers_of).result()
        except NotKnown as error:
            raise NotReplayable(str(error)) from None

    def value_for_example(self, node: torch.fx.Node, convert: Convert | None = None) -> Any:
        """Return the value of a node for the example; runs all new nodes of the graph, each only once.

        Args:
            convert: converts the value in the replay's thread, where no mode is active.

        Raises:
            NotReplayable: an input has no data.
        """
        self._copies = self._of_example
        waiting = []
        for earlier in reversed(self._graph.nodes):
            if earlier in self._values:
                break
            waiting.append(earlier)
        self._run(waiting[::-1], self._values)
        return self._convert_in_thread(self._values[node], convert)

    def is_written_to(self, node: torch.fx.Node, nodes: Set[torch.fx.Node]) -> bool:
        """Whether a node not in `nodes` writes to the value of `node`, or to what it is computed from."""
        return any(
            written_storages(dependency) for dependency in self._slice(node) if dependency not in nodes
        )

    def _convert_in_thread(self, value: Any, convert: Convert | None) -> Any:
        return value if convert is None else self._thread.submit(convert, value).result()

    def _slice(self, node: torch.fx.Node) -> list[torch.fx.Node]:
        """Return the nodes on which a value depends, in order: operands, and calls that wrote to them."""
        needed, storages, dependencies = {node}, _storages(node), []
        is_reached = False
        # Backwards, so that every consumer is seen before its operands.
        for candidate in reversed(self._graph.nodes):
            is_reached = is_reached or candidate is node
            if not is_reached or not (candidate in needed or storages & written_storages(candidate)):
                continue
            dependencies.append(candidate)
            operands = [] if _reads_size(candidate) else candidate.all_input_nodes
            if _reads_only_shape(candidate):
                operands = [item for item in operands if item is not candidate.args[0]]
            for operand in operands:
                needed.add(operand)
                storages |= _storages(operand)
        return dependencies[::-1]

    def _check_constant(self, node: torch.fx.Node) -> None:
        if node.op == "placeholder":
            if self._positions[node] >= len(self._weights):
                raise NotReplayable(f"it depends on input '{node.target}'")
            return
        if node.op == "get_attr":
            return
        if isinstance(node.target, OpOverload):
            if torch.Tag.nondeterministic_seeded in node.target.tags:
                raise NotReplayable(f"it depends on random numbers ({node.target})")
            if schema_of(node.target).name in MEMORY_REPLACING:
                raise NotReplayable(f"it depends on memory that {node.target} replaces")
        elif not _is_arithmetic(node.target):
            raise NotReplayable(f"it depends on {node.target}")

    def _run(self, nodes: Sequence[torch.fx.Node], values: dict[torch.fx.Node, object]) -> None:
        def run() -> None:
            with torch.no_grad():
                for node in nodes:
                    values[node] = self._value(node, values)

        self._thread.submit(run).result()

    def _value(self, node: torch.fx.Node, values: dict[torch.fx.Node, object]) -> object:
        if node.op == "placeholder":
            return self._writable_copy(node, self._real_leaves[self._positions[node]])
        if node.op == "get_attr":
            return self._writable_copy(node, operator.attrgetter(str(node.target))(self._root))

        def value_of(item: torch.fx.Node) -> Any:
            if item in values:
                return values[item]
            # Only its element type and shape are read, see `_reads_only_shape`.
            fake = item.meta["val"]
            return torch.empty(tuple(fake.shape), dtype=fake.dtype)

        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), value_of)
        # The replay runs on the CPU, so it needs no GPU and no memory of one.
        args, kwargs = pytree.tree_map_only(torch.device, lambda device: _CPU, (args, kwargs))
        assert callable(node.target), "only a call has no value yet"
        function = original_operator(node.target)
        if self._parameter_storages & written_storages(node):
            raise NotReplayable(f"{node.target} writes to a parameter")
        return function(*args, **kwargs)

    def _writable_copy(self, node: torch.fx.Node, item: object) -> object:
        """Copy a weight or input, which calls may write to; copies share memory if the originals do."""
        if not isinstance(item, torch.Tensor):
            return item
        if is_without_data(item) or item.device.type == "meta":
            raise NotReplayable(f"'{node.target}' has no data")
        if isinstance(item, torch.nn.Parameter):
            # Nothing writes to it, so it needs no copy.
            return item.detach().cpu()
        # Sparse tensors have no storage that could be shared.
        key = storage_of(item)
        if key is None:
            return item.detach().cpu().clone()
        if key not in self._copies:
            storage = item.untyped_storage()
            memory = torch.empty(0, dtype=torch.uint8, device=item.device)
            memory = memory.set_(storage, 0, (storage.nbytes(),), (1,))
            self._copies[key] = torch.empty_like(memory, device="cpu").copy_(memory).untyped_storage()
        copy = torch.empty(0, dtype=item.dtype)
        return copy.set_(self._copies[key], item.storage_offset(), item.size(), item.stride())


_CPU = torch.device("cpu")


def _storages(node: torch.fx.Node) -> set[Storage]:
    """Return the keys of the storages of a node's results; the key of a constant is its name."""
    if node.op == "get_attr":
        return {node.target}
    keys = (storage_of(leaf) for leaf in pytree.tree_leaves(node.meta.get("val")))
    return {key for key in keys if key is not None}


def variable_in_loop(tensor: torch.Tensor) -> torch.Tensor:
    """The target of graph nodes that stand for a loop variable before or after an iteration; never computed.

    Raises:
        NotReplayable: always, because the value differs between iterations.
    """
    raise NotReplayable("it depends on the iterations of a loop")


def written_storages(node: torch.fx.Node) -> set[Storage]:
    """Return the storages that a call writes to."""
    if node.op != "call_function" or node.target is variable_in_loop:
        return set()
    if not isinstance(node.target, OpOverload):
        # A higher-order operator's functions may write to its operands.
        return set() if _is_arithmetic(node.target) else _storages_of(node.all_input_nodes)
    schema = schema_of(node.target)
    storages: set[Storage] = set()
    for position, formal in enumerate(schema.arguments):
        # Normalization in training mode writes to its statistics, which its schema does not declare.
        is_written = formal.alias_info is not None and formal.alias_info.is_write
        if is_written or formal.name.startswith("running_"):
            argument = node.args[position] if position < len(node.args) else node.kwargs.get(formal.name)
            storages |= _storages_of(x for x in pytree.tree_leaves(argument) if isinstance(x, torch.fx.Node))
    return storages


def _written_constants(node: torch.fx.Node) -> set[Storage]:
    """Return the name of the constant that a call writes to through a view, if any."""
    base: Any = node
    while isinstance(base, torch.fx.Node) and base.op == "call_function" and base.args:
        base = base.args[0]
    is_constant = isinstance(base, torch.fx.Node) and base.op == "get_attr"
    return {base.target} if is_constant and written_storages(node) else set()


def _storages_of(nodes: Iterable[torch.fx.Node]) -> set[Storage]:
    return set().union(*map(_storages, nodes))


def _reads_size(node: torch.fx.Node) -> bool:
    """Whether a node is a size of a tensor, which does not depend on the elements of that tensor."""
    return isinstance(node.target, OpOverload) and schema_of(node.target).name in _SIZES


def _reads_only_shape(node: torch.fx.Node) -> bool:
    """Whether a call needs only the element type and the fixed shape of its first argument."""
    if not isinstance(node.target, OpOverload) or schema_of(node.target).name not in _OF_SHAPE:
        return False
    first = node.args[0]
    assert isinstance(first, torch.fx.Node)
    return all(isinstance(size, int) for size in first.meta["val"].shape)


def _is_arithmetic(target: object) -> bool:
    name = getattr(target, "__name__", "")
    return getattr(target, "__module__", None) in _ARITHMETIC or name.startswith("sym_")
