"""Symbolic numbers for torch, decided by polynomials where these suffice, and by sympy elsewhere.

torch computes thousands of products and comparisons of a model's sizes, for strides and broadcasts. A
`SizeNode` caches each result. Its arithmetic is exact: a result has the same sympy expression as torch's own
`SymNode` would have, but the expression is built only when it is read. A comparison is decided by
polynomials if it has the same answer for all sizes in their ranges. torch decides every other comparison for
the example, and records a guard.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import sympy

from .....registration.size_algebra.polynomials import Polynomial, decide
from ....torch_boundary import symbolic_numbers as numbers
from .divisions import REMAINDERS, shorten

_MOST_TERMS = 64


class SizeNode(numbers.SymNode):  # type: ignore[misc]
    """A symbolic integer, float or boolean. Its `SizeEnvironment` keeps one instance for equal numbers.

    A recorder distinguishes results of the model's own arithmetic by identity, so each of them is a twin.

    Args:
        environment: the `SizeEnvironment`.

    Attributes:
        original: for a twin, the instance that it copies; else the number itself.
        canonical: the instance of its polynomial; replacements can make the polynomials of two numbers equal.
        polynomial: the value of an integer, with all replacements applied; None for other numbers.
        first_polynomial: the same at creation.
        is_expanded: whether the sympy expression is the plain sum of the polynomial's terms.
        relation: for a comparison or a connection of booleans its operator and operands; else None.
        answer: the value of a boolean, once it is decided for all sizes that the guards allow.
        operation: for a twin, the name and the operands of the operation that gave it.
        exceeded: the largest number that an integer is known to exceed; see `symbolic_numbers.exceeds`.
    """

    def __init__(
        self,
        environment: Any,
        pytype: type,
        hint: int | float | bool | None,
        *,
        polynomial: Polynomial[int] | None = None,
        expression: sympy.Basic | None = None,
        relation: tuple[Any, ...] | None = None,
        constant: int | float | bool | None = None,
    ):
        self.shape_env: Any = environment
        self.pytype = pytype
        self.constant = constant
        self.fx_node = False
        self.polynomial: Any = polynomial
        self.first_polynomial = polynomial
        self.is_expanded = polynomial is not None and expression is None
        self.relation = relation
        self.answer: bool | None = None
        self.operation: tuple[Any, ...] | None = None
        self.original = self
        self.canonical = self
        self.results: dict[tuple[Any, ...], SizeNode] = {}
        self._hint = hint
        self._first_expression = expression
        self._expression = expression
        self.exceeded: int | None = None
        self._undecided_at = -1
        self._number = None if polynomial is None else polynomial.number
        self._value_key: int | None = None

    def twin(self) -> SizeNode:
        """Make another instance of the number."""
        twin = SizeNode(
            self.shape_env,
            self.pytype,
            self._hint,
            polynomial=self.polynomial,
            expression=None if self.is_expanded else self._expression,
            relation=self.relation,
        )
        twin.original = self.original
        twin.results = self.results
        self.shape_env.keep(twin)
        return twin

    @property
    def _expr(self) -> sympy.Basic:
        """The expression without replacements."""
        if self._first_expression is None:
            if self.first_polynomial is not None:
                self._first_expression = self.shape_env.expression_of(self.first_polynomial)
            else:
                self._first_expression = self._relation_expression()
        return self._first_expression

    @property
    def expr(self) -> sympy.Basic:
        """The expression with all replacements applied."""
        if self._expression is None:
            is_number = self.polynomial is not None
            self._expression = (
                self.shape_env.expression_of(self.polynomial) if is_number else self._relation_expression()
            )
        return self._expression

    def _relation_expression(self) -> sympy.Basic:
        name, *operands = self.relation or ()
        return numbers.apply_operation(name, [operand.expr for operand in operands])

    def refresh(self) -> None:
        """Apply the environment's new replacements."""
        environment = self.shape_env
        if self.relation is not None:
            self._expression = None
        elif self.is_expanded:
            self.polynomial = environment.apply_replacements(self.polynomial)
            self._expression = None
            self.canonical = environment.size(self.polynomial)
        else:
            self._expression = environment.replace(self._expression)
            if self.polynomial is not None:
                self.polynomial = environment.polynomial(self._expression)
        if self.polynomial is not None:
            self._number = self.polynomial.number

    # Methods that torch's C++ code calls.

    def maybe_as_int(self) -> int | None:
        """The value of an integer that is the same for all sizes; None if it varies."""
        return self._number if self.polynomial is not None else numbers.SymNode.maybe_as_int(self)

    def is_nested_int(self) -> bool:
        """Whether the number stands for lengths of a nested tensor."""
        return False

    def wrap_int(self, num: int) -> SizeNode:
        """The node of a number."""
        node = self.shape_env.numbers.get(num)
        result: SizeNode = self.shape_env.number(num) if node is None else node
        return result

    def wrap_float(self, num: float) -> SizeNode:
        """The node of a number."""
        result: SizeNode = self.shape_env.constant(sympy.Float(num), float, num)
        return result

    def wrap_bool(self, num: bool) -> SizeNode:
        """The node of a boolean."""
        result: SizeNode = self.shape_env.truth(num)
        return result

    def with_shape_env(self, shape_env: Any) -> Any:
        """The number in another environment."""
        return numbers.SymNode(self._expr, shape_env, self.pytype, self._hint, self.constant, None)

    def _value_eq(self, operand: Any) -> bool:
        if isinstance(operand, SizeNode):
            return self.original is operand.original
        return bool(self._expr == operand._expr and self.pytype == operand.pytype)

    def _value_hash(self) -> int:
        # Torch's caches compare nodes with records of nodes, which have this hash.
        if self._value_key is None:
            self._value_key = hash((self._expr, self.pytype, self._hint, self.constant, self.fx_node))
        return self._value_key

    def sym_sum(self, args: Sequence[SizeNode]) -> Any:
        """The sum of some numbers."""
        if numbers.is_recorded():
            return numbers.SymNode.sym_sum(self, args)
        total = self.shape_env.number(0)
        for arg in args:
            total = total.add(arg)
        return total

    # Decisions.

    def known_answer(self) -> bool | None:
        """The value of a boolean if polynomials show that it is the same for all allowed sizes; else None."""
        if self.original is not self:
            return self.original.known_answer()
        if self.answer is None and self.relation is not None:
            environment = self.shape_env
            # Without new facts the bounds are the same, and the comparison stays undecided.
            if self._undecided_at != environment.facts:
                self.answer = _decide_relation(self.relation, environment)
                if self.answer is None and environment.loops is not None:
                    self.answer = environment.loops.questions.answer(self)
                self._undecided_at = environment.facts
        return self.answer

    def equality(self) -> tuple[Polynomial[int], Polynomial[int]] | None:
        """The integers that a decided comparison says to be equal; None for other comparisons."""
        name, *operands = self.relation or ("",)
        polynomials = [operand.polynomial for operand in operands]
        if (name, self.answer) not in (("eq", True), ("ne", False)) or None in polynomials:
            return None
        return polynomials[0], polynomials[1]

    def is_about_computed_one(self) -> bool:
        """Whether a boolean is an equation that holds where a computed size is 1, as in the example.

        Such as `n // 8 == 1`, `m * (n // 8) == m`, and `m % (m * (n // 8)) == 0`.
        """
        if self.relation is None or self.relation[0] not in ("eq", "ne"):
            return False
        name, first, second = self.relation
        if self._hint is not (name == "eq") or first.polynomial is None or second.polynomial is None:
            return False
        if second.constant == 1:
            # The sizes of inputs are never 1 in a recording.
            return not first.expr.is_Symbol
        if second.constant == 0 and isinstance(first.expr, REMAINDERS):
            dividend, divisor = map(self.shape_env.polynomial, first.expr.args)
            quotient = None if divisor.number is not None else divisor.divide(dividend)
            # A remainder of a size by itself is 0 for all sizes.
            return quotient is not None and quotient.number is None
        pairs = ((first.polynomial, second.polynomial), (second.polynomial, first.polynomial))
        return any(product.divide(factor) is not None for product, factor in pairs)

    def is_about_zero(self) -> bool:
        """Whether a comparison of integers has 0 on one side, and no remainder on the other."""
        _, *operands = self.relation or ("",)
        has_zero = any(operand.constant == 0 for operand in operands)
        return has_zero and not any(isinstance(operand.expr, REMAINDERS) for operand in operands)

    def sub_to_multiple(self, remainder: Any) -> SizeNode:
        """The difference of this divisor and a remainder, `k - n % k`, written as `-(n % k) % k`.

        The two are the same where `n % k` is not 0, as the model has asked. Where it is 0, the second one is
        what code does that asks: to pad by nothing, for example.
        """
        negative: Any = remainder.neg()
        result: SizeNode = negative.mod(self)
        return result

    def guard_bool(self, file: str, line: int) -> bool:
        """The value of a boolean, with a guard if it depends on sizes."""
        return bool(self.shape_env.evaluate_sym_node(self))

    def bool_(self) -> bool:
        """The value of a boolean, with a guard if it depends on sizes."""
        return bool(self.shape_env.evaluate_sym_node(self))

    def expect_true(self, file: str, line: int) -> bool:
        """Assert that a boolean is true, now or when the data are known."""
        answer = self.known_answer()
        return bool(numbers.SymNode.expect_true(self, file, line)) if answer is None else answer

    def guard_or_false(self, file: str, line: int) -> bool:
        """The value of a boolean, False if it depends on data."""
        return bool(self.shape_env.evaluate_sym_node(self, fallback_value=False))

    def guard_or_true(self, file: str, line: int) -> bool:
        """The value of a boolean, True if it depends on data."""
        return bool(self.shape_env.evaluate_sym_node(self, fallback_value=True))

    def statically_known_true(self, file: str, line: int) -> bool:
        """Whether a boolean is true for all allowed sizes."""
        answer = self.known_answer()
        if answer is not None:
            return answer
        return False if self._hint is False else bool(numbers.SymNode.statically_known_true(self, file, line))


