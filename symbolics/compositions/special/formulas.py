"""Arithmetic on graph values with Python operators, and the series used by special functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from ....registration import DataType, GraphContext, Value
from ..list_values import loop_inputs

Operand: TypeAlias = "Formula | float"


def _unary(op_type: str) -> Callable[[Formula], Formula]:
    return lambda self: self.op(op_type)


def _binary(op_type: str) -> Callable[[Formula, Operand], Formula]:
    return lambda self, operand: self.op(op_type, operand)


class Formula:
    """A value whose Python operators emit the ONNX operators of the same meaning.

    Attributes:
        g: the graph under construction.
        value: the value; operands have its element type, and numbers are converted to it.
    """

    __slots__ = ("g", "value")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, g: GraphContext, value: Value):
        self.g = g
        self.value = value

    def op(self, op_type: str, *operands: Operand) -> Formula:
        """An ONNX operator with this formula as its first input."""
        return Formula(self.g, self.g.op(op_type, self.value, *map(_plain, operands)))

    def _reversed_operation(self, op_type: str, number: float) -> Formula:
        return Formula(self.g, self.g.op(op_type, number, self.value))

    def call(self, name: str, *operands: Operand) -> Formula:
        """Call another symbolic function with this formula as its first argument."""
        return Formula(self.g, self.g.call(name, self.value, *map(_plain, operands)))

    __add__ = __radd__ = _binary("Add")
    __sub__ = _binary("Sub")
    __mul__ = __rmul__ = _binary("Mul")
    __truediv__ = _binary("Div")
    __pow__ = _binary("Pow")
    __lt__ = _binary("Less")
    __gt__ = _binary("Greater")
    __and__ = _binary("And")
    __or__ = _binary("Or")
    __neg__ = _unary("Neg")
    __abs__ = _unary("Abs")
    __invert__ = _unary("Not")
    exp = _unary("Exp")
    log = _unary("Log")
    sqrt = _unary("Sqrt")
    sin = _unary("Sin")
    cos = _unary("Cos")
    floor = _unary("Floor")

    def __rsub__(self, minuend: float) -> Formula:
        return self._reversed_operation("Sub", minuend)

    def __rtruediv__(self, dividend: float) -> Formula:
        return self.op("Reciprocal") if dividend == 1 else self._reversed_operation("Div", dividend)

    def __le__(self, operand: Operand) -> Formula:
        return self.call("aten::le", operand)

    def __ge__(self, operand: Operand) -> Formula:
        return self.call("aten::ge", operand)

    def equals(self, operand: Operand) -> Formula:
        """Element-wise equality, false for NaN."""
        return self.call("aten::eq", operand)

    def chosen(self, true: Operand, false: Operand) -> Formula:
        """`true` where this condition is true, else `false`; at least one of them is a formula."""
        return self.op("Where", true, false)

    def cast(self, dtype: DataType) -> Formula:
        return Formula(self.g, self.g.cast(self.value, dtype))

    @property
    def is_double(self) -> bool:
        return self.g.dtype(self.value) == DataType.DOUBLE


def _plain(operand: Operand) -> Value | float:
    return operand.value if isinstance(operand, Formula) else operand


def coefficients(text: str) -> tuple[float, ...]:
    """Parse numbers separated by blanks."""
    return tuple(map(float, text.split()))


def polynomial(x: Formula, table: Sequence[float]) -> Formula:
    """A polynomial by Horner's scheme, coefficients from the highest degree down."""
    first, second, *lower_coefficients = table
    result = x + second if first == 1 else x * first + second
    for coefficient in lower_coefficients:
        result = result * x + coefficient
    return result


def rational(x: Formula, numerator: Sequence[float], denominator: Sequence[float]) -> Formula:
    """A quotient of polynomials."""
    return polynomial(x, numerator) / polynomial(x, denominator)


