"""Replaces the recorded iterations of a loop by one node of the operator `range_loop`."""

from __future__ import annotations

import operator
from collections.abc import Container, Sequence
from typing import Any

import torch
import torch.fx

from ....torch_boundary.operators.overloads import OpOverload, schema_of
from ....torch_boundary.recording.loop_operator import RANGE_LOOP
from .iterations import Loops
from .matching import Argument, LoopBody, loop_index
from .recorded_loops import IterationResults, Join, Number, RecordedLoop, nodes_between
from .side_bodies import SideBody

_ATEN = torch.ops.aten


def roll_loops(loops: Loops, graph: torch.fx.Graph, root: torch.nn.Module) -> None:
    """Replace all loops of a recording, whose graph is complete; inner loops first.

    Raises:
        CaptureError: a loop did not run to its end, or a single iteration's value is used after it.
    """
    for failure in loops.failures:
        raise failure
    for loop in loops.all:
        if loop in loops.sides and not loops.sides[loop].is_complete:
            raise loop.refuse("ends early (break) on several sides of its conditions")
        if loop.body is None:
            raise loop.refuse("ends early (break, return or an error)")
    for sides in loops.sides.values():
        for node in sides.variable_nodes:
            node.target = _ATEN.clone.default
    replaced: dict[torch.fx.Node, torch.fx.Node] = {}
    outer_loops = {loop.outer for loop in loops.all}
    depths = sorted({loop.depth for loop in loops.all}, reverse=True)
    for depth in depths:
        level = [loop for loop in loops.all if loop.depth == depth]
        for loop in level:
            if loop in outer_loops:
                _match_again(loop, loops)
        for loop in level:
            assert loop.body is not None
            _Rolling(loop, loop.body, loops, graph, replaced).run(root, f"loop_body_{loops.all.index(loop)}")
        for join in [join for join in loops.joins if join.runs_of(level)]:
            outside = next((part.loop for part in join.runs_of(loops.all) if part.loop not in level), None)
            if outside is not None:
                raise outside.refuse("joins its results with those of an inner loop")
            _replace_join(join, loops, graph, replaced)
            loops.joins.remove(join)
        for loop in level:
            _erase(loop)
    used = {node.target for node in graph.nodes if node.op == "get_attr"}
    for name in [f"loop_body_{number}" for number in range(len(loops.all))]:
        if name not in used:
            # The body of an inner loop belongs to that of the outer one.
            delattr(root, name)


def _match_again(loop: RecordedLoop, loops: Loops) -> None:
    """Compare the iterations of a loop whose inner loops have been replaced."""
    joins = [join for join in loops.joins if join.runs_of([loop])]
    loops.match(loop, takes_writes=True)
    for join in joins:
        nodes = join.node.args[0]
        assert isinstance(nodes, (list, tuple))
        join.parts = loops.parts_of(nodes)
        if not join.runs_of([loop]):
            raise loop.refuse("collects other values in the first iteration than in later ones")


