"""Finds the sizes for which a captured graph is valid, and the sizes of its values that are wrong elsewhere.

torch.export records its assumptions about dynamic sizes as guards, and assumes without a record that no size
is 0 or 1. Many assumptions do not affect the exported graph. So the search tries each one: it runs the model
and the captured graph on fake tensors at sizes that violate the assumption. If both run the same operators,
the graph is valid there too; sizes of its values that differ there become unknown. Otherwise the assumption
becomes a restriction of the export.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

import sympy
import torch

from ...captured_graph.code_lines import shown_line
from ...captured_graph.dimensions import SizeRestriction
from ...torch_boundary.fake_tensors import FakeTensor
from ...torch_boundary.size_questions import questions_of, trusts_form_for_one
from ...torch_boundary.symbolic_numbers import GuardOnDataDependentSymNode, Size
from ...torch_boundary.symbolic_sizes import ShapeEnv, definitions_of
from .conditions.branches import OF_MODEL, Branch, BranchSearch, Failure, Trials, is_about_one
from .conditions.critical_sizes import find_boundary, find_first_failure
from .conditions.general_side import point_of_other_sides
from .conditions.guards import Guard, Point
from .differences import OTHER_PATH, OTHER_RANK, difference, line_at
from .requests.example_sizes import leaf_at_sizes
from .short_loops import sizes_of_short_loops
from .size_limits import SizeLimits, declared_range, environment_of, sizes_at, sums_of_symbols
from .trials.neutral_calls import adds_neutral_call
from .trials.operator_trace import Trace, line_of_guard
from .trials.size_trials import LoopTooLong, NotRun, Tracer

_FURTHEST = 1 << 20
_MOST_OF_TWO = 8
"""The number of sizes of each of two dimensions that are tried in combination."""
_NEGATIVE_SIZE = "another dimension would have a negative size"
_ASSUMED_BY_TORCH = "torch.export assumed it"


class Search:
    """Finds the limits of a captured graph.

    Args:
        placeholders: per leaf of the call, its counterpart in the captured graph.
        values: the leaves that the graph was captured with.
        names: the name of each symbol.
        declared: by name, the caller's smallest and largest size, or None.
        sums: by name, the summands of a dimension that the caller declares to be a sum of others.

    Attributes:
        base: the sizes of the example by name.
        limits: the result.
    """

    def __init__(
        self,
        placeholders: Sequence[object],
        values: Sequence[object],
        names: Mapping[sympy.Symbol, str],
        declared: Mapping[str, tuple[int | None, int | None]],
        sums: Mapping[str, Sequence[str | int]],
    ):
        self._placeholders = placeholders
        self._values = values
        # A size that is a sum of others is never tried by itself: conditions on it are conditions on those.
        self._sums, self._declared_sums = sums_of_symbols(names, sums)
        self._names = {symbol: name for symbol, name in names.items() if symbol not in self._sums}
        self._declared = declared
        self.base = self._example()
        self._guards = list(self._read_guards())
        self.limits = SizeLimits(captured_sizes=self.base)
        self._tried: dict[tuple[int, ...], Failure | None] = {}
        self._knows_rows = True
        self._general_guards: list[Guard] = []

    def run(self, tracer: Tracer, until_general: bool = False) -> list[Branch]:
        """Find the limits; returns branches of the model's code to follow.

        Args:
            tracer: runs the model and the graph.
            until_general: stop if another capture may be valid for more sizes; the limits are partial then.
        """
        self._tracer = tracer
        self.limits.restrictions += self._declared_sums
        for name, (lower, upper) in self._declared.items():
            if name in self.base:
                self.limits.restrictions += declared_range(name, lower, upper)
        for guard in self._guards:
            if not self._is_bound(guard):
                self._try_relation(guard)
        if until_general and self._general_guards:
            point = point_of_other_sides(self._general_guards, self.base, self._point_at, self.limits)
            if point is not None:
                self.limits.general_points.insert(0, point)
                self.limits.is_partial = True
                return []
        small = [size for size in (1, 0) if not self._is_valid_for_all(size)]
        for name in self.base:
            self._search_below(name, small)
            self._search_above(name)
        for size in small:
            # Each dimension may have the size, but perhaps not all together.
            point = self._point_at(dict.fromkeys(self.base, size))
            failure = None if self.limits.refuse(point) else self._failure_at(point)
            if failure is not None:
                self._add_restriction(" or ".join(f"{name} > {size}" for name in self.base), failure, [])
        self._branches = BranchSearch(
            Trials(
                self.base,
                tracer.number_of_operators,
                self._point_at,
                self.limits.refuse,
                self._failure_at,
                lambda: [
                    dict(zip(self.base, sizes, strict=True))
                    for sizes, failure in self._tried.items()
                    if failure is None
                ],
                self._add_restriction,
                self._is_restriction,
            )
        )
        conditions = list(self._read_questions(environment_of(self._placeholders), {}))
        guards = [*conditions, *(guard for guard in self._guards if guard.has_floats)]
        distinct_guards = {guard.expression: guard for guard in reversed(guards)}.values()
        repeated = [guard for guard in distinct_guards if not guard.is_number]
        repeated = [guard for guard in repeated if not is_about_one(guard, self.base)]
        self._branches.repeat(repeated, {guard.expression for guard in conditions})
        # A text leads to no branch that another capture would show.
        self._branches.try_branch(Branch(self.base), [guard for guard in conditions if not guard.is_text])
        return self._take_unexplored()

    def conditions_on(self, placeholders: Sequence[object] | None) -> list[Guard] | None:
        """The conditions that the user's code tested in another capture; None without placeholders."""
        if placeholders is None:
            return None
        return list(self._read_questions(environment_of(placeholders), dict(self._symbols_of(placeholders))))

    def follow(self, tracer: Tracer, branches: Sequence[tuple[Branch, list[Guard] | None]]) -> list[Branch]:
        """Try the conditions of branches; returns further branches to follow.

        Args:
            tracer: runs the model and the graph.
            branches: each with the conditions on it; None if they are not known.
        """
        self._tracer = tracer
        for branch, conditions in branches:
            if conditions is None:
                self._branches.refuse(branch)
            else:
                self._branches.try_branch(branch, [guard for guard in conditions if not guard.is_text])
        return self._take_unexplored()

    def _take_unexplored(self) -> list[Branch]:
        """The branches found since the last call that no restriction excludes."""
        branches, self._branches.unexplored = self._branches.unexplored, []
        return [branch for branch in branches if not self.limits.refuse(branch.point)]

    def _symbols_of(self, placeholders: Sequence[object]) -> Iterator[tuple[sympy.Symbol, sympy.Expr]]:
        """Each symbol of another capture, with the corresponding size of the captured graph."""
        for counterpart, captured in zip(placeholders, self._placeholders, strict=True):
            if isinstance(counterpart, torch.Tensor) and isinstance(captured, torch.Tensor):
                for size, captured_size in zip(counterpart.shape, captured.shape, strict=True):
                    if isinstance(size, torch.SymInt) and isinstance(captured_size, torch.SymInt):
                        yield size.node.expr, captured_size.node.expr

    def values_at(self, point: Point) -> list[object]:
        """The leaves of the call at other sizes, with any values."""
        size_of = self._sizes_at(point)
        leaves = []
        for value, captured in zip(self._values, self._placeholders, strict=True):
            # Tensors without data stay such.
            with value.fake_mode if isinstance(value, FakeTensor) else contextlib.nullcontext():
                leaves.append(leaf_at_sizes(value, captured, size_of))
        return leaves

    def _example(self) -> dict[str, int]:
        """The sizes that the graph was captured with."""
        sizes: dict[str, int] = {}
        for value, captured in zip(self._values, self._placeholders, strict=True):
            if isinstance(value, torch.Tensor) and isinstance(captured, torch.Tensor):
                for size, dim in zip(value.shape, captured.shape, strict=True):
                    symbol = dim.node.expr if isinstance(dim, torch.SymInt) else None
                    if symbol in self._names:
                        sizes.setdefault(self._names[symbol], size)
        return sizes

    def _read_guards(self) -> Iterator[Guard]:
        environment = environment_of(self._placeholders)
        if environment is None:
            return
        definitions = definitions_of(environment)
        for guard in environment.guards:
            expression = environment.replace(guard.expr.xreplace(definitions)).xreplace(self._sums)
            symbols = expression.free_symbols
            if symbols and symbols <= self._names.keys():
                dimensions = {symbol: self._names[symbol] for symbol in sorted(symbols, key=str)}
                yield Guard(expression, dimensions, line_of_guard(guard))

    def _read_questions(
        self, environment: ShapeEnv | None, symbols: Mapping[sympy.Symbol, sympy.Expr]
    ) -> Iterator[Guard]:
        """The conditions on sizes that the user's code tested in a capture, in the form that is true there.

        Args:
            symbols: for each symbol of the capture the size of the captured graph, if they differ.
        """
        if environment is None:
            return
        definitions = definitions_of(environment)
        for condition, question in questions_of(environment).items():
            condition = condition.xreplace(definitions)
            expression = environment.replace(condition if question.answer else sympy.Not(condition))
            expression = expression.xreplace(symbols).xreplace(self._sums)
            names = expression.free_symbols
            if names and names <= self._names.keys():
                dimensions = {symbol: self._names[symbol] for symbol in sorted(names, key=str)}
                line = shown_line(question.file, question.line) if question.file else ""
                yield Guard(expression, dimensions, line, question.is_number, question.is_text)

    def _point_at(self, sizes: Point) -> dict[str, int]:
        """The example's sizes with some replaced, within the caller's range."""
        point = dict(self.base)
        for name, size in sizes.items():
            lower, upper = self._range(name)
            point[name] = max(lower, size if upper is None else min(size, upper))
        return point

    def _range(self, name: str) -> tuple[int, int | None]:
        lower, upper = self._declared.get(name, (None, None))
        return int(lower or 0), int(upper) if upper is not None and sympy.sympify(upper).is_Integer else None

    def _search_below(self, name: str, small: Sequence[int]) -> None:
        """Find the smallest valid size of a dimension: try where guards begin to fail, and sizes 1 and 0."""
        lower, _ = self._range(name)
        boundary = find_boundary(self._meets_bounds(name), self.base[name], lower)
        smallest_valid = self.base[name] if boundary is None else boundary + 1
        boundary = None if boundary is None else self._next_allowed(name, boundary, lower)
        for size in dict.fromkeys([*([] if boundary is None else [boundary]), *small]):
            if not lower <= size < smallest_valid or self._is_excluded(name, size):
                continue
            if self._failure_at(self._point_at({name: size})) is None:
                smallest_valid = size
                continue
            if boundary is not None and size < boundary:
                # Most models fail only at the smallest sizes.
                next_size = self._next_allowed(name, size + 1, boundary)
                if next_size is None or self._failure_at(self._point_at({name: next_size})) is not None:
                    size = self._first_failure(name, boundary, size) or size
            self._restrict(name, size, f"{name} >= {size + 1}")
            return

    def _search_above(self, name: str) -> None:
        """Find the largest valid size of a dimension: try where guards begin to fail, and far beyond."""
        _, upper = self._range(name)
        end = _FURTHEST if upper is None else upper
        boundary = find_boundary(self._meets_bounds(name), self.base[name], end)
        if boundary is None:
            return
        for size in (
            self._next_allowed(name, boundary, end),
            self._next_allowed(name, min(4 * boundary, end), end),
        ):
            if size is not None and self._failure_at(self._point_at({name: size})) is not None:
                first = self._first_failure(name, boundary - 1, size) or size
                self._restrict(name, self._next_allowed(name, first, end) or size, f"{name} <= {first - 1}")
                return

    def _first_failure(self, name: str, start: int, end: int) -> int | None:
        """The first size from `start` towards `end` at which, or at the next allowed one, the graph fails."""

        def passes(size: int) -> bool:
            allowed_size = self._next_allowed(name, size, end)
            return allowed_size is None or self._failure_at(self._point_at({name: allowed_size})) is None

        guards = [guard for guard in self._guards if guard.names == {name}]
        return find_first_failure(passes, guards, name, start, end)

    def _next_allowed(self, name: str, size: int, end: int) -> int | None:
        """The first size from `size` towards `end` that no restriction excludes; None if there is none."""
        step = 1 if end >= size else -1
        reach = min(abs(end - size), max((guard.period for guard in self._guards), default=1))
        sizes = range(size, size + step * (reach + 1), step)
        return next((candidate for candidate in sizes if not self._is_excluded(name, candidate)), None)

    def _meets_bounds(self, name: str) -> Callable[[int], bool]:
        """The function that says whether a size of a dimension satisfies its bounds."""
        guards = [guard for guard in self._guards if guard.names == {name} and self._is_bound(guard)]
        return lambda size: all(guard.holds(self._point_at({name: size})) for guard in guards)

    def _is_excluded(self, name: str, size: int) -> bool:
        """Whether a restriction already excludes a size."""
        return self.limits.refuse(self._point_at({name: size}))

    def _is_restriction(self, condition: str) -> bool:
        return any(restriction.condition == condition for restriction in self.limits.restrictions)

    def _is_valid_for_all(self, size: int) -> bool:
        """Whether the graph is valid if all dimensions have this size; then none is tried alone."""
        if size == 0 and self._tracer.infers_sizes:
            return False
        # A size that is not compared would hide the others at 1.
        if size == 1 and any(map(trusts_form_for_one, self.base)):
            return False
        point = self._point_at(dict.fromkeys(self.base, size))
        return not self.limits.refuse(point) and self._failure_at(point) is None

    def _restrict(self, name: str, size: int, condition: str) -> None:
        point = self._point_at({name: size})
        failure = self._failure_at(point)
        if failure is not None:
            guard_lines = [guard.line for guard in self._guards if not guard.holds(point)]
            self._add_restriction(condition, failure, guard_lines)

    def _is_bound(self, guard: Guard) -> bool:
        """Whether a guard holds for all sizes of its dimension above or below the example's."""
        if guard.is_inequality:
            return True
        [name] = guard.names if len(guard.names) == 1 else [""]
        if not name:
            return False
        base, distances = self.base[name], guard.distances
        smaller = [base - step for step in reversed(distances) if step <= base]
        below = [guard.holds({**self.base, name: n}) for n in (*smaller, base)]
        above = [guard.holds({**self.base, name: n}) for n in (base, *(base + d for d in distances))]
        return below == sorted(below) and above == sorted(above, reverse=True)

    def _try_relation(self, guard: Guard) -> None:
        """Try a guard that is not a bound of one dimension: a remainder, or a relation of several dimensions.

        The points are preferably those at which the other guards hold, and never those that a restriction
        already excludes: what follows from other restrictions is not a restriction. An inequality is tried
        where its sides are equal, and then beyond, because both forms may run the same operators where they
        are equal: for m == n, the slice `x[:m]` has all n rows of x.
        """
        is_tried, number = False, len(self.limits.general_points)
        for count, points in self._nearby_points(guard):
            if is_tried and count > 1:
                return
            points = [point for point in points if not guard.holds(point)]
            points.sort(key=lambda p: sum(not other_guard.holds(p) for other_guard in self._guards))
            point = self._first_allowed(points, guard)
            failure = None if point is None else self._failure_at(point)
            if point is not None and failure is None and guard.has_equal_sides(point):
                guard = guard.including_equality()
                point = self._first_allowed(points, guard)
                failure = None if point is None else self._failure_at(point)
            if failure is not None:
                if len(self.limits.general_points) > number:
                    self._general_guards.append(guard)
                self._add_restriction(guard.text, failure, [guard.line])
                return
            is_tried = is_tried or point is not None

    def _nearby_points(self, guard: Guard) -> Iterator[tuple[int, list[Point]]]:
        """Points near the example's sizes: first those that differ in one dimension, then in two."""
        near = {
            name: [
                size
                for step in guard.distances
                for size in (self.base[name] + step, self.base[name] - step)
                if size >= 2
            ]
            for name in sorted(guard.names)
        }
        for name, sizes in near.items():
            yield 1, [self._point_at({name: size}) for size in sizes]
        for first, second in itertools.combinations(near, 2):
            pairs = itertools.product(near[first][:_MOST_OF_TWO], near[second][:_MOST_OF_TWO])
            yield 2, [self._point_at({first: size, second: second_size}) for size, second_size in pairs]

    def _first_allowed(self, points: Sequence[Point], guard: Guard) -> Point | None:
        """The first point at which a guard does not hold and that no restriction refuses."""
        return next((p for p in points if not guard.holds(p) and not self.limits.refuse(p)), None)

    def _add_restriction(self, condition: str, failure: tuple[str, str], guard_lines: Sequence[str]) -> None:
        reason, line = failure
        line = next((guard_line for guard_line in guard_lines if guard_line), line)
        restriction = SizeRestriction(condition, reason, line)
        if restriction not in self.limits.restrictions:
            self.limits.restrictions.append(restriction)
            if not reason.startswith(OF_MODEL):
                self.limits.unlike_model.append(restriction)

    def _failure_at(self, point: Point) -> Failure | None:
        """The reason why the graph is not valid at these sizes, and the line; None if it is valid."""
        if any(size == 1 and trusts_form_for_one(name) for name, size in point.items()):
            return None
        key = tuple(point.values())
        if key not in self._tried:
            self._tried[key] = self._compare(point)
        return self._tried[key]

    def _compare(self, point: Point) -> Failure | None:
        # A size that torch derived from others, such as `n - 1`, may be negative.
        size_of = self._sizes_at(point)
        tensors = [tensor for tensor in self._placeholders if isinstance(tensor, torch.Tensor)]
        if any((size_of(size) or 0) < 0 for tensor in tensors for size in tensor.shape):
            return _NEGATIVE_SIZE, ""
        model, graph = self._traces(point)
        if isinstance(model.error, LoopTooLong):
            short = self._with_short_loops(point)
            if short is not None:
                return self._failure_at(short)
        failure = difference(model, graph)
        if failure is None and model.results != graph.results and self._has_same_results:
            failure = OTHER_PATH, line_at(model, len(model.steps))
        if failure is not None and adds_neutral_call(model.steps, graph.steps):
            changed = {name: size for name, size in point.items() if size != self.base[name]}
            self.limits.general_points.append(changed)
        if failure is None:
            self._is_comparable = True
            for name, axes in graph.differing_axes.items():
                self.limits.unproven.setdefault(name, set()).update(axes)
        if failure is not None and not self._is_comparable:
            if graph.other_rank is not None:
                return OTHER_RANK, ""
            if self._tracer.has_other_results(model, graph):
                return failure
            # The trial at the example's sizes may raise an exception too, such as for a value that the model
            # reads from a fake tensor. An exception of another type comes from the sizes of this trial.
            is_raised = model.error is not None and not isinstance(model.error, NotRun)
            if is_raised and type(model.error) is not type(self._base_traces[0].error):
                return failure
            # The model and the graph differ even at the example's sizes, so trials say nothing: rely on
            # torch.export's assumptions.
            assumed = all(guard.holds(point) for guard in self._assumptions)
            return None if assumed else (_ASSUMED_BY_TORCH, "")
        return failure

    @functools.cached_property
    def _assumptions(self) -> list[Guard]:
        """The guards that must hold where trials say nothing.

        A kernel of torch that asks if two sizes are equal wants to know whether a reshape copies. That
        changes no result where nothing is written to.
        """
        questions = self._read_questions(environment_of(self._placeholders), {})
        asked_by_user = {question.expression for question in questions}
        return [
            guard
            for guard in self._guards
            if self._tracer.mutates
            or guard.expression.func is not sympy.Ne
            or guard.expression in asked_by_user
        ]

    def _with_short_loops(self, point: Point) -> Point | None:
        """Sizes at which the conditions have the same answers and no loop is too long to be run."""
        return sizes_of_short_loops(
            point, self._guards, lambda sizes: self._tracer.has_long_loop(self._sizes_at(sizes))
        )

    @functools.cached_property
    def _base_traces(self) -> tuple[Trace, Trace]:
        return self._traces(self._with_short_loops(self.base) or self.base)

    @functools.cached_property
    def _is_comparable(self) -> bool:
        """Whether model and graph run the same operators at the example's own sizes."""
        model, graph = self._base_traces
        is_same = model.error is None and difference(model, graph) is None
        if not is_same:
            self._tracer.check_results(model, graph)
        return is_same

    @functools.cached_property
    def _has_same_results(self) -> bool:
        """Whether model and graph return the same at the example's sizes, so that results are comparable."""
        model, graph = self._base_traces
        return model.results == graph.results

    def _sizes_at(self, point: Point) -> Callable[[Size], int | None]:
        """A function from symbolic sizes to their values at a point, or None."""
        return sizes_at(point, self._names, self._sums, environment_of(self._placeholders))

    def _traces(self, point: Point) -> tuple[Trace, Trace]:
        run = functools.partial(self._tracer.run, lambda: self.values_at(point), self._sizes_at(point))
        knows_rows = self._knows_rows and self._tracer.has_rows
        traces = run(knows_rows=knows_rows)
        if knows_rows and difference(*traces) is not None:
            # The recording may have fixed a number of rows at another one.
            of_any_rows = run()
            self._knows_rows = difference(*of_any_rows) is not None
            is_decision = isinstance(of_any_rows[0].error, GuardOnDataDependentSymNode)
            return traces if is_decision and traces[0].error is None else of_any_rows
        return traces
