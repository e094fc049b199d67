"""Converts TensorFlow 1 control flow to `tf::While`, `tf::If` and `tf::Case`."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx_ir as ir

from .....registration import CaptureError
from .flow import ENTER, EXIT, MERGE, NEXT, SWITCH, Branching, Flow, Frame, skip_identities
from .nodes import Edge, Node
from .scope import Scope, Slot, Unit


@dataclasses.dataclass(frozen=True)
class _Loop:
    """The condition or the body of a loop."""

    flow: Flow
    frame: Frame

    def slot(self, edge: Edge) -> Slot | None:
        """Variables, and what comes from outside."""
        node = edge.node
        if self.flow.frame(node) is not self.frame:
            return Slot(edge)
        if node.op in ENTER:
            return Slot(node.inputs[0])
        if self.flow.is_variable(node) and edge.output == 0:
            return Slot(_ends(node)[0], node)
        return None


@dataclasses.dataclass(frozen=True)
class _Branch:
    """A branch of a condition."""

    flow: Flow
    predicate: Edge
    taken: int

    def slot(self, edge: Edge) -> Slot | None:
        """What does not depend on the branch."""
        return None if (self.predicate, self.taken) in self.flow.guards(edge) else Slot(edge)


def _ends(merge: Node) -> tuple[Edge, Edge]:
    """The initial value of a loop variable, and its value after an iteration."""
    first = [edge.node for edge in merge.inputs if edge.node.op in ENTER]
    again = [edge.node for edge in merge.inputs if edge.node.op in NEXT]
    if (
        len(merge.inputs) != 2
        or len(first) != 1
        or len(again) != 1
        or not first[0].inputs
        or not again[0].inputs
    ):
        raise CaptureError(f"{merge.shown} of a loop does not merge one Enter with one NextIteration")
    return first[0].inputs[0], again[0].inputs[0]


def begin(scope: Scope, edge: Edge) -> Unit | None:
    """Begin to convert the node of a control flow operator."""
    node, flow = edge.node, scope.flow
    assert flow is not None, "a graph with control flow has been analyzed"
    if node.op in EXIT:
        return _loop(scope, flow, flow.loop_of(node))
    if node.op in MERGE and not flow.is_variable(node):
        return _merge(scope, flow, edge)
    if node.op in SWITCH and len(node.inputs) == 2:
        return _switch(scope, flow, edge)
    if node.op == "LoopCond" and node.inputs:
        return _alias(scope, edge, node.inputs[0])
    raise CaptureError(f"{node.shown} is used outside of a loop or a branch")


def _alias(scope: Scope, edge: Edge, other: Edge) -> Unit:
    """Map a result to another one."""

    def build() -> None:
        scope.values[edge] = scope.values[other]

    return Unit(edge, [other], build)


def _switch(scope: Scope, flow: Flow, edge: Edge) -> Unit:
    node = edge.node
    if flow.is_loop_switch(node):
        if edge.output == 1:
            return _alias(scope, edge, node.inputs[0])
        raise CaptureError(f"result 0 of {node.shown} is read in the body of its loop")
    predicate = skip_identities(node.inputs[1])
    decided = flow.decided(predicate)
    if scope.takes(predicate, edge.output) or decided == edge.output:
        return _alias(scope, edge, node.inputs[0])
    if decided is not None:
        raise CaptureError(
            f"result {edge.output} of {node.shown} is never computed: its predicate is constant"
        )
    raise CaptureError(
        f"result {edge.output} of {node.shown} exists in one branch only: name outputs after the Merge of "
        "both branches"
    )


def _merge(scope: Scope, flow: Flow, edge: Edge) -> Unit | None:
    merge = edge.node
    group = flow.branching(merge)
    positions = next((positions for each, positions in group.merges if each is merge), None)
    if positions is None or edge.output > 1:
        raise CaptureError(f"result {edge.output} of {merge.shown} is not a result of its branches")
    decided = flow.decided(group.predicate)
    if decided is None:
        return _branches(scope, flow, group)
    position = positions[decided if 0 <= decided < len(positions) else -1]
    if edge.output == 0:
        return _alias(scope, edge, merge.inputs[position])
    scope.values[edge] = _number(scope, merge, position)
    return None


def _number(scope: Scope, merge: Node, position: int) -> ir.Value:
    """The second result of a Merge: the index of the available input."""
    name = f"{scope.prefix}{merge.name}/value_index"
    return scope.emitter.number(name, np.asarray(position, dtype=np.int32))


def _branches(scope: Scope, flow: Flow, group: Branching) -> Unit:
    """The If or Case of some Merges; its branches are emitted before what they take is known."""
    slots: dict[Slot, None] = {}
    blocks: list[tuple[Scope, list[ir.Value]]] = []
    wanted = [
        (merge, index) for merge, _ in group.merges for index in (0, 1) if flow.is_read(Edge(merge, index))
    ]
    stem = group.merges[0][0]
    for branch in range(group.branches):
        block = scope.block(
            f"{stem.name}/branch_{branch}", flow, region=_Branch(flow, group.predicate, branch), slots=slots
        )
        block.take(group.predicate, branch)
        results = []
        for merge, positions in group.merges:
            if flow.is_read(Edge(merge, 0)):
                results += block.demand([merge.inputs[positions[branch]]])
            if flow.is_read(Edge(merge, 1)):
                results.append(_number(block, merge, positions[branch]))
        blocks.append((block, results))

    def build() -> None:
        graphs = [block.close(map(block.formal, slots), results) for block, results in blocks]
        outputs = [scope.value(Edge(merge, index).shown, merge.result_type(index)) for merge, index in wanted]
        given = {"input": [scope.values[slot.outer] for slot in slots]}
        decision = scope.values[group.predicate]
        if _is_two_way(group):
            arguments = {"cond": decision, **given}
            scope.add(
                stem, arguments, outputs, op="If", blocks={"then_branch": graphs[1], "else_branch": graphs[0]}
            )
        else:
            listed = {f"branches_{index}": graph for index, graph in enumerate(graphs)}
            scope.add(stem, {"branch_index": decision, **given}, outputs, op="Case", blocks=listed)
        for (merge, index), value in zip(wanted, outputs, strict=True):
            scope.values[Edge(merge, index)] = value

    return Unit(group, [group.predicate, *(slot.outer for slot in slots)], build)


def _is_two_way(group: Branching) -> bool:
    """Whether the predicate is a boolean rather than a branch index."""
    return bool(group.predicate.node.result_type(group.predicate.output) == ir.DataType.BOOL)


def _loop(scope: Scope, flow: Flow, frame: Frame) -> Unit:
    """The While of a loop; its blocks are emitted before what they take is known."""
    if frame.condition is None or not frame.condition.inputs:
        raise CaptureError(f"{frame.shown} has no LoopCond")
    slots: dict[Slot, None] = {}
    region = _Loop(flow, frame)
    condition = scope.block(f"{frame.name}/cond", flow, region=region, slots=slots)
    body = scope.block(f"{frame.name}/body", flow, region=region, slots=slots)
    going = condition.demand([frame.condition.inputs[0]])
    exits = [(node, _variable(flow, node)) for node in frame.exits if flow.is_read(Edge(node, 0))]
    for _, variable in exits:
        slots.setdefault(variable)
    results: dict[Slot, ir.Value] = {}
    while len(results) < len(slots):
        # The body's own demand adds slots.
        for slot in [slot for slot in slots if slot not in results]:
            if slot.variable is None:
                results[slot] = body.formal(slot)
            else:
                [results[slot]] = body.demand([_ends(slot.variable)[1]])
    stem = exits[0][0]

    def build() -> None:
        blocks = {
            "cond": condition.close(map(condition.formal, slots), going),
            "body": body.close(map(body.formal, slots), [results[slot] for slot in slots]),
        }
        leaving = {variable: node.name for node, variable in exits}
        outputs = {
            slot: scope.value(
                leaving.get(slot, slot.outer.shown), slot.outer.node.result_type(slot.outer.output)
            )
            for slot in slots
        }
        arguments = {"input": [scope.values[slot.outer] for slot in slots]}
        scope.add(stem, arguments, list(outputs.values()), op="While", blocks=blocks)
        for node, variable in exits:
            scope.values[Edge(node, 0)] = outputs[variable]

    return Unit(frame, [slot.outer for slot in slots], build)


def _variable(flow: Flow, leaving: Node) -> Slot:
    """The variable whose final value an Exit returns."""
    switch = leaving.inputs[0].node
    merge = switch.inputs[0].node if flow.is_loop_switch(switch) and leaving.inputs[0].output == 0 else None
    if merge is None or not flow.is_variable(merge):
        raise CaptureError(f"{leaving.shown} does not leave its loop by the Switch of a variable")
    return Slot(_ends(merge)[0], merge)
