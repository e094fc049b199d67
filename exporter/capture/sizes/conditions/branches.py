"""Finds branches that the model's code takes at other sizes than the example's, from its conditions on sizes.

For each condition, the search looks for sizes at which it is false and all earlier conditions are true, so
that the code reaches the other branch. If the captured graph is valid at these sizes, the code may test
further conditions on that branch: the caller captures it with symbolic sizes, and these conditions are tried
in the same way.
"""

from __future__ import annotations

import ast
import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterator, Sequence

import sympy

from .critical_sizes import alternate, critical_points, critical_sizes
from .guards import Guard, Point, spread
from .python_expressions import python_expression

Failure = tuple[str, str]
"""The reason why the graph is not valid at some sizes, and the line."""

_FURTHEST = 1 << 20
_SIZES_OF_BRANCH = 64
_LEAST_VIOLATIONS, _MOST_VIOLATIONS = 3, 24
"""A condition of the user's code is irrelevant if the graph is valid at this many points that violate it."""
_MOST_POINTS = 400
"""The number of points that are searched for such violations."""
_NODES_OF_TRIALS = 4000
"""The number of operators that all trials of one such condition may run, beyond the fewest trials."""
_MOST_REPAIRED_POINTS, _MOST_STEPS_OF_REPAIR = 3, 12
"""The number of points that are changed until the earlier conditions hold, and the changes of each point."""
_NODES_OF_BRANCHES = 4000
_LEAST_BRANCHES, MOST_BRANCHES = 2, 8
"""The number of branches that are followed, and of the operators that all of them may have."""
_NODES_OF_SMALL_MODEL = 300
"""Branches at size 1 are followed, and trials repeated for every condition, up to this many operators."""
_MOST_REFUSALS = 6
"""The number of such points that the model itself refuses: a size far away may have another reason."""
OF_MODEL = "the model refuses other sizes"
_FIXED_NUMBER = "the model computes a Python number from these sizes"


@dataclasses.dataclass(frozen=True)
class Trials:
    """The trials of a captured graph at other sizes.

    Attributes:
        base: the sizes of the example.
        number_of_operators: how many operators one trial runs.
        limit: moves each size into the range that the caller declared.
        is_refused: whether a restriction already excludes a point.
        failure_at: the reason why the graph is not valid at a point; None if it is valid.
        valid_points: the points at which the graph has been found valid so far.
        restrict: adds a restriction: the condition, the failure, and the lines of the model that test it.
        is_restriction: whether a condition is a restriction already.
    """

    base: Point
    number_of_operators: int
    limit: Callable[[Point], dict[str, int]]
    is_refused: Callable[[Point], bool]
    failure_at: Callable[[Point], Failure | None]
    valid_points: Callable[[], Sequence[Point]]
    restrict: Callable[[str, Failure, Sequence[str]], None]
    is_restriction: Callable[[str], bool]

    @property
    def is_of_large_model(self) -> bool:
        """Whether a trial takes long, so that there are only few."""
        return self.number_of_operators > _NODES_OF_SMALL_MODEL


@dataclasses.dataclass(frozen=True)
class Branch:
    """A branch of the user's code on which the captured graph is valid.

    Attributes:
        point: sizes at which the code takes the branch.
        violated: the conditions that are true at the example's sizes and false on the branch.
        fixed_names: the dimensions that have one size on the branch, as where `n < 8` and `n > 8` are false.
    """

    point: Point
    violated: tuple[Guard, ...] = ()
    fixed_names: frozenset[str] = frozenset()


