"""The sizes for which an export is valid, and what torch has recorded about sizes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence

import sympy
import torch

from ...captured_graph.dimensions import SizeRestriction, evaluate
from ...torch_boundary.symbolic_numbers import Size
from ...torch_boundary.symbolic_sizes import ShapeEnv, definitions_of
from .conditions.guards import Point
from .trials.operator_trace import line_of_guard

DECLARED = "dynamic_shapes declares it"
"""The reason for a restriction that the caller asked for."""
_PART_OF_PROGRAM = "the range of the ExportedProgram"


@dataclasses.dataclass
class SizeLimits:
    """The sizes for which a captured graph is valid, as `Search` finds them.

    Attributes:
        restrictions: conditions that sizes must meet for the graph to be valid.
        unlike_model: the restrictions that the model itself does not have; the caller is warned of them.
        unproven: axes of values whose size in the graph is not reliable, by name of the value.
        general_points: sizes at which the model calls an operator that is not in the graph, because the model
            does not call it at the example's sizes, where it would change nothing. A capture at one of these
            sizes may be valid for both.
        is_partial: whether the search stopped at the first such sizes.
        captured_sizes: the sizes of the captured dimensions.
        sides: the limits of the captures of the model's other branches, see `RecordedProgram`.
        has_more_sides: whether the model has more branches on sizes than the export keeps.
    """

    restrictions: list[SizeRestriction] = dataclasses.field(default_factory=list)
    unlike_model: list[SizeRestriction] = dataclasses.field(default_factory=list)
    unproven: dict[str, set[int]] = dataclasses.field(default_factory=dict)
    general_points: list[Point] = dataclasses.field(default_factory=list)
    is_partial: bool = False
    captured_sizes: Point = dataclasses.field(default_factory=dict)
    sides: dict[int, SizeLimits] = dataclasses.field(default_factory=dict)
    has_more_sides: bool = False

    def add_side(self, position: int, limits: SizeLimits) -> None:
        """Take over the restrictions of another side: which side a call takes depends on its values."""
        self.sides[position] = limits
        for ours, theirs in (
            (self.restrictions, limits.restrictions),
            (self.unlike_model, limits.unlike_model),
        ):
            ours += [entry for entry in theirs if entry not in ours]

    def refuse(self, sizes: Point) -> bool:
        """Whether a restriction excludes these sizes.

        A condition without a value, such as a division by 0, refuses nothing: another one excludes its sizes.
        """
        values = (evaluate(restriction.condition, sizes) for restriction in self.restrictions)
        return any(value is not None and not value for value in values)


def lines_of_equality(placeholders: Sequence[object], symbol: object) -> str:
    """The lines of the model that make other sizes equal to one, as the end of a sentence."""
    environment = environment_of(placeholders)
    if environment is None:
        return ""
    lines = [
        line_of_guard(guard)
        for guard in environment.guards
        if isinstance(guard.expr, sympy.Eq)
        and all(side.is_Symbol for side in guard.expr.args)
        and environment.replace(guard.expr.args[0]) == environment.replace(guard.expr.args[1]) == symbol
    ]
    distinct_lines = [line for line in dict.fromkeys(lines) if line]
    return f" at {', '.join(distinct_lines)}" if distinct_lines else ""


def limits_of_program(program: torch.export.ExportedProgram, names: Mapping[sympy.Symbol, str]) -> SizeLimits:
    """The limits of a given `ExportedProgram`: the ranges that it was exported for."""
    limits = SizeLimits()
    for symbol, bounds in program.range_constraints.items():
        name = names.get(symbol)
        if name is not None:
            # 2 is the smallest size that torch.export assumes by default.
            limits.restrictions += declared_range(name, bounds.lower if bounds.lower > 2 else 0, bounds.upper)
    limits.restrictions = [dataclasses.replace(r, reason=_PART_OF_PROGRAM) for r in limits.restrictions]
    return limits


def declared_range(name: str, lower: int | None, upper: int | None) -> Iterator[SizeRestriction]:
    """The restrictions of a dimension to the range that the caller gives."""
    if lower is not None and int(lower) > 0:
        yield SizeRestriction(f"{name} >= {int(lower)}", DECLARED)
    if upper is not None and sympy.sympify(upper).is_Integer:
        yield SizeRestriction(f"{name} <= {int(upper)}", DECLARED)


def environment_of(placeholders: Sequence[object]) -> ShapeEnv | None:
    """The record of torch's assumptions about sizes, if any size is dynamic."""
    for tensor in placeholders:
        for size in tensor.shape if isinstance(tensor, torch.Tensor) else ():
            if isinstance(size, torch.SymInt):
                environment: ShapeEnv = size.node.shape_env
                return environment
    return None


def sizes_at(
    point: Point,
    names: Mapping[sympy.Symbol, str],
    sums: Mapping[sympy.Symbol, sympy.Expr],
    environment: ShapeEnv | None,
) -> Callable[[Size], int | None]:
    """A function that computes symbolic sizes at a point; None for a size that is unknown there.

    Args:
        sums: the sum of symbols for the symbol of each declared sum.
        environment: the record of the sizes.
    """
    sizes = {symbol: sympy.Integer(point[name]) for symbol, name in names.items() if name in point}
    definitions = definitions_of(environment)

    # Hundreds of sizes of a model are computed from a few definitions.
    @functools.cache
    def definition_at_point(symbol: sympy.Symbol) -> sympy.Expr:
        return definitions[symbol].xreplace(sums).xreplace(sizes)

    @functools.cache
    def value_of(expression: sympy.Expr) -> int | None:
        symbols = expression.free_symbols & definitions.keys()
        computed = {symbol: definition_at_point(symbol) for symbol in symbols}
        value = expression.xreplace(sums).xreplace({**sizes, **computed})
        return int(value) if value.is_Integer else None

    return lambda size: size if isinstance(size, int) else value_of(size.node.expr)


def sums_of_symbols(
    names: Mapping[sympy.Symbol, str], sums: Mapping[str, Sequence[str | int]]
) -> tuple[dict[sympy.Symbol, sympy.Expr], list[SizeRestriction]]:
    """The sum of symbols for the symbol of each declared sum, and the declarations as restrictions."""
    symbols: dict[str | int, sympy.Symbol] = {name: symbol for symbol, name in names.items()}
    expressions, restrictions = {}, []
    for name, summands in sums.items():
        # A dimension that the model makes equal to others has no symbol.
        if name in symbols and all(isinstance(summand, int) or summand in symbols for summand in summands):
            expressions[symbols[name]] = sympy.Add(*(symbols.get(summand, summand) for summand in summands))
            condition = f"{name} == {' + '.join(map(str, summands))}"
            restrictions.append(SizeRestriction(condition, DECLARED))
    return expressions, restrictions