class _Rolling:
    """The replacement of one loop.

    Args:
        graph: the complete graph of the recording.
        replaced: by nodes that loops before this one computed, those that compute their values now.
    """

    def __init__(
        self,
        loop: RecordedLoop,
        body: LoopBody,
        loops: Loops,
        graph: torch.fx.Graph,
        replaced: dict[torch.fx.Node, torch.fx.Node],
    ):
        self._loop = loop
        self._body = body
        self._loops = loops
        self._graph = graph
        self._replaced = replaced
        self._first = loop.first
        self._last = body.iterations[-1]
        self._collected: list[int] = []

    def run(self, root: torch.nn.Module, name: str) -> None:
        """Insert the operator after the iterations, and let the rest of the graph read its results."""
        loop, body = self._loop, self._body
        final_users = self._final_users()
        last_values = {base: body.positions[values[-1]][1] for base, values in body.updates.items()}
        for position in last_values.values():
            final_users.setdefault(position, [])
        runs = [run for join in self._loops.joins for run in join.runs_of([loop])]
        write_positions = [body.positions[write.values[-1]][1] for write in body.writes]
        positions = [*(run.position for run in runs), *write_positions, *final_users]
        stacks = {*(run.position for run in runs), *write_positions}
        self._collected = [
            position
            for position in dict.fromkeys(positions)
            if position in stacks or position not in body.carried
        ]
        is_last_row_read = any(position not in body.carried for position in final_users)
        questions = self._loops.questions
        # A number of iterations that depends on sizes alone is tried at other sizes after the recording.
        may_be_empty = questions.depends_on_index(loop.count) and not questions.is_positive(loop.count)
        if (self._first == 1 or is_last_row_read) and may_be_empty:
            raise loop.refuse("has no iterations for some indices of the loop around it")
        loop_node = self._insert_loop(root, name)
        carried = {position: index for index, position in enumerate(body.carried)}
        stacked = {
            position: self._result(loop_node, len(carried) + index, self._stacked_value(position))
            for index, position in enumerate(self._collected)
        }
        for position, users in final_users.items():
            example = self._last[position].meta["val"]
            if position in carried:
                value = self._result(loop_node, carried[position], example)
            else:
                value = self._insert(_ATEN.select.int, (stacked[position], 0, -1), example)
            self._replaced[self._last[position]] = value
            for user in users:
                user.replace_input_with(self._last[position], value)
            for base in (base for base, updated in last_values.items() if updated == position):
                # Other views of the tensor, and the caller whose tensor it is, see the last value too.
                self._insert(_ATEN.copy_.default, (self._resolve(base), value), base.meta["val"])
        loop.stacked = stacked
        for write, position in zip(body.writes, write_positions, strict=True):
            self._write_slices(self._resolve(write.base), write.axis, stacked[position])
        if self._first == 1:
            self._fix_first_index()

    def _resolve(self, node: torch.fx.Node) -> torch.fx.Node:
        """The node that computes the value of a node now."""
        while node in self._replaced:
            node = self._replaced[node]
        return node

    def _final_users(self) -> dict[int, list[torch.fx.Node]]:
        """The nodes after the loop that read values of the last iteration, by position."""
        body = self._body
        inside = set(body.positions) | {node for write in body.writes for node in write.nodes}
        # A join reads the stacked values, not those of one iteration.
        joins = {join.node for join in self._loops.joins if join.runs_of([self._loop])}
        users: dict[int, list[torch.fx.Node]] = {}
        for nodes in body.iterations[self._first :]:
            for position, node in enumerate(nodes):
                outer = [user for user in node.users if user not in inside and user not in joins]
                original = _tensor_before(node, inside)
                if original is not None:
                    # The call returned the tensor itself, which the code after the loop reads.
                    for user in outer:
                        user.replace_input_with(node, original)
                    continue
                if outer and nodes is not self._last:
                    value = "the index" if node.target is loop_index else f"a value ('{node.name}')"
                    raise self._loop.refuse(
                        f"gives {value} of one iteration to the code after it; "
                        "use the last one's, or torch.stack of all, whose unbind() another loop may run over"
                    )
                if outer:
                    self._check_value(node)
                    users[position] = outer
        return users

    def _check_value(self, node: torch.fx.Node) -> None:
        """Refuse to use a number of the last iteration, or a tensor of its own shape, after the loop."""
        value = node.meta["val"]
        if not isinstance(value, torch.Tensor) or self._loop.is_of_index(value):
            raise self._loop.refuse(
                "gives its index, or a tensor whose shape depends on it, to the code after it"
            )

    def _insert_loop(self, root: torch.nn.Module, name: str) -> torch.fx.Node:
        loop, body = self._loop, self._body
        self._cursor = loop.markers[-1]
        start, _, count = loop.arguments
        if self._first == 1:
            start, count = self._sum(start, loop.step), self._sum(count, -1)
        initial = body.inputs if body.initial is None else body.initial
        module, additional = self._make_body(root)
        setattr(root, name, module)
        with self._graph.inserting_after(self._cursor):
            attribute = self._graph.get_attr(name)
        self._cursor = attribute
        examples = [self._last[position].meta["val"] for position in body.carried]
        examples += [self._stacked_value(position) for position in self._collected]
        operands = [list(map(self._resolve, nodes)) for nodes in (initial, additional)]
        arguments = (attribute, operands[0], [start], operands[1], count, loop.step)
        return self._insert(RANGE_LOOP, arguments, examples)

    def _make_body(self, root: torch.nn.Module) -> tuple[torch.fx.GraphModule, list[torch.fx.Node]]:
        """The graph of one iteration, and the nodes from before the loop that it reads."""
        body, previous = self._body, self._body.iterations[-2]
        sides = self._loops.sides.get(self._loop)
        if sides is not None:
            if self._loop.is_ended and self._collected:
                raise self._loop.refuse("collects results, and ends early (break)")
            return SideBody(self._loop, sides, body, [*body.carried, *self._collected], root).build()
        graph = torch.fx.Graph()
        copies: dict[torch.fx.Node, torch.fx.Node] = {}

        def placeholder(name: str, example: object) -> torch.fx.Node:
            node = graph.placeholder(name)
            node.meta["val"] = example
            return node

        for index, position in enumerate(body.carried):
            node = previous[position]
            copies[node] = placeholder(f"carried_{index}", node.meta["val"])
        copies[self._last[0]] = placeholder("index", self._last[0].meta["val"])
        inside = set(self._last)
        operands = [item for node in self._last[1:] for item in node.all_input_nodes]
        results = [self._last[position] for position in (*body.carried, *self._collected)]
        additional = [
            node for node in dict.fromkeys([*operands, *results]) if node not in inside and node not in copies
        ]
        for index, node in enumerate(additional):
            copies[node] = placeholder(f"outer_{index}", node.meta["val"])
        for node in self._last[1:]:
            copies[node] = graph.node_copy(node, copies.__getitem__)
        graph.output(tuple(copies[node] for node in results))
        # It takes the bodies of inner loops from the root.
        return torch.fx.GraphModule(root, graph), additional

    def _stacked_value(self, position: int) -> torch.Tensor:
        example = self._last[position].meta["val"]
        return self._loops.recorder.empty(
            (self._loop.repeated, *example.shape), example.dtype, example.device
        )

    def _result(self, loop_node: torch.fx.Node, index: int, example: torch.Tensor) -> torch.fx.Node:
        return self._insert(operator.getitem, (loop_node, index), example)

    def _write_slices(self, base: torch.fx.Node, axis: int, stacked: torch.fx.Node) -> None:
        """Write the values of all iterations to the slices of a tensor."""
        loop = self._loop
        shape = list(base.meta["val"].shape)
        shape[axis] = loop.repeated
        step = loop.step
        start, stop, _ = loop.arguments
        if self._first == 1:
            start = self._sum(start, step)
        if step < 0:
            start, stop = self._sum(stop, 1), self._sum(start, 1)
            stacked = self._insert(_ATEN.flip.default, (stacked, [0]), stacked.meta["val"])
        example = base.meta["val"]
        view_example = self._loops.recorder.empty(shape, example.dtype, example.device)
        view = self._insert(_ATEN.slice.Tensor, (base, axis, start, stop, abs(step)), view_example)
        order = [*range(1, axis + 1), 0, *range(axis + 1, len(shape))]
        values = self._insert(_ATEN.permute.default, (stacked, order), view_example)
        self._insert(_ATEN.copy_.default, (view, values), view_example)

    def _sum(self, start: Argument, step: int) -> Argument:
        if not isinstance(start, torch.fx.Node):
            return start + step
        return self._insert(operator.add, (start, step), start.meta["val"] + step)

    def _fix_first_index(self) -> None:
        """Give the first iteration, which is recorded apart, its index."""
        index = self._loop.markers[0]
        start = self._loop.arguments[0]
        for user in list(index.users):
            user.args, user.kwargs = torch.fx.map_arg(
                (user.args, user.kwargs), lambda node: start if node is index else node
            )

    def _insert(
        self, target: object, args: tuple[Argument, ...], example: object, **kwargs: Argument
    ) -> torch.fx.Node:
        self._cursor = insert_after(self._cursor, target, args, example, **kwargs)
        return self._cursor