def chebyshev(x: Formula, table: Sequence[float]) -> Formula:
    """A Chebyshev series by Clenshaw's recurrence, its argument doubled (Cephes' `chbevl`).

    For types below DOUBLE, leading coefficients whose sum is below 2**-31 of the largest are left out.
    """
    start, dropped_sum = 0, 0.0
    if not x.is_double:
        limit = max(map(abs, table)) * 2.0**-31
        while dropped_sum + abs(table[start]) < limit:
            dropped_sum += abs(table[start])
            start += 1
    first, second, *lower_coefficients = table[start:]
    previous: Operand = first
    result = x * first + second
    second_previous: Operand = 0.0
    for coefficient in lower_coefficients:
        second_previous, previous, result = previous, result, x * result - previous + coefficient
    return (result - second_previous) * 0.5


def odd_extension(x: Formula, result: Formula) -> Formula:
    """An odd function at x from its value at |x|."""
    return (x < 0.0).chosen(-result, result)


def round_half_away(x: Formula) -> Formula:
    """Round halves away from zero."""
    magnitude = abs(x)
    whole = magnitude.floor()
    # The fraction is exact, unlike a sum with 0.5, which rounds up just below a half.
    rounded = (magnitude - whole < 0.5).chosen(whole, whole + 1.0)
    return (x < 0.0).chosen(-rounded, rounded)


def iterate(
    condition: Formula,
    state: Sequence[Formula],
    step: Callable[..., tuple[Sequence[Formula], Formula | None]],
    limit: int | None = None,
) -> list[Formula]:
    """A Loop in which each element iterates until it is done, and then keeps its state.

    Args:
        condition: BOOL, the elements that take part.
        state: the carried values, all with the condition's shape.
        step: maps the iteration's number (zero-dim, of the state's element type) and the state to the new
            state and a BOOL of the elements to continue, or None to run until the limit. The new state of an
            element that is done is discarded.
        limit: the largest number of iterations.

    Returns:
        The state after the last iteration.
    """
    g, dtype = condition.g, state[0].value.dtype or DataType.FLOAT
    names = ("active", *(f"state_{i}" for i in range(len(state))))
    initial = [condition, *state]
    formals = [
        Value(name=name, type=formula.value.type, shape=formula.value.shape)
        for name, formula in zip(names, initial, strict=True)
    ]

    def build(iteration: Value, keep_going: Value, active: Value, *carried: Value) -> list[Value]:
        mask, old = Formula(g, active), [Formula(g, value) for value in carried]
        new, unfinished = step(Formula(g, g.cast(iteration, dtype)), *old)
        next_state = [mask.chosen(later, earlier) for later, earlier in zip(new, old, strict=True)]
        still_active = mask if unfinished is None else mask & unfinished
        return [_any_true(still_active), still_active.value, *(formula.value for formula in next_state)]

    body = g.subgraph(build, [*loop_inputs(), *formals], "iteration")
    trips = None if limit is None else g.constant(limit, DataType.INT64)
    values = [formula.value for formula in initial]
    results = g.op("Loop", trips, _any_true(condition), *values, body=body, outputs=len(values))
    for result, value in zip(results, values, strict=True):
        result.type, result.shape = value.type, value.shape
    return [Formula(g, result) for result in results[1:]]


def _any_true(condition: Formula) -> Value:
    """Whether any element is true (zero-dim); false without elements."""
    g = condition.g
    # A sum, because no reduction takes BOOL before opset 20; ReduceMax of no elements is undefined.
    count = g.op("ReduceSum", g.cast(condition.value, DataType.FLOAT), keepdims=0)
    return g.op("Greater", count, 0.5)


def broadcast(x: Formula, *formulas: Formula) -> Formula:
    """Broadcast `x` to its common shape with other formulas."""
    for formula in formulas:
        # A selection between equal values broadcasts without arithmetic, which could change NaN or
        # overflow.
        x = (formula < 0).chosen(x, x)
    return x
