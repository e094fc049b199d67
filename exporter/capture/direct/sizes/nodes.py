"""Torch's symbolic numbers, decided by polynomials where these suffice and by sympy elsewhere.

Torch asks a model's sizes thousands of questions: a product for each stride, a comparison for each
broadcast. A `SizeNode` answers the same question once. Its arithmetic is exact: a result has the same sympy
expression as torch's own `SymNode` would have, but the expression is made only when somebody asks for it. A
comparison is decided by polynomials if it has the same answer for all sizes in their ranges. Every other
question goes to torch, which decides it for the example and records a guard.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import sympy

from ....torch_boundary import symbolic_numbers as numbers
from .polynomials import Bounds, Polynomial

_MOST_TERMS = 64
_OPPOSITES = {"ne": "eq", "ge": "lt", "gt": "le"}


class SizeNode(numbers.SymNode):  # type: ignore[misc]
    """A symbolic integer, float or boolean of one `SizeEnvironment`, which makes and keeps the only instance.

    A recorder tells the results of a model's own arithmetic apart by identity, so it gets twins of them.

    Args:
        environment: the `SizeEnvironment`.

    Attributes:
        original: the only instance, for a twin; else the number itself.
        canonical: the one instance for its polynomial: replacements make polynomials of numbers equal.
        polynomial: the value of an integer, with all replacements applied; None for other numbers.
        first_polynomial: the same at creation.
        is_expanded: whether the sympy expression is the plain sum of the polynomial's terms.
        relation: for a comparison or a connection of booleans its operator and operands; else None.
        answer: the value of a boolean, once it is decided for all sizes that the guards allow.
        operation: for a twin, the name and the operands of the operation that gave it.
    """

    def __init__(
        self,
        environment: Any,
        pytype: type,
        hint: int | float | bool | None,
        *,
        polynomial: Polynomial | None = None,
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
        self._undecided_at = -1
        self._number = None if polynomial is None else polynomial.number
        self._value_key: int | None = None

    def twin(self) -> SizeNode:
        """A further instance of the number."""
        made = SizeNode(
            self.shape_env,
            self.pytype,
            self._hint,
            polynomial=self.polynomial,
            expression=None if self.is_expanded else self._expression,
            relation=self.relation,
        )
        made.original = self.original
        made.results = self.results
        self.shape_env.keep(made)
        return made

    @property
    def _expr(self) -> sympy.Basic:
        """The expression without replacements."""
        if self._first_expression is None:
            if self.first_polynomial is not None:
                self._first_expression = self.shape_env.written(self.first_polynomial)
            else:
                self._first_expression = self._related()
        return self._first_expression

    @property
    def expr(self) -> sympy.Basic:
        """The expression with all replacements applied."""
        if self._expression is None:
            is_number = self.polynomial is not None
            self._expression = self.shape_env.written(self.polynomial) if is_number else self._related()
        return self._expression

    def _related(self) -> sympy.Basic:
        name, *operands = self.relation or ()
        return numbers.apply_operation(name, [operand.expr for operand in operands])

    def refresh(self) -> None:
        """Apply the environment's new replacements."""
        environment = self.shape_env
        if self.relation is not None:
            self._expression = None
        elif self.is_expanded:
            self.polynomial = environment.replaced(self.polynomial)
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
        found = self.shape_env.numbers.get(num)
        result: SizeNode = self.shape_env.number(num) if found is None else found
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

    def _value_eq(self, other: Any) -> bool:
        if isinstance(other, SizeNode):
            return self.original is other.original
        return bool(self._expr == other._expr and self.pytype == other.pytype)

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

    def known(self) -> bool | None:
        """The value of a boolean if it is the same for all allowed sizes, as far as polynomials tell."""
        if self.original is not self:
            return self.original.known()
        if self.answer is None and self.relation is not None:
            environment = self.shape_env
            if self._undecided_at != environment.facts:
                self.answer = _decided(self.relation, environment.bounds)
                self._undecided_at = environment.facts
        return self.answer

    def guard_bool(self, file: str, line: int) -> bool:
        """The value of a boolean, with a guard if it depends on sizes."""
        return bool(self.shape_env.evaluate_sym_node(self))

    def bool_(self) -> bool:
        """The value of a boolean, with a guard if it depends on sizes."""
        return bool(self.shape_env.evaluate_sym_node(self))

    def expect_true(self, file: str, line: int) -> bool:
        """Assert that a boolean is true, now or when the data are known."""
        known = self.known()
        return bool(numbers.SymNode.expect_true(self, file, line)) if known is None else known

    def guard_or_false(self, file: str, line: int) -> bool:
        """The value of a boolean, False if it depends on data."""
        return bool(self.shape_env.evaluate_sym_node(self, fallback_value=False))

    def guard_or_true(self, file: str, line: int) -> bool:
        """The value of a boolean, True if it depends on data."""
        return bool(self.shape_env.evaluate_sym_node(self, fallback_value=True))

    def statically_known_true(self, file: str, line: int) -> bool:
        """Whether a boolean is true for all allowed sizes."""
        known = self.known()
        if known is not None:
            return known
        return False if self._hint is False else bool(numbers.SymNode.statically_known_true(self, file, line))