def _tensor_before(node: torch.fx.Node, inside: Container[torch.fx.Node]) -> torch.fx.Node | None:
    """The tensor from before the loop that a call returns as it is, such as `to` of the type it has."""
    value = node.meta.get("val")
    while node in inside:
        target = node.target
        if value is None or not isinstance(target, OpOverload) or schema_of(target).is_mutable:
            return None
        operands = [item for item in node.all_input_nodes if item.meta.get("val") is value]
        if not operands:
            return None
        node = operands[0]
    return node


def insert_after(
    cursor: torch.fx.Node, target: Any, args: tuple[Argument, ...], example: object, **kwargs: Argument
) -> torch.fx.Node:
    """A new call after another node."""
    with cursor.graph.inserting_after(cursor):
        node = cursor.graph.call_function(target, args, kwargs)
    node.meta["val"] = example
    node.meta["nn_module_stack"] = cursor.meta.get("nn_module_stack", {})
    return node


def _replace_join(
    join: Join, loops: Loops, graph: torch.fx.Graph, replaced: dict[torch.fx.Node, torch.fx.Node]
) -> None:
    """Let a call that stacks or concatenates the results of iterations read those of the operator."""
    node = join.node
    parts: list[torch.fx.Node] = []

    def insert(target: Any, args: tuple[Argument, ...], shape: Sequence[Number]) -> torch.fx.Node:
        with graph.inserting_before(node):
            call = graph.call_function(target, args)
        example = node.meta["val"]
        call.meta["val"] = loops.recorder.empty(shape, example.dtype, example.device)
        call.meta["nn_module_stack"] = node.meta.get("nn_module_stack", {})
        return call

    for part in join.parts:
        if not isinstance(part, IterationResults):
            shape = list(part.meta["val"].shape)
            shape.insert(join.axis, 1)
            parts.append(insert(_ATEN.unsqueeze.default, (part, join.axis), shape) if join.stacks else part)
            continue
        stacked = part.loop.stacked[part.position]
        shape = list(stacked.meta["val"].shape)
        if part.is_reversed:
            stacked = insert(_ATEN.flip.default, (stacked, [0]), shape)
        order = [*range(1, join.axis + 1), 0, *range(join.axis + 1, len(shape))]
        if join.axis:
            shape = [shape[axis] for axis in order]
            stacked = insert(_ATEN.permute.default, (stacked, order), shape)
        if not join.stacks:
            shape[join.axis : join.axis + 2] = [shape[join.axis] * shape[join.axis + 1]]
            stacked = insert(_ATEN.flatten.using_ints, (stacked, join.axis, join.axis + 1), shape)
        parts.append(stacked)
    if len(parts) == 1:
        node.replace_all_uses_with(parts[0])
        replaced[node] = parts[0]
        graph.erase_node(node)
    else:
        node.target, node.args = _ATEN.cat.default, (parts, join.axis)


def _erase(loop: RecordedLoop) -> None:
    """Remove the iterations that the operator replaces."""
    body = loop.body
    assert body is not None
    first = loop.first
    nodes = [node for iteration in body.iterations[first:] for node in iteration]
    nodes += [node for write in body.writes for node in write.nodes[2 * first :]]
    nodes += [*loop.markers[:1], loop.markers[-1]]
    for path in loop.paths:
        nodes += [*nodes_between(path.marker, path.end), path.end]
    erased = set(nodes)
    graph = loop.markers[0].graph
    for node in reversed(list(graph.nodes)):
        # Each iteration has its own node for a constant.
        if node in erased or (node.op == "get_attr" and not node.users):
            graph.erase_node(node)
