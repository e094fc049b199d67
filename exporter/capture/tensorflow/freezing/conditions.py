"""Analyses the nodes of a scope before it is frozen, in one pass from inputs to outputs.

- Ranges: see `ranges`. A Switch by a known predicate gives nothing to one of its branches.
- Dead results: those of a branch that is not taken. A node that reads one is dead too; a Merge is not as long
  as one of its inputs is alive.
- Conditions: the results of Switches, and the loops, that a node needs to run at all. Such a condition may
  come through a control input only.
- Variables: which results are a variable's handle, or a reference to a variable, and which nodes run after a
  node that changes a variable.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from .....registration import ModelFileError
from .ranges import Range, constant, infer_range
from .scope import MERGE, NEXT_ITERATION, Node, Reference, Scope

SWITCH = frozenset({"Switch", "RefSwitch"})
ENTER = frozenset({"Enter", "RefEnter"})
EXIT = frozenset({"Exit", "RefExit"})
VARIABLES = frozenset({"Variable", "VariableV2", "AutoReloadVariable"})
"""Operators whose result is a reference to a variable, which the nodes that take it read."""
HANDLES = frozenset({"VarHandleOp"})
WRITERS = re.compile(
    r"Assign.*|(Resource)?(Sparse)?Apply[A-Z].*|(Resource)?CountUpTo|(Resource)?StridedSliceAssign"
    r"|(Resource)?Scatter(Nd)?(Update|Add|Sub|Mul|Div|Min|Max)|DestroyResourceOp"
)
"""Operators that change the variables whose handles or references they take."""
SECOND = frozenset({"1", "output_true:0", "value_index:0"})
"""The second result of a Switch or a Merge."""
_PASSING = frozenset(
    "Identity Switch Merge Enter Exit NextIteration RefIdentity RefSwitch RefMerge RefEnter RefExit "
    "RefNextIteration DisableCopyOnRead".split()
)
"""Operators that pass on a handle; the Ref ones pass on a reference."""
_LISTS = frozenset({"IdentityN", "While", "StatelessWhile"})
"""Operators that pass on each of their inputs."""
_MOST_CONDITIONS = 100

Condition = tuple[str, str]
"""A predicate and a result of its Switches; or the word "loop" and the loop's name."""


class Carried(NamedTuple):
    """A variable's handle, or a reference to it.

    Attributes:
        dtype: the variable's element type.
        origin: the node that makes it, or the argument of the function.
        is_handle: whether it is a handle.
    """

    dtype: int
    origin: str
    is_handle: bool


Written = Callable[[Node], Sequence[int]]
"""The inputs of a node whose variables the function that it calls changes."""


@dataclasses.dataclass
class Conditions:
    """The results of the analysis of a scope.

    Attributes:
        ranges: the range of a node's first result.
        dead: the nodes that never run.
        untaken: the Switches by a known predicate, and the result that is dead: 0 or 1.
        taken: the Merges with one input that is alive, and which.
        needed: the conditions of each node.
        carried: results that are handles or references.
        written: the origins of variables that a node changes.
        later: nodes that run after a node that changes a variable.
        outside: the conditions under which each loop is entered.
        sets: the sets of conditions, each once.
    """

    scope: Scope
    ranges: dict[str, Range] = dataclasses.field(default_factory=dict)
    dead: set[str] = dataclasses.field(default_factory=set)
    untaken: dict[str, int] = dataclasses.field(default_factory=dict)
    taken: dict[str, int] = dataclasses.field(default_factory=dict)
    needed: dict[str, frozenset[Condition]] = dataclasses.field(default_factory=dict)
    carried: dict[Reference, Carried] = dataclasses.field(default_factory=dict)
    written: set[str] = dataclasses.field(default_factory=set)
    later: set[str] = dataclasses.field(default_factory=set)
    outside: dict[str, frozenset[Condition]] = dataclasses.field(default_factory=dict)
    sets: dict[frozenset[Condition], frozenset[Condition]] = dataclasses.field(default_factory=dict)

    def range_of(self, result: Reference) -> Range | None:
        """The range of a result."""
        return None if result.port in SECOND else self.ranges.get(result.node)

    def is_dead(self, result: Reference) -> bool:
        """Whether a result is never computed."""
        return result.node in self.dead or self.untaken.get(result.node) == _index(result)

    def conditions_of(self, result: Reference) -> frozenset[Condition]:
        """The conditions under which a result is computed."""
        found = self.needed.get(result.node, frozenset())
        node = self.scope.nodes.get(result.node)
        if node is not None and node.op in SWITCH and result.node not in self.untaken:
            found |= {(str(self.root(node.inputs[1])), str(_index(result)))}
        return found

    def root(self, result: Reference) -> Reference:
        """Skip Identity nodes."""
        while (node := self.scope.nodes.get(result.node)) is not None and node.op in _SAME and node.inputs:
            result = node.inputs[0]
        return result

    def result(self, name: str, index: int) -> Reference:
        """A result of an operator whose results are the list `output`."""
        if self.scope.is_function:
            return Reference(name, f"output:{index}")
        return Reference(name, str(index) if index else "")


_SAME = frozenset({"Identity", "RefIdentity"})


def _index(result: Reference) -> int:
    return 1 if result.port in SECOND else 0


