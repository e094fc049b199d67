"""Interval analysis of results: training flags, dropout rates and masks.

A scalar constant has a range of one number, and random numbers range from 0 to 1. Results that are computed
from them have a range too: `random + 1.0` is from 1 to 2, and its floor is 1 for all random numbers.
"""

import dataclasses
import math
import operator
from collections.abc import Callable, Sequence

import numpy as np

from ..element_types import numpy_type
from ..messages import TensorProto
from ..node_messages import MessageNode
from ..tensor_protos import array_of

RANDOM = frozenset({"RandomUniform", "StatelessRandomUniform", "StatelessRandomUniformV2"})
"""Operators that return random numbers in [0, 1), and whose first input is the shape."""
_LARGEST_INTEGER = 2**53
"""The largest number up to which a double represents every integer."""
IDENTITIES = frozenset(
    "Identity RefIdentity StopGradient PreventGradient Snapshot EnsureShape Enter Exit".split()
)


@dataclasses.dataclass(frozen=True, slots=True)
class ElementRange:
    """The least and the greatest element that a result may have.

    Attributes:
        low: the lower bound.
        high: the upper bound.
        is_open: whether no element equals the upper bound.
        is_scalar: whether the result is known to be a scalar.
    """

    low: float
    high: float
    is_open: bool = False
    is_scalar: bool = False

    @property
    def point(self) -> float | None:
        """The value of all elements, if they are equal."""
        return self.low if self.low == self.high and not self.is_open else None


def constant_range(tensor: TensorProto, label: str) -> ElementRange | None:
    """The range of a scalar constant, from its TensorProto; None for other constants."""
    dtype = numpy_type(tensor.dtype)
    if dtype is None or dtype.kind in "Oc" or tensor.tensor_shape.dim:
        return None
    number = float(array_of(tensor, label))
    # A double would round a larger integer, and comparisons could be decided wrongly.
    if math.isnan(number) or (dtype.kind in "iu" and abs(number) > _LARGEST_INTEGER):
        return None
    return ElementRange(number, number, is_scalar=True)


def _compute_with_number(
    elements: ElementRange, number: ElementRange, compute: Callable[[float, float], float]
) -> ElementRange | None:
    """Compute a sum, a difference, a product or a quotient of a range and a number."""
    if number.point is None:
        return None
    ends = compute(elements.low, number.low), compute(elements.high, number.low)
    if any(map(math.isnan, ends)) or ends[0] > ends[1]:
        return None
    # Between 1 and 2 floats are as dense as the random numbers; elsewhere rounding may reach the bound.
    is_open = elements.is_open and ends in ((0.0, 1.0), (1.0, 2.0))
    return ElementRange(*ends, is_open, elements.is_scalar and number.is_scalar)


def _add(first: ElementRange, second: ElementRange) -> ElementRange | None:
    operands = (first, second) if second.point is not None else (second, first)
    return _compute_with_number(*operands, operator.add)


def _multiply(first: ElementRange, second: ElementRange) -> ElementRange | None:
    if second.point is None:
        first, second = second, first
    # A negative factor would exchange the bounds.
    is_ordered = second.low > 0 or first.point is not None
    return _compute_with_number(first, second, operator.mul) if is_ordered else None


def _divide(first: ElementRange, second: ElementRange) -> ElementRange | None:
    return _compute_with_number(first, second, operator.truediv) if second.low > 0 else None


def _less(first: ElementRange, second: ElementRange, *, or_equal: bool) -> bool | None:
    """Whether all elements of one range are less than those of the other; None if unknown."""
    if first.high < second.low or (first.high == second.low and (or_equal or first.is_open)):
        return True
    if first.low > second.high or (first.low == second.high and (not or_equal or second.is_open)):
        return False
    return None


def _make_comparison(
    decide: Callable[[ElementRange, ElementRange], bool | None],
) -> Callable[[ElementRange, ElementRange], ElementRange | None]:
    def compare(first: ElementRange, second: ElementRange) -> ElementRange | None:
        truth = decide(first, second)
        return None if truth is None else _truth_range(truth, first, second)

    return compare


def _truth_range(truth: bool, *operands: ElementRange) -> ElementRange:
    return ElementRange(float(truth), float(truth), is_scalar=all(operand.is_scalar for operand in operands))


