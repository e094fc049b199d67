"""Makes one body of the iterations of a loop that took different sides of its conditions."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.fx

from ....torch_boundary.recording.loop_operator import COND, RECORDED_SIDE
from ...fx_import.decision_marks import marks_decision
from .matching import Argument, LoopBody, move_invariants
from .recorded_loops import RecordedLoop, nodes_between
from .sides import LoopSides
from .tensor_writes import NotRepeated, carry_writes


@dataclasses.dataclass(eq=False)
class _Path:
    """One combination of answers.

    Attributes:
        nodes: the nodes of the iteration, the first of which is its index.
        answers: the answers, in order.
        marks: the positions of the conditions among the nodes.
        results: what the body returns.
    """

    nodes: list[torch.fx.Node]
    answers: Sequence[bool]
    marks: list[int]
    results: list[torch.fx.Node]


class SideBody:
    """The body of a loop with all sides of its conditions.

    Args:
        results: the positions of what the body returns: the carried values, then those to stack.
    """

    def __init__(
        self,
        loop: RecordedLoop,
        sides: LoopSides,
        body: LoopBody,
        results: Sequence[int],
        root: torch.nn.Module,
    ):
        self._loop, self._body, self._root = loop, body, root
        self._previous, self._last = body.iterations[-2:]
        self._names: list[str] = []
        self._flag = sides.flag
        self._paths = [
            _Path(self._last, sides.usual, _marks(self._last), [self._last[index] for index in results])
        ]
        carried = {self._last[position]: self._previous[position] for position in body.carried}
        for recorded in loop.paths:
            nodes = nodes_between(recorded.marker, recorded.end)
            move_invariants(nodes, body.iterations[0][0], loop.symbols, root)
            updates = {base: [values[-1]] for base, values in body.updates.items()}
            try:
                carry_writes(nodes, body.iterations[0][0], updates)
            except NotRepeated as error:
                raise loop.refuse(f"has a side that cannot be one of an If: {error}") from None
            if updates.keys() != body.updates.keys():
                raise loop.refuse("writes to another tensor on each side of a condition; use torch.where")
            values = {**recorded.values, **{update[0]: update[-1] for update in updates.values()}}
            # All paths read the value of the iteration before, which is the third one for these.
            for node in nodes:
                # All at once: in `a, b = b, a + b` the value before one variable is the value of the other.
                node.args, node.kwargs = torch.fx.map_arg(
                    (node.args, node.kwargs), lambda operand: carried.get(operand, operand)
                )
            path = _Path(nodes, recorded.answers, _marks(nodes), [])
            path.results = [self._counterpart(index, values) for index in results]
            path.results = [carried.get(node, node) for node in path.results]
            self._paths.append(path)

    def _counterpart(
        self,
        position: int,
        values: Mapping[torch.fx.Node, torch.fx.Node],
    ) -> torch.fx.Node:
        """The value of another path for that at a position of the usual one."""
        # On one side, a variable may keep what an earlier iteration computed, even before a condition.
        value = values.get(self._last[position])
        if value is None:
            raise self._loop.refuse(
                "has a condition, and gives a value to a later iteration or to the code after it; assign it "
                "to a variable that is a tensor before the loop"
            )
        return value

    def build(self) -> tuple[torch.fx.GraphModule, list[torch.fx.Node]]:
        """The graph of one iteration, and the nodes from before the loop that it reads."""
        graph = torch.fx.Graph()
        copies: dict[torch.fx.Node, torch.fx.Node] = {}
        for index, position in enumerate(self._body.carried):
            node = self._previous[position]
            copies[node] = _placeholder(graph, f"carried_{index}", node)
        index_copy = _placeholder(graph, "index", self._last[0])
        copies.update({path.nodes[0]: index_copy for path in self._paths})
        additional = [node for node in _operands(self._paths, 1) if node not in copies]
        inside = {node for nodes in self._body.iterations for node in nodes}
        inside.update(node for path in self._paths for node in path.nodes)
        if not inside.isdisjoint(additional):
            raise self._loop.refuse(
                "reads a tensor of the iteration before that is not the value of a variable; assign it to one"
            )
        for index, node in enumerate(additional):
            copies[node] = _placeholder(graph, f"outer_{index}", node)
        if not self._loop.is_ended or self._flag is None:
            results = self._emit(graph, copies, self._paths, 0, 1)
        else:
            flag_position = self._body.positions[self._flag][1]

            def emit_side(
                inner: torch.fx.Graph, inputs: Mapping[torch.fx.Node, torch.fx.Node], runs: bool
            ) -> Any:
                if not runs:
                    return [inputs[copies[self._previous[position]]] for position in self._body.carried]
                return self._emit(
                    inner, {node: inputs[copy] for node, copy in copies.items()}, self._paths, 0, 1
                )

            flag = copies[self._previous[flag_position]]
            results = self._branch(graph, flag, list(dict.fromkeys(copies.values())), emit_side, True)
        graph.output(tuple(results))
        module = torch.fx.GraphModule(self._root, graph)
        for name in self._names:
            delattr(self._root, name)
        return module, additional

    def _emit(
        self,
        graph: torch.fx.Graph,
        copies: dict[torch.fx.Node, torch.fx.Node],
        paths: Sequence[_Path],
        depth: int,
        start: int,
    ) -> list[torch.fx.Node]:
        """Add what paths with equal answers compute from a position on; returns the results.

        Args:
            copies: by recorded node, its copy in the graph.
            depth: the number of equal answers.
        """
        first = paths[0]
        is_last = depth >= len(first.marks)
        end = len(first.nodes) if is_last else first.marks[depth]
        if not is_last and any(path.marks[depth : depth + 1] != [end] for path in paths):
            raise self._loop.refuse("tests its conditions in another order on each side")
        for position in range(start, end):
            nodes = [path.nodes[position] for path in paths]
            if any(node.target != nodes[0].target for node in nodes):
                raise self._loop.refuse("calls other operators before a condition on each side")
            copies.update(dict.fromkeys(nodes, graph.node_copy(nodes[0], copies.__getitem__)))
        if is_last:
            return [copies[node] for node in first.results]
        operands = list(dict.fromkeys(copies[node] for node in _operands(paths, end + 1)))

        def emit_side(
            inner: torch.fx.Graph, inputs: Mapping[torch.fx.Node, torch.fx.Node], answer: bool
        ) -> Any:
            side = [path for path in paths if path.answers[depth] is answer]
            inner_copies = {node: inputs[copy] for node, copy in copies.items() if copy in inputs}
            return self._emit(inner, inner_copies, side, depth + 1, end + 1)

        condition = first.nodes[end].args[0]
        if isinstance(condition, torch.fx.Node):
            condition = copies[condition]
        return self._branch(graph, condition, operands, emit_side, first.answers[depth])

    def _branch(
        self,
        graph: torch.fx.Graph,
        condition: Argument,
        operands: Sequence[torch.fx.Node],
        emit_side: Callable[[torch.fx.Graph, Mapping[torch.fx.Node, torch.fx.Node], bool], Any],
        recorded_side: bool,
    ) -> list[torch.fx.Node]:
        """Add the operator `cond`; returns its results.

        Args:
            operands: what the sides read.
            emit_side: adds what a side computes to its graph, and returns the results.
            recorded_side: the side that stands for all where the value of the condition is unknown.
        """
        arguments: list[torch.fx.Node] = []
        for answer in (True, False):
            inner = torch.fx.Graph()
            inputs = {
                node: _placeholder(inner, f"operand_{index}", node) for index, node in enumerate(operands)
            }
            inner.output(tuple(emit_side(inner, inputs, answer)))
            name = f"side_{len(self._names)}_of_{self._last[0].name}"
            setattr(self._root, name, torch.fx.GraphModule(self._root, inner))
            self._names.append(name)
            arguments.append(graph.get_attr(name))
        branch = graph.call_function(COND, (condition, *arguments, list(operands)))
        examples = [node.meta["val"] for node in self._paths[0].results]
        branch.meta.update({"val": tuple(examples), RECORDED_SIDE: recorded_side})
        results = []
        for index, example in enumerate(examples):
            results.append(graph.call_function(operator.getitem, (branch, index)))
            results[-1].meta["val"] = example
        return results


def _operands(paths: Iterable[_Path], start: int) -> list[torch.fx.Node]:
    """What paths read from a position on, and do not compute themselves behind it."""
    operands: dict[torch.fx.Node, None] = {}
    for path in paths:
        computed = set(path.nodes[start:])
        read = [item for node in path.nodes[start:] for item in node.all_input_nodes]
        operands.update(dict.fromkeys(item for item in [*read, *path.results] if item not in computed))
    return list(operands)


def _placeholder(graph: torch.fx.Graph, name: str, like: torch.fx.Node) -> torch.fx.Node:
    node = graph.placeholder(name)
    node.meta["val"] = like.meta["val"]
    return node


def _marks(nodes: Sequence[torch.fx.Node]) -> list[int]:
    return [index for index, node in enumerate(nodes) if marks_decision(node)]
