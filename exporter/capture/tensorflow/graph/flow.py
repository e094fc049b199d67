"""Finds loops and branches in TensorFlow 1 control flow: Enter, Exit, Merge, Switch, NextIteration, LoopCond.

A loop is a frame. An Enter brings a value into it. Each loop variable is a Merge of an Enter and a
NextIteration. A Switch whose predicate is the LoopCond passes the variable to the body (result 1) or to an
Exit (result 0). Outside of loops, a Switch passes its data to one branch only, and a Merge returns whichever
input is available: its inputs depend on different results of Switches with one predicate, directly or through
control inputs.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from .....registration import CaptureError, ModelFileError
from ....files.reading.names import listed
from ..node_messages import (
    ENTER,
    EXIT,
    IDENTITIES,
    MERGE,
    NEXT_ITERATION,
    OPTIONAL_PLACEHOLDER,
    SWITCH,
)
from ..tensor_protos import array_of
from .nodes import Edge, GraphNode, ancestors

Guard = tuple[Edge, int]
"""A predicate and the result of its Switches that must be alive for a node to run."""

SWITCHES = SWITCH | {"_SwitchN"}
OPERATORS = ENTER | EXIT | MERGE | SWITCHES | NEXT_ITERATION | {"LoopCond"}
_NO_GUARDS: frozenset[Guard] = frozenset()


@dataclasses.dataclass(eq=False)
class LoopFrame:
    """A loop, with its Enter, Merge and Exit nodes in order, and its LoopCond."""

    name: str
    parent: LoopFrame | None
    enters: list[GraphNode] = dataclasses.field(default_factory=list)
    merges: list[GraphNode] = dataclasses.field(default_factory=list)
    exits: list[GraphNode] = dataclasses.field(default_factory=list)
    condition: GraphNode | None = None

    @property
    def label(self) -> str:
        """Its description in errors."""
        return f"the loop '{self.name}'"


@dataclasses.dataclass(eq=False)
class Branching:
    """Merges that one If or Case returns, each with the index of its input for every branch."""

    predicate: Edge
    merges: list[tuple[GraphNode, tuple[int, ...]]]

    @property
    def branches(self) -> int:
        """The number of branches."""
        return len(self.merges[0][1])


def skip_identities(edge: Edge) -> Edge:
    """Skip a chain of Identity nodes."""
    while edge.node.op in IDENTITIES and len(edge.node.inputs) == 1 and edge.output == 0:
        edge = edge.node.inputs[0]
    return edge


class Flow:
    """The control flow of the part of a graph that some results depend on."""

    def __init__(self, roots: Sequence[Edge], cut: Mapping[Edge, object]):
        """Analyze the ancestors of `roots`.

        Args:
            cut: results that are fed, behind which the analysis does not go.
        """
        cut_edges = frozenset(cut)
        self._cut = cut_edges
        self._read_edges = {
            edge for node in ancestors(roots, cut_edges, controls=False) for edge in node.inputs
        } | {*roots}
        # Control inputs decide too whether a node runs, so the guards must see them.
        nodes = list(ancestors(roots, cut_edges, controls=True))
        for node in nodes:
            input_count = 2 if node.op in SWITCHES else 1
            if node.op in OPERATORS and (
                len(node.inputs) < input_count or (node.op not in MERGE and len(node.inputs) > input_count)
            ):
                raise ModelFileError(f"{node.label} has {len(node.inputs)} inputs instead of {input_count}")
        self._loop_merges = {
            node for node in nodes if node.op in MERGE and any(map(_is_next_iteration, node.inputs))
        }
        self._frames: dict[GraphNode, LoopFrame | None] = {}
        self._guards: dict[GraphNode, frozenset[Guard]] = {}
        self._levels: dict[GraphNode, int] = {}
        self._branching: dict[GraphNode, Branching | CaptureError] = {}
        self._constants: dict[Edge, int | None] = {}
        order = self._sort(nodes, {})
        self._find_frames(order)
        enters = {merge: self._frame_of(merge).enters for merge in self._loop_merges}
        # The Merges of a loop need the guards of all its Enters.
        self._find_guards(self._sort(order, enters))

    def _sort(
        self, nodes: Sequence[GraphNode], extra_predecessors: Mapping[GraphNode, Sequence[GraphNode]]
    ) -> list[GraphNode]:
        """Sort the nodes topologically, ignoring the back edges of loops."""
        readers: dict[GraphNode, list[GraphNode]] = defaultdict(list)
        predecessor_counts: dict[GraphNode, int] = {}
        present = set(nodes)
        for node in nodes:
            predecessors = [e.node for e in node.inputs if e not in self._cut] + node.controls
            predecessors += extra_predecessors.get(node, ())
            # A NextIteration closes the cycle of its loop; without these edges there are no cycles.
            required_nodes = {
                predecessor
                for predecessor in predecessors
                if predecessor in present and predecessor.op not in NEXT_ITERATION
            }
            predecessor_counts[node] = len(required_nodes)
            for predecessor in required_nodes:
                readers[predecessor].append(node)
        order = [node for node in nodes if not predecessor_counts[node]]
        for node in order:
            for reader in readers[node]:
                predecessor_counts[reader] -= 1
                if not predecessor_counts[reader]:
                    order.append(reader)
        if len(order) != len(nodes):
            raise cycle_error([node for node in nodes if predecessor_counts[node]])
        return order

    def _find_frames(self, order: Iterable[GraphNode]) -> None:
        frames_by_name: dict[tuple[LoopFrame | None, str], LoopFrame] = {}
        for node in order:
            predecessors = [
                e.node for e in node.inputs if e not in self._cut and e.node.op not in NEXT_ITERATION
            ]
            predecessor_frames = [
                self._frames.get(predecessor) for predecessor in (*predecessors, *node.controls)
            ]
            # A node may read results from outside of its loop, so the innermost one counts.
            frame = max(predecessor_frames, key=_depth, default=None)
            if node.op in ENTER:
                name = node.attribute("frame_name").s.decode(errors="replace")
                # Enters with one frame name in one parent lead into the same loop.
                frame = frames_by_name.setdefault((frame, name), LoopFrame(name, frame))
                if _depth(frame) > _MAXIMUM_DEPTH:
                    raise CaptureError(f"loops are nested more than {_MAXIMUM_DEPTH} deep at {node.label}")
                frame.enters.append(node)
            elif node.op in EXIT:
                if frame is None:
                    raise CaptureError(f"{node.label} is not in a loop")
                frame.exits.append(node)
                frame = frame.parent
            elif frame is not None and node in self._loop_merges:
                frame.merges.append(node)
            elif frame is not None and node.op == "LoopCond":
                if frame.condition is not None:
                    raise CaptureError(
                        f"{frame.label} has two conditions, '{frame.condition.name}' and '{node.name}'"
                    )
                frame.condition = node
            self._frames[node] = frame

    def _frame_of(self, merge: GraphNode) -> LoopFrame:
        frame = self._frames[merge]
        if frame is None:
            raise CaptureError(f"{merge.label} reads a NextIteration, but is not in a loop")
        return frame

    def frame(self, node: GraphNode) -> LoopFrame | None:
        """The loop that the results of a node belong to."""
        return self._frames.get(node)

    def is_variable(self, node: GraphNode) -> bool:
        """Whether a node is a Merge that begins each iteration of a loop."""
        return node in self._loop_merges

    def loop_of(self, node: GraphNode) -> LoopFrame:
        """The loop that an Exit leaves."""
        for edge in node.inputs:
            frame = self._frames.get(edge.node)
            if frame is not None:
                return frame
        raise CaptureError(f"{node.label} is not in a loop")

    def is_loop_switch(self, node: GraphNode) -> bool:
        """Whether a Switch belongs to a loop: its predicate is the LoopCond."""
        return (
            node.op in SWITCHES
            and len(node.inputs) == 2
            and skip_identities(node.inputs[1]).node.op == "LoopCond"
        )

    def is_read(self, edge: Edge) -> bool:
        """Whether a result is needed as data."""
        return edge in self._read_edges

    def _find_guards(self, order: Iterable[GraphNode]) -> None:
        """Find the guards and the level of each node; a Merge is above all Merges that it depends on."""
        groups: dict[object, Branching] = {}
        loop_guards: dict[LoopFrame, frozenset[Guard]] = {}
        for node in order:
            inputs = [e for e in node.inputs if e not in self._cut and e.node.op not in NEXT_ITERATION]
            levels = [self._levels.get(e.node, 0) for e in inputs]
            levels += [self._levels.get(control, 0) for control in node.controls]
            if node in self._loop_merges:
                frame = self._frame_of(node)
                if frame not in loop_guards:
                    # A loop runs only if all its Enters do.
                    loop_guards[frame] = _NO_GUARDS.union(*(self._guards[enter] for enter in frame.enters))
                levels += [self._levels[enter] for enter in frame.enters]
                self._guards[node] = loop_guards[frame]
            elif node.op in MERGE:
                self._guards[node] = self._add_merge(node, inputs, max(levels, default=0), groups)
                levels.append(max(levels, default=0) + 1)
            else:
                guards = [self.guards(edge) for edge in inputs]
                guards += [self._guards.get(control, _NO_GUARDS) for control in node.controls]
                self._guards[node] = _NO_GUARDS.union(*guards)
                if len(self._guards[node]) > _MAXIMUM_GUARDS:
                    raise CaptureError(
                        f"branches are nested more than {_MAXIMUM_GUARDS} deep at {node.label}"
                    )
            self._levels[node] = max(levels, default=0)

    def guards(self, edge: Edge) -> frozenset[Guard]:
        """The branches that must be taken for a result to be computed."""
        node = edge.node
        guards = self._guards.get(node, _NO_GUARDS)
        if node.op in SWITCHES and edge not in self._cut and not self.is_loop_switch(node):
            return guards | {(skip_identities(node.inputs[1]), edge.output)}
        return guards

    def _add_merge(
        self, merge: GraphNode, inputs: Sequence[Edge], level: int, groups: dict[object, Branching]
    ) -> frozenset[Guard]:
        """Return the guards of a Merge, and add it to the branching in `groups` that returns it."""
        sides = [self.guards(edge) for edge in inputs]
        common = frozenset.intersection(*sides) if sides else _NO_GUARDS
        decision = _find_deciding_predicate(sides)
        if decision is None:
            self._branching[merge] = CaptureError(
                f"{merge.label} does not merge the branches of one condition, and has no ONNX form"
            )
            return common
        predicate, positions = decision
        # A Merge that depends on another one cannot be a result of the same If, although the predicate is the
        # same.
        key = (predicate, level, self._frames.get(merge), common, len(positions))
        group = groups.setdefault(key, Branching(predicate, []))
        self._branching[merge] = group
        # A Merge that only orders nodes, by control inputs, is not a result.
        if any(self.is_read(Edge(merge, index)) for index in (0, 1)):
            group.merges.append((merge, positions))
        return common

    def branching(self, merge: GraphNode) -> Branching:
        """The If or Case that returns a Merge."""
        branching = self._branching.get(merge)
        if isinstance(branching, CaptureError):
            raise branching
        if branching is None:
            raise CaptureError(f"{merge.label} is part of neither a loop nor a branch")
        return branching

    def constant_branch(self, predicate: Edge) -> int | None:
        """The branch that a constant predicate selects; None if the predicate is computed."""
        if predicate not in self._constants:
            self._constants[predicate] = self._find_constant(predicate)
        return self._constants[predicate]

    def _find_constant(self, edge: Edge) -> int | None:
        negated = False
        # A malformed graph may have a cycle of Identity nodes.
        for _ in range(_MAXIMUM_CHAIN):
            node = edge.node
            if edge in self._cut or edge.output or (edge.node.op == OPTIONAL_PLACEHOLDER and not node.inputs):
                return None
            if node.op == "Const":
                value = array_of(node.attribute("value").tensor, node.label)
                if value.size != 1 or value.dtype.kind not in "biu":
                    return None
                index = int(np.asarray(value).reshape(-1)[0])
                return int(not index) if negated else index
            if node.op == "LogicalNot":
                negated = not negated
            elif node.op not in IDENTITIES and node.op not in _PASSING_OPERATORS and node.op not in ENTER:
                return None
            if not node.inputs:
                return None
            edge = node.inputs[0]
        return None


_PASSING_OPERATORS = frozenset({OPTIONAL_PLACEHOLDER, "StopGradient", "PreventGradient"})
_MAXIMUM_CHAIN = 1000
_MAXIMUM_DEPTH = 24
_MAXIMUM_GUARDS = 48


def _is_next_iteration(edge: Edge) -> bool:
    return edge.node.op in NEXT_ITERATION


def _depth(frame: LoopFrame | None) -> int:
    depth = 0
    while frame is not None:
        depth, frame = depth + 1, frame.parent
    return depth


def _find_deciding_predicate(sides: Sequence[frozenset[Guard]]) -> tuple[Edge, tuple[int, ...]] | None:
    """The predicate that selects the input of a Merge, and the index of the input for each branch.

    None if no predicate does: each input must depend on another result of the predicate's Switches.
    """
    if len(sides) < 2 or any(not side for side in sides):
        return None
    guards_of_sides: list[dict[Edge, int]] = [dict(side) for side in sides]
    shared = set(guards_of_sides[0]).intersection(*guards_of_sides[1:])
    decisions = []
    for predicate in shared:
        branches = [decision[predicate] for decision in guards_of_sides]
        boolean = predicate.node.result_type(predicate.output) == ir.DataType.BOOL
        # Every branch must occur once. A boolean predicate has two; the index of a _SwitchN may have more.
        if sorted(branches) == list(range(len(branches))) and (len(branches) == 2 or not boolean):
            decisions.append((predicate, tuple(branches.index(branch) for branch in range(len(branches)))))
    if not decisions:
        return None
    # Several predicates may decide. The choice must not depend on the order of a set.
    return min(decisions, key=lambda decision: (decision[0].node.name, decision[0].output))


def cycle_error(nodes: Sequence[GraphNode]) -> ModelFileError:
    """Make the error for nodes that depend on each other."""
    names = [f"'{name}'" for name in sorted(node.name for node in nodes)]
    return ModelFileError(f"nodes depend on each other in a circle: {listed(names)}")