def _decide_relation(relation: tuple[Any, ...], environment: Any) -> bool | None:
    """Decide a relation of sizes by polynomials; None if it may differ between sizes."""
    name, first, *further_operands = relation
    if name == "sym_not":
        operand_answer = first.known_answer()
        return None if operand_answer is None else not operand_answer
    second = further_operands[0]
    if name in ("and", "or"):
        absorbing = bool(name == "or")
        answers = (first.known_answer(), second.known_answer())
        if absorbing in answers:
            return absorbing
        return None if None in answers else not absorbing
    if first.polynomial is None or second.polynomial is None:
        return None
    answer = decide(name, first.polynomial, second.polynomial, environment.bounds)
    if answer is None:
        reduced = environment.reduce(first.polynomial), environment.reduce(second.polynomial)
        answer = decide(name, *reduced, environment.bounds)
    return answer


def _is_rest(divisor: SizeNode, remainder: Any) -> bool:
    """Whether `divisor - remainder` is `k - n % k`, after the model has tested that `n % k` is not 0."""
    environment = divisor.shape_env
    number = divisor.maybe_as_int()
    return (
        isinstance(remainder, SizeNode)
        and remainder.original in environment.positive_remainders
        and environment.remainders[remainder.original] == number
    )


def _sum(first: SizeNode, second: SizeNode) -> Polynomial[int] | None:
    if not _are_expanded(first, second):
        return None
    return shorten(first.shape_env, first.polynomial + second.polynomial)


