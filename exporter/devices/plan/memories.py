"""Distributes the buffers of a plan among several memories of a device."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping

from ....passes.planning import Interval, align
from ....passes.planning.memories import choose_memories
from ....registration import PlanError
from .records import PlannedBuffer, PlannedGraph, PlannedMemory


def distribute_buffers(
    planned: PlannedGraph, sizes: Mapping[str, int | None], alignment: int
) -> tuple[PlannedGraph, tuple[PlannedMemory, ...]]:
    """Return the plan with its buffers distributed among several memories, and these memories.

    The block consists of the memories, one after the other. Buffers of sub-graphs are in the memory of their
    workspace.

    Args:
        sizes: the bytes of each memory by name, the fastest first; None for an unlimited one.

    Raises:
        PlanError: sizes are formulas, or the buffers do not fit.
    """
    if planned.peak is None:
        raise PlanError("several memories need the sizes of all dimensions")
    wholes = [buffer for buffer in planned.buffers if buffer.within is None]
    intervals = [Interval(_bytes(buffer), *buffer.lifetime) for buffer in wholes]
    names = list(sizes)
    limits = list(sizes.values())
    chosen = choose_memories(intervals, _count_accesses(planned, wholes), limits, alignment)
    if chosen is None:
        stated = ", ".join(f"{name}: {size}" for name, size in sizes.items())
        raise PlanError(
            f"values of {planned.peak} bytes do not fit into the memories ({stated}): give one of them more, "
            f"or pass memory_limit, so that fewer values are alive at once"
        )
    peaks = [0] * len(names)
    for interval, (memory, offset) in zip(intervals, chosen, strict=True):
        peaks[memory] = max(peaks[memory], offset + align(interval.size, alignment))
    begins = [sum(peaks[:number]) for number in range(len(names))]
    position = {
        buffer.name: (names[memory], begins[memory] + offset)
        for buffer, (memory, offset) in zip(wholes, chosen, strict=True)
    }
    old_offsets = {buffer.name: buffer.offset or 0 for buffer in wholes}
    moved = []
    for buffer in planned.buffers:
        whole = buffer.within or buffer.name
        memory_name, offset = position[whole]
        offset += (buffer.offset or 0) - old_offsets[whole]
        moved.append(dataclasses.replace(buffer, memory=memory_name, offset=offset))
    memories = tuple(
        PlannedMemory(name, size, begin, needed)
        for name, size, begin, needed in zip(names, limits, begins, peaks, strict=True)
    )
    return dataclasses.replace(planned, buffers=tuple(moved), peak=sum(peaks)), memories


def _bytes(buffer: PlannedBuffer) -> int:
    assert isinstance(buffer.size, int)
    return buffer.size


def _count_accesses(planned: PlannedGraph, wholes: list[PlannedBuffer]) -> list[int]:
    """Count how often nodes read or write each buffer; views access nothing."""
    whole_of = {value: buffer.within or buffer.name for buffer in planned.buffers for value in buffer.values}
    counts: Counter[str] = Counter()
    for node in planned.nodes:
        if not node.view:
            values = (*node.inputs, *node.outputs, *node.captured)
            counts.update(whole_of[value] for value in values if value in whole_of)
    # Each node of a sub-graph counts as one access to the workspace.
    for body in planned.bodies:
        if body.buffer is not None:
            counts[body.buffer] += len(body.nodes)
    return [counts[buffer.name] for buffer in wholes]