class BranchSearch:
    """Tries the conditions of the user's code, one branch after another.

    Attributes:
        unexplored: branches that the caller has not captured yet.
    """

    def __init__(self, trials: Trials):
        self._trials = trials
        self._tried: set[tuple[frozenset[sympy.Basic], sympy.Basic]] = set()
        most = _NODES_OF_BRANCHES // max(1, trials.number_of_operators)
        self._remaining_branches = min(max(_LEAST_BRANCHES, most), MOST_BRANCHES)
        self.unexplored: list[Branch] = []

    def try_branch(self, branch: Branch, conditions: Sequence[Guard]) -> None:
        """Try each condition of a branch at a point where the earlier conditions are true.

        Args:
            conditions: in the order in which the code tests them; all are true at the branch's point.
        """
        assumed = [_opposite(guard) for guard in branch.violated]
        for position, guard in enumerate(conditions):
            key = frozenset(violated_guard.expression for violated_guard in branch.violated), guard.expression
            if key in self._tried:
                continue
            self._tried.add(key)
            if self._is_restriction(guard) or (
                self._trials.is_of_large_model and is_about_one(guard, self._trials.base)
            ):
                continue
            point = self._violation(guard, [*assumed, *conditions[:position]], branch.point)
            if point is None:
                continue
            failure = self._trials.failure_at(point)
            if failure is None and guard.is_number:
                failure = _FIXED_NUMBER, guard.line
            if failure is not None:
                self._trials.restrict(_text([*branch.violated, guard]), failure, [guard.line])
            elif self._remaining_branches and max(point.values()) > 1:
                self._remaining_branches -= 1
                violated = (*branch.violated, guard)
                fixed_names = self._fixed_names(point, violated)
                self.unexplored.append(
                    Branch(point, (*violated, *_fixed_at_one(point, violated)), fixed_names)
                )

    def _fixed_names(self, point: Point, violated: Sequence[Guard]) -> frozenset[str]:
        """The dimensions of which no other size is on a branch and allowed by the restrictions."""
        fixed = set()
        for name in sorted({name for guard in violated for name in guard.names}):
            guards = [guard for guard in violated if guard.names == {name}]
            sizes = set(range(_SIZES_OF_BRANCH)).union(
                *(critical_sizes(guard, name, point, _FURTHEST) for guard in guards)
            )
            on_branch = [size for size in sizes if not any(guard.holds({name: size}) for guard in guards)]
            if [size for size in on_branch if not self._trials.is_refused({**point, name: size})] == [
                point[name]
            ]:
                fixed.add(name)
        return frozenset(fixed)

    def refuse(self, branch: Branch) -> None:
        """Restrict the sizes to those at which the code does not take a branch."""
        line = branch.violated[-1].line
        self._trials.restrict(_text(branch.violated), ("the model's branch is not known", line), [line])

    def repeat(self, guards: Sequence[Guard], asked: Collection[sympy.Basic]) -> None:
        """Try conditions at more points that violate them and that no restriction excludes.

        In a large model, each condition of the user's code has a trial at its own nearest change, and shares
        further ones. One of torch's kernels has one trial, as others of theirs have that are not repeated; so
        has a text: its length is another condition, so that several texts are tried.

        Args:
            asked: the conditions that the user's code tested.
        """
        affordable = _NODES_OF_TRIALS // max(1, self._trials.number_of_operators)
        count = min(max(_LEAST_VIOLATIONS, affordable), _MOST_VIOLATIONS)
        is_large = self._trials.is_of_large_model
        branching = [guard for guard in guards if guard.expression in asked and not guard.is_text]
        for guard in branching if is_large else []:
            self._try_violations(guard, 1, [])
        for guard in guards:
            shared = self._trials.valid_points() if is_large else []
            violations = [point for point in shared if 0 not in point.values() and not guard.holds(point)]
            has_one = is_large and guard not in branching
            self._try_violations(guard, 1 if has_one else count, violations)

    def _try_violations(self, guard: Guard, count: int, tried: Sequence[Point]) -> None:
        """Try a condition at further points until the graph is valid at `count` points that violate it.

        Args:
            tried: such points that are known.
        """
        if len(tried) >= count or self._is_restriction(guard):
            return
        valid_count = len(tried)
        refusals: list[Failure] = []
        for point in self._violations(guard, self._trials.base):
            # A model may refuse empty tensors for a reason unrelated to the condition.
            if 0 in point.values() or point in tried or self._trials.is_refused(point):
                continue
            failure = self._trials.failure_at(point)
            if failure is not None and failure[0].startswith(OF_MODEL):
                refusals.append(failure)
                if len(refusals) == _MOST_REFUSALS:
                    break
                continue
            if failure is not None:
                self._trials.restrict(guard.text, failure, [guard.line])
                if self._trials.is_refused(point):
                    continue
            valid_count += 1
            if valid_count == count:
                break
        if refusals and not valid_count:
            self._trials.restrict(guard.text, refusals[0], [guard.line])

    def _is_restriction(self, guard: Guard) -> bool:
        """Whether a restriction with the same text refuses all points at which a condition does not hold."""
        return guard.is_inequality and self._trials.is_restriction(guard.text)

    def _violations(self, guard: Guard, start: Point) -> Iterator[dict[str, int]]:
        """Points at which a condition does not hold."""
        critical = itertools.islice(critical_points(guard, start, _FURTHEST), _MOST_POINTS)
        # Another condition may be violated at the nearest change, so both sequences take turns.
        points = alternate(critical, itertools.islice(spread(start, guard.names), _MOST_POINTS))
        for point in map(self._trials.limit, points):
            if not guard.holds(point):
                yield point

    def _violation(self, guard: Guard, before: Sequence[Guard], start: Point) -> Point | None:
        """A point near `start` that violates one condition and meets the earlier ones, with few sizes of 1.

        torch treats sizes of 1 as constants, so that a capture there records fewer conditions.
        """

        def cost(point: Point) -> tuple[int, int]:
            sizes = list(point.values())
            return sizes.count(1), sum(size != start[name] for name, size in point.items())

        chosen: Point | None = None
        early_violations: list[Point] = []
        points, least = self._violations(guard, start), (0, 1)
        if is_about_one(guard, self._trials.base):
            points, least = (
                itertools.chain([self._trials.limit({**start, min(guard.names): 1})], points),
                (1, 1),
            )
        for point in points:
            if 0 in point.values() or guard.holds(point):
                continue
            if not all(earlier_guard.holds(point) for earlier_guard in before):
                if len(early_violations) < _MOST_REPAIRED_POINTS:
                    early_violations.append(point)
            elif chosen is None or cost(point) < cost(chosen):
                chosen = chosen if self._trials.is_refused(point) else point
                if chosen is not None and cost(chosen) <= least:
                    break
        if chosen is not None:
            return chosen
        repaired = (self._repair_point(point, [_opposite(guard), *before]) for point in early_violations)
        return next((point for point in repaired if point is not None), None)

    def _repair_point(self, point: Point, conditions: Sequence[Guard]) -> Point | None:
        """A point at which conditions hold, reached by changes of one size; None if none is reached."""
        visited = set()
        for _ in range(_MOST_STEPS_OF_REPAIR):
            violated = [guard for guard in conditions if not guard.holds(point)]
            if not violated:
                limited = self._trials.limit(point)
                is_allowed = limited == point and not self._trials.is_refused(point)
                return point if is_allowed else None
            visited.add(tuple(point.values()))
            choices = [
                choice
                for guard in violated[:2]
                for name in sorted(guard.names)
                for size in critical_sizes(guard, name, point, _FURTHEST)
                if guard.holds(choice := {**point, name: size}) and tuple(choice.values()) not in visited
            ]
            if not choices:
                return None
            point = min(choices, key=lambda choice: sum(not guard.holds(choice) for guard in conditions))
        return None


