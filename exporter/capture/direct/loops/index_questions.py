"""Answers comparisons that depend on the indices of loops, if they hold in all iterations."""

from __future__ import annotations

import sympy
import torch

from .....registration.size_algebra.polynomials import Bounds, Polynomial, decide
from ....torch_boundary.size_questions import user_frame
from ...sizes.trials.recorded_answers import current_line
from ..sizes.environment import SizeEnvironment
from ..sizes.nodes import SizeNode
from .recorded_loops import Number, RecordedLoop

_OPPOSITES = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le"}
_ZERO = Polynomial.of_number(0)


class IndexQuestions:
    """What the code of a recording asks about the indices of its loops."""

    def __init__(self, environment: SizeEnvironment):
        self._environment = environment
        self._indices: dict[int, tuple[RecordedLoop, int]] = {}
        """By the atom of an index, its loop and the number of its iteration; inner loops after outer ones."""
        self._symbols: dict[int, sympy.Symbol] = {}

    def add_index(self, index: torch.SymInt, loop: RecordedLoop, iteration: int) -> None:
        """Add the index of an iteration."""
        [atom] = self.polynomial(index).atoms
        self._indices[atom] = (loop, iteration)
        self._symbols[atom] = index.node.expr

    def polynomial(self, number: Number) -> Polynomial[int]:
        """The polynomial of a size, an index or a number."""
        if isinstance(number, int):
            return Polynomial.of_number(number)
        polynomial: Polynomial[int] = self._environment.adopt(number.node).polynomial
        return polynomial

    def depends_on_index(self, number: Number) -> bool:
        """Whether a number depends on the index of any loop."""
        return bool(self._indices_in(self.polynomial(number)))

    def is_positive(self, number: Number) -> bool:
        """Whether a number is at least 1 in all iterations, and for all sizes."""
        return self._is_always("gt", self.polynomial(number), is_later=False)

    def is_first_larger(self, first: Polynomial[int], second: Polynomial[int]) -> bool | None:
        """Whether the first of two numbers is at least the second one in all iterations.

        False if the second one is at least the first one; None if neither holds, or no index is in them.
        """
        difference = first - second
        if self._indices_in(difference):
            for relation, answer in (("ge", True), ("le", False)):
                if self._is_always(relation, difference, is_later=False):
                    return answer
        return None

    def answer(self, node: SizeNode, *, refuses: bool = False) -> bool | None:
        """The value of a comparison that depends on an index, if it is the same in all iterations.

        Args:
            node: a symbolic boolean, or an integer that Python code needs as a number.
            refuses: raise an error if there is no such value.

        Raises:
            LoopRefused: `refuses` is set, and it differs between iterations.
        """
        difference = _difference(node)
        indices = [] if difference is None else self._indices_in(difference)
        if not indices:
            # A quotient or a remainder is an atom of its own.
            symbols = node.expr.free_symbols if refuses else set()
            indices = [index for index in reversed(self._indices) if self._symbols[index] in symbols]
            difference = None
        if not indices:
            return None
        if node.relation is not None and difference is not None:
            relation = node.relation[0]
            answer = self._answer_for_all(relation, difference, is_later=False)
            is_first = [index for index in indices if self._indices[index][1] == 0]
            if answer is None and is_first and user_frame() is None:
                # A kernel of torch asks for shapes, which are those of later iterations.
                answer = self._answer_for_all(relation, difference, is_later=True)
            elif answer is None and refuses and not self._indices[indices[0]][0].has_conditions:
                answer = self._answer_for_first(relation, difference, is_first)
            if answer is not None:
                return answer
        if not refuses:
            return None
        loop, _ = self._indices[indices[0]]
        if node.relation is None:
            raise loop.refuse(f"needs its index as a Python number: {current_line()}")
        raise loop.refuse(
            f"does not do the same in every iteration: {current_line()}. A condition on the index may only "
            "tell the first iteration from the others"
        )

    def _indices_in(self, polynomial: Polynomial[int]) -> list[int]:
        """The atoms of a polynomial that are indices, those of inner loops first."""
        return [index for index in reversed(self._indices) if index in polynomial.atoms]

    def _answer_for_first(
        self, relation: str, difference: Polynomial[int], indices: list[int]
    ) -> bool | None:
        """The relation of an expression to 0 in the first iteration of a loop, which then differs."""
        for index in indices:
            loop, _ = self._indices[index]
            at_start = difference.substitute({index: self.polynomial(loop.start)})
            answer = self._answer_for_all(relation, at_start, is_later=False)
            if answer is not None:
                loop.first_is_special = True
                return answer
        return None

    def _answer_for_all(self, relation: str, difference: Polynomial[int], *, is_later: bool) -> bool | None:
        """The relation of an expression to 0 if it is the same in all iterations.

        Args:
            is_later: leave out the first iteration, also where the question is asked in it.
        """
        if relation in ("eq", "ne"):
            differs = any(self._is_always(name, difference, is_later=is_later) for name in ("lt", "gt"))
            if differs or self._indices_in(difference):
                return (relation == "ne") if differs else None
            return decide(relation, difference, _ZERO, self._bounds)
        if self._is_always(relation, difference, is_later=is_later):
            return True
        return False if self._is_always(_OPPOSITES[relation], difference, is_later=is_later) else None

    def _is_always(self, relation: str, difference: Polynomial[int], *, is_later: bool) -> bool:
        """Whether an expression has a relation to 0 for all values of its indices."""
        indices = self._indices_in(difference)
        if not indices:
            return decide(relation, difference, _ZERO, self._bounds) is True
        # The bounds of an inner loop may depend on the index of the outer one, which is replaced next.
        index = indices[0]
        if max(monomial.count(index) for monomial in difference.terms) > 1:
            return False
        loop, iteration = self._indices[index]
        first = self.polynomial(loop.start) + Polynomial.of_number(
            loop.step * (1 if is_later else min(iteration, 1))
        )
        last = self.polynomial(loop.stop) - Polynomial.of_number(1 if loop.step > 0 else -1)
        is_alone = all(term == (index,) or index not in term for term in difference.terms)
        factor = difference.terms.get((index,), 0) if is_alone else 0
        highest, lowest = (last, first) if factor * loop.step > 0 else (first, last)
        # The highest value decides whether all are negative, whether there is one iteration or many.
        ends = [first, last] if factor == 0 else [highest if relation in ("lt", "le") else lowest]
        values = [difference.substitute({index: end}) for end in ends]
        return all(self._is_always(relation, value, is_later=is_later) for value in values)

    def _bounds(self, polynomial: Polynomial[int]) -> Bounds:
        return self._environment.bounds(polynomial)


def _difference(node: SizeNode) -> Polynomial[int] | None:
    """The difference of the sides of a comparison, or an integer itself; None for other numbers."""
    if node.relation is None:
        polynomial: Polynomial[int] | None = node.polynomial
        return polynomial
    sides = node.relation[1:]
    if len(sides) != 2 or any(side.polynomial is None for side in sides):
        return None
    difference: Polynomial[int] = sides[0].polynomial - sides[1].polynomial
    return difference
