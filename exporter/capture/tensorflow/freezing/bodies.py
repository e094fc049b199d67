"""Freezes the nodes of a graph or function body that the results depend on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .....registration import CaptureError, Names
from .conditions import SECOND, Carried, Conditions, Written, analyze
from .dropout import without_dropout
from .plans import Plan, Planner, has_no_results
from .ranges import Range
from .scope import Node, Reference, Scope


@dataclasses.dataclass
class Frozen:
    """A frozen scope.

    Attributes:
        nodes: its NodeDefs, in the order of those that they replace.
        results: the wanted results.
        arguments: the arguments of the function that they depend on.
        carried: which results are handles of variables.
    """

    nodes: list[Any]
    results: list[Reference]
    arguments: set[str]
    carried: list[Carried | None]


def freeze_scope(
    scope: Scope,
    wanted: Sequence[Reference],
    *,
    carried: Mapping[Reference, Carried],
    ranges: Mapping[str, Range],
    written: Written,
    plan_call: Callable[[Node, Conditions, Names], Plan | None],
    constants: Mapping[str, Any] | None = None,
) -> Frozen:
    """Freeze the nodes that results depend on.

    Args:
        scope: the graph or the body.
        wanted: the results.
        carried: its variables: nodes, or arguments of the function.
        ranges: what is known of arguments.
        written: what the functions that nodes call change.
        plan_call: plans nodes that take handles or call functions.
        constants: the Const nodes of variables.

    Raises:
        CaptureError: results depend on what cannot be frozen. The error names all such nodes.
        ModelFileError: the scope is malformed.
    """
    order = scope.order(result.node for result in wanted)
    found = analyze(scope, order, carried, ranges, written)
    for result in wanted:
        if found.is_dead(result):
            raise CaptureError(f"'{result}' of {scope.shown} is in a branch that never runs")
    names = Names()
    for name in (*scope.nodes, *scope.arguments):
        names.take(name)
    plans = Planner(found, constants or {}, without_dropout(found, order), plan_call, names)
    return _Freezer(found, plans).freeze(wanted)


class UnfrozenGraph(CaptureError):
    """Nodes of a graph, or of the functions that it calls, cannot be frozen.

    Attributes:
        problems: a sentence on each.
    """

    def __init__(self, problems: Sequence[str]):
        super().__init__("\n".join(["the graph cannot be frozen:", *(f"  - {text}" for text in problems)]))
        self.problems = list(problems)


class _Freezer:
    def __init__(self, found: Conditions, plans: Planner):
        self._found, self._plans, self._scope = found, plans, found.scope
        self._arguments: set[str] = set()
        self._pending: list[str] = []
        self._controls: dict[str, list[str]] = {}

    def freeze(self, wanted: Sequence[Reference]) -> Frozen:
        kept: dict[str, Plan] = {}
        problems: dict[str, None] = {}
        for result in wanted:
            self._need(result)
        while self._pending:
            name = self._pending.pop()
            if name in kept:
                continue
            try:
                plan = kept[name] = self._plans(name)
                self._visit(self._scope.nodes[name], plan)
            except UnfrozenGraph as error:
                problems |= dict.fromkeys(error.problems)
                kept[name] = Plan(None, [])
            except CaptureError as error:
                problems[str(error)] = None
                kept[name] = Plan(None, [])
        if problems:
            raise UnfrozenGraph(list(problems))
        nodes = [
            message
            for name in self._scope.nodes
            if name in kept
            for message in self._messages(name, kept[name])
        ]
        results = [self._resolved(result) for result in wanted]
        return Frozen(nodes, results, self._arguments, [self._found.carried.get(result) for result in wanted])

    def _need(self, result: Reference) -> None:
        if result.node in self._scope.arguments:
            self._arguments.add(result.node)
            return
        node = self._scope.nodes[result.node]
        if has_no_results(node):
            raise CaptureError(
                f"{node.shown} changes a variable or has another side effect, and results depend on it"
            )
        if result.node in self._found.taken and result.port in SECOND:
            self._plans.value_index(result.node)
        self._pending.append(result.node)

    def _visit(self, node: Node, plan: Plan) -> None:
        """Visit the inputs of a node of the frozen scope."""
        own = {added.message.name for added in plan.added}
        for part in (plan, *plan.added):
            for result in part.inputs:
                if result.node not in own:
                    self._need(result)
        self._controls[node.name] = found = sorted(own) if plan.controls is not None else []
        supplied = frozenset().union(*(self._found.conditions_of(result) for result in plan.inputs))
        controls = dict.fromkeys(node.controls if plan.controls is None else plan.controls)
        # A node with an effect states the same condition as one that only checks.
        for name in sorted(controls, key=lambda name: name in own or has_no_results(self._scope.nodes[name])):
            needed = frozenset() if name in own else self._found.needed.get(name, frozenset())
            if needed - supplied:
                supplied |= needed
                found.append(name)
                self._pending.append(name)

    def _messages(self, name: str, plan: Plan) -> list[Any]:
        """The messages of a plan, with their inputs."""
        for part in (plan, *plan.added):
            part.message.input.extend(str(self._resolved(result)) for result in part.inputs)
        plan.message.input.extend(f"^{control}" for control in self._controls[name])
        return [*(added.message for added in plan.added), plan.message]

    def _resolved(self, result: Reference) -> Reference:
        """Resolve a result whose node was replaced."""
        if result.node not in self._scope.nodes:
            return result
        if result.node in self._found.taken and result.port in SECOND:
            return self._plans.value_index(result.node)
        if self._plans(result.node).is_single:
            return Reference(result.node, "output:0" if self._scope.is_function else "")
        return result
