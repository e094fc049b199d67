"""Assigns offsets to buffers in one block of memory by heuristics, with a lower bound and a check.

The problem is dynamic storage allocation, which is NP-hard. No heuristic is always best, so several run. If
all miss the lower bound, a search repeats a skyline heuristic with more weight for the buffers above the
bound, as in Joslin and Clements, "Squeaky Wheel" Optimization (1999). Greedy by size is from Pisarchyk and
Lee, Efficient Memory Management for Deep Neural Net Inference (2020).
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

_PLACEMENTS = 20_000
"""The number of buffers that the search places from each of its starting points; its time is proportional."""


class Interval(NamedTuple):
    """A buffer's size in bytes, and the first and last step of its lifetime, both inclusive."""

    size: int
    first: int
    last: int


def lower_bound(buffers: Sequence[Interval]) -> int:
    """Return the maximum number of live bytes at one step; no placement needs less."""
    changes: dict[int, int] = {}
    for size, first, last in buffers:
        changes[first] = changes.get(first, 0) + size
        changes[last + 1] = changes.get(last + 1, 0) - size
    needed = most = 0
    for step in sorted(changes):
        needed += changes[step]
        most = max(most, needed)
    return most


def peak(buffers: Sequence[Interval], offsets: Sequence[int]) -> int:
    """Return the number of bytes that a placement needs."""
    return max((offset + buffer.size for offset, buffer in zip(offsets, buffers, strict=True)), default=0)


def overlap(buffers: Sequence[Interval], offsets: Sequence[int]) -> tuple[int, int] | None:
    """Return two live buffers that share a byte, or None.

    Compares all pairs, independently of how the offsets were found.
    """
    nonempty = [index for index, buffer in enumerate(buffers) if buffer.size]
    for a, b in itertools.combinations(nonempty, 2):
        disjoint_in_time = buffers[b].last < buffers[a].first or buffers[a].last < buffers[b].first
        disjoint_in_memory = (
            offsets[b] >= offsets[a] + buffers[a].size or offsets[a] >= offsets[b] + buffers[b].size
        )
        if not (disjoint_in_time or disjoint_in_memory):
            return a, b
    return None


