"""The sizes of a direct capture: torch's `ShapeEnv`, in which polynomials answer most questions."""

from __future__ import annotations

import inspect
import traceback
import types
from collections.abc import Sequence
from typing import Any

import sympy
import torch

from .....registration.size_algebra.polynomials import Bounds, Polynomial, decide
from ....torch_boundary import symbolic_numbers as numbers
from ....torch_boundary.size_questions import note, user_frame
from ....torch_boundary.symbolic_sizes import FLOAT_ARITHMETIC, INTEGER_DIVISION, FloorDiv
from ...sizes.trials.operator_trace import is_internal
from ..checks import is_caught
from .atom_bounds import bounds_without_quotients, smallest_values
from .divisions import (
    multiples_in,
    quotient_of_multiple,
    remainder,
    rounded_up,
    short_quotient,
)
from .nodes import SizeNode
from .rounded_numbers import RoundedNumbers


class SizeEnvironment(numbers.ShapeEnv):  # type: ignore[misc]
    """Makes symbolic numbers, and keeps the ranges, equalities and guards of their symbols.

    Attributes:
        definitions: for the symbol of a number that was rounded from a long expression, this expression.
        facts: counts the ranges and replacements learned; undecided comparisons are retried when it grows.
        numbers: the nodes of constant integers.
        fixing: the stack of the call that first fixed a symbol at one number.
        is_fixed_by_conversion: whether a symbol was fixed because code converted a size to a number.
        loops: answers questions about the index of a loop over a dynamic size.
        whiles: decides whether a `while` over a dynamic size goes on.
        keeps_ones: whether a computed size that is 1 in the example stays dynamic, where torch can go on
            without knowing that it is 1.
        has_kept_ones: whether there was such a size.
        remainders: the divisors of the numbers that are remainders of divisions by positive numbers.
        positive_remainders: those that are not 0 at the example's sizes, and of which the model asked that.
    """

    def __init__(self, **settings: Any):
        self._rounded = RoundedNumbers(self)
        self.definitions = self._rounded.definitions
        self.keeps_ones = False
        self.has_kept_ones = False
        self.facts = 0
        self.remainders: dict[SizeNode, int] = {}
        self.positive_remainders: set[SizeNode] = set()
        self.numbers: dict[int, SizeNode] = {}
        self.fixing: traceback.StackSummary | None = None
        self.is_fixed_by_conversion = False
        self._converts = False
        self.loops: Any = None
        self.whiles: Any = None
        self._atoms: dict[sympy.Basic, int] = {}
        self._expressions: list[sympy.Basic] = []
        self._atom_bounds: dict[int, Bounds] = {}
        self._bounds: dict[Polynomial[int], Bounds] = {}
        self._written_expressions: dict[Polynomial[int], sympy.Basic] = {}
        self._polynomials: dict[sympy.Basic, Polynomial[int]] = {}
        self._sizes: dict[Polynomial[int], SizeNode] = {}
        self._other_nodes: dict[tuple[Any, ...], SizeNode] = {}
        self._all_nodes: list[SizeNode] = []
        self._multiples: dict[int, Polynomial[int]] = {}
        self._smallest_values: dict[int, int] = {}
        self._atoms_of_multiples: dict[int, Polynomial[int] | None] = {}
        super().__init__(**settings)

    # Numbers.

    def number(self, number: int) -> SizeNode:
        """The node of a constant integer."""
        node = self.numbers.get(number)
        if node is None:
            new_node = SizeNode(self, int, number, polynomial=Polynomial.of_number(number), constant=number)
            node = self.numbers[number] = new_node
        return node

    def truth(self, value: bool) -> SizeNode:
        """The node of a constant boolean."""
        node = self.constant(sympy.true if value else sympy.false, bool, value)
        node.answer = value
        return node

    def constant(self, expression: sympy.Basic, pytype: type, value: float | bool) -> SizeNode:
        """The node of a constant float or boolean."""
        key = (pytype, value)
        if key not in self._other_nodes:
            self._other_nodes[key] = SizeNode(self, pytype, value, expression=expression, constant=value)
        return self._other_nodes[key]

    def size(self, polynomial: Polynomial[int]) -> SizeNode:
        """The node of the integer that a polynomial gives."""
        node = self._sizes.get(polynomial)
        if node is None:
            try:
                hint = polynomial.value(self._hint_of_atom)
            except LookupError:
                hint = None
            node = SizeNode(self, int, hint, polynomial=polynomial)
            self._sizes[polynomial] = node
            self._all_nodes.append(node)
        return node

    def relation_node(self, name: str, operands: Sequence[SizeNode]) -> SizeNode:
        """The node of a comparison, or of a connection of booleans."""
        key = (name, *operands)
        node = self._other_nodes.get(key)
        if node is None:
            hints = [operand._hint for operand in operands]
            hint = None if None in hints else bool(numbers.operator_of(name)(*hints))
            node = self._other_nodes[key] = SizeNode(self, bool, hint, relation=key)
            self._all_nodes.append(node)
        return node

    def operation_node(self, name: str, operands: Sequence[SizeNode]) -> SizeNode:
        """The node of an operation's result, as sympy writes it."""
        short_form = self._short_form(name, operands)
        if short_form is not None:
            return self.size(short_form)
        expressions = [operand.expr for operand in operands]
        pytype = numbers.result_type(name, operands)
        if name in FLOAT_ARITHMETIC and pytype is float:
            expression = FLOAT_ARITHMETIC[name](*expressions)
        elif name == "mod" and all(self._is_nonnegative(operand) for operand in operands):
            expression = numbers.Mod(*expressions)
        elif name in INTEGER_DIVISION:
            expression = INTEGER_DIVISION[name](*expressions)
        elif name == "floor":
            expression = numbers.apply_operation(name, [self._simplify_floor_div(expressions[0])])
        else:
            expression = numbers.apply_operation(name, expressions)
        hints = [operand._hint for operand in operands]
        hint = None if None in hints else pytype(numbers.operator_of(name)(*hints))
        return self._node(expression, pytype, hint)

    def _short_form(self, name: str, operands: Sequence[SizeNode]) -> Polynomial[int] | None:
        """The polynomial of a quotient or remainder, where sympy's expression would be nested."""
        if name == "ceil":
            return rounded_up(self, operands[0].expr)
        polynomials = [operand.polynomial for operand in operands]
        if name not in _SHORTENED or None in polynomials:
            return None
        if name in ("sym_max", "sym_min"):
            first, second = polynomials
            is_larger = decide("ge", first, second, self._bounds_from_zero)
            if is_larger is None and self.loops is not None:
                # The end of a block of one token, `min(i + 1, length)`, is `i + 1` in a loop over the length.
                is_larger = self.loops.questions.is_first_larger(first, second)
            return None if is_larger is None else polynomials[is_larger is not (name == "sym_max")]
        dividend, divisor = polynomials
        if divisor.number is None:
            low, _ = self.bounds(divisor)
            quotient = self.reduce(dividend).divide(self.reduce(divisor))
            if quotient is None or low is None or low <= 0:
                return None
            return quotient if name == "int_floordiv" else Polynomial.of_number(0)
        if divisor.number is None or divisor.number <= 0:
            return None
        return (remainder if name == "mod" else short_quotient)(self, dividend, divisor.number)

    def adopt(self, node: Any) -> SizeNode:
        """The environment's node for a number."""
        if isinstance(node, SizeNode) and node.shape_env is self:
            return node
        if node.constant is not None and node.pytype is int:
            return self.number(node.constant)
        return self._node(node._expr, node.pytype, node._hint)

    def keep(self, node: SizeNode) -> None:
        """Register a number, so that later replacements are applied to it."""
        self._all_nodes.append(node)

    def _node(self, expression: sympy.Basic, pytype: type, hint: Any) -> SizeNode:
        expression = self.replace(expression)
        if pytype is int:
            expression = self._rounded.shorten(expression, hint)
        polynomial = self.polynomial(expression) if pytype is int else None
        if polynomial is not None and self.expression_of(polynomial) == expression:
            return self.size(polynomial)
        key = (expression, pytype)
        node = self._other_nodes.get(key)
        if node is None:
            node = SizeNode(self, pytype, hint, polynomial=polynomial, expression=expression)
            if pytype is bool and expression in (sympy.true, sympy.false):
                node.answer = bool(expression)
            self._other_nodes[key] = node
            self._all_nodes.append(node)
        return node

    # Polynomials.

    def polynomial(self, expression: sympy.Basic) -> Polynomial[int]:
        """The polynomial of an integer expression."""
        polynomial = self._polynomials.get(expression)
        if polynomial is None:
            polynomial = self._polynomials[expression] = self._parse_expression(expression)
        return polynomial

    def _parse_expression(self, expression: sympy.Basic) -> Polynomial[int]:
        if expression.is_Integer:
            return Polynomial.of_number(int(expression))
        parts = [self.polynomial(part) for part in expression.args] if _is_polynomial(expression) else []
        if expression.is_Add and parts:
            return sum(parts[1:], parts[0])
        if expression.is_Mul and parts:
            product = parts[0]
            for part in parts[1:]:
                product = product * part
            return product
        if expression.is_Pow and parts:
            power = Polynomial.of_number(1)
            for _ in range(int(expression.args[1])):
                power = power * parts[0]
            return power
        atom = self._atoms.setdefault(expression, len(self._expressions))
        if atom == len(self._expressions):
            self._expressions.append(expression)
        return Polynomial.of_atom(atom)

    def expression_of(self, polynomial: Polynomial[int]) -> sympy.Basic:
        """The expression of a polynomial."""
        expression = self._written_expressions.get(polynomial)
        if expression is None:
            terms = [
                sympy.Mul(factor, *(self._expressions[atom] for atom in monomial))
                for monomial, factor in polynomial.terms.items()
            ]
            expression = self._written_expressions[polynomial] = sympy.Add(*terms)
        return expression

    def atom_expression(self, atom: int) -> sympy.Basic:
        """The expression that an atom of polynomials stands for."""
        return self._expressions[atom]

    def reduce(self, polynomial: Polynomial[int]) -> Polynomial[int]:
        """A polynomial that is equal where the guards hold, with quotients in the place of multiples."""
        parts = {atom: self._atom_of_multiples(atom) for atom in polynomial.atoms}
        changed = {atom: part for atom, part in parts.items() if part is not None}
        return self.reduce(polynomial.substitute(changed)) if changed else polynomial

    def _atom_of_multiples(self, atom: int) -> Polynomial[int] | None:
        if atom in self._multiples:
            return self._multiples[atom]
        if atom not in self._atoms_of_multiples:
            # A remainder has no quotients where it is an atom of one.
            part = quotient_of_multiple(self, atom, self._multiples)
            self._atoms_of_multiples[atom] = None if part == Polynomial.of_atom(atom) else part
        return self._atoms_of_multiples[atom]

    def _learn_from(self, node: SizeNode) -> None:
        """Note what the answer of a comparison, which a guard now holds, says about sizes."""
        name, *operands = node.relation or ("",)
        polynomials = [operand.polynomial for operand in operands]
        if len(polynomials) != 2 or None in polynomials or node.answer is None:
            return
        equality = node.equality()
        if equality is not None:
            self._learn_multiples(*equality)
        if user_frame() is None:
            # A graph is mostly valid where the condition of a kernel does not hold, but not if other sizes in
            # it were simplified by that condition.
            return
        difference = polynomials[0] - polynomials[1]
        for atom, smallest in smallest_values(name, difference, node.answer, self.bounds).items():
            low, _ = self.bounds(Polynomial.of_atom(atom))
            if low is None or low < smallest:
                self._smallest_values[atom] = smallest
                self._learn()

    def _learn_multiples(self, first: Polynomial[int], second: Polynomial[int]) -> None:
        """Note which sizes are multiples of numbers if two numbers are equal."""
        multiples = multiples_in(self, first, second)
        if multiples.keys() - self._multiples.keys():
            self._multiples = multiples | self._multiples
            for atom, multiple in self._multiples.items():
                low, _ = self.bounds(Polynomial.of_atom(atom))
                for quotient in multiple.atoms if low is not None and low > 0 else ():
                    # A multiple that is not 0 has a quotient that is not 0.
                    self._smallest_values[quotient] = max(1, self._smallest_values.get(quotient, 1))
            self._atoms_of_multiples.clear()
            self._learn()

    def apply_replacements(self, polynomial: Polynomial[int]) -> Polynomial[int]:
        """A polynomial with replacements applied to its atoms."""
        atoms = polynomial.atoms
        values = {atom: self.replace(self._expressions[atom]) for atom in atoms}
        changed = {a: self.polynomial(new) for a, new in values.items() if new != self._expressions[a]}
        return polynomial.substitute(changed) if changed else polynomial

    def bounds(self, polynomial: Polynomial[int]) -> Bounds:
        """Numbers between which a polynomial lies for all sizes in their ranges."""
        interval = self._bounds.get(polynomial)
        if interval is None:
            low, high = polynomial.bounds(self._bounds_of_atom)
            if len(polynomial.terms) > 1:
                other_low, other_high = bounds_without_quotients(self, polynomial, self._bounds_of_atom)
                low = other_low if low is None or (other_low is not None and other_low > low) else low
                high = other_high if high is None or (other_high is not None and other_high < high) else high
            interval = self._bounds[polynomial] = low, high
        return interval

    def _bounds_from_zero(self, polynomial: Polynomial[int]) -> Bounds:
        """Bounds that also hold where sizes are 0 or 1, which the range of a symbol leaves out."""

        def range_of(atom: int) -> Bounds:
            low, high = self._bounds_of_atom(atom)
            expression = self._expressions[atom]
            if isinstance(expression, FloorDiv) and expression.args[1].is_Integer and expression.args[1] > 0:
                low, _ = self._bounds_from_zero(self.polynomial(expression.args[0]))
                low = low if low is None else low // int(expression.args[1])
            elif low is not None and (low <= 2 or not expression.is_Symbol):
                # A range from 3 on is that of a guard.
                low = min(low, 0)
            return self._smallest_values.get(atom, low), high

        return polynomial.bounds(range_of)

    def _bounds_of_atom(self, atom: int) -> Bounds:
        interval = self._atom_bounds.get(atom)
        if interval is None:
            expression = self._expressions[atom]
            sympy_range = (
                self.var_to_range.get(expression) if expression.is_Symbol else self.bound_sympy(expression)
            )
            interval = (
                (None, None)
                if sympy_range is None
                else (_finite(sympy_range.lower), _finite(sympy_range.upper))
            )
            smallest = self._smallest_values.get(atom)
            if smallest is not None and (interval[0] is None or interval[0] < smallest):
                interval = (smallest, interval[1])
            self._atom_bounds[atom] = interval
        return interval

    def _is_nonnegative(self, node: SizeNode) -> bool:
        low = self.bounds(node.polynomial)[0] if node.polynomial is not None else None
        return bool(node.expr.is_nonnegative) or (low is not None and low >= 0)

    def _hint_of_atom(self, atom: int) -> int:
        expression = self._expressions[atom]
        if expression.is_Symbol:
            return int(numbers.example_sizes(self)[expression])
        value = expression.xreplace(numbers.example_sizes(self))
        if not value.is_Integer:
            raise LookupError(str(expression))
        return int(value)

    # Methods of `ShapeEnv`: decisions, and facts about symbols.

    def evaluate_sym_node(
        self, sym_node: Any, size_oblivious: bool = False, fallback_value: bool | None = None
    ) -> Any:
        """The value of a number, with a guard if it depends on sizes."""
        is_own = isinstance(sym_node, SizeNode)
        sym_node = sym_node.original if is_own else sym_node
        answer = sym_node.known_answer() if is_own and sym_node.pytype is bool else None
        if answer is not None:
            note(self, sym_node, answer)
            return answer
        if self.keeps_ones and is_own and sym_node.is_about_computed_one():
            general = fallback_value
            # A kernel that cannot go on without an answer gets that of other sizes. If the user's code asks,
            # the two answers may lead to different results.
            if general is None and not sym_node.is_about_zero() and user_frame() is None:
                general = sym_node.relation[0] == "ne"
            if general not in (None, sym_node._hint):
                self.has_kept_ones = True
                return general
        self._converts = sym_node.pytype is not bool
        try:
            value = super().evaluate_sym_node(sym_node, size_oblivious, fallback_value)
        finally:
            self._converts = False
        note(self, sym_node, value)
        # Without a hint the answer may be the fallback; without a guard it holds for the example only.
        is_settled = is_own and sym_node._hint is not None and not self._suppress_guards_tls()
        if is_settled and sym_node.pytype is bool:
            sym_node.answer = bool(value)
            self._learn_from(sym_node)
            name, *operands = sym_node.relation or ("",)
            is_not_zero = (name, sym_node.answer) in (("ne", True), ("eq", False), ("gt", True))
            if is_not_zero and operands[1].constant == 0 and operands[0] in self.remainders:
                self.positive_remainders.add(operands[0])
        return value

    def guard_or_defer_runtime_assert(self, *args: Any, **kwargs: Any) -> bool:
        """Assert what depends on data."""
        try:
            return bool(super().guard_or_defer_runtime_assert(*args, **kwargs))
        finally:
            self._learn()

    def _update_var_to_range(self, symbol: Any, *args: Any, **kwargs: Any) -> None:
        super()._update_var_to_range(symbol, *args, **kwargs)
        self._learn()

    def _set_replacement(self, a: Any, tgt: Any, msg: str) -> None:
        if self._rounded.is_circular(a, tgt):
            return
        before = self.replacements.get(a)
        # Only the first one, because later ones often follow from it.
        if self.fixing is None and tgt.is_number:
            self.fixing = traceback.extract_stack()
        self.is_fixed_by_conversion |= self._converts and tgt.is_number
        super()._set_replacement(a, tgt, msg)
        self._learn()
        if self.replacements.get(a) != before:
            for symbol, definition in self.definitions.items():
                value = self.replace(definition)
                if value.is_number and symbol not in self.replacements:
                    super()._set_replacement(symbol, value, msg)
            for node in self._all_nodes:
                node.refresh()

    def _learn(self) -> None:
        self.facts += 1
        # Any bound may depend on the symbol that has changed.
        self._atom_bounds.clear()
        self._bounds.clear()

    def create_symintnode(self, *args: Any, **kwargs: Any) -> Any:
        """The number of an expression of sizes."""
        return self._adopt_number(super().create_symintnode(*args, **kwargs))

    def create_symfloatnode(self, *args: Any, **kwargs: Any) -> Any:
        """The number of an expression of floats."""
        return self._adopt_number(super().create_symfloatnode(*args, **kwargs))

    def create_symboolnode(self, *args: Any, **kwargs: Any) -> Any:
        """The truth of a condition on sizes."""
        return self._adopt_number(super().create_symboolnode(*args, **kwargs))

    def create_unbacked_symint(self, *args: Any, **kwargs: Any) -> Any:
        """A new integer that depends on data."""
        return self._adopt_number(super().create_unbacked_symint(*args, **kwargs))

    def create_unbacked_symfloat(self, *args: Any, **kwargs: Any) -> Any:
        """A new float that depends on data."""
        return self._adopt_number(super().create_unbacked_symfloat(*args, **kwargs))

    def create_unbacked_symbool(self, *args: Any, **kwargs: Any) -> Any:
        """A new boolean that depends on data."""
        return self._adopt_number(super().create_unbacked_symbool(*args, **kwargs))

    def _adopt_number(self, number: Any) -> Any:
        return type(number)(self.adopt(number.node)) if isinstance(number, _SYMBOLIC) else number

    def _is_python_assert(self) -> bool:
        """Whether the question is that of an `assert`, and nothing catches its error."""
        # torch compiles an `assert` to compare bytecode; `python -O` compiles none, so torch would fail.
        return __debug__ and super()._is_python_assert() and not is_caught()

    def _get_user_frame(self) -> types.FrameType | None:
        """The innermost frame outside torch, else the outermost of all."""
        frame = inspect.currentframe()
        while frame is not None and frame.f_back is not None and is_internal(frame.f_code.co_filename):
            frame = frame.f_back
        return frame


_SHORTENED = frozenset(("mod", "int_floordiv", "sym_max", "sym_min"))
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def _is_polynomial(expression: sympy.Basic) -> bool:
    """Whether an expression is a sum, product or power that a polynomial can represent."""
    if expression.is_Pow:
        return bool(expression.args[1].is_Integer and 0 < expression.args[1] <= 8)
    constants = (part for part in expression.args if part.is_number)
    return bool(expression.is_Add or expression.is_Mul) and all(part.is_Integer for part in constants)


def _finite(bound: Any) -> int | None:
    return int(bound) if getattr(bound, "is_Integer", False) or isinstance(bound, int) else None
