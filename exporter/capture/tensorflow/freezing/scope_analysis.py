"""Analyses the nodes of a scope before it is frozen, in one pass from inputs to outputs.

- Ranges of results: see `ranges`.
- Dead results: those of a branch that never runs, because the predicate of its Switch is known. A node that
  reads a dead result is dead too; a Merge is dead if all its inputs are.
- Conditions: the results of Switches, and the loops, that must be alive for a node to run. A condition may
  reach a node through a control input alone.
- Variables: the results that are a variable's handle or a reference to a variable, and the nodes that run
  after a node that changes a variable.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from .....registration import ModelFileError
from ..node_messages import (
    ENTER,
    EXIT,
    IDENTITIES,
    MERGE,
    NEXT_ITERATION,
    SWITCH,
    MessageNode,
    MessageScope,
    ResultName,
)
from .ranges import ElementRange, constant_range, infer_range

REFERENCE_VARIABLES = frozenset({"Variable", "VariableV2", "AutoReloadVariable"})
"""Operators whose result is a reference to a variable, which the nodes that take it read."""
HANDLE_VARIABLES = frozenset({"VarHandleOp"})
RESOURCE = 20
"""The number of the element type of handles."""
HANDLE_READERS = frozenset("ReadVariableOp ResourceGather ResourceGatherNd VariableShape".split())
"""Operators whose first input is the handle of a variable, which they read."""
WRITING_OPERATORS = re.compile(
    r"Assign.*|(Resource)?(Sparse)?Apply[A-Z].*|(Resource)?CountUpTo|(Resource)?StridedSliceAssign"
    r"|(Resource)?Scatter(Nd)?(Update|Add|Sub|Mul|Div|Min|Max)|DestroyResourceOp"
)
"""Operators that change the variables whose handles or references they take."""
SECOND_RESULTS = frozenset({"1", "output_true:0", "value_index:0"})
"""The second result of a Switch or a Merge."""
REFERENCE_PASSING = frozenset(
    "Identity Switch Merge Enter Exit NextIteration RefIdentity RefSwitch RefMerge RefEnter RefExit "
    "RefNextIteration DisableCopyOnRead".split()
)
"""Operators that pass on a handle; the Ref ones pass on a reference."""
_LIST_OPERATORS = frozenset({"IdentityN", "While", "StatelessWhile"})
"""Operators that pass on each of their inputs."""
_MOST_CONDITIONS = 100

Condition = tuple[str, str]
"""A predicate and a result of its Switches ("0" or "1"); or "loop" and the loop's name; or "merge" and the
name of a Merge whose own conditions are not known.
"""


class VariableReference(NamedTuple):
    """A variable's handle, or a reference to it; `origin` is the node or argument that it comes from."""

    dtype: int
    origin: str
    is_handle: bool


WrittenInputs = Callable[[MessageNode], Sequence[int]]
"""Finds the indices of a node's inputs whose variables the called function changes."""


