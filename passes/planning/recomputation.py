"""Computes values again shortly before late readers, so that they need no memory in between.

Most memory of a training step is for values that the forward pass computes and the backward pass reads. The
search lowers the highest point of the memory first: of the values that are only waiting there, it takes the
one that frees most bytes for the fewest operations, and lets its late readers read a copy, which a second run
of its node computes. Operands that are in memory at that time are read; others are computed again as well, or
stay longer. A node whose results nobody reads any more is removed, so some nodes only move.

See Kirisame et al., "Dynamic Tensor Rematerialization" (2021), for the choice by bytes and operations.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Iterator, Sequence

_EXCHANGE = (1 / 20, 1 / 500, 1 / 20_000)
"""Bytes that one operation is worth. Cheap nodes first: elementwise nodes, then small products, then all."""
_MOST_VALUES = 64
"""Waiting values that are weighed at the highest point."""
_MOST_TRIALS = 6
"""Of these, how many are tried."""
_MOST_DEPTH = 40
"""The longest chain of nodes that is computed again for one value."""
_SURPLUS = 1 / 1000
"""Of the operations of the graph: what any second computation counts in addition, as copies are not free."""


@dataclasses.dataclass(frozen=True)
class NodeEffect:
    """What a node does to memory, and what a second run costs.

    Attributes:
        reads: the values of its inputs; -1 for those without memory.
        captured: further values that its sub-graphs read.
        writes: the values that it defines.
        is_view: whether its result is in the memory of input 0.
        overwrites: the positions of inputs that its first result may overwrite if nothing reads them later.
        work: how many elementary operations it takes.
        is_repeatable: whether a second run has the same results.
        workspace: bytes that it needs while it runs.
    """

    reads: tuple[int, ...]
    captured: tuple[int, ...]
    writes: tuple[int, ...]
    is_view: bool
    overwrites: tuple[int, ...]
    work: int
    is_repeatable: bool
    workspace: int = 0


@dataclasses.dataclass(frozen=True)
class EffectGraph:
    """The nodes of a graph in execution order, and its values, which are numbers.

    Attributes:
        sizes: the bytes of each value.
        initial: the values of inputs.
        consumed: inputs that their next values may overwrite.
        lasting: the values of outputs.
    """

    operations: Sequence[NodeEffect]
    sizes: Sequence[int]
    initial: frozenset[int]
    consumed: frozenset[int]
    lasting: frozenset[int]


@dataclasses.dataclass(frozen=True)
class Execution:
    """One run of a node: its first or a further one.

    Attributes:
        operation: the position of the node in the graph.
        reads, writes: versions of the values; the first version has the number of the value.
    """

    operation: int
    reads: tuple[int, ...]
    writes: tuple[int, ...]


class _LiveMemory:
    """Lifetimes and live bytes of a sequence of executions.

    Attributes:
        roots: the version whose memory each version is in.
        defined: the position of the execution that defines each version; -1 for inputs.
        first, last: the lifetime of each root.
        touches: the positions of the executions that read each root, in order.
        readers: the positions of those that read each version.
        profile: the bytes at each position.
    """

    def __init__(self, graph: EffectGraph, executions: Sequence[Execution], size_of: Sequence[int]):
        self.roots = {value: value for value in graph.initial}
        self.defined = dict.fromkeys(graph.initial, -1)
        self.first = dict.fromkeys(graph.initial, 0)
        self.last = dict.fromkeys(graph.initial, 0)
        self.touches: dict[int, list[int]] = {value: [] for value in graph.initial}
        self.readers: dict[int, list[int]] = {}
        roots, last, touches = self.roots, self.last, self.touches
        for index, execution in enumerate(executions):
            operation = graph.operations[execution.operation]
            for version in (*execution.reads, *operation.captured):
                if version >= 0:
                    root = roots[version]
                    last[root] = index
                    if not touches[root] or touches[root][-1] != index:
                        touches[root].append(index)
                    self.readers.setdefault(version, []).append(index)
            for position, version in enumerate(execution.writes):
                self.defined[version] = index
                if operation.is_view and position == 0:
                    roots[version] = roots[execution.reads[0]]
                else:
                    roots[version] = version
                    self.first[version] = last[version] = index
                    touches[version] = []
        for version in graph.lasting:
            last[roots[version]] = len(executions) - 1
        self.profile = self._profile(graph, executions, size_of)

    def _profile(
        self, graph: EffectGraph, executions: Sequence[Execution], size_of: Sequence[int]
    ) -> list[int]:
        changes = [0] * (len(executions) + 1)
        for root, first in self.first.items():
            changes[first] += size_of[root]
            changes[self.last[root] + 1] -= size_of[root]
        profile, live = [], 0
        for index, execution in enumerate(executions):
            live += changes[index]
            operation = graph.operations[execution.operation]
            shared = 0
            if operation.overwrites and self._may_overwrite(graph, execution, index, size_of):
                shared = size_of[execution.writes[0]]
            profile.append(live + operation.workspace - shared)
        return profile

    def _may_overwrite(
        self, graph: EffectGraph, execution: Execution, index: int, size_of: Sequence[int]
    ) -> bool:
        """Whether the first result takes the memory of an operand that nothing reads later."""
        result = execution.writes[0]
        for position in graph.operations[execution.operation].overwrites:
            root = self.roots.get(execution.reads[position], -1)
            if root < 0 or self.last[root] != index or size_of[root] != size_of[result]:
                continue
            if root not in graph.initial or (root in graph.consumed and result in graph.lasting):
                return True
        return False


def is_lower(profile: Sequence[int], second: Sequence[int]) -> bool:
    """Whether this profile has a lower peak than another, or as low a peak at fewer nodes."""
    peak, second_peak = max(profile), max(second)
    return peak < second_peak or (peak == second_peak and profile.count(peak) < second.count(peak))


def recompute(graph: EffectGraph, limit: int, most_work: int) -> list[Execution]:
    """Executions of the nodes of a graph, some of them twice, that need at most a number of bytes.

    If that is not possible they need as few bytes as the search achieves.

    Args:
        most_work: the most elementary operations that further runs of nodes may add.
    """
    search = _RecomputationSearch(graph, most_work)
    for exchange in _EXCHANGE:
        while max(search.memory.profile, default=0) > limit and search.lower_peak(exchange):
            pass
    return search.executions


@dataclasses.dataclass(frozen=True)
class _Copies:
    """How a value is computed again.

    Attributes:
        position: of the first late reader.
        values: the versions that late readers read now.
        operations: the nodes that run again, in order.
        operands: the version of each other value that they read.
        score: bytes for operations; the most first.
    """

    position: int
    values: tuple[int, ...]
    operations: tuple[int, ...]
    operands: dict[int, int]
    score: float


class _RecomputationSearch:
    """The search; its executions need less and less memory."""

    def __init__(self, graph: EffectGraph, most_work: int):
        self._graph = graph
        self.executions = [
            Execution(index, operation.reads, operation.writes)
            for index, operation in enumerate(graph.operations)
        ]
        self._first_work = self._work(self.executions)
        self._most_work = most_work
        self._producers = {
            value: index for index, operation in enumerate(graph.operations) for value in operation.writes
        }
        # The value of each version, its bytes, and all versions of each value.
        self._value_of = list(range(len(graph.sizes)))
        self._size_of = list(graph.sizes)
        self._versions = [[value] for value in self._value_of]
        self._captured = {value for operation in graph.operations for value in operation.captured}
        self.memory = _LiveMemory(graph, self.executions, self._size_of)

    def _work(self, executions: Sequence[Execution]) -> int:
        return sum(self._graph.operations[execution.operation].work for execution in executions)

    def lower_peak(self, exchange: float) -> bool:
        """Compute one value again so that the highest point gets lower; return whether there is one."""
        profile = self.memory.profile
        peak = profile.index(max(profile))
        candidates = sorted(self._candidates(peak, exchange), key=lambda copies: -copies.score)
        count = len(self._value_of)
        for copies in candidates[:_MOST_TRIALS]:
            executions = self._insert(copies)
            if self._work(executions) - self._first_work <= self._most_work:
                memory = _LiveMemory(self._graph, executions, self._size_of)
                if is_lower(memory.profile, profile):
                    self.executions, self.memory = executions, memory
                    return True
            self._forget_versions(count)
        return False

    def _forget_versions(self, count: int) -> None:
        """Remove the versions of a trial."""
        for value in self._value_of[count:]:
            self._versions[value].pop()
        del self._value_of[count:], self._size_of[count:]

    def _candidates(self, peak: int, exchange: float) -> Iterator[_Copies]:
        """The values that only wait at a position, and how they are computed again."""
        memory = self.memory
        waiting = [
            root
            for root, first in memory.first.items()
            if first <= peak < memory.last[root] and root not in self._graph.initial and self._size_of[root]
        ]
        waiting.sort(key=lambda root: -self._size_of[root])
        for root in waiting[:_MOST_VALUES]:
            touches = memory.touches[root]
            following = bisect.bisect_right(touches, peak)
            if following == len(touches):
                continue
            if following and touches[following - 1] == peak:
                continue
            position = touches[following]
            is_defined_here = memory.first[root] == peak
            if is_defined_here and position == peak + 1:
                continue
            copies = self._copies(root, peak, position, exchange)
            if copies is not None:
                yield copies

    def _copies(self, root: int, peak: int, position: int, exchange: float) -> _Copies | None:
        """How the values in the memory of a root are computed again at a position; None if they are not."""
        memory, graph = self.memory, self._graph
        values = []
        for version, version_root in memory.roots.items():
            if version_root == root and memory.defined[version] < position:
                readers = memory.readers.get(version, ())
                if version in graph.lasting or (version in self._captured and readers):
                    return None
                if readers and readers[-1] >= position:
                    values.append(version)
        if not values:
            return None
        closure = _Closure(self, graph, memory, root, peak, position, exchange)
        operations: set[int] = set()
        for version in values:
            if not closure.collect(self._value_of[version], operations):
                return None
        saved = self._size_of[root] - closure.kept_bytes()
        if saved <= 0:
            return None
        work = sum(graph.operations[number].work for number in operations)
        score = saved / (work + self._first_work * _SURPLUS + 1)
        return _Copies(position, tuple(values), tuple(sorted(operations)), closure.operands, score)

    def _insert(self, copies: _Copies) -> list[Execution]:
        """The executions with further ones before the first late reader, and without unused ones."""
        versions = dict(copies.operands)
        added = []
        for number in copies.operations:
            operation = self._graph.operations[number]
            reads = tuple(versions.get(value, value) for value in operation.reads)
            writes = tuple(self._add_version(value) for value in operation.writes)
            versions.update(zip(operation.writes, writes, strict=True))
            added.append(Execution(number, reads, writes))
        replaced = {version: versions[self._value_of[version]] for version in copies.values}
        later = [
            dataclasses.replace(
                execution, reads=tuple(replaced.get(version, version) for version in execution.reads)
            )
            if not replaced.keys().isdisjoint(execution.reads)
            else execution
            for execution in self.executions[copies.position :]
        ]
        return self._remove_unused([*self.executions[: copies.position], *added, *later])

    def _add_version(self, value: int) -> int:
        self._value_of.append(value)
        self._size_of.append(self._graph.sizes[value])
        version = len(self._value_of) - 1
        self._versions[value].append(version)
        return version

    def _remove_unused(self, executions: Sequence[Execution]) -> list[Execution]:
        used = set(self._graph.lasting)
        remaining = []
        for execution in reversed(executions):
            operation = self._graph.operations[execution.operation]
            # Nodes without results in memory, such as constants, stay.
            if not operation.writes or not used.isdisjoint(execution.writes):
                used.update(execution.reads)
                used.update(operation.captured)
                remaining.append(execution)
        return remaining[::-1]

    def versions(self, value: int) -> list[int]:
        """All versions of a value."""
        return self._versions[value]

    def size_of(self, version: int) -> int:
        """The bytes of a version."""
        return self._size_of[version]

    def producer(self, value: int) -> int | None:
        """The node that computes a value; None for inputs."""
        return self._producers.get(value)


class _Closure:
    """The nodes to run again for a value, and the versions of other values that they read.

    Attributes:
        operands: these versions by value.
    """

    def __init__(
        self,
        search: _RecomputationSearch,
        graph: EffectGraph,
        memory: _LiveMemory,
        root: int,
        peak: int,
        position: int,
        exchange: float,
    ):
        self._search, self._graph, self._memory = search, graph, memory
        self._root, self._peak, self._position, self._exchange = root, peak, position, exchange
        self._costs: dict[int, tuple[float, int | None]] = {}
        self.operands: dict[int, int] = {}

    def collect(self, value: int, operations: set[int]) -> bool:
        """Add the nodes to run again for a value; return whether that is possible."""
        waiting = [value]
        while waiting:
            value = waiting.pop()
            cost, version = self._cost(value, 0)
            if cost == float("inf"):
                return False
            if version is not None:
                self.operands[value] = version
                continue
            number = self._search.producer(value)
            assert number is not None
            if number not in operations:
                operations.add(number)
                waiting += [read for read in self._graph.operations[number].reads if read >= 0]
        return True

    def kept_bytes(self) -> int:
        """The bytes of operands that stay for this beyond the highest point."""
        roots = {self._memory.roots[version] for version in self.operands.values()}
        return sum(self._search.size_of(root) for root in roots if self._memory.last[root] <= self._peak)

    def _cost(self, value: int, depth: int) -> tuple[float, int | None]:
        """What it costs to have a value at the position, in bytes, and its version if it is not computed."""
        if value in self._costs:
            return self._costs[value]
        memory = self._memory
        best: tuple[float, int | None] = (float("inf"), None)
        for version in self._search.versions(value):
            if memory.defined.get(version, self._position) >= self._position:
                continue
            root = memory.roots[version]
            if root == self._root:
                continue
            last = memory.last[root]
            # A state stays where it is only if nothing reads the old value after the update.
            if last < self._position and root in self._graph.consumed:
                continue
            cost = float(self._search.size_of(root)) if last <= self._peak else 0.0
            if last < self._position:
                cost += self._search.size_of(root) / 100
            best = min(best, (cost, version), key=lambda entry: entry[0])
        number = self._search.producer(value)
        if best[0] > 0 and number is not None and depth < _MOST_DEPTH:
            operation = self._graph.operations[number]
            if operation.is_repeatable:
                cost = operation.work * self._exchange
                for read in operation.reads:
                    if read >= 0 and cost < best[0]:
                        cost += self._cost(read, depth + 1)[0]
                if cost < best[0]:
                    best = cost, None
        self._costs[value] = best
        return best
