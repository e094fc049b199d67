"""Finds loops and branches in TensorFlow 1 control flow: Enter, Exit, Merge, Switch, NextIteration, LoopCond.

A loop is a frame: Enter leads into it, each of its variables is a Merge of an Enter and a NextIteration, a
Switch by the LoopCond gives the variable to the body (result 1) or to an Exit (result 0). Elsewhere a Switch
gives its data to one branch and nothing to the others, and a Merge returns what came: its inputs depend on
different results of Switches by one predicate, directly or through control inputs.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from .....registration import CaptureError, ModelFileError
from ..tensors import array_of
from .nodes import Edge, Node, ancestors

Guard = tuple[Edge, int]
"""A predicate and the result of its Switches that must be alive for a node to run."""

ENTER = frozenset({"Enter", "RefEnter"})
EXIT = frozenset({"Exit", "RefExit"})
MERGE = frozenset({"Merge", "RefMerge"})
SWITCH = frozenset({"Switch", "RefSwitch", "_SwitchN"})
NEXT = frozenset({"NextIteration", "RefNextIteration"})
OPERATORS = ENTER | EXIT | MERGE | SWITCH | NEXT | {"LoopCond"}
IDENTITIES = frozenset({"Identity", "RefIdentity"})
_NO_GUARDS: frozenset[Guard] = frozenset()


@dataclasses.dataclass(eq=False)
class Frame:
    """A loop.

    Attributes:
        name: TensorFlow's name of it.
        parent: the loop around it.
        enters: its Enter nodes, in order.
        merges: its variables, in order.
        exits: its Exit nodes, in order.
        condition: its LoopCond.
    """

    name: str
    parent: Frame | None
    enters: list[Node] = dataclasses.field(default_factory=list)
    merges: list[Node] = dataclasses.field(default_factory=list)
    exits: list[Node] = dataclasses.field(default_factory=list)
    condition: Node | None = None

    @property
    def shown(self) -> str:
        """What errors call it."""
        return f"the loop '{self.name}'"


@dataclasses.dataclass(eq=False)
class Branching:
    """Merges that one If or Case returns.

    Attributes:
        predicate: what decides.
        merges: the Merge nodes, with the position of the input that each branch gives.
    """

    predicate: Edge
    merges: list[tuple[Node, tuple[int, ...]]]

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
            cut: results that are given.

        Raises:
            ModelFileError: the part has a cycle that is no loop.
            CaptureError: it has control flow that is no loop and no branch.
        """
        given = frozenset(cut)
        self._given = given
        self._read = {edge for node in ancestors(roots, given, controls=False) for edge in node.inputs} | {
            *roots
        }
        nodes = list(ancestors(roots, given, controls=True))
        for node in nodes:
            due = 2 if node.op in SWITCH else 1
            if node.op in OPERATORS and (
                len(node.inputs) < due or (node.op not in MERGE and len(node.inputs) > due)
            ):
                raise ModelFileError(f"{node.shown} has {len(node.inputs)} inputs instead of {due}")
        self._loop_merges = {
            node for node in nodes if node.op in MERGE and any(map(_is_next_iteration, node.inputs))
        }
        self._frames: dict[Node, Frame | None] = {}
        self._guards: dict[Node, frozenset[Guard]] = {}
        self._levels: dict[Node, int] = {}
        self._branching: dict[Node, Branching | CaptureError] = {}
        self._constants: dict[Edge, int | None] = {}
        order = self._ordered(nodes, {})
        self._find_frames(order)
        enters = {merge: self._frame_of(merge).enters for merge in self._loop_merges}
        self._find_guards(self._ordered(order, enters))

    def _ordered(self, nodes: Sequence[Node], waits: Mapping[Node, Sequence[Node]]) -> list[Node]:
        """Sort the nodes topologically, ignoring the back edges of loops."""
        readers: dict[Node, list[Node]] = defaultdict(list)
        missing: dict[Node, int] = {}
        present = set(nodes)
        for node in nodes:
            before = [e.node for e in node.inputs if e not in self._given] + node.controls
            before += waits.get(node, ())
            needed = {other for other in before if other in present and other.op not in NEXT}
            missing[node] = len(needed)
            for other in needed:
                readers[other].append(node)
        order = [node for node in nodes if not missing[node]]
        for node in order:
            for reader in readers[node]:
                missing[reader] -= 1
                if not missing[reader]:
                    order.append(reader)
        if len(order) != len(nodes):
            raise cycle_error([node for node in nodes if missing[node]])
        return order

    def _find_frames(self, order: Iterable[Node]) -> None:
        known: dict[tuple[Frame | None, str], Frame] = {}
        for node in order:
            before = [e.node for e in node.inputs if e not in self._given and e.node.op not in NEXT]
            frames = [self._frames.get(other) for other in (*before, *node.controls)]
            frame = max(frames, key=_depth, default=None)
            if node.op in ENTER:
                name = node.attribute("frame_name").s.decode(errors="replace")
                frame = known.setdefault((frame, name), Frame(name, frame))
                if _depth(frame) > _MAXIMUM_DEPTH:
                    raise CaptureError(f"loops are nested more than {_MAXIMUM_DEPTH} deep at {node.shown}")
                frame.enters.append(node)
            elif node.op in EXIT:
                if frame is None:
                    raise CaptureError(f"{node.shown} is not in a loop")
                frame.exits.append(node)
                frame = frame.parent
            elif frame is not None and node in self._loop_merges:
                frame.merges.append(node)
            elif frame is not None and node.op == "LoopCond":
                if frame.condition is not None:
                    raise CaptureError(
                        f"{frame.shown} has two conditions, '{frame.condition.name}' and '{node.name}'"
                    )
                frame.condition = node
            self._frames[node] = frame

    def _frame_of(self, merge: Node) -> Frame:
        frame = self._frames[merge]
        if frame is None:
            raise CaptureError(f"{merge.shown} reads a NextIteration, but is not in a loop")
        return frame

    def frame(self, node: Node) -> Frame | None:
        """The loop that the results of a node belong to."""
        return self._frames.get(node)

    def is_variable(self, node: Node) -> bool:
        """Whether a node is a Merge that begins each iteration of a loop."""
        return node in self._loop_merges

    def loop_of(self, node: Node) -> Frame:
        """The loop that an Exit leaves."""
        for edge in node.inputs:
            frame = self._frames.get(edge.node)
            if frame is not None:
                return frame
        raise CaptureError(f"{node.shown} is not in a loop")

    def is_loop_switch(self, node: Node) -> bool:
        """Whether a Switch belongs to a loop: its predicate is the LoopCond."""
        return (
            node.op in SWITCH
            and len(node.inputs) == 2
            and skip_identities(node.inputs[1]).node.op == "LoopCond"
        )

    def is_read(self, edge: Edge) -> bool:
        """Whether a result is needed as data."""
        return edge in self._read

    def _find_guards(self, order: Iterable[Node]) -> None:
        """Find the guards and the level of each node; a Merge is above all Merges that it depends on."""
        groups: dict[object, Branching] = {}
        loops: dict[Frame, frozenset[Guard]] = {}
        for node in order:
            before = [e for e in node.inputs if e not in self._given and e.node.op not in NEXT]
            above = [self._levels.get(e.node, 0) for e in before]
            above += [self._levels.get(other, 0) for other in node.controls]
            if node in self._loop_merges:
                frame = self._frame_of(node)
                if frame not in loops:
                    loops[frame] = _NO_GUARDS.union(*(self._guards[enter] for enter in frame.enters))
                above += [self._levels[enter] for enter in frame.enters]
                self._guards[node] = loops[frame]
            elif node.op in MERGE:
                self._guards[node] = self._merged(node, before, max(above, default=0), groups)
                above.append(max(above, default=0) + 1)
            else:
                own = [self.guards(edge) for edge in before]
                own += [self._guards.get(other, _NO_GUARDS) for other in node.controls]
                self._guards[node] = _NO_GUARDS.union(*own)
                if len(self._guards[node]) > _MAXIMUM_GUARDS:
                    raise CaptureError(
                        f"branches are nested more than {_MAXIMUM_GUARDS} deep at {node.shown}"
                    )
            self._levels[node] = max(above, default=0)

    def guards(self, edge: Edge) -> frozenset[Guard]:
        """The branches that must be taken for a result to be computed."""
        node = edge.node
        found = self._guards.get(node, _NO_GUARDS)
        if node.op in SWITCH and edge not in self._given and not self.is_loop_switch(node):
            return found | {(skip_identities(node.inputs[1]), edge.output)}
        return found

    def _merged(
        self, merge: Node, inputs: Sequence[Edge], level: int, groups: dict[object, Branching]
    ) -> frozenset[Guard]:
        """The guards of a Merge; adds its branches to `groups`."""
        sides = [self.guards(edge) for edge in inputs]
        common = frozenset.intersection(*sides) if sides else _NO_GUARDS
        found = _deciding(sides)
        if found is None:
            self._branching[merge] = CaptureError(
                f"{merge.shown} does not merge the branches of one condition, and has no ONNX form"
            )
            return common
        predicate, positions = found
        key = (predicate, level, self._frames.get(merge), common, len(positions))
        group = groups.setdefault(key, Branching(predicate, []))
        self._branching[merge] = group
        if any(self.is_read(Edge(merge, index)) for index in (0, 1)):
            group.merges.append((merge, positions))
        return common

    def branching(self, merge: Node) -> Branching:
        """The If or Case that returns a Merge.

        Raises:
            CaptureError: it has none.
        """
        found = self._branching.get(merge)
        if isinstance(found, CaptureError):
            raise found
        if found is None:
            raise CaptureError(f"{merge.shown} is part of neither a loop nor a branch")
        return found

    def decided(self, predicate: Edge) -> int | None:
        """The branch that a constant predicate selects; None for a computed one."""
        if predicate not in self._constants:
            self._constants[predicate] = self._constant(predicate)
        return self._constants[predicate]

    def _constant(self, edge: Edge) -> int | None:
        negated = False
        for _ in range(_MAXIMUM_CHAIN):
            node = edge.node
            if (
                edge in self._given
                or edge.output
                or (edge.node.op == "PlaceholderWithDefault" and not node.inputs)
            ):
                return None
            if node.op == "Const":
                value = array_of(node.attribute("value").tensor, node.shown)
                if value.size != 1 or value.dtype.kind not in "biu":
                    return None
                index = int(np.asarray(value).reshape(-1)[0])
                return int(not index) if negated else index
            if node.op == "LogicalNot":
                negated = not negated
            elif node.op not in IDENTITIES and node.op not in _PASSING and node.op not in ENTER:
                return None
            if not node.inputs:
                return None
            edge = node.inputs[0]
        return None


