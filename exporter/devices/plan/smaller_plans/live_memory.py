"""Computes the bytes that are alive at each node, and chooses values that are stored as parts of others."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

import onnx_ir as ir

from .....passes.planning import GraphBuffers, Interval, PartRules, align, buffers_of
from .....passes.planning.recomputation import is_lower
from .....registration import PlanError
from .....registration.arguments import blocks
from ..graph_plan import buffer_size, plan_graph
from ..records import WORKSPACE
from ..value_bytes import Dimensions, bytes_of

_MOST_TRIALS = 40
"""The most parts to try as copies, because a copy may need less memory than a whole that lives longer."""


@dataclasses.dataclass(frozen=True)
class MemoryLayout:
    """The buffers of a graph.

    Attributes:
        rules: the rules for values that are stored as parts of others.
        memory: the buffers.
        profile: the bytes that are alive at each node.
    """

    rules: PartRules
    memory: GraphBuffers
    profile: list[int]


@dataclasses.dataclass(frozen=True)
class MemoryModel:
    """Computes the memory of a graph from its nodes and these settings.

    Attributes:
        workspaces: by name of a node, the bytes that its sub-graphs need.
        protected: names of inputs that no node may overwrite.
        next_values: by name of each other input, the output whose value it takes in the next run.
    """

    dimensions: Dimensions
    alignment: int
    workspaces: Mapping[str, int]
    protected: Collection[str]
    next_values: Mapping[str, str]

    @classmethod
    def of_graph(
        cls, graph: ir.Graph, dimensions: Dimensions, alignment: int, consumed: Mapping[str, str]
    ) -> MemoryModel:
        """Make the memory model of a graph whose nodes are in execution order.

        Args:
            consumed: by name of an input that may be overwritten, the output that is its next value.
        """
        workspaces: dict[str, int] = {}
        nodes = list(graph)
        if any(blocks(node) for node in nodes):
            planned = plan_graph(graph, nodes, dimensions, alignment, {})
            workspaces = {
                nodes[buffer.lifetime[0]].name or "": buffer.size
                for buffer in planned.buffers
                if buffer.kind == WORKSPACE and isinstance(buffer.size, int)
            }
        protected = {value.name or "" for value in graph.inputs} - set(consumed)
        return cls(dimensions, alignment, workspaces, protected, consumed)

    def size(self, value: ir.Value) -> int | None:
        """Return the bytes of a value; None if the size is a formula or unknown."""
        try:
            size = bytes_of(value, self.dimensions)
        except PlanError:
            return None
        return size if isinstance(size, int) else None

    def profile(self, graph: ir.Graph) -> list[int]:
        """Return the bytes that are alive at each node.

        Raises:
            PlanError: a size is a formula.
        """
        return self.lay_out(graph).profile

    def states_in_place(self, layout: MemoryLayout) -> int:
        """Count the inputs whose next values are computed in the inputs' own buffers."""
        of = {value.name: buffer for value, buffer in layout.memory.of.items()}
        return sum(name in of and of.get(output) is of[name] for name, output in self.next_values.items())

    def intervals(self, memory: GraphBuffers) -> list[Interval]:
        """Return the bytes and lifetimes of all buffers and workspaces.

        Raises:
            PlanError: a size is a formula.
        """
        intervals = []
        for buffer in memory.buffers:
            size = buffer_size(buffer, memory, self.dimensions)
            if not isinstance(size, int):
                raise PlanError(f"the size {size} is a formula")
            intervals.append(Interval(align(size, self.alignment), buffer.first, buffer.last))
        positions = {node.name: index for index, node in enumerate(memory.nodes)}
        intervals += [
            Interval(size, positions[name], positions[name]) for name, size in self.workspaces.items()
        ]
        return intervals

    def lay_out(self, graph: ir.Graph) -> MemoryLayout:
        """Choose buffers for a graph; values become parts of others only if that needs less memory.

        It may need more: a part keeps the whole alive, and a Concat needs its result's memory from the first
        operand on.

        Raises:
            PlanError: a size is a formula.
        """
        nodes = list(graph)
        protected = [value for value in graph.inputs if value.name in self.protected]
        outputs = {value.name: value for value in graph.outputs}
        next_values = {
            value: outputs[output]
            for value in graph.inputs
            if (output := self.next_values.get(value.name or "")) is not None
        }
        rules = PartRules(self.size, self.alignment, protected, next_values)
        memory = buffers_of(graph, nodes, parts=rules)
        best = live_profile(self.intervals(memory), len(nodes))
        trials = 0
        while trials < _MOST_TRIALS:
            step = best.index(max(best))
            better = None
            for node in _sharing_nodes(memory, step, rules):
                trials += 1
                copying = dataclasses.replace(rules, copying={*rules.copying, node})
                changed = buffers_of(graph, nodes, parts=copying)
                profile = live_profile(self.intervals(changed), len(nodes))
                if is_lower(profile, best):
                    better, best = (copying, changed), profile
            if better is None:
                break
            rules, memory = better
        return MemoryLayout(rules, memory, best)


def live_profile(intervals: Sequence[Interval], count: int) -> list[int]:
    """Return the bytes that are alive at each of `count` nodes."""
    changes = [0] * (count + 1)
    for size, first, last in intervals:
        changes[first] += size
        changes[min(last + 1, count)] -= size
    profile, live = [], 0
    for change in changes[:-1]:
        live += change
        profile.append(live)
    return profile or [0]


def _sharing_nodes(memory: GraphBuffers, step: int, rules: PartRules) -> list[ir.Node]:
    """Return the nodes whose values are parts of a buffer that is alive at node `step`."""
    return [
        node
        for node in memory.views
        if node.outputs[0] in memory.of
        and memory.of[node.outputs[0]].first <= step <= memory.of[node.outputs[0]].last
        and (rules.pieces(node) is not None or rules.joints(node) is not None)
    ]