def _equal(first: ElementRange, second: ElementRange) -> bool | None:
    points = first.point, second.point
    return None if None in points else points[0] == points[1]


def _differ(first: ElementRange, second: ElementRange) -> bool | None:
    points = first.point, second.point
    return None if None in points else points[0] != points[1]


def _combine(first: ElementRange, second: ElementRange, decisive: float) -> bool | None:
    """The truth of a conjunction, which 0 decides, or of a disjunction, which 1 decides."""
    points = first.point, second.point
    if decisive in points:
        return bool(decisive)
    return not decisive if points[0] == points[1] == 1 - decisive else None


def _floor(elements: ElementRange) -> ElementRange | None:
    if not math.isfinite(elements.low) or not math.isfinite(elements.high):
        return None
    # The bound of [0, 1) does not occur: the floor is 0.
    high = math.ceil(elements.high) - 1 if elements.is_open else math.floor(elements.high)
    return ElementRange(math.floor(elements.low), high, is_scalar=elements.is_scalar)


_BINARY_OPERATORS: dict[str, Callable[[ElementRange, ElementRange], ElementRange | None]] = {
    "Add": _add,
    "AddV2": _add,
    "Sub": lambda first, second: _compute_with_number(first, second, operator.sub),
    "Mul": _multiply,
    "RealDiv": _divide,
    "Div": _divide,
    "Less": _make_comparison(lambda first, second: _less(first, second, or_equal=False)),
    "LessEqual": _make_comparison(lambda first, second: _less(first, second, or_equal=True)),
    "Greater": _make_comparison(lambda first, second: _less(second, first, or_equal=False)),
    "GreaterEqual": _make_comparison(lambda first, second: _less(second, first, or_equal=True)),
    "Equal": _make_comparison(_equal),
    "NotEqual": _make_comparison(_differ),
    "LogicalAnd": _make_comparison(lambda first, second: _combine(first, second, 0.0)),
    "LogicalOr": _make_comparison(lambda first, second: _combine(first, second, 1.0)),
}
_UNARY_OPERATORS: dict[str, Callable[[ElementRange], ElementRange | None]] = {
    "Floor": _floor,
    "LogicalNot": lambda elements: (
        None if elements.point is None else _truth_range(elements.point == 0, elements)
    ),
}
_ROUNDED_OPERATORS = frozenset("Add AddV2 Sub Mul RealDiv Div Floor".split())
"""Operators whose results are rounded to the element type."""


def infer_range(node: MessageNode, inputs: Sequence[ElementRange | None]) -> ElementRange | None:
    """The range of a node's first result, from those of its inputs; None if it is not known."""
    if node.op in RANDOM:
        # TensorFlow's uniform numbers are in [0, 1).
        return ElementRange(0.0, 1.0, is_open=True)
    if node.op in IDENTITIES:
        return inputs[0] if inputs else None
    if node.op == "Cast" and len(inputs) == 1 and inputs[0] is not None:
        # A cast may round other numbers.
        return inputs[0] if inputs[0].point in (0.0, 1.0) else None
    result = None
    if len(inputs) == 2 and inputs[0] is not None and inputs[1] is not None and node.op in _BINARY_OPERATORS:
        result = _BINARY_OPERATORS[node.op](inputs[0], inputs[1])
    elif len(inputs) == 1 and inputs[0] is not None and node.op in _UNARY_OPERATORS:
        result = _UNARY_OPERATORS[node.op](inputs[0])
    if result is None or node.op not in _ROUNDED_OPERATORS:
        return result
    return _round_to_element_type(result, node)


def _round_to_element_type(unrounded: ElementRange, node: MessageNode) -> ElementRange | None:
    """The range after rounding to the node's element type; None for integers, which might overflow."""
    dtype = numpy_type(node.attribute("T").type)
    if dtype is None or (not np.issubdtype(dtype, np.floating) and dtype.name != "bfloat16"):
        return None
    with np.errstate(over="ignore"):
        ends = float(dtype.type(unrounded.low)), float(dtype.type(unrounded.high))
    return dataclasses.replace(unrounded, low=ends[0], high=ends[1])
