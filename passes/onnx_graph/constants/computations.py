"""Computes initializers from others: the steps in order, and bounds on their memory and time.

A file of a few bytes can request a huge computation: an Expand to 2**44 elements and their ReduceSum. Bounds
count elements rather than seconds, so that a file always folds to the same bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping

import numpy as np
import onnx_ir as ir

from ....registration.inference.tensor_sizes import byte_count
from .deferred_constants import Deferred
from .initializers import Initializers

MAXIMUM_STEPS = 64
"""Nodes that one initializer may be computed by."""
_FREE_BYTES = 2**24
"""Bytes that an intermediate value may have beyond those of the constants that it is computed from."""
_SIMULTANEOUS_VALUES = 3
"""The number of such values that may be in memory at the same time."""

Steps = Mapping[ir.Value, Deferred]


def exceeds_sources(step: Deferred, steps: Steps) -> bool:
    """Whether a result has many more bytes than the constants that it is computed from.

    Args:
        steps: the nodes that are computed later, by their results.
    """
    if step.nbytes <= _FREE_BYTES:
        return False
    order: dict[ir.Value, None] = {}
    for source in step.sources:
        if source in steps:
            order.update(dict.fromkeys(steps_of(source, steps, steps)))
    if len(order) > MAXIMUM_STEPS:
        # Nothing computes so many steps at once.
        return False
    read = [*step.sources, *(source for value in order for source in steps[value].sources)]
    return step.nbytes > _FREE_BYTES + _bytes_of(set(read) - order.keys())


def steps_of(value: ir.Value, steps: Steps, inside: Container[ir.Value]) -> list[ir.Value]:
    """The deferred values that a value is computed from, each after those that it reads, itself last.

    Stops at one more than `MAXIMUM_STEPS`.
    """
    order: dict[ir.Value, None] = {}
    pending = [(value, False)]
    while pending and len(order) <= MAXIMUM_STEPS:
        current, is_complete = pending.pop()
        if current in order:
            continue
        if is_complete:
            order[current] = None
            continue
        # Visited again after its sources, which makes the order topological without recursion.
        pending.append((current, True))
        pending += [(source, False) for source in steps[current].sources if source in inside]
    return list(order)


def sources_of(order: list[ir.Value], steps: Steps) -> list[ir.Value]:
    """The constants that steps read."""
    inside = set(order)
    read = (source for value in order for source in steps[value].sources)
    return [source for source in dict.fromkeys(read) if source not in inside]


def fits_memory(order: list[ir.Value], steps: Steps) -> bool:
    """Whether the intermediate values that are in memory at the same time are small beside the constants."""
    sizes = {value: steps[value].nbytes for value in order}
    if sum(sizes.values()) <= _FREE_BYTES:
        return True
    allowed = _SIMULTANEOUS_VALUES * (_FREE_BYTES + _bytes_of(sources_of(order, steps)))
    readers = Counter(source for value in order for source in steps[value].sources)
    live_bytes = peak_bytes = 0
    for value in order:
        live_bytes += sizes[value]
        peak_bytes = max(peak_bytes, live_bytes)
        for source in steps[value].sources:
            readers[source] -= 1
            if source in sizes and not readers[source]:
                live_bytes -= sizes[source]
    return peak_bytes <= allowed


def work_of(order: list[ir.Value], steps: Steps, initializers: Initializers) -> int:
    """The elements that steps read and write, those of computed initializers that they read included."""
    inner = sum(steps[value].work for value in order)
    return inner + sum(initializers.work_of(source) for source in sources_of(order, steps))


def computation(order: list[ir.Value], steps: Steps, sources: list[ir.Value]) -> Callable[..., np.ndarray]:
    """The function from the contents of the sources to those of the last step."""
    positions = {value: position for position, value in enumerate([*sources, *order])}
    plan = [(steps[step].compute, [positions[source] for source in steps[step].sources]) for step in order]
    readers = Counter(position for _, read in plan for position in read)
    count = len(sources)

    def compute(*arrays: np.ndarray) -> np.ndarray:
        contents: dict[int, np.ndarray] = dict(enumerate(arrays))
        pending_reads = Counter(readers)
        result = arrays[0]
        for number, (function, read) in enumerate(plan):
            result = contents[count + number] = function(*(contents[position] for position in read))
            pending_reads.subtract(read)
            for position in set(read):
                if not pending_reads[position]:
                    # Free each array after its last reader, which bounds the memory (see `fits_memory`).
                    contents.pop(position, None)
        return result

    return compute


def _bytes_of(values: set[ir.Value] | list[ir.Value]) -> int:
    tensors = [value.const_value for value in values]
    return sum(byte_count(tensor) for tensor in tensors if tensor is not None)
