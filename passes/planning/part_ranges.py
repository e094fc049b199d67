"""Which elements of values the parts of a region compute and read, along the axis of each value.

Parts of most operators need the same fraction of all operands. Rows of a convolution or pooling also need the
rows around them: parts of their operands overlap, and nodes before them compute some rows more than once.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence

import onnx_ir as ir

from .parts import sizes_of
from .splitting_rules import PartNeeds

Range = tuple[int, int]
"""The first element, and the one after the last."""
Ranges = tuple[Range, ...]
"""By part."""


@dataclasses.dataclass
class SplittableRegion:
    """Nodes that can run part by part.

    Attributes:
        needs: by position, what a part of the result of each node needs.
        axes: the axes along which the results are split.
    """

    needs: dict[int, PartNeeds]
    axes: dict[ir.Value, int]

    @property
    def has_overlaps(self) -> bool:
        """Whether parts need elements that other parts need, too."""
        return any(needs.window is not None for needs in self.needs.values())


@dataclasses.dataclass(frozen=True)
class PartRanges:
    """The elements of each part.

    Attributes:
        computed: by result of a node, what its parts compute; parts may overlap.
        needed: by position of a node and number of its input, what its parts read. Inputs that are needed
            whole have no entry.
        shares: by result that is read outside of the region, what each part contributes; without overlaps.
    """

    computed: Mapping[ir.Value, Ranges]
    needed: Mapping[tuple[int, int], Ranges]
    shares: Mapping[ir.Value, Ranges]


def proportional_ranges(
    region: SplittableRegion, nodes: Sequence[ir.Node], boundaries: Sequence[int], units: int
) -> PartRanges:
    """Ranges of parts that are the same fraction of each value.

    Args:
        boundaries: where the parts end, as numerators over `units`.
    """

    def ranges(value: ir.Value, axis: int) -> Ranges:
        size = (sizes_of(value) or [])[axis]
        ends = [size * end // units for end in (0, *boundaries)]
        return tuple(itertools.pairwise(ends))

    computed = {value: ranges(value, axis) for value, axis in region.axes.items()}
    needed = {
        (position, number): ranges(value, axis)
        for position, node_needs in region.needs.items()
        for number, (value, axis) in enumerate(zip(nodes[position].inputs, node_needs.axes, strict=True))
        if value is not None and axis is not None
    }
    return PartRanges(computed, needed, computed)


def overlapping_ranges(
    region: SplittableRegion, nodes: Sequence[ir.Node], is_result: Callable[[ir.Value], bool], count: int
) -> PartRanges | None:
    """Ranges of parts with the rows around them; None if a part would have no rows of a value.

    Args:
        is_result: whether a value is needed outside of the region.
        count: the number of parts.
    """
    needs, axes = region.needs, region.axes
    computed: dict[ir.Value, list[Range]] = {}
    shares: dict[ir.Value, Ranges] = {}
    needed: dict[tuple[int, int], Ranges] = {}
    for position in sorted(needs, reverse=True):
        [value] = nodes[position].outputs
        size = (sizes_of(value) or [])[axes[value]]
        if is_result(value):
            share = itertools.pairwise(size * number // count for number in range(count + 1))
            shares[value] = tuple(share)
            computed[value] = _join(computed.get(value), shares[value])
        node_needs = needs[position]
        window = node_needs.window
        if window is not None:
            computed[value] = [window.whole_steps(part) for part in computed[value]]
        for number, (operand, axis) in enumerate(zip(nodes[position].inputs, node_needs.axes, strict=True)):
            if operand is None or axis is None:
                continue
            rows = (sizes_of(operand) or [])[axis]
            parts = computed[value]
            if window is not None:
                parts = [window.existing_rows(part, rows) for part in parts]
            elif rows != size:
                return None
            if any(begin >= end for begin, end in parts):
                return None
            needed[position, number] = tuple(parts)
            if operand in axes:
                computed[operand] = _join(computed.get(operand), parts)
    return PartRanges({value: tuple(parts) for value, parts in computed.items()}, needed, shares)


def _join(first: Collection[Range] | None, second: Sequence[Range]) -> list[Range]:
    """The ranges from the beginning of the earlier one to the end of the later one, by part."""
    pairs = zip(first or second, second, strict=True)
    return [(min(a, begin), max(b, end)) for (a, b), (begin, end) in pairs]