def is_about_one(guard: Guard, base: Point) -> bool:
    """Whether a condition on one dimension holds from size 2 on, as `n > 1`."""
    if len(guard.names) != 1:
        return False
    [name] = guard.names
    sizes = critical_sizes(guard, name, base, _FURTHEST)
    return all(guard.holds({**base, name: size}) for size in sizes)


def _fixed_at_one(point: Point, violated: Sequence[Guard]) -> Iterator[Guard]:
    """The conditions `size != 1` for the sizes of a point that are 1: torch treats these as constants."""
    symbols = {name: symbol for guard in violated for symbol, name in guard.dimensions.items()}
    about_one = {name for guard in violated if is_about_one(guard, dict(point)) for name in guard.names}
    for name, size in point.items():
        if size == 1 and name not in about_one:
            symbol = symbols.get(name) or sympy.Symbol(name, integer=True, positive=True)
            yield Guard(sympy.Ne(symbol, 1), {symbol: name}, "")


def _opposite(guard: Guard) -> Guard:
    return dataclasses.replace(guard, expression=sympy.Not(guard.expression))


def _text(guards: Sequence[Guard]) -> str:
    """The Python expression that is true if at least one of the conditions holds."""
    if len(guards) == 1:
        return guards[0].text
    conditions = [python_expression(guard.expression, guard.dimensions) for guard in guards]
    return ast.unparse(ast.BoolOp(ast.Or(), conditions))
