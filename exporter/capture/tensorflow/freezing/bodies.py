"""Freezes the nodes of a graph or function body that the results depend on."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from .....registration import CaptureError, Names
from ..messages import NodeDef
from ..node_messages import MessageNode, MessageScope, ResultName
from .dropout import replace_full_dropout
from .plans import NodePlan, Planner, has_no_results
from .ranges import ElementRange
from .scope_analysis import SECOND_RESULTS, ScopeAnalysis, VariableReference, WrittenInputs, analyze_scope


@dataclasses.dataclass
class FrozenScope:
    """A frozen scope: its nodes in the order of those that they replace, and the arguments that results need.

    For each result, `result_variables` has the variable whose handle or reference it is; None for a value.
    """

    nodes: list[NodeDef]
    results: list[ResultName]
    arguments: set[str]
    result_variables: list[VariableReference | None]


def freeze_scope(
    scope: MessageScope,
    results: Sequence[ResultName],
    *,
    variables: Mapping[ResultName, VariableReference],
    ranges: Mapping[str, ElementRange],
    written_inputs: WrittenInputs,
    plan_call: Callable[[MessageNode, ScopeAnalysis, Names], NodePlan | None],
    constants: Mapping[str, NodeDef] | None = None,
    keep_tables: bool = False,
) -> FrozenScope:
    """Freeze the nodes that results depend on; an error names all nodes that cannot be frozen.

    Args:
        variables: the results that are handles of variables or references to them.
        ranges: the known ranges of arguments, by name.
        plan_call: plans nodes that take handles or call functions.
        constants: the Const nodes of variables, by the names of the variables' nodes.
        keep_tables: keep lookup tables, instead of refusing them.
    """
    order = scope.order(result.node for result in results)
    analysis = analyze_scope(scope, order, variables, ranges, written_inputs)
    for result in results:
        if analysis.is_dead(result):
            raise CaptureError(f"'{result}' of {scope.label} is in a branch that never runs")
    names = Names()
    for name in (*scope.nodes, *scope.arguments):
        names.take(name)
    simplified = replace_full_dropout(analysis, order)
    plans = Planner(analysis, constants or {}, simplified, plan_call, names, keep_tables=keep_tables)
    return _Freezer(analysis, plans).freeze(results)


class UnfrozenGraph(CaptureError):
    """Nodes of a graph, or of the functions that it calls, cannot be frozen; each has a sentence."""

    def __init__(self, problems: Sequence[str]):
        super().__init__("\n".join(["the graph cannot be frozen:", *(f"  - {text}" for text in problems)]))
        self.problems = list(problems)


class _Freezer:
    def __init__(self, analysis: ScopeAnalysis, plans: Planner):
        self._analysis, self._plans, self._scope = analysis, plans, analysis.scope
        self._arguments: set[str] = set()
        self._pending: list[str] = []
        self._controls: dict[str, list[str]] = {}

    def freeze(self, required_results: Sequence[ResultName]) -> FrozenScope:
        node_plans: dict[str, NodePlan] = {}
        problems: dict[str, None] = {}
        for result in required_results:
            self._require(result)
        while self._pending:
            name = self._pending.pop()
            if name in node_plans:
                continue
            try:
                plan = node_plans[name] = self._plans(name)
                self._visit(self._scope.nodes[name], plan)
            except UnfrozenGraph as error:
                problems |= dict.fromkeys(error.problems)
                node_plans[name] = NodePlan(None, [])
            except CaptureError as error:
                # Go on, so that one error names all nodes that cannot be frozen.
                problems[str(error)] = None
                node_plans[name] = NodePlan(None, [])
        if problems:
            raise UnfrozenGraph(list(problems))
        nodes = [
            message
            for name in self._scope.nodes
            if name in node_plans
            for message in self._write_messages(name, node_plans[name])
        ]
        results = [self._resolve(result) for result in required_results]
        return FrozenScope(
            nodes,
            results,
            self._arguments,
            [self._analysis.variables.get(result) for result in required_results],
        )

    def _require(self, result: ResultName) -> None:
        if result.node in self._scope.arguments:
            self._arguments.add(result.node)
            return
        node = self._scope.nodes[result.node]
        if has_no_results(node):
            raise CaptureError(
                f"{node.label} changes a variable or has another side effect, and results depend on it"
            )
        if result.node in self._analysis.live_inputs and result.port in SECOND_RESULTS:
            self._plans.add_value_index(result.node)
        self._pending.append(result.node)

    def _visit(self, node: MessageNode, plan: NodePlan) -> None:
        """Visit the inputs of a node of the frozen scope."""
        helper_names = {helper.message.name for helper in plan.helpers}
        for node_plan in (plan, *plan.helpers):
            for result in node_plan.inputs:
                if result.node not in helper_names:
                    self._require(result)
        self._controls[node.name] = control_names = sorted(helper_names) if plan.controls is not None else []
        supplied_conditions = frozenset().union(
            *(self._analysis.conditions_of(result) for result in plan.inputs)
        )
        controls = dict.fromkeys(node.controls if plan.controls is None else plan.controls)
        # A control input is needed only for conditions that no other input supplies. Nodes without results
        # come last: they are often superfluous then.
        for name in sorted(
            controls, key=lambda name: name in helper_names or has_no_results(self._scope.nodes[name])
        ):
            conditions = (
                frozenset() if name in helper_names else self._analysis.node_conditions.get(name, frozenset())
            )
            if conditions - supplied_conditions:
                supplied_conditions |= conditions
                control_names.append(name)
                self._pending.append(name)

    def _write_messages(self, name: str, plan: NodePlan) -> list[NodeDef]:
        """The messages of a plan, with their inputs."""
        for node_plan in (plan, *plan.helpers):
            node_plan.message.input.extend(str(self._resolve(result)) for result in node_plan.inputs)
        plan.message.input.extend(f"^{control}" for control in self._controls[name])
        return [*(helper.message for helper in plan.helpers), plan.message]

    def _resolve(self, result: ResultName) -> ResultName:
        """Resolve a result whose node was replaced."""
        if result.node not in self._scope.nodes:
            return result
        if result.node in self._analysis.live_inputs and result.port in SECOND_RESULTS:
            return self._plans.add_value_index(result.node)
        if self._plans(result.node).has_single_output:
            return self._analysis.result(result.node, 0)
        return result