@dataclasses.dataclass
class ScopeAnalysis:
    """The results of the analysis of a scope.

    Attributes:
        ranges: the range of the first result of nodes, by node name.
        dead: the nodes that never run.
        dead_results: the dead result, 0 or 1, of each Switch whose predicate is known.
        live_inputs: the index of the only live input, for each Merge that has just one.
        node_conditions: the conditions of nodes; a node without conditions is not a key.
        variables: the results that are handles of variables or references to them.
        written_variables: the origins of the variables that nodes change.
        after_writes: the nodes that change a variable, or run after one that does.
        conditions_around_loops: the conditions under which each loop is entered.
        condition_sets: the sets in `node_conditions`, each stored once.
    """

    scope: MessageScope
    ranges: dict[str, ElementRange] = dataclasses.field(default_factory=dict)
    dead: set[str] = dataclasses.field(default_factory=set)
    dead_results: dict[str, int] = dataclasses.field(default_factory=dict)
    live_inputs: dict[str, int] = dataclasses.field(default_factory=dict)
    node_conditions: dict[str, frozenset[Condition]] = dataclasses.field(default_factory=dict)
    variables: dict[ResultName, VariableReference] = dataclasses.field(default_factory=dict)
    written_variables: set[str] = dataclasses.field(default_factory=set)
    after_writes: set[str] = dataclasses.field(default_factory=set)
    conditions_around_loops: dict[str, frozenset[Condition]] = dataclasses.field(default_factory=dict)
    condition_sets: dict[frozenset[Condition], frozenset[Condition]] = dataclasses.field(default_factory=dict)

    def range_of(self, result: ResultName) -> ElementRange | None:
        """The range of a result."""
        return None if result.port in SECOND_RESULTS else self.ranges.get(result.node)

    def is_dead(self, result: ResultName) -> bool:
        """Whether a result is never computed."""
        return result.node in self.dead or self.dead_results.get(result.node) == _result_index(result)

    def conditions_of(self, result: ResultName) -> frozenset[Condition]:
        """The conditions under which a result is computed."""
        conditions = self.node_conditions.get(result.node, frozenset())
        node = self.scope.nodes.get(result.node)
        if node is not None and node.op in SWITCH and result.node not in self.dead_results:
            conditions |= {(str(self.root(node.inputs[1])), str(_result_index(result)))}
        return conditions

    def root(self, result: ResultName) -> ResultName:
        """Skip Identity nodes."""
        while (
            (node := self.scope.nodes.get(result.node)) is not None and node.op in IDENTITIES and node.inputs
        ):
            result = node.inputs[0]
        return result

    def runs_after_write(self, node: MessageNode) -> bool:
        """Whether a node takes its inputs, or waits for a node, after one that changes a variable."""
        predecessors = [*(r.node for r in node.inputs), *node.controls]
        return any(name in self.after_writes for name in predecessors)

    def result(self, name: str, index: int) -> ResultName:
        """A result of an operator whose results are the list `output`."""
        if self.scope.is_function:
            return ResultName(name, f"output:{index}")
        return ResultName(name, str(index) if index else "")


def _result_index(result: ResultName) -> int:
    return 1 if result.port in SECOND_RESULTS else 0


def analyze_scope(
    scope: MessageScope,
    order: Sequence[MessageNode],
    variables: Mapping[ResultName, VariableReference],
    ranges: Mapping[str, ElementRange],
    written_inputs: WrittenInputs,
) -> ScopeAnalysis:
    """Analyse the nodes of a scope, in topological order; `ranges` are those of a function's arguments."""
    analysis = ScopeAnalysis(scope, variables=dict(variables), ranges=dict(ranges))
    for node in order:
        _mark_dead(analysis, node)
        if node.name in analysis.dead:
            continue
        _add_conditions_of_node(analysis, node)
        _add_range(analysis, node)
        _pass_on_variables(analysis, node)
        _note_writes(analysis, node, written_inputs)
    return analysis


def _mark_dead(analysis: ScopeAnalysis, node: MessageNode) -> None:
    if any(name in analysis.dead for name in node.controls):
        analysis.dead.add(node.name)
    elif node.op in MERGE:
        # A value from the next iteration is alive if the loop is entered, so it does not decide.
        entered = [i for i, r in enumerate(node.inputs) if not _is_next_iteration(analysis.scope, r)]
        alive = [i for i in entered if not analysis.is_dead(node.inputs[i])]
        if not alive:
            analysis.dead.add(node.name)
        # The Merge of a loop variable has a further input from the next iteration, so it stays.
        elif len(alive) == 1 and 1 < len(node.inputs) == len(entered):
            analysis.live_inputs[node.name] = alive[0]
        elif len(alive) < len(entered):
            raise ModelFileError(f"{node.label} merges several branches, some of which never run")
    elif any(map(analysis.is_dead, node.inputs)):
        analysis.dead.add(node.name)
    elif node.op in SWITCH and len(node.inputs) == 2:
        predicate_range = analysis.range_of(node.inputs[1])
        if predicate_range is not None and predicate_range.point is not None:
            analysis.dead_results[node.name] = 0 if predicate_range.point else 1


def _is_next_iteration(scope: MessageScope, result: ResultName) -> bool:
    node = scope.nodes.get(result.node)
    return node is not None and node.op in NEXT_ITERATION