def _difference(first: SizeNode, second: SizeNode) -> Polynomial[int] | None:
    if not _are_expanded(first, second):
        return None
    return shorten(first.shape_env, first.polynomial - second.polynomial)


def _product(first: SizeNode, second: SizeNode) -> Polynomial[int] | None:
    """The product, unless sympy keeps it as a product of sums."""
    if not _are_expanded(first, second):
        return None
    counts = sorted((len(first.polynomial.terms), len(second.polynomial.terms)))
    constants = (first.polynomial.number, second.polynomial.number)
    if counts[1] > 1 and constants == (None, None):
        return None
    result: Polynomial[int] | None = first.polynomial * second.polynomial
    return result


def _quotient(dividend: SizeNode, divisor: SizeNode) -> Polynomial[int] | None:
    """The quotient, if it is exact and the divisor never 0."""
    if not _are_expanded(dividend, divisor) or len(dividend.polynomial.terms) != 1:
        return None
    low, _ = divisor.shape_env.bounds(divisor.polynomial)
    return dividend.polynomial.divide(divisor.polynomial) if low is not None and low > 0 else None


def _negative(only: SizeNode) -> Polynomial[int] | None:
    return -only.polynomial if only.is_expanded else None


def _identity(only: SizeNode) -> Polynomial[int] | None:
    return only.polynomial if only.is_expanded else None