def analyze(
    scope: Scope,
    order: Sequence[Node],
    carried: Mapping[Reference, Carried],
    ranges: Mapping[str, Range],
    written: Written,
) -> Conditions:
    """Analyse the nodes of a scope.

    Args:
        scope: the scope.
        order: its nodes, each after what it reads.
        carried: the variables of the scope: nodes, or arguments of the function.
        ranges: what is known of arguments.
        written: what the functions that nodes call change.
    """
    found = Conditions(scope, carried=dict(carried), ranges=dict(ranges))
    for node in order:
        _mark_dead(found, node)
        if node.name in found.dead:
            continue
        _add_conditions(found, node)
        _add_range(found, node)
        _pass_on(found, node)
        _note_writes(found, node, written)
    return found


def _mark_dead(found: Conditions, node: Node) -> None:
    if any(name in found.dead for name in node.controls):
        found.dead.add(node.name)
    elif node.op in MERGE:
        # What comes from the next iteration is alive if the loop is entered.
        entered = [i for i, r in enumerate(node.inputs) if not _is_next_iteration(found.scope, r)]
        alive = [i for i in entered if not found.is_dead(node.inputs[i])]
        if not alive:
            found.dead.add(node.name)
        elif len(alive) == 1 and 1 < len(node.inputs) == len(entered):
            found.taken[node.name] = alive[0]
        elif len(alive) < len(entered):
            raise ModelFileError(f"{node.shown} merges several branches, some of which never run")
    elif any(map(found.is_dead, node.inputs)):
        found.dead.add(node.name)
    elif node.op in SWITCH and len(node.inputs) == 2:
        known = found.range_of(node.inputs[1])
        if known is not None and known.point is not None:
            found.untaken[node.name] = 0 if known.point else 1


def _is_next_iteration(scope: Scope, result: Reference) -> bool:
    node = scope.nodes.get(result.node)
    return node is not None and node.op in NEXT_ITERATION


def _add_conditions(found: Conditions, node: Node) -> None:
    results = [r for r in node.inputs if not (node.op in MERGE and _is_next_iteration(found.scope, r))]
    of_inputs = [found.conditions_of(r) for r in results if not found.is_dead(r)]
    own = frozenset().union(*(found.needed.get(name, frozenset()) for name in node.controls))
    if node.op in MERGE and len(of_inputs) == 2:
        own |= _merged(of_inputs[0], of_inputs[1], node.name)
    elif node.op in MERGE and len(of_inputs) > 2:
        own |= frozenset.intersection(*of_inputs) | {("merge", node.name)}
    else:
        own = own.union(*of_inputs)
    if node.op in ENTER:
        loop = ("loop", node.attribute("frame_name").s.decode(errors="replace"))
        found.outside[loop[1]] = found.outside.get(loop[1], frozenset()) | own
        own |= {loop}
    elif node.op in EXIT:
        loops = [name for kind, name in own if kind == "loop"]
        innermost = max(loops, key=lambda name: (len(found.outside.get(name, ())), name), default="")
        own = found.outside.get(innermost, own)
    if len(own) > _MOST_CONDITIONS:
        raise ModelFileError(f"{node.shown} is in more than {_MOST_CONDITIONS} branches and loops")
    if own:
        # The nodes of a branch share one set.
        found.needed[node.name] = found.sets.setdefault(own, own)


def _merged(one: frozenset[Condition], other: frozenset[Condition], name: str) -> frozenset[Condition]:
    """The conditions of a Merge: those of both inputs, if these differ in one branch only."""
    common = one & other
    rest = sorted([*(one - common), *(other - common)])
    if not rest or (len(rest) == 2 and rest[0][0] == rest[1][0] and rest[0][1] != rest[1][1]):
        return common
    return common | {("merge", name)}


def _add_range(found: Conditions, node: Node) -> None:
    if node.name in found.ranges:
        return
    known: Range | None = None
    if node.op == "Const":
        known = constant(node.attribute("value").tensor, node.shown)
    elif node.name in found.taken:
        known = found.range_of(node.inputs[found.taken[node.name]])
    elif node.name in found.untaken:
        known = found.range_of(node.inputs[0])
    elif node.op == "PlaceholderWithDefault" and node.inputs:
        known = found.range_of(node.inputs[0])
        known = known if known is not None and known.is_scalar else None
    else:
        known = infer_range(node, [found.range_of(r) for r in node.inputs])
    if known is not None:
        found.ranges[node.name] = known


def _pass_on(found: Conditions, node: Node) -> None:
    """Record the results of a node that are handles or references."""
    held = [found.carried.get(r) for r in node.inputs]
    if node.op in _LISTS:
        for index, carried in enumerate(held):
            if carried is not None and carried.is_handle:
                found.carried[found.result(node.name, index)] = carried
        return
    first = next((carried for carried in held if carried is not None), None)
    if first is None or node.op not in _PASSING or not (first.is_handle or node.op.startswith("Ref")):
        return
    second = ("1", "output_true:0") if node.op in SWITCH else ()
    for port in ("", "output:0", "output_false:0", *second):
        found.carried[Reference(node.name, port)] = first


def _note_writes(found: Conditions, node: Node, written: Written) -> None:
    changed = [
        carried.origin
        for index in (range(len(node.inputs)) if WRITERS.fullmatch(node.op) else written(node))
        if index < len(node.inputs) and (carried := found.carried.get(node.inputs[index])) is not None
    ]
    found.written.update(changed)
    before = [*(r.node for r in node.inputs), *node.controls]
    if changed or any(name in found.later for name in before):
        found.later.add(node.name)