def _add_conditions_of_node(analysis: ScopeAnalysis, node: MessageNode) -> None:
    results = [r for r in node.inputs if not (node.op in MERGE and _is_next_iteration(analysis.scope, r))]
    of_inputs = [analysis.conditions_of(r) for r in results if not analysis.is_dead(r)]
    conditions = frozenset().union(
        *(analysis.node_conditions.get(name, frozenset()) for name in node.controls)
    )
    if node.op in MERGE and len(of_inputs) == 2:
        conditions |= _merge_conditions(of_inputs[0], of_inputs[1], node.name)
    elif node.op in MERGE and len(of_inputs) > 2:
        conditions |= frozenset.intersection(*of_inputs) | {("merge", node.name)}
    else:
        conditions = conditions.union(*of_inputs)
    if node.op in ENTER:
        loop = ("loop", node.attribute("frame_name").s.decode(errors="replace"))
        analysis.conditions_around_loops[loop[1]] = (
            analysis.conditions_around_loops.get(loop[1], frozenset()) | conditions
        )
        conditions |= {loop}
    elif node.op in EXIT:
        loops = [name for predicate, name in conditions if predicate == "loop"]
        # The innermost loop is the one that is entered under the most conditions.
        innermost = max(
            loops, key=lambda name: (len(analysis.conditions_around_loops.get(name, ())), name), default=""
        )
        conditions = analysis.conditions_around_loops.get(innermost, conditions)
    if len(conditions) > _MOST_CONDITIONS:
        raise ModelFileError(f"{node.label} is in more than {_MOST_CONDITIONS} branches and loops")
    if conditions:
        # Nodes of one branch have equal conditions: one set in memory serves them all.
        analysis.node_conditions[node.name] = analysis.condition_sets.setdefault(conditions, conditions)


def _merge_conditions(
    first: frozenset[Condition], second: frozenset[Condition], name: str
) -> frozenset[Condition]:
    """The conditions of a Merge: the common ones, if the two inputs differ in the branch of one predicate."""
    common = first & second
    differing = sorted([*(first - common), *(second - common)])
    if not differing or (
        len(differing) == 2 and differing[0][0] == differing[1][0] and differing[0][1] != differing[1][1]
    ):
        return common
    return common | {("merge", name)}


def _add_range(analysis: ScopeAnalysis, node: MessageNode) -> None:
    if node.name in analysis.ranges:
        return
    element_range: ElementRange | None = None
    if node.op == "Const":
        element_range = constant_range(node.attribute("value").tensor, node.label)
    elif node.name in analysis.live_inputs:
        element_range = analysis.range_of(node.inputs[analysis.live_inputs[node.name]])
    elif node.name in analysis.dead_results:
        element_range = analysis.range_of(node.inputs[0])
    elif node.op == "PlaceholderWithDefault" and node.inputs:
        element_range = analysis.range_of(node.inputs[0])
        element_range = element_range if element_range is not None and element_range.is_scalar else None
    else:
        element_range = infer_range(node, [analysis.range_of(r) for r in node.inputs])
    if element_range is not None:
        analysis.ranges[node.name] = element_range


def _pass_on_variables(analysis: ScopeAnalysis, node: MessageNode) -> None:
    """Record the results of a node that are handles or references."""
    input_variables = [analysis.variables.get(r) for r in node.inputs]
    if node.op in _LIST_OPERATORS:
        for index, variable in enumerate(input_variables):
            if variable is not None and variable.is_handle:
                analysis.variables[analysis.result(node.name, index)] = variable
        return
    variable = next((variable for variable in input_variables if variable is not None), None)
    if (
        variable is None
        or node.op not in REFERENCE_PASSING
        or not (variable.is_handle or node.op.startswith("Ref"))
    ):
        return
    second = ("1", "output_true:0") if node.op in SWITCH else ()
    # A graph and the body of a function name the same result differently.
    for port in ("", "output:0", "output_false:0", *second):
        analysis.variables[ResultName(node.name, port)] = variable


def _note_writes(analysis: ScopeAnalysis, node: MessageNode, written_inputs: WrittenInputs) -> None:
    written_origins = [
        variable.origin
        for index in (
            range(len(node.inputs)) if WRITING_OPERATORS.fullmatch(node.op) else written_inputs(node)
        )
        if index < len(node.inputs) and (variable := analysis.variables.get(node.inputs[index])) is not None
    ]
    analysis.written_variables.update(written_origins)
    if written_origins or analysis.runs_after_write(node):
        analysis.after_writes.add(node.name)
