"""Assigns offsets to buffers in one block of memory by heuristics, with a lower bound and a check.

The problem is dynamic storage allocation, which is NP-hard. No heuristic is always best, so several run. If
all miss the lower bound, a search repeats a skyline heuristic with more weight for the buffers above the
bound, as in Joslin and Clements, "Squeaky Wheel" Optimization (1999). Greedy by size is from Pisarchyk and
Lee, Efficient Memory Management for Deep Neural Net Inference (2020).
"""

from __future__ import annotations

import bisect
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
    held = [index for index, buffer in enumerate(buffers) if buffer.size]
    for place, one in enumerate(held):
        size, first, last = buffers[one]
        begin = offsets[one]
        for other in held[place + 1 :]:
            apart = buffers[other].last < first or last < buffers[other].first
            beside = offsets[other] >= begin + size or begin >= offsets[other] + buffers[other].size
            if not (apart or beside):
                return one, other
    return None


def assign_offsets(buffers: Sequence[Interval], alignment: int = 1) -> list[int]:
    """Return an offset for each buffer, a multiple of `alignment`, so that live buffers do not overlap.

    Deterministic; the time grows with the number of pairs of buffers with overlapping lifetimes.
    """
    rounded = [Interval(-(-size // alignment) * alignment, first, last) for size, first, last in buffers]
    held = [index for index, buffer in enumerate(rounded) if buffer.size]
    found = _placed([rounded[index] for index in held])
    offsets = [0] * len(rounded)
    for index, offset in zip(held, found, strict=True):
        offsets[index] = offset
    return offsets


def _placed(buffers: list[Interval]) -> list[int]:
    if not buffers:
        return []
    bound, mates = lower_bound(buffers), _mates(buffers)
    best: list[int] = []
    for key in _ORDERS:
        order = sorted(range(len(buffers)), key=lambda index: (*key(buffers[index]), index))
        for tight in (False, True):
            offsets = _in_order(buffers, mates, order, tight)
            if not best or peak(buffers, offsets) < peak(buffers, best):
                best = offsets
    return best if peak(buffers, best) == bound else _improved(buffers, best, bound)


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
"""Preference for a buffer that begins or ends where its stretch does, and leaves no gap there."""


def _mates(buffers: Sequence[Interval]) -> list[list[int]]:
    """Return the buffers whose lifetimes overlap, for each buffer."""
    mates: list[list[int]] = [[] for _ in buffers]
    active: list[int] = []
    for index in sorted(range(len(buffers)), key=lambda index: buffers[index].first):
        active = [other for other in active if buffers[other].last >= buffers[index].first]
        for other in active:
            mates[index].append(other)
            mates[other].append(index)
        active.append(index)
    return mates


def _in_order(
    buffers: Sequence[Interval], mates: Sequence[Sequence[int]], order: Sequence[int], tight: bool
) -> list[int]:
    """Place buffers in order, each in the lowest gap that fits, or in the smallest."""
    offsets = [-1] * len(buffers)
    for index in order:
        size = buffers[index].size
        taken = sorted(
            (offsets[other], offsets[other] + buffers[other].size)
            for other in mates[index]
            if offsets[other] >= 0
        )
        top, place, room = 0, -1, 0
        for begin, end in taken:
            gap = begin - top
            if gap >= size and (place < 0 or gap < room):
                place, room = top, gap
                if not tight:
                    break
            top = max(top, end)
        offsets[index] = top if place < 0 else place
    return offsets


def _skyline(buffers: Sequence[Interval], weights: Sequence[float]) -> list[int]:
    """Place the heaviest buffer that fits on the lowest segment of the skyline, until all are placed."""
    offsets = [0] * len(buffers)
    stretches = [[min(b.first for b in buffers), max(b.last for b in buffers), 0]]
    waiting = sorted(range(len(buffers)), key=lambda index: buffers[index].first)
    starts = [buffers[index].first for index in waiting]
    while waiting:
        lowest = min(range(len(stretches)), key=lambda index: (stretches[index][2], index))
        begin, end, height = stretches[lowest]
        chosen, most = -1, 0.0
        for place in range(bisect.bisect_left(starts, begin), bisect.bisect_right(starts, end)):
            _, first, last = buffers[waiting[place]]
            if last <= end:
                weight = weights[waiting[place]] * _EDGE ** ((first == begin) + (last == end))
                if weight > most:
                    chosen, most = place, weight
        if chosen < 0:
            beside = [stretches[near][2] for near in (lowest - 1, lowest + 1) if 0 <= near < len(stretches)]
            stretches[lowest][2] = min(beside)
        else:
            index = waiting.pop(chosen)
            starts.pop(chosen)
            size, first, last = buffers[index]
            offsets[index] = height
            parts = ([begin, first - 1, height], [first, last, height + size], [last + 1, end, height])
            stretches[lowest : lowest + 1] = [part for part in parts if part[0] <= part[1]]
        stretches = _merged(stretches)
    return offsets


def _merged(stretches: list[list[int]]) -> list[list[int]]:
    """Join neighbouring segments of equal height."""
    merged = [stretches[0]]
    for stretch in stretches[1:]:
        if stretch[2] == merged[-1][2]:
            merged[-1][1] = stretch[1]
        else:
            merged.append(stretch)
    return merged


def _improved(buffers: Sequence[Interval], best: list[int], bound: int) -> list[int]:
    """Repeat the skyline with more weight for buffers above the lower bound; return the best placement."""
    least = peak(buffers, best)
    for weigh in _WEIGHTS:
        heaviest = max(map(weigh, buffers))
        weights = [weigh(buffer) / heaviest for buffer in buffers]
        for _ in range(_PLACEMENTS // len(buffers) + 1):
            offsets = _skyline(buffers, weights)
            taken = peak(buffers, offsets)
            if taken < least:
                best, least = offsets, taken
            if least == bound:
                return best
            for index, buffer in enumerate(buffers):
                excess = offsets[index] + buffer.size - bound
                if excess > 0:
                    weights[index] *= 1 + excess / (2 * (taken - bound + 1))
    return best
