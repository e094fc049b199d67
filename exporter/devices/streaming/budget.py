"""Chooses the cuts of a model and the lookahead of its weights for a memory budget."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence

from ....registration import PlanError
from .segmentation import Sequential, blocks, split

DEFAULT_LOOKAHEAD = 1
"""The number of segments to read ahead if there is no budget."""


@dataclasses.dataclass(frozen=True)
class Lifetime:
    """The steps at which a value is in memory.

    Attributes:
        first: the node that computes it; -1 for an input.
        last: the last node that reads it; the number of nodes for an output.
    """

    first: int
    last: int


def activation_bytes(
    boundaries: Sequence[int], lifetimes: Mapping[str, Lifetime], sizes: Mapping[str, int]
) -> int:
    """Return the largest sum of the bytes of values that are in memory at once.

    A value that passes between segments stays until the last segment that reads it has run. Inputs and
    outputs stay until the end.

    Args:
        boundaries: the first node of each segment, and the end of the last segment.
        lifetimes: the lifetimes of values by name.
        sizes: the bytes of values by name; other values are not counted.
    """
    count = boundaries[-1]
    # Entry t + 1 belongs to node t: inputs begin at t = -1, and t = `count` is after the last node.
    changes = [0] * (count + 3)
    for name, size in sizes.items():
        first, last = lifetimes[name].first, lifetimes[name].last
        if first < 0:
            last = count
        elif last < count:
            following = bisect.bisect_right(boundaries, last)
            if first < boundaries[following - 1]:
                last = boundaries[following] - 1
        changes[first + 1] += size
        changes[last + 2] -= size
    return max(itertools.accumulate(changes))


@dataclasses.dataclass(frozen=True)
class Cut:
    """A model cut into segments.

    Attributes:
        boundaries: the first node of each segment, and the end of the last segment.
        sizes: the bytes of each segment's weights.
        activations: the bytes of activations, as far as sizes are known.
    """

    boundaries: tuple[int, ...]
    sizes: tuple[int, ...]
    activations: int

    @property
    def largest(self) -> int:
        """The bytes of the largest segment."""
        return max(self.sizes, default=0)

    def least_budget(self, lookahead: int) -> int:
        """Return the smallest budget for a lookahead."""
        return self.activations + self.largest * (lookahead + 1)

    def lookahead(self, budget: int, activations: int | None = None) -> int:
        """Return how many segments fit into a budget besides the running one; -1 if that one does not fit."""
        used = self.activations if activations is None else activations
        if not self.largest:
            return len(self.sizes) - 1 if used <= budget else -1
        return max(-1, min((budget - used) // self.largest, len(self.sizes)) - 1)


def cut(
    nodes: Sequential, activations: Callable[[Sequence[int]], int], budget: int | None, lookahead: int | None
) -> Cut:
    """Cut a model between its blocks, and into smaller parts if the budget requires it.

    Without a lookahead, the running segment and the next one must fit, or only one if the budget is too small
    for two.

    Raises:
        PlanError: even single nodes do not fit into the budget; the message has the smallest possible one.
    """

    def measure(boundaries: list[int]) -> Cut:
        sizes = tuple(nodes.size(a, b) for a, b in itertools.pairwise(boundaries))
        return Cut(tuple(boundaries), sizes, activations(boundaries))

    natural = blocks(nodes)
    first = measure(natural)
    if budget is None:
        return first
    for ahead in [DEFAULT_LOOKAHEAD, 0] if lookahead is None else [lookahead]:
        chosen = first
        # A cut may add activations that pass between segments, so the capacity for weights may shrink.
        while chosen.lookahead(budget) < min(ahead, len(chosen.sizes) - 1):
            capacity = max(0, budget - chosen.activations) // (ahead + 1)
            finer = measure(split(nodes, chosen.boundaries, min(capacity, chosen.largest - 1)))
            if finer.boundaries == chosen.boundaries:
                break
            chosen = finer
        if chosen.lookahead(budget) >= min(ahead, len(chosen.sizes) - 1):
            return chosen
    finest = measure(split(nodes, natural, 0))
    ahead = lookahead or 0
    raise PlanError(
        f"a budget of {budget} bytes is too small: with lookahead {ahead}, this model needs at least "
        f"{finest.least_budget(ahead)} bytes, {finest.largest} for each of {ahead + 1} segments and "
        f"{finest.activations} for activations"
    )
