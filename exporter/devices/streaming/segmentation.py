"""Chooses the cuts of a model: between repeated blocks, and at narrow points within large parts."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence

_PERIODS = 32
"""Lengths of a repeated block that are tried."""
_NEXT = 12
"""For each node, the following nodes of its kind that may be its counterparts in the next block."""
_PARTS = 16
"""A model without repeated blocks is cut into about as many parts."""
_MOST = 256
"""Parts of less than this fraction of the weights are not worth a run of their own."""


@dataclasses.dataclass(frozen=True)
class Sequential:
    """The properties that cuts depend on: nodes in execution order, their weights, and live values.

    Attributes:
        kinds: for each node a key that is equal for nodes that differ in names and weights only.
        weights: for each node the weights that it reads.
        sizes: bytes of each weight.
        widths: for each place, 0 before the first node, the number of values that pass it; None if the graph
            cannot be cut there.
    """

    kinds: Sequence[Hashable]
    weights: Sequence[frozenset[str]]
    sizes: Mapping[str, int]
    widths: Sequence[int | None]

    def __len__(self) -> int:
        return len(self.kinds)

    def size(self, start: int, stop: int) -> int:
        """Bytes of the weights that nodes read, each counted once."""
        names = frozenset().union(*self.weights[start:stop])
        return sum(self.sizes[name] for name in names)


def blocks(nodes: Sequential) -> list[int]:
    """The cuts between the repeated blocks of a model, with its start and end.

    Small blocks are merged. Other parts are cut if they are larger than the largest repeated block, or than a
    sixteenth of the weights if there is none.
    """
    found = _Blocks(nodes)
    places = {0, len(nodes)}
    total = nodes.size(0, len(nodes))
    least = -(-total // _MOST)
    largest = 0
    pending = [(0, len(nodes))]
    while pending:
        start, stop = pending.pop()
        repeated = found.repeated(start, stop)
        if repeated is None:
            continue
        block = nodes.size(repeated[0], repeated[1])
        together = -(-least // block) if block else len(repeated)
        merged = [*repeated[::together], repeated[-1]]
        places.update(merged)
        largest = max([largest, *(nodes.size(a, b) for a, b in itertools.pairwise(merged))])
        pending += [(start, repeated.start), (repeated[-1], stop)]
    return split(nodes, sorted(places), largest or -(-total // _PARTS))


def split(nodes: Sequential, places: Sequence[int], capacity: int) -> list[int]:
    """Add places, until no segment has more bytes than the capacity or can be cut into smaller ones."""
    found = list(places[:1])
    for start, stop in itertools.pairwise(places):
        found += [*sorted(_cuts(nodes, start, stop, capacity)), stop]
    return found


def _cuts(nodes: Sequential, start: int, stop: int, capacity: int) -> Iterator[int]:
    pending = [(start, stop)]
    while pending:
        start, stop = pending.pop()
        if nodes.size(start, stop) <= capacity:
            continue
        place = _narrow(nodes, start, stop)
        if place is not None:
            yield place
            pending += [(start, place), (place, stop)]


def _narrow(nodes: Sequential, start: int, stop: int) -> int | None:
    """The narrowest cut with at least a quarter of the weights on each side, else the most balanced one."""
    own = [sum(nodes.sizes[name] for name in names) for names in nodes.weights[start:stop]]
    total = sum(own)
    before = list(itertools.accumulate(own))
    best: tuple[bool, int, int] | None = None
    found = None
    for place in range(start + 1, stop):
        width = nodes.widths[place]
        smaller = min(before[place - start - 1], total - before[place - start - 1])
        if width is None or not smaller:
            continue
        uneven = smaller * 4 < total
        rank = (uneven, 0 if uneven else width, -smaller)
        if best is None or rank < best:
            best, found = rank, place
    return found


class _Blocks:
    """Finds blocks of nodes that repeat without a gap."""

    def __init__(self, nodes: Sequential):
        self._nodes = nodes
        own = [sum(nodes.sizes[name] for name in names) for names in nodes.weights]
        self._before = [0, *itertools.accumulate(own)]
        self._own = own

    def repeated(self, start: int, stop: int) -> range | None:
        """The places around blocks that repeat, of those with the most weights; None without any."""
        best: tuple[int, int] = (0, 0)
        found = None
        for period in self._periods(start, stop):
            for first, last in self._runs(start, stop, period):
                weights = self._before[last] - self._before[first]
                if (weights, -period) > best:
                    places = self._aligned(first, last, period)
                    if places is not None:
                        best, found = (weights, -period), places
        return found

    def _periods(self, start: int, stop: int) -> list[int]:
        """Distances between nodes of a kind, those with the most weights first."""
        votes: collections.Counter[int] = collections.Counter()
        latest: dict[Hashable, collections.deque[int]] = {}
        for index in range(start, stop):
            if not self._own[index]:
                continue
            earlier = latest.setdefault(self._nodes.kinds[index], collections.deque(maxlen=_NEXT))
            for other in earlier:
                votes[index - other] += self._own[index]
            earlier.append(index)
        return [period for period, _ in votes.most_common(_PERIODS)]

    def _runs(self, start: int, stop: int, period: int) -> Iterator[tuple[int, int]]:
        """The ranges in which each node equals the one a period later, including the last period."""
        kinds = self._nodes.kinds
        first = start
        for index in range(start, stop - period + 1):
            if index < stop - period and kinds[index] == kinds[index + period]:
                continue
            if index - first >= period:
                yield first, index + period
            first = index + 1

    def _aligned(self, first: int, last: int, period: int) -> range | None:
        """The cuts, one period apart, with the fewest live values; at least two whole blocks."""
        best: tuple[float, int] | None = None
        found = None
        for begin in range(first, min(first + period, last - 2 * period + 1)):
            places = range(begin, last + 1, period)
            widths = [self._nodes.widths[place] for place in places]
            width = max(math.inf if width is None else width for width in widths)
            rank = (width, -len(places))
            if width < math.inf and (best is None or rank < best):
                best, found = rank, places
        return found