def _decided(relation: tuple[Any, ...], bounds: Callable[[Polynomial], Bounds]) -> bool | None:
    """The answer to a question about sizes that holds for all of them, or None."""
    name, left, *others = relation
    if name == "sym_not":
        known = left.known()
        return None if known is None else not known
    right = others[0]
    if name in ("and", "or"):
        absorbing = name == "or"
        answers = (left.known(), right.known())
        if absorbing in answers:
            result: bool | None = absorbing
            return result
        return None if None in answers else not absorbing
    if left.polynomial is None or right.polynomial is None:
        return None
    difference = left.polynomial - right.polynomial
    found = _compared(_OPPOSITES.get(name, name), difference, bounds)
    return found if found is None or name not in _OPPOSITES else not found


def _compared(name: str, difference: Polynomial, bounds: Callable[[Polynomial], Bounds]) -> bool | None:
    """Whether a number is equal to ("eq"), less than ("lt") or at most ("le") 0; None if that varies."""
    low, high = bounds(difference)
    if name == "eq":
        if low == high == 0:
            return True
        apart = (low is not None and low > 0) or (high is not None and high < 0) or difference.has_no_root()
        return False if apart else None
    if high is not None and (high < 0 or (name == "le" and high == 0)):
        return True
    if low is not None and (low > 0 or (name == "lt" and low == 0)):
        return False
    return None


def _sum(left: SizeNode, right: SizeNode) -> Polynomial | None:
    return left.polynomial + right.polynomial if _are_expanded(left, right) else None


def _difference(left: SizeNode, right: SizeNode) -> Polynomial | None:
    return left.polynomial - right.polynomial if _are_expanded(left, right) else None


def _product(left: SizeNode, right: SizeNode) -> Polynomial | None:
    """The product, unless sympy keeps it as a product of sums."""
    if not _are_expanded(left, right):
        return None
    counts = sorted((len(left.polynomial.terms), len(right.polynomial.terms)))
    constants = (left.polynomial.number, right.polynomial.number)
    if counts[1] > 1 and constants == (None, None):
        return None
    result: Polynomial | None = left.polynomial * right.polynomial
    return result


def _quotient(left: SizeNode, right: SizeNode) -> Polynomial | None:
    """The quotient, if it is exact and the divisor never 0."""
    if not _are_expanded(left, right) or len(left.polynomial.terms) != 1:
        return None
    low, _ = right.shape_env.bounds(right.polynomial)
    return left.polynomial.divided(right.polynomial) if low is not None and low > 0 else None


def _negative(only: SizeNode) -> Polynomial | None:
    return -only.polynomial if only.is_expanded else None


def _same(only: SizeNode) -> Polynomial | None:
    return only.polynomial if only.is_expanded else None


def _are_expanded(left: SizeNode, right: SizeNode) -> bool:
    return (
        left.is_expanded
        and right.is_expanded
        and len(left.polynomial.terms) + len(right.polynomial.terms) < _MOST_TERMS
    )


_POLYNOMIALS: dict[str, Callable[..., Polynomial | None]] = {
    "add": _sum,
    "sub": _difference,
    "mul": _product,
    "int_floordiv": _quotient,
    "neg": _negative,
    "pos": _same,
}
"""Operations whose result may be a plain sum; None where sympy writes the result in another form."""
_RELATIONS = frozenset("eq ne lt le gt ge and or sym_not".split())


def _operation(name: str) -> Callable[..., SizeNode]:
    """The method of `SizeNode` for one of torch's operations on symbolic numbers."""

    def method(self: SizeNode, *others: Any) -> SizeNode:
        key = (name, *others)
        found = self.results.get(key)
        if found is None:
            operands = [operand.original for operand in (self, *map(self.shape_env.adopted, others))]
            found = self.results[key] = _result(name, operands)
        return numbers.record_operation(name, (self, *others), found) if numbers.is_recorded() else found

    def binary(self: SizeNode, other: Any) -> SizeNode:
        key = (name, other.original if type(other) is SizeNode else other)
        found = self.results.get(key)
        if found is None:
            found = self.results[key] = _result(name, [self.original, self.shape_env.adopted(other).original])
        if not numbers.is_recorded() or (is_at_most and other.maybe_as_int() == sys.maxsize):
            # Each slice to the end of a tensor asks torch whether its size is at most the largest integer.
            return found
        result: SizeNode = numbers.record_operation(name, (self, other), found)
        return result

    is_at_most = name == "le"
    made = binary if name in numbers.BINARY else method
    made.__name__ = made.__qualname__ = name
    made.__doc__ = f"The result of `{name}`."
    return made


def _result(name: str, operands: Sequence[SizeNode]) -> SizeNode:
    environment = operands[0].shape_env
    if name in _RELATIONS:
        result: SizeNode = environment.related(name, operands)
        return result
    polynomial_of = _POLYNOMIALS.get(name)
    polynomial = polynomial_of(*operands) if polynomial_of is not None else None
    result = environment.computed(name, operands) if polynomial is None else environment.size(polynomial)
    return result


for _name in numbers.OPERATIONS:
    setattr(SizeNode, numbers.method_name(_name), _operation(_name))
