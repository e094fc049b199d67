"""Converts TensorFlow 1 control flow to `tf::While`, `tf::If` and `tf::Case`."""

import dataclasses

import numpy as np
import onnx_ir as ir

from .....registration import CaptureError
from ..node_messages import ENTER, EXIT, MERGE, NEXT_ITERATION
from .flow import SWITCHES, Branching, Flow, LoopFrame, skip_identities
from .nodes import Edge, GraphNode
from .scope import GraphScope, Slot, Unit


@dataclasses.dataclass(frozen=True)
class _LoopRegion:
    """The condition or the body of a loop."""

    flow: Flow
    frame: LoopFrame

    def slot(self, edge: Edge) -> Slot | None:
        """The block input for a loop variable, or for a result from outside of the loop."""
        node = edge.node
        if self.flow.frame(node) is not self.frame:
            return Slot(edge)
        if node.op in ENTER:
            return Slot(node.inputs[0])
        if self.flow.is_variable(node) and edge.output == 0:
            return Slot(_initial_and_next_value(node)[0], node)
        return None


@dataclasses.dataclass(frozen=True)
class _BranchRegion:
    """A branch of a condition."""

    flow: Flow
    predicate: Edge
    branch: int

    def slot(self, edge: Edge) -> Slot | None:
        """The block input for a result that does not depend on the branch."""
        return None if (self.predicate, self.branch) in self.flow.guards(edge) else Slot(edge)


def _initial_and_next_value(merge: GraphNode) -> tuple[Edge, Edge]:
    """The initial value of a loop variable, and its value after an iteration."""
    enters = [edge.node for edge in merge.inputs if edge.node.op in ENTER]
    next_iterations = [edge.node for edge in merge.inputs if edge.node.op in NEXT_ITERATION]
    if (
        len(merge.inputs) != 2
        or len(enters) != 1
        or len(next_iterations) != 1
        or not enters[0].inputs
        or not next_iterations[0].inputs
    ):
        raise CaptureError(f"{merge.label} of a loop does not merge one Enter with one NextIteration")
    return enters[0].inputs[0], next_iterations[0].inputs[0]


def begin(scope: GraphScope, edge: Edge) -> Unit | None:
    """Begin to convert the node of a control flow operator."""
    node, flow = edge.node, scope.flow
    assert flow is not None, "a graph with control flow has been analyzed"
    if node.op in EXIT:
        return _loop(scope, flow, flow.loop_of(node))
    if node.op in MERGE and not flow.is_variable(node):
        return _merge(scope, flow, edge)
    if node.op in SWITCHES and len(node.inputs) == 2:
        return _switch(scope, flow, edge)
    if node.op == "LoopCond" and node.inputs:
        return _make_alias(scope, edge, node.inputs[0])
    raise CaptureError(f"{node.label} is used outside of a loop or a branch")


def _make_alias(scope: GraphScope, edge: Edge, aliased: Edge) -> Unit:
    """Give a result the value of another result."""

    def build() -> None:
        scope.values[edge] = scope.values[aliased]

    return Unit(edge, [aliased], build)


def _switch(scope: GraphScope, flow: Flow, edge: Edge) -> Unit:
    node = edge.node
    if flow.is_loop_switch(node):
        if edge.output == 1:
            return _make_alias(scope, edge, node.inputs[0])
        raise CaptureError(f"result 0 of {node.label} is read in the body of its loop")
    predicate = skip_identities(node.inputs[1])
    constant_branch = flow.constant_branch(predicate)
    if scope.is_in_branch(predicate, edge.output) or constant_branch == edge.output:
        return _make_alias(scope, edge, node.inputs[0])
    if constant_branch is not None:
        raise CaptureError(
            f"result {edge.output} of {node.label} is never computed: its predicate is constant"
        )
    raise CaptureError(
        f"result {edge.output} of {node.label} exists in one branch only: name outputs after the Merge of "
        "both branches"
    )


def _merge(scope: GraphScope, flow: Flow, edge: Edge) -> Unit | None:
    merge = edge.node
    group = flow.branching(merge)
    positions = next((positions for candidate, positions in group.merges if candidate is merge), None)
    if positions is None or edge.output > 1:
        raise CaptureError(f"result {edge.output} of {merge.label} is not a result of its branches")
    constant_branch = flow.constant_branch(group.predicate)
    if constant_branch is None:
        return _branches(scope, flow, group)
    # An index out of range selects the last branch, as in Case.
    position = positions[constant_branch if 0 <= constant_branch < len(positions) else -1]
    if edge.output == 0:
        return _make_alias(scope, edge, merge.inputs[position])
    scope.values[edge] = _value_index(scope, merge, position)
    return None