def _are_expanded(first: SizeNode, second: SizeNode) -> bool:
    return (
        first.is_expanded
        and second.is_expanded
        and len(first.polynomial.terms) + len(second.polynomial.terms) < _MOST_TERMS
    )


_POLYNOMIALS: dict[str, Callable[..., Polynomial[int] | None]] = {
    "add": _sum,
    "sub": _difference,
    "mul": _product,
    "int_floordiv": _quotient,
    "neg": _negative,
    "pos": _identity,
}
"""Operations whose result may be a plain sum; None where sympy writes the result in another form."""
_RELATIONS = frozenset("eq ne lt le gt ge and or sym_not".split())


def _operation(name: str) -> Callable[..., SizeNode]:
    """The method of `SizeNode` for one of torch's operations on symbolic numbers."""

    def method(self: SizeNode, *arguments: object) -> SizeNode:
        key = (name, *arguments)
        node = self.results.get(key)
        if node is None:
            operands = [operand.original for operand in (self, *map(self.shape_env.adopt, arguments))]
            node = self.results[key] = _result(name, operands)
        return numbers.record_operation(name, (self, *arguments), node) if numbers.is_recorded() else node

    def binary(self: SizeNode, operand_or_number: Any) -> SizeNode:
        if name == "sub" and _is_rest(self, operand_or_number):
            return self.sub_to_multiple(operand_or_number)
        key = (name, operand_or_number.original if type(operand_or_number) is SizeNode else operand_or_number)
        node = self.results.get(key)
        if node is None:
            node = self.results[key] = _result(
                name, [self.original, self.shape_env.adopt(operand_or_number).original]
            )
        if name == "mod" and (operand_or_number.maybe_as_int() or 0) > 0:
            self.shape_env.remainders[node] = operand_or_number.maybe_as_int()
        if not numbers.is_recorded() or (is_at_most and operand_or_number.maybe_as_int() == sys.maxsize):
            # Each slice to the end of a tensor compares its size with the largest integer; no node is needed.
            return node
        result: SizeNode = numbers.record_operation(name, (self, operand_or_number), node)
        return result

    is_at_most = name == "le"
    implementation = binary if name in numbers.BINARY else method
    implementation.__name__ = implementation.__qualname__ = name
    implementation.__doc__ = f"The result of `{name}`."
    return implementation


def _result(name: str, operands: Sequence[SizeNode]) -> SizeNode:
    environment = operands[0].shape_env
    if name in _RELATIONS:
        result: SizeNode = environment.relation_node(name, operands)
        return result
    polynomial_of = _POLYNOMIALS.get(name)
    polynomial = polynomial_of(*operands) if polynomial_of is not None else None
    result = (
        environment.operation_node(name, operands) if polynomial is None else environment.size(polynomial)
    )
    return result


for _name in numbers.OPERATIONS:
    setattr(SizeNode, numbers.method_name(_name), _operation(_name))
