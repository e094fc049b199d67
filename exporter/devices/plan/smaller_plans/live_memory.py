"""The bytes that the nodes of a graph need at once, and the choice of values that are parts of others."""

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
"""Parts that are copied on trial, because a copy may need less memory than a whole that lives longer."""


@dataclasses.dataclass(frozen=True)
class MemoryLayout:
    """The buffers of a graph.

    Attributes:
        rules: which values may be parts of others.
        profile: the bytes that are needed at each node.
    """

    rules: PartRules
    memory: GraphBuffers
    profile: list[int]


@dataclasses.dataclass(frozen=True)
class MemoryModel:
    """What the memory of a graph depends on, besides its nodes.

    Attributes:
        workspaces: the bytes that the sub-graphs of nodes need, by the name of the node.
        protected: names of inputs that no node may overwrite.
        next_values: outputs by the names of the other inputs, which take them in the next run.
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
        """The model of a graph in execution order.

        Args:
            consumed: inputs that may be overwritten, with the outputs that are their next values.
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
        """The bytes of a value; None if they are not a number."""
        try:
            size = bytes_of(value, self.dimensions)
        except PlanError:
            return None
        return size if isinstance(size, int) else None

    def profile(self, graph: ir.Graph) -> list[int]:
        """The bytes that are needed at each node.

        Raises:
            PlanError: a size is a formula.
        """
        return self.lay_out(graph).profile

    def states_in_place(self, layout: MemoryLayout) -> int:
        """The number of inputs whose next values are computed in their memory."""
        of = {value.name: buffer for value, buffer in layout.memory.of.items()}
        return sum(name in of and of.get(output) is of[name] for name, output in self.next_values.items())

    def intervals(self, memory: GraphBuffers) -> list[Interval]:
        """The bytes and lifetimes of all buffers and workspaces.

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
        """The buffers of a graph in execution order, with values as parts of others where that needs less.

        A piece keeps the whole alive, and memory for all operands of a Concat is needed from the first on.

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
    """The bytes that are needed at each of a number of nodes."""
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
    """The nodes whose values are parts in a buffer that is alive at a node."""
    return [
        node
        for node in memory.views
        if node.outputs[0] in memory.of
        and memory.of[node.outputs[0]].first <= step <= memory.of[node.outputs[0]].last
        and (rules.pieces(node) is not None or rules.joints(node) is not None)
    ]