def _value_index(scope: GraphScope, merge: GraphNode, position: int) -> ir.Value:
    """Make the second result of a Merge: the index of the available input."""
    name = f"{scope.prefix}{merge.name}/value_index"
    return scope.emitter.number(name, np.asarray(position, dtype=np.int32))


def _branches(scope: GraphScope, flow: Flow, group: Branching) -> Unit:
    """The If or Case of some Merges. Its branches are emitted first: this finds the inputs that they take."""
    slots: dict[Slot, None] = {}
    blocks: list[tuple[GraphScope, list[ir.Value]]] = []
    read_results = [
        (merge, index) for merge, _ in group.merges for index in (0, 1) if flow.is_read(Edge(merge, index))
    ]
    stem = group.merges[0][0]
    for branch in range(group.branches):
        region = _BranchRegion(flow, group.predicate, branch)
        block = scope.block(f"{stem.name}/branch_{branch}", flow, region, slots)
        block.enter_branch(group.predicate, branch)
        results = []
        for merge, positions in group.merges:
            if flow.is_read(Edge(merge, 0)):
                results += block.demand([merge.inputs[positions[branch]]])
            if flow.is_read(Edge(merge, 1)):
                results.append(_value_index(block, merge, positions[branch]))
        blocks.append((block, results))

    def build() -> None:
        graphs = [block.close(map(block.formal, slots), results) for block, results in blocks]
        outputs = [
            scope.value(Edge(merge, index).label, merge.result_type(index)) for merge, index in read_results
        ]
        branch_inputs = {"input": [scope.values[slot.outer] for slot in slots]}
        decision = scope.values[group.predicate]
        if group.predicate.node.result_type(group.predicate.output) == ir.DataType.BOOL:
            arguments = {"cond": decision, **branch_inputs}
            scope.add(
                # Result 1 of a Switch belongs to the branch for True.
                stem,
                arguments,
                outputs,
                op="If",
                blocks={"then_branch": graphs[1], "else_branch": graphs[0]},
            )
        else:
            branch_graphs = {f"branches_{index}": graph for index, graph in enumerate(graphs)}
            scope.add(
                stem, {"branch_index": decision, **branch_inputs}, outputs, op="Case", blocks=branch_graphs
            )
        for (merge, index), value in zip(read_results, outputs, strict=True):
            scope.values[Edge(merge, index)] = value

    return Unit(group, [group.predicate, *(slot.outer for slot in slots)], build)


def _loop(scope: GraphScope, flow: Flow, frame: LoopFrame) -> Unit:
    """The While of a loop. Its blocks are emitted first: this finds the inputs that they take."""
    if frame.condition is None or not frame.condition.inputs:
        raise CaptureError(f"{frame.label} has no LoopCond")
    slots: dict[Slot, None] = {}
    region = _LoopRegion(flow, frame)
    condition = scope.block(f"{frame.name}/cond", flow, region, slots)
    body = scope.block(f"{frame.name}/body", flow, region, slots)
    condition_results = condition.demand([frame.condition.inputs[0]])
    exits = [(node, _variable(flow, node)) for node in frame.exits if flow.is_read(Edge(node, 0))]
    for _, variable in exits:
        # The results of a While are its variables, so it must have the variable that an Exit returns.
        slots.setdefault(variable)
    results: dict[Slot, ir.Value] = {}
    while len(results) < len(slots):
        # Emitting the body for one variable may add slots for further ones.
        for slot in [slot for slot in slots if slot not in results]:
            if slot.variable is None:
                results[slot] = body.formal(slot)
            else:
                [results[slot]] = body.demand([_initial_and_next_value(slot.variable)[1]])
    stem = exits[0][0]

    def build() -> None:
        blocks = {
            "cond": condition.close(map(condition.formal, slots), condition_results),
            "body": body.close(map(body.formal, slots), [results[slot] for slot in slots]),
        }
        exit_names = {variable: node.name for node, variable in exits}
        outputs = {
            slot: scope.value(
                exit_names.get(slot, slot.outer.label), slot.outer.node.result_type(slot.outer.output)
            )
            for slot in slots
        }
        arguments = {"input": [scope.values[slot.outer] for slot in slots]}
        scope.add(stem, arguments, list(outputs.values()), op="While", blocks=blocks)
        for node, variable in exits:
            scope.values[Edge(node, 0)] = outputs[variable]

    return Unit(frame, [slot.outer for slot in slots], build)


def _variable(flow: Flow, exit_node: GraphNode) -> Slot:
    """The variable whose final value an Exit returns."""
    switch = exit_node.inputs[0].node
    merge = switch.inputs[0].node if flow.is_loop_switch(switch) and exit_node.inputs[0].output == 0 else None
    if merge is None or not flow.is_variable(merge):
        raise CaptureError(f"{exit_node.label} does not leave its loop by the Switch of a variable")
    return Slot(_initial_and_next_value(merge)[0], merge)
