"""Chooses a memory for each buffer, if a device has several: hot buffers go to the fast ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .offsets import Interval, align, assign_offsets, peak


def choose_memories(
    buffers: Sequence[Interval], accesses: Sequence[int], sizes: Sequence[int | None], alignment: int
) -> list[tuple[int, int]] | None:
    """The memory of each buffer and its offset there; None if no choice fits that the search knows.

    A buffer is hot if nodes access it often in relation to the time for which it takes the memory. If the hot
    ones leave too many bytes for the last memory, those that take most memory for most time go first.

    Args:
        accesses: how often nodes read or write each buffer.
        sizes: the bytes of each memory, the fastest first; None for any number.
    """
    lifetimes = [last - first + 1 for _, first, last in buffers]
    indices = range(len(buffers))
    priorities: tuple[Callable[[int], float], ...] = (
        lambda index: -accesses[index] / lifetimes[index],
        lambda index: -buffers[index].size,
        lambda index: -buffers[index].size * lifetimes[index],
    )
    for priority in priorities:
        order = sorted(indices, key=lambda index: (priority(index), -buffers[index].size, index))
        chosen = _fill_memories(buffers, order, sizes, alignment)
        if chosen is not None:
            return chosen
    return None


def _fill_memories(
    buffers: Sequence[Interval], order: Sequence[int], sizes: Sequence[int | None], alignment: int
) -> list[tuple[int, int]] | None:
    """Fill one memory after the other in an order; None if the last one is too small for the rest."""
    chosen = [(0, 0)] * len(buffers)
    waiting = list(order)
    for memory, size in enumerate(sizes[:-1]):
        placed: list[tuple[Interval, int]] = []
        remaining = []
        for index in waiting:
            length = align(buffers[index].size, alignment)
            offset = _lowest_gap(buffers[index], length, placed)
            if size is not None and offset + length > size:
                remaining.append(index)
                continue
            placed.append((buffers[index]._replace(size=length), offset))
            chosen[index] = memory, offset
        waiting = remaining
    spilled = [buffers[index] for index in sorted(waiting)]
    offsets = assign_offsets(spilled, alignment)
    needed = peak([buffer._replace(size=align(buffer.size, alignment)) for buffer in spilled], offsets)
    last_size = sizes[-1]
    if last_size is not None and needed > last_size:
        return None
    for index, offset in zip(sorted(waiting), offsets, strict=True):
        chosen[index] = len(sizes) - 1, offset
    return chosen


def _lowest_gap(buffer: Interval, length: int, placed: Sequence[tuple[Interval, int]]) -> int:
    """The lowest offset at which a buffer overlaps none of the others while they are alive."""
    occupied = sorted(
        (offset, offset + neighbour.size)
        for neighbour, offset in placed
        if neighbour.first <= buffer.last and buffer.first <= neighbour.last
    )
    top = 0
    for begin, end in occupied:
        if begin - top >= length:
            break
        top = max(top, end)
    return top