_PASSING = frozenset({"PlaceholderWithDefault", "StopGradient", "PreventGradient"})
_MAXIMUM_CHAIN = 1000
_MAXIMUM_DEPTH = 24
_MAXIMUM_GUARDS = 48


def _is_next_iteration(edge: Edge) -> bool:
    return edge.node.op in NEXT


def _depth(frame: Frame | None) -> int:
    depth = 0
    while frame is not None:
        depth, frame = depth + 1, frame.parent
    return depth


def _deciding(sides: Sequence[frozenset[Guard]]) -> tuple[Edge, tuple[int, ...]] | None:
    """The predicate that selects the input of a Merge, and the input for each branch."""
    if len(sides) < 2 or any(not side for side in sides):
        return None
    results: list[dict[Edge, int]] = [dict(side) for side in sides]
    shared = set(results[0]).intersection(*results[1:])
    found = []
    for predicate in shared:
        taken = [each[predicate] for each in results]
        boolean = predicate.node.result_type(predicate.output) == ir.DataType.BOOL
        if sorted(taken) == list(range(len(taken))) and (len(taken) == 2 or not boolean):
            found.append((predicate, tuple(taken.index(branch) for branch in range(len(taken)))))
    if not found:
        return None
    return min(found, key=lambda each: (each[0].node.name, each[0].output))


def cycle_error(nodes: Sequence[Node]) -> ModelFileError:
    """The error for nodes that depend on each other."""
    names = sorted(node.name for node in nodes)
    rest = f" and {len(names) - 4} more" if len(names) > 4 else ""
    shown = ", ".join(f"'{name}'" for name in names[:4])
    return ModelFileError(f"nodes depend on each other in a circle: {shown}{rest}")
