"""Chooses the cuts of a model: between repeated blocks, and at narrow points within large parts."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence

_PERIODS = 32
"""How many lengths of a repeated block to try."""
_NEXT = 12
"""How many following nodes with an equal key may be a node's counterpart in the next block."""
_PARTS = 16
"""A model without repeated blocks is cut into about this many parts."""
_MOST = 256
"""Blocks with less than 1/256 of the weights are merged, because each run has a fixed cost."""


@dataclasses.dataclass(frozen=True)
class Sequential:
    """The properties that cuts depend on: nodes in execution order, their weights, and live values.

    Attributes:
        node_keys: for each node, a key that is equal for nodes that differ only in names and weights.
        weights: for each node, the weights that it reads.
        sizes: the bytes of each weight by name.
        widths: for each position (0 is before the first node), the number of live values; None if the
            graph cannot be cut there.
    """

    node_keys: Sequence[Hashable]
    weights: Sequence[frozenset[str]]
    sizes: Mapping[str, int]
    widths: Sequence[int | None]

    def __len__(self) -> int:
        return len(self.node_keys)

    def size(self, start: int, stop: int) -> int:
        """Return the bytes of the weights that nodes read, each counted once."""
        names = frozenset().union(*self.weights[start:stop])
        return sum(self.sizes[name] for name in names)


def blocks(nodes: Sequential) -> list[int]:
    """Return the cuts between the repeated blocks of a model, with its start and end.

    Small blocks are merged. Other parts are cut if they are larger than the largest repeated block, or if
    there is none, than 1/16 of the weights.
    """
    finder = _Blocks(nodes)
    boundaries = {0, len(nodes)}
    total = nodes.size(0, len(nodes))
    least = -(-total // _MOST)
    largest = 0
    pending = [(0, len(nodes))]
    while pending:
        start, stop = pending.pop()
        repetition = finder.find_repetition(start, stop)
        if repetition is None:
            continue
        block = nodes.size(repetition[0], repetition[1])
        # Each run has a fixed cost, so several small blocks become one segment.
        together = -(-least // block) if block else len(repetition)
        merged = [*repetition[::together], repetition[-1]]
        boundaries.update(merged)
        largest = max([largest, *(nodes.size(a, b) for a, b in itertools.pairwise(merged))])
        pending += [(start, repetition.start), (repetition[-1], stop)]
    return split(nodes, sorted(boundaries), largest or -(-total // _PARTS))


def split(nodes: Sequential, boundaries: Sequence[int], capacity: int) -> list[int]:
    """Add boundaries until no segment has more bytes than the capacity or can be cut into smaller ones."""
    refined = list(boundaries[:1])
    for start, stop in itertools.pairwise(boundaries):
        refined += [*sorted(_cuts(nodes, start, stop, capacity)), stop]
    return refined


def _cuts(nodes: Sequential, start: int, stop: int, capacity: int) -> Iterator[int]:
    pending = [(start, stop)]
    while pending:
        start, stop = pending.pop()
        if nodes.size(start, stop) <= capacity:
            continue
        position = _narrow(nodes, start, stop)
        if position is not None:
            yield position
            pending += [(start, position), (position, stop)]


def _narrow(nodes: Sequential, start: int, stop: int) -> int | None:
    """Return the narrowest cut with at least 1/4 of the weights on each side, else the most balanced cut."""
    node_bytes = [sum(nodes.sizes[name] for name in names) for names in nodes.weights[start:stop]]
    total = sum(node_bytes)
    before = list(itertools.accumulate(node_bytes))
    best: tuple[bool, int, int] | None = None
    narrowest = None
    for position in range(start + 1, stop):
        width = nodes.widths[position]
        smaller = min(before[position - start - 1], total - before[position - start - 1])
        if width is None or not smaller:
            continue
        # A narrow cut near an end would leave one part nearly as large as before.
        uneven = smaller * 4 < total
        rank = (uneven, 0 if uneven else width, -smaller)
        if best is None or rank < best:
            best, narrowest = rank, position
    return narrowest


class _Blocks:
    """Finds blocks of nodes that repeat without a gap."""

    def __init__(self, nodes: Sequential):
        self._nodes = nodes
        node_bytes = [sum(nodes.sizes[name] for name in names) for names in nodes.weights]
        self._bytes_before = [0, *itertools.accumulate(node_bytes)]
        self._node_bytes = node_bytes

    def find_repetition(self, start: int, stop: int) -> range | None:
        """Return the boundaries of the repeated blocks with the most weights; None if no block repeats."""
        best: tuple[int, int] = (0, 0)
        best_boundaries = None
        for period in self._periods(start, stop):
            for first, last in self._runs(start, stop, period):
                weights = self._bytes_before[last] - self._bytes_before[first]
                # The shortest of equally good periods, because its multiples repeat as well.
                if (weights, -period) > best:
                    boundaries = self._align(first, last, period)
                    if boundaries is not None:
                        best, best_boundaries = (weights, -period), boundaries
        return best_boundaries

    def _periods(self, start: int, stop: int) -> list[int]:
        """Return distances between nodes with equal keys, those with the most weights first."""
        votes: collections.Counter[int] = collections.Counter()
        latest: dict[Hashable, collections.deque[int]] = {}
        for index in range(start, stop):
            if not self._node_bytes[index]:
                continue
            earlier = latest.setdefault(self._nodes.node_keys[index], collections.deque(maxlen=_NEXT))
            for earlier_index in earlier:
                votes[index - earlier_index] += self._node_bytes[index]
            earlier.append(index)
        return [period for period, _ in votes.most_common(_PERIODS)]

    def _runs(self, start: int, stop: int, period: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges in which each node equals the one a period later, including the last period."""
        node_keys = self._nodes.node_keys
        first = start
        for index in range(start, stop - period + 1):
            if index < stop - period and node_keys[index] == node_keys[index + period]:
                continue
            if index - first >= period:
                yield first, index + period
            first = index + 1

    def _align(self, first: int, last: int, period: int) -> range | None:
        """Return the cuts, one period apart, with the fewest live values; None without two whole blocks."""
        best: tuple[float, int] | None = None
        best_boundaries = None
        for begin in range(first, min(first + period, last - 2 * period + 1)):
            boundaries = range(begin, last + 1, period)
            widths = [self._nodes.widths[position] for position in boundaries]
            width = max(math.inf if width is None else width for width in widths)
            rank = (width, -len(boundaries))
            if width < math.inf and (best is None or rank < best):
                best, best_boundaries = rank, boundaries
        return best_boundaries