def align(size: int, alignment: int) -> int:
    """A number of bytes, rounded up to whole units of the alignment."""
    return -(-size // alignment) * alignment


def assign_offsets(buffers: Sequence[Interval], alignment: int = 1) -> list[int]:
    """Return an offset for each buffer, a multiple of `alignment`, so that live buffers do not overlap.

    Deterministic; the time grows with the number of pairs of buffers with overlapping lifetimes.
    """
    # Aligned sizes keep all offsets aligned, because offsets are sums of sizes.
    rounded = [Interval(align(size, alignment), first, last) for size, first, last in buffers]
    # Empty buffers need no memory; any offset serves.
    nonempty = [index for index, buffer in enumerate(rounded) if buffer.size]
    offsets = [0] * len(rounded)
    # In any placement a buffer that is always alive can move to the bottom, so no placement is lost. State of
    # a training graph is such memory.
    start = min((rounded[index].first for index in nonempty), default=0)
    end = max((rounded[index].last for index in nonempty), default=0)
    bottom, temporary = 0, []
    for index in nonempty:
        size, first, last = rounded[index]
        if (first, last) == (start, end):
            offsets[index] = bottom
            bottom += size
        else:
            temporary.append(index)
    for index, offset in zip(temporary, _place_buffers([rounded[index] for index in temporary]), strict=True):
        offsets[index] = bottom + offset
    return offsets


def _place_buffers(buffers: list[Interval]) -> list[int]:
    """Return the offsets of the best of several heuristics."""
    if not buffers:
        return []
    bound, neighbours = lower_bound(buffers), _overlapping_lifetimes(buffers)
    best: list[int] = []
    for key in _ORDERS:
        order = sorted(range(len(buffers)), key=lambda index: (*key(buffers[index]), index))
        for tight in (False, True):
            offsets = _place_in_order(buffers, neighbours, order, tight)
            if not best or peak(buffers, offsets) < peak(buffers, best):
                best = offsets
    return best if peak(buffers, best) == bound else _search_placement(buffers, best, bound)


_ORDERS: tuple[Callable[[Interval], tuple[int, ...]], ...] = (
    lambda b: (-b.size, b.first),
    lambda b: (b.first, -b.size),
    lambda b: (b.first - b.last, -b.size),
    lambda b: (-b.size * (b.last - b.first + 1), b.first),
    lambda b: (b.last, -b.size),
)
"""Orders of placing buffers: large ones first, early ones, long-lived ones, large areas, early ends."""

_WEIGHTS: tuple[Callable[[Interval], int], ...] = (
    lambda b: b.last - b.first + 1,
    lambda b: b.size * (b.last - b.first + 1),
    lambda b: b.size,
)
"""The first preferences of the skyline: long-lived buffers, buffers of a large area, large buffers."""
_EDGE = 1.1
"""Preference for a buffer that begins or ends with its segment, and so leaves no gap there."""


def _overlapping_lifetimes(buffers: Sequence[Interval]) -> list[list[int]]:
    """Return the buffers whose lifetimes overlap, for each buffer."""
    neighbours: list[list[int]] = [[] for _ in buffers]
    active: list[int] = []
    for index in sorted(range(len(buffers)), key=lambda index: buffers[index].first):
        active = [neighbour for neighbour in active if buffers[neighbour].last >= buffers[index].first]
        for neighbour in active:
            neighbours[index].append(neighbour)
            neighbours[neighbour].append(index)
        active.append(index)
    return neighbours


def _place_in_order(
    buffers: Sequence[Interval], neighbours: Sequence[Sequence[int]], order: Sequence[int], tight: bool
) -> list[int]:
    """Place buffers in order, each in the lowest gap that fits, or in the smallest."""
    offsets = [-1] * len(buffers)
    for index in order:
        size = buffers[index].size
        occupied = sorted(
            (offsets[neighbour], offsets[neighbour] + buffers[neighbour].size)
            for neighbour in neighbours[index]
            if offsets[neighbour] >= 0
        )
        top, best_offset, best_gap = 0, -1, 0
        for begin, end in occupied:
            gap = begin - top
            if gap >= size and (best_offset < 0 or gap < best_gap):
                best_offset, best_gap = top, gap
                if not tight:
                    break
            # Occupied ranges may nest, so the end of an earlier one may be higher.
            top = max(top, end)
        offsets[index] = top if best_offset < 0 else best_offset
    return offsets


def _skyline(buffers: Sequence[Interval], weights: Sequence[float]) -> list[int]:
    """Place the heaviest buffer that fits on the lowest segment of the skyline, until all are placed."""
    offsets = [0] * len(buffers)
    # A segment is [first step, last step, height].
    segments = [[min(b.first for b in buffers), max(b.last for b in buffers), 0]]
    waiting = sorted(range(len(buffers)), key=lambda index: buffers[index].first)
    starts = [buffers[index].first for index in waiting]
    while waiting:
        heights = [segment[2] for segment in segments]
        lowest = heights.index(min(heights))
        begin, end, height = segments[lowest]
        chosen, most = -1, 0.0
        for position in range(bisect.bisect_left(starts, begin), bisect.bisect_right(starts, end)):
            _, first, last = buffers[waiting[position]]
            if last <= end:
                weight = weights[waiting[position]] * _EDGE ** ((first == begin) + (last == end))
                if weight > most:
                    chosen, most = position, weight
        if chosen < 0:
            # Nothing fits here: raise the segment to its lower neighbour, which widens it.
            segments[lowest][2] = min(
                heights[near] for near in (lowest - 1, lowest + 1) if 0 <= near < len(heights)
            )
            count = 1
        else:
            index = waiting.pop(chosen)
            starts.pop(chosen)
            size, first, last = buffers[index]
            offsets[index] = height
            pieces = ([begin, first - 1, height], [first, last, height + size], [last + 1, end, height])
            added = [piece for piece in pieces if piece[0] <= piece[1]]
            segments[lowest : lowest + 1] = added
            count = len(added)
        # Only the changed segments and their neighbours may have equal heights now.
        changed = slice(max(0, lowest - 1), lowest + count + 1)
        segments[changed] = _merge_segments(segments[changed])
    return offsets


def _merge_segments(segments: list[list[int]]) -> list[list[int]]:
    """Join neighbouring segments of equal height."""
    merged = [segments[0]]
    for segment in segments[1:]:
        if segment[2] == merged[-1][2]:
            merged[-1][1] = segment[1]
        else:
            merged.append(segment)
    return merged


def _search_placement(buffers: Sequence[Interval], best: list[int], bound: int) -> list[int]:
    """Repeat the skyline with more weight for buffers above the lower bound; return the best placement."""
    best_bytes = peak(buffers, best)
    for weigh in _WEIGHTS:
        heaviest = max(map(weigh, buffers))
        weights = [weigh(buffer) / heaviest for buffer in buffers]
        for _ in range(_PLACEMENTS // len(buffers) + 1):
            offsets = _skyline(buffers, weights)
            needed_bytes = peak(buffers, offsets)
            if needed_bytes < best_bytes:
                best, best_bytes = offsets, needed_bytes
            if best_bytes == bound:
                return best
            for index, buffer in enumerate(buffers):
                excess = offsets[index] + buffer.size - bound
                if excess > 0:
                    weights[index] *= 1 + excess / (2 * (needed_bytes - bound + 1))
    return best
