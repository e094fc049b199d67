"""Searches an execution order whose live values need little memory.

The problem is NP-hard. The search goes through sets of nodes that have run, with the peak so far: for small
graphs best-first with pruning by the best peak, which is exact; otherwise as a beam search, whose time is
proportional to the number of nodes. Both run a node at once if it frees at least what it needs, because that
is never worse. See Ahn et al., "Ordering Chaos: Memory-Aware Scheduling of Irregularly Wired Neural Networks
for Edge Devices" (2020).
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
from collections.abc import Iterator, Sequence

_EXACT_WORK = 60_000
"""The number of steps that the exact search weighs before the beam search takes over."""
_BEAM_SETS = 3_000
"""The number of sets that the beam search keeps over all steps, of at least two for each step."""
_BEAM_WORK, _BEAM_WORK_OF_NODE = 2_000_000, 150
"""The number of steps that the beam search weighs, and those for each node, before it gives up."""
_READS = 8
"""Values that a step may read for the price of one weighing."""
_MOST_KEPT = 16
_MOST_READY = 24
"""Of each set, the nodes that the beam search weighs."""
_MOST_TRIED = 4
"""Of these, the nodes that it tries."""


@dataclasses.dataclass(frozen=True)
class Step:
    """What a node does to memory.

    Attributes:
        after: the positions of the nodes that must run before.
        reads: the values that it reads, as indices of `sizes`.
        writes: the values that it defines.
        overwrites: values that its result may overwrite if no other node reads them later.
        workspace: bytes that it needs while it runs.
    """

    after: frozenset[int]
    reads: frozenset[int]
    writes: tuple[int, ...]
    overwrites: tuple[int, ...] = ()
    workspace: int = 0


@dataclasses.dataclass(frozen=True)
class _State:
    """A set of nodes that have run.

    Attributes:
        executed: the set, as bits.
        live: the bytes of the values that later nodes read, or that stay.
        peak: the most bytes so far.
        ready: the nodes that could run next.
        last: the nodes that ran since the state before, and that state.
    """

    executed: int
    live: int
    peak: int
    ready: tuple[int, ...]
    last: tuple[tuple[int, ...], _State | None]

    def order(self) -> list[int]:
        """All nodes that have run, in order."""
        parts: list[tuple[int, ...]] = []
        state: _State | None = self
        while state is not None:
            nodes, state = state.last
            parts.append(nodes)
        return list(itertools.chain.from_iterable(reversed(parts)))


def find_order(
    steps: Sequence[Step], sizes: Sequence[int], initial: frozenset[int], lasting: frozenset[int]
) -> list[int] | None:
    """An order of the nodes that needs less memory than theirs; None if the search has none.

    Args:
        steps: the nodes, in an order that is valid.
        sizes: the bytes of the values.
        initial: values that are there before the first node.
        lasting: values that are needed after the last node.
    """
    search = _Search(steps, sizes, initial, lasting)
    state = search.start()
    for number in range(len(steps)):
        state = search.run(state, number)
    if state.peak <= search.least():
        return None
    best = search.best_first(state.peak)
    if best is None:
        best = search.beam(state.peak)
    return None if best is None or best.peak >= state.peak else best.order()


class _Search:
    """The nodes and values of a graph, and searches through its orders."""

    def __init__(
        self, steps: Sequence[Step], sizes: Sequence[int], initial: frozenset[int], lasting: frozenset[int]
    ):
        self._steps, self._sizes, self._initial = steps, sizes, initial
        self._all = (1 << len(steps)) - 1
        self._work = 0
        self._readers = [0] * len(sizes)
        for number, step in enumerate(steps):
            for value in step.reads:
                self._readers[value] |= 1 << number
        # A value that stays has a reader that never runs.
        for value in lasting:
            self._readers[value] |= 1 << len(steps)
        self._required = [sum(1 << earlier for earlier in step.after) for step in steps]
        self._followers: list[list[int]] = [[] for _ in steps]
        for number, step in enumerate(steps):
            for earlier in step.after:
                self._followers[earlier].append(number)

    def start(self) -> _State:
        """The state before the first node."""
        live = sum(self._sizes[value] for value in self._initial)
        ready = tuple(number for number, mask in enumerate(self._required) if not mask)
        return _State(0, live, live, ready, ((), None))

    def least(self) -> int:
        """Bytes that no order goes below: what a single node needs."""
        return max(
            (
                step.workspace
                + sum(self._sizes[value] for value in step.writes)
                + sum(self._sizes[value] for value in step.reads.difference(step.overwrites))
                for step in self._steps
            ),
            default=0,
        )

    def _cost(self, executed: int, number: int) -> tuple[int, int]:
        """The bytes that a node adds while it runs, and afterwards.

        Args:
            executed: the nodes that have run, with this one.
        """
        step, sizes, readers = self._steps[number], self._sizes, self._readers
        self._work += 1 + len(step.reads) // _READS
        written = sum(sizes[value] for value in step.writes)
        waiting = ~executed
        freed = sum(sizes[value] for value in step.reads if not readers[value] & waiting)
        unread = sum(sizes[value] for value in step.writes if not readers[value] & waiting)
        shared = next((sizes[value] for value in step.overwrites if not readers[value] & waiting), 0)
        return written + step.workspace - shared, written - freed - unread

    def run(self, state: _State, number: int) -> _State:
        """The state after another node."""
        executed = state.executed | 1 << number
        during, after = self._cost(executed, number)
        ready = [later for later in state.ready if later != number]
        ready += [
            follower for follower in self._followers[number] if not self._required[follower] & ~executed
        ]
        peak = max(state.peak, state.live + during)
        return _State(executed, state.live + after, peak, tuple(ready), ((number,), state))

    def _run_free_nodes(self, state: _State) -> _State:
        """The state after nodes that free what they need within the peak so far."""
        waiting = list(state.ready)
        # Nodes that become ready are appended, so a chain of such nodes runs in one pass.
        for number in waiting:
            during, after = self._cost(state.executed | 1 << number, number)
            if after <= 0 and state.live + during <= state.peak:
                before = set(state.ready)
                state = self.run(state, number)
                waiting.extend(later for later in state.ready if later not in before)
        return state

    def _following(self, state: _State, bound: int, most: int | None = None) -> Iterator[_State]:
        """The states after each node that could run next, if they need less than the bound.

        Args:
            most: try so many nodes only, those that need the least memory.
        """
        ready = state.ready
        if most is not None and len(ready) > _MOST_READY:
            # The first nodes wait for the longest time, and the last ones continue the present branch.
            ready = (*ready[: _MOST_READY // 2], *ready[-_MOST_READY // 2 :])
        costs = [(*self._cost(state.executed | 1 << number, number), number) for number in ready]
        if most is not None:
            costs = heapq.nsmallest(
                most, costs, key=lambda cost: (max(state.peak, state.live + cost[0]), cost[1])
            )
        for during, _, number in costs:
            if state.live + during < bound:
                yield self._run_free_nodes(self.run(state, number))

    def best_first(self, bound: int) -> _State | None:
        """The best order below a bound; None if there is none, or if the search visits too many sets."""
        first = self._run_free_nodes(self.start())
        numbers = itertools.count()
        # Among equal peaks the deepest state first: it is nearest to the end.
        waiting = [(first.peak, -first.executed.bit_count(), next(numbers), first)]
        peaks = {first.executed: first.peak}
        while waiting:
            *_, state = heapq.heappop(waiting)
            if state.executed == self._all:
                return state
            # The same set was reached with a lower peak after this state was added.
            if peaks[state.executed] < state.peak:
                continue
            for following in self._following(state, bound):
                if self._work > _EXACT_WORK:
                    return None
                if following.peak < peaks.get(following.executed, bound):
                    peaks[following.executed] = following.peak
                    key = following.peak, -following.executed.bit_count(), next(numbers)
                    heapq.heappush(waiting, (*key, following))
        return None

    def beam(self, bound: int) -> _State | None:
        """A good order below a bound; None if there is none, or if the search weighs too many steps."""
        count = len(self._steps)
        most_work = self._work + _BEAM_WORK + _BEAM_WORK_OF_NODE * count
        width = max(2, min(_MOST_KEPT, _BEAM_SETS // max(count, 1)))
        first = self._run_free_nodes(self.start())
        # Nodes that run at once make steps of different lengths, so states wait by their number of nodes.
        levels: list[dict[int, _State]] = [{} for _ in range(count + 1)]
        levels[first.executed.bit_count()][first.executed] = first
        for level in range(count):
            states = heapq.nsmallest(width, levels[level].values(), key=_rank)
            levels[level] = {}
            if self._work > most_work:
                return None
            for state in states:
                for following in self._following(state, bound, _MOST_TRIED):
                    level_states = levels[following.executed.bit_count()]
                    same_set = level_states.get(following.executed)
                    if same_set is None or _rank(following) < _rank(same_set):
                        level_states[following.executed] = following
        return min(levels[count].values(), key=_rank, default=None)


def _rank(state: _State) -> tuple[int, int]:
    return state.peak, state.live
