"""Sets of nodes that can compute their results part by part, and the memory that this needs.

A region is a set of nodes of a graph that run one after the other. For each part, the nodes run on parts of
their operands, so that values inside the region need only the memory of one part.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

import onnx_ir as ir

from ..onnx_graph.inplace import memory_sharing
from .buffers import Buffer, GraphBuffers
from .node_work import work_of
from .order import reads
from .part_ranges import PartRanges, SplittableRegion, overlapping_ranges, proportional_ranges
from .parts import PartRules, has_whole_bytes, sizes_of
from .splitting_rules import PartNeeds, part_needs

_MOST_NODES = 96
"""Nodes before and after the first one that may be in a region."""
_MOST_ENDS = 6
_MOST_BEGINNINGS = 6
_COUNTS = (2, 4, 8, 16)
_MOST_COPIES = 160
"""Nodes that take the places of those of a region."""
_WORTH = 0.93
"""The share of the memory that a split, or one with more parts, must come down to."""
_ENOUGH = 0.55
"""The share of the memory below which one split needs no more parts."""
_SMALL_SHARE = 16
"""Values of less than this part of the largest one need no aligned parts."""
_SMALL_WEIGHT = 16 * 1024
"""Bytes of a weight that may be stored as a whole and in parts: biases of zeros are often shared."""


@dataclasses.dataclass(frozen=True)
class Split:
    """A region, and the number of its parts.

    Attributes:
        region: the nodes.
        ranges: the elements of the parts.
        count: the number of parts.
        peak: the bytes that are needed while it runs, as an estimate.
        work: the operations that it adds, because parts overlap.
    """

    region: SplittableRegion
    ranges: PartRanges
    count: int
    peak: int
    work: int

    @property
    def copies(self) -> int:
        """The number of nodes that take the places of those of the region."""
        return self.count * len(self.region.needs)


class RegionSearch:
    """Searches regions of a graph around one of its nodes.

    Args:
        overwrites: whether nodes overwrite operands.
        most_work: the operations that a split may add, because parts overlap; None if no parts may.
    """

    def __init__(
        self,
        graph: ir.Graph,
        memory: GraphBuffers,
        rules: PartRules,
        profile: Sequence[int],
        *,
        overwrites: bool = True,
        most_work: int | None = None,
    ):
        self._overwrites, self._peak = overwrites, max(profile)
        self._most_work, self._has_tiles = most_work or 0, most_work is not None
        self._sizes: dict[ir.Value, int] = {}
        self._weighed: set[frozenset[tuple[int, int]]] = set()
        self._nodes, self._memory, self._rules, self._profile = memory.nodes, memory, rules, profile
        self._position = {node: index for index, node in enumerate(self._nodes)}
        self._outputs = set(graph.outputs)
        self._constants = set(graph.initializers.values()) - set(graph.inputs)
        self._readers: dict[ir.Value, list[int]] = {}
        for index, node in enumerate(self._nodes):
            for value in dict.fromkeys(reads(node)):
                self._readers.setdefault(value, []).append(index)

    def splits(self, step: int) -> list[Split]:
        """Splits that may lower the memory at a node with the most, the best first."""
        splits: list[Split] = []
        anchors = dict.fromkeys([self._nodes[step], *self._neighbours(step)])
        for node in anchors:
            shape = sizes_of(node.outputs[0]) if node.outputs else None
            for axis, size in enumerate(shape or ()):
                if size > 1:
                    splits += self._splits_along(node, axis, step)
        # Of splits that need about the same, the one with the fewest nodes.
        splits.sort(key=lambda split: (round(math.log(split.peak + 1, 1 / _WORTH)), split.copies, split.peak))
        return splits

    def _bytes(self, value: ir.Value) -> int:
        if value not in self._sizes:
            self._sizes[value] = self._rules.bytes_of(value) or 0
        return self._sizes[value]

    def _neighbours(self, step: int) -> Iterator[ir.Node]:
        """The nodes that compute the large values at a node, and the first readers of its results."""
        for value in self._nodes[step].outputs:
            yield from (self._nodes[index] for index in self._readers.get(value, [])[:1])
        size = self._bytes
        alive = [b for b in self._memory.buffers if b.first <= step <= b.last]
        for buffer in sorted(alive, key=lambda b: -max((size(v)) for v in b.values))[:3]:
            producers = (value.producer() for value in buffer.values)
            inside = [node for node in producers if node in self._position and self._position[node] <= step]
            if inside:
                yield max(inside, key=self._position.__getitem__)

    def _splits_along(self, node: ir.Node, axis: int, step: int) -> list[Split]:
        start = self._position[node]
        needs = part_needs(node, axis, overlaps=self._has_tiles)
        if needs is None:
            return []
        grown = self._grow_forward(start, SplittableRegion({start: needs}, {node.outputs[0]: axis}))
        splits = []
        for end, region in self._ends([entry for entry in grown if entry[0] >= step]):
            regions = self._grow_backward(start, end, region)
            beginnings = sorted(
                (region for region in regions if min(region.needs) <= step), key=self._operand_bytes
            )
            for complete in beginnings[:_MOST_BEGINNINGS]:
                identity = frozenset(
                    (position, complete.axes[self.value_at(position)]) for position in complete.needs
                )
                if identity in self._weighed:
                    continue
                self._weighed.add(identity)
                split = self._best_split(complete, end)
                if split is not None and split.peak < _WORTH * self._peak:
                    splits.append(split)
        return splits

    def _ends(self, grown: Sequence[tuple[int, SplittableRegion]]) -> list[tuple[int, SplittableRegion]]:
        """Of regions that end later and later, those whose results are small."""
        sizes = [
            sum(self._bytes(value) for value in region.axes if self._is_result(value, end))
            for end, region in grown
        ]
        smallest = heapq.nsmallest(_MOST_ENDS, range(len(grown)), key=sizes.__getitem__)
        if self._has_tiles:
            # The more nodes a region has, the more rows are computed twice: ends that no earlier one matches.
            least = itertools.accumulate([math.inf, *sizes], min)
            smallest += [
                number
                for number, (size, least_before) in enumerate(zip(sizes, least, strict=False))
                if size < least_before
            ][:_MOST_ENDS]
        return [grown[number] for number in sorted(set(smallest))]

    def _grow_forward(self, start: int, region: SplittableRegion) -> list[tuple[int, SplittableRegion]]:
        """The regions with the nodes that depend on the first one, by the position of the last one."""
        grown = [(start, region)]
        for position in range(start + 1, min(start + _MOST_NODES, len(self._nodes))):
            node = self._nodes[position]
            inside = [value for value in reads(node) if value in region.axes]
            if not inside:
                continue
            extension = self._fitting_axis(node, region.axes)
            if extension is None:
                break
            axis, needs = extension
            region = SplittableRegion(
                {**region.needs, position: needs}, {**region.axes, node.outputs[0]: axis}
            )
            grown.append((position, region))
        return grown

    def _fitting_axis(self, node: ir.Node, axes: Mapping[ir.Value, int]) -> tuple[int, PartNeeds] | None:
        """The axis of the result whose parts need the operands along the axes that they have."""
        shape = sizes_of(node.outputs[0]) if len(node.outputs) == 1 else None
        for axis, size in enumerate(shape or ()):
            needs = part_needs(node, axis, overlaps=self._has_tiles) if size > 1 else None
            if needs is not None and all(
                value is None or value not in axes or axes[value] == needed
                for value, needed in zip(node.inputs, needs.axes, strict=True)
            ):
                return axis, needs
        return None

    def _grow_backward(self, start: int, end: int, region: SplittableRegion) -> Iterator[SplittableRegion]:
        """The regions with nodes that compute operands of the nodes so far, if nothing else needs those."""
        if self._is_closed(region, end):
            yield region
        for position in range(end - 1, max(-1, start - _MOST_NODES), -1):
            node = self._nodes[position]
            if position in region.needs or len(node.outputs) != 1:
                continue
            [value] = node.outputs
            axes = {
                needed
                for reader in self._readers.get(value, ())
                if reader in region.needs
                for number, needed in enumerate(region.needs[reader].axes)
                if self._nodes[reader].inputs[number] is value
            }
            axis = next(iter(axes), None)
            if len(axes) != 1 or axis is None:
                continue
            needs = part_needs(node, axis, overlaps=self._has_tiles)
            if needs is None:
                continue
            region = SplittableRegion({**region.needs, position: needs}, {**region.axes, value: axis})
            if self._is_closed(region, end):
                yield region

    def _is_closed(self, region: SplittableRegion, end: int) -> bool:
        """Whether all that reads a result of the region is in it or runs after it."""
        return all(
            reader in region.needs or reader > end
            for value in region.axes
            for reader in self._readers.get(value, ())
        )

    def _is_result(self, value: ir.Value, end: int) -> bool:
        return value in self._outputs or any(reader > end for reader in self._readers.get(value, ()))

    def _operand_bytes(self, region: SplittableRegion) -> int:
        return sum(self._bytes(value) for value in self._operands(region))

    def _operands(self, region: SplittableRegion) -> dict[ir.Value, set[int | None]]:
        """The values that the region reads from outside, with the axes along which it needs parts of them."""
        operands: dict[ir.Value, set[int | None]] = {}
        for position, needs in region.needs.items():
            for value, axis in zip(self._nodes[position].inputs, needs.axes, strict=True):
                if value is not None and value not in region.axes:
                    operands.setdefault(value, set()).add(axis)
        return operands

    def _best_split(self, region: SplittableRegion, end: int) -> Split | None:
        """The number of parts that needs the least memory, or no more than the graph elsewhere."""
        operands = self._operands(region)
        units = self._units(region, operands)
        if units < 2 or not self._may_split_constants(operands):
            return None
        phases = {self._nodes[position].metadata_props.get("opsetta.plan.phase") for position in region.needs}
        if len(phases) > 1:
            return None
        best: Split | None = None
        for count in _COUNTS:
            if count > units or count * len(region.needs) > _MOST_COPIES:
                break
            ranges = self._ranges(region, operands, units, count, end)
            work = 0 if ranges is None else self._added_work(region, ranges)
            if ranges is None or work > self._most_work:
                break
            peak = self._estimate(region, ranges, end)
            # More parts are more nodes: they must be worth it.
            if best is None or peak < _WORTH * best.peak:
                if best is not None and best.peak < _ENOUGH * self._peak:
                    break
                best = Split(region, ranges, len(next(iter(ranges.computed.values()))), peak, work)
        return best

    def _ranges(
        self,
        region: SplittableRegion,
        operands: Mapping[ir.Value, set[int | None]],
        units: int,
        count: int,
        end: int,
    ) -> PartRanges | None:
        if region.has_overlaps:
            return overlapping_ranges(region, self._nodes, lambda value: self._is_result(value, end), count)
        boundaries = self._boundaries(region, operands, units, count, end)
        return proportional_ranges(region, self._nodes, boundaries, units)

    def _added_work(self, region: SplittableRegion, ranges: PartRanges) -> int:
        """The operations of elements that several parts compute."""
        added = 0
        for value, axis in region.axes.items() if region.has_overlaps else ():
            node, shape = value.producer(), sizes_of(value)
            assert node is not None
            assert shape is not None
            count = sum(end - begin for begin, end in ranges.computed[value])
            added += work_of(node) * max(0, count - shape[axis]) // shape[axis]
        return added

    def _units(self, region: SplittableRegion, operands: Mapping[ir.Value, set[int | None]]) -> int:
        """The largest number of equal pieces that all axes have; of parts that overlap, of their results."""
        sizes = [needs.units for needs in region.needs.values()]
        for value, axis in (*region.axes.items(), *((v, a) for v, axes in operands.items() for a in axes)):
            shape = sizes_of(value)
            # Parts of constants are constants of their own.
            if shape is None or not (value in self._constants or has_whole_bytes(value)):
                return 0
            if axis is not None:
                sizes.append(shape[axis])
        return max(sizes) if region.has_overlaps else math.gcd(*sizes)

    def _may_split_constants(self, operands: Mapping[ir.Value, set[int | None]]) -> bool:
        """Whether no large weight would be stored twice: as a whole, and in parts."""
        return all(
            axes == {None}
            or value not in self._constants
            or len(self._readers.get(value, ())) == 1
            or (self._bytes(value)) <= _SMALL_WEIGHT
            for value, axes in operands.items()
        )

    def _boundaries(
        self,
        region: SplittableRegion,
        operands: Mapping[ir.Value, set[int | None]],
        units: int,
        count: int,
        end: int,
    ) -> tuple[int, ...]:
        """Where the parts end, so that as many operands and results as possible have aligned parts."""
        alignment = self._rules.alignment
        borders = [
            (value, axis)
            for value, axis in (
                *((value, axis) for value, axis in region.axes.items() if self._is_result(value, end)),
                *((value, axis) for value, axes in operands.items() for axis in axes if axis is not None),
            )
            if value in self._memory.of and _is_contiguous(value, axis)
        ]
        largest = max((self._bytes(value) for value, _ in borders), default=0)
        # As many units as have a multiple of the alignment; copies of small values cost little.
        steps = [
            alignment // math.gcd(alignment, self._bytes(value) // units)
            for value, _ in borders
            if self._bytes(value) * _SMALL_SHARE >= largest
        ]
        step = math.lcm(1, *steps)
        if step * 2 > units:
            step = 1
        pieces = -(-units // step)
        count = min(count, pieces)
        ends = [min(units, (number + 1) * pieces // count * step) for number in range(count)]
        return tuple(ends)

    def _is_view(self, value: ir.Value, axis: int, parts: Sequence[tuple[int, int]]) -> bool:
        """Whether the parts of a value are contiguous and aligned."""
        size, shape = self._bytes(value), sizes_of(value) or []
        return _is_contiguous(value, axis) and not any(
            size * begin // shape[axis] % self._rules.alignment for begin, _ in parts
        )

    def _largest_part(self, value: ir.Value, axis: int, parts: Sequence[tuple[int, int]]) -> int:
        """The bytes of the largest part of a value."""
        return self._bytes(value) * max(end - begin for begin, end in parts) // (sizes_of(value) or [])[axis]

    def value_at(self, position: int) -> ir.Value:
        """The result of the node at a position."""
        return self._nodes[position].outputs[0]

    def overwritten(self, region: SplittableRegion, position: int, end: int) -> int | None:
        """The input that the parts of a node's result overwrite.

        An operand from outside is preferred: its memory becomes that of the result, while the other operands
        are in memory for one part only.
        """
        node, needs = self._nodes[position], region.needs[position]
        if not self._overwrites:
            return None
        graph = node.graph
        opset = graph.opset_imports.get("", 0) if isinstance(graph, ir.Graph) else 0
        for number in memory_sharing.overwritable(node.op_type, opset, len(node.inputs)):
            value = node.inputs[number]
            # A part that overlaps with the next one must leave its elements to it.
            if region.has_overlaps or value is None or value in region.axes or needs.axes[number] is None:
                continue
            if value.dtype != node.outputs[0].dtype or sizes_of(value) != sizes_of(node.outputs[0]):
                continue
            if self._ends_within(value, region, position, end):
                return number
        number = self._memory.in_place.get(node, -1)
        if number < 0 or needs.axes[number] is None:
            return None
        return None if region.has_overlaps and node.inputs[number] not in region.axes else number

    def _ends_within(self, value: ir.Value, region: SplittableRegion, position: int, end: int) -> bool:
        """Whether only one node of the region needs the memory of an operand."""
        buffer = self._memory.of.get(value)
        if buffer is None or buffer.last > end or value in self._memory.offsets:
            return False
        if any(alias in self._rules.protected or alias in self._outputs for alias in buffer.values):
            return False
        readers = {
            reader
            for alias in buffer.values
            if alias not in region.axes
            for reader in self._readers.get(alias, ())
            if reader >= min(region.needs)
        }
        return readers == {position} and [*self._nodes[position].inputs].count(value) == 1

    def _estimate(self, region: SplittableRegion, ranges: PartRanges, end: int) -> int:
        """The bytes that are needed while the parts of a region run."""
        start, size = min(region.needs), self._bytes
        live = sum(
            max(size(value) for value in buffer.values)
            for buffer in self._memory.buffers
            if self._is_beside(buffer, region, start, end)
        )
        copied: dict[tuple[ir.Value, int], int] = {}
        for (position, index), parts in ranges.needed.items():
            value, axis = self._nodes[position].inputs[index], region.needs[position].axes[index]
            if value is None or axis is None or value in region.axes or value not in self._memory.of:
                continue
            if not self._is_view(value, axis, parts):
                copied[value, axis] = max(
                    copied.get((value, axis), 0), self._largest_part(value, axis, parts)
                )
        live += sum(copied.values())
        memory_of: dict[ir.Value, ir.Value | None] = {}
        group: dict[ir.Value, list[ir.Value]] = {}
        for position in sorted(region.needs):
            node = self._nodes[position]
            result = node.outputs[0]
            number = 0 if node in self._memory.views else self.overwritten(region, position, end)
            operand = None if number is None else node.inputs[number]
            owner: ir.Value | None = result
            if operand in memory_of:
                owner = memory_of[operand]
            elif operand is not None and operand in self._memory.of and number is not None:
                operand_axis = region.needs[position].axes[number]
                needed = ranges.needed.get((position, number), ())
                # The parts take the memory of an operand that is alive already.
                if operand_axis is not None and self._is_view(operand, operand_axis, needed):
                    owner = None
            memory_of[result] = owner
            if owner is not None:
                group.setdefault(owner, []).append(result)
        return live + self._most_inside(region, group, ranges, end)

    def _is_beside(self, buffer: Buffer, region: SplittableRegion, start: int, end: int) -> bool:
        """Whether a buffer from outside of a region is alive while it runs."""
        if buffer.first > end or buffer.last < start:
            return False
        outside = [value for value in buffer.values if value not in region.axes]
        return bool(outside) and (
            buffer.last > end
            or any(reader in region.needs for value in outside for reader in self._readers.get(value, ()))
        )

    def _most_inside(
        self, region: SplittableRegion, group: Mapping[ir.Value, list[ir.Value]], ranges: PartRanges, end: int
    ) -> int:
        """The most bytes of results: whole ones of the region, and one part of the others."""
        size, whole, joined = self._bytes, 0, 0
        changes: dict[int, int] = {}
        for owner, values in group.items():
            results = [value for value in values if self._is_result(value, end)]
            full = size(owner)
            if results:
                whole += full
                if not all(
                    self._is_view(value, region.axes[value], ranges.shares[value])
                    and ranges.shares[value] == ranges.computed[value]
                    for value in results
                ):
                    joined += full
                continue
            positions = [
                min(self._position[node] for value in values if (node := value.producer()) is not None)
            ] + [
                reader
                for value in values
                for reader in self._readers.get(value, ())
                if reader in region.needs
            ]
            part = self._largest_part(owner, region.axes[owner], ranges.computed[owner])
            changes[min(positions)] = changes.get(min(positions), 0) + part
            changes[max(positions) + 1] = changes.get(max(positions) + 1, 0) - part
        most = inside = 0
        for position in sorted(changes):
            inside += changes[position]
            most = max(most, inside)
        return whole + max(most, joined)


def _is_contiguous(value: ir.Value, axis: int) -> bool:
    shape = sizes_of(value)
    return shape is not None and math.prod(shape[:axis]) == 1
