"""Interval analysis of results: training flags, dropout rates and masks.

A constant of one element has a range of one number, and random numbers have the range from 0 to 1. What is
computed from them has a range too: `random + 1.0` is from 1 to 2, and its floor is 1 for all random numbers.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..element_types import numpy_type
from ..tensors import array_of
from .scope import Node

RANDOM = frozenset({"RandomUniform", "StatelessRandomUniform", "StatelessRandomUniformV2"})
"""Operators of random numbers from 0 on and below 1, whose first input is the shape."""
_LARGEST_INTEGER = 2**53
"""The largest number up to which all integers are floats."""
IDENTITIES = frozenset(
    "Identity RefIdentity StopGradient PreventGradient Snapshot EnsureShape Enter Exit".split()
)


@dataclasses.dataclass(frozen=True, slots=True)
class Range:
    """The lower and upper bound of the elements of a result.

    Attributes:
        low: the lowest number.
        high: the highest number.
        is_open: whether the highest number itself does not occur.
        is_scalar: whether the result is known to have no dimensions.
    """

    low: float
    high: float
    is_open: bool = False
    is_scalar: bool = False

    @property
    def point(self) -> float | None:
        """The value of all elements, if they are equal."""
        return self.low if self.low == self.high and not self.is_open else None


def constant(tensor: Any, shown: str) -> Range | None:
    """The range of a constant without dimensions, from its TensorProto."""
    kind = numpy_type(tensor.dtype)
    if kind is None or kind.kind in "Oc" or tensor.tensor_shape.dim:
        return None
    number = float(array_of(tensor, shown))
    if math.isnan(number) or (kind.kind in "iu" and abs(number) > _LARGEST_INTEGER):
        return None
    return Range(number, number, is_scalar=True)


def _moved(one: Range, number: Range, compute: Callable[[float, float], float]) -> Range | None:
    """Compute a sum, a difference, a product or a quotient of a range and a number."""
    if number.point is None:
        return None
    ends = compute(one.low, number.low), compute(one.high, number.low)
    if any(map(math.isnan, ends)) or ends[0] > ends[1]:
        return None
    # Elsewhere the largest random number may be rounded up to the end.
    is_open = one.is_open and ends in ((0.0, 1.0), (1.0, 2.0))
    return Range(*ends, is_open, one.is_scalar and number.is_scalar)


def _sum(one: Range, other: Range) -> Range | None:
    return _moved(one, other, operator.add) if other.point is not None else _moved(other, one, operator.add)


def _difference(one: Range, other: Range) -> Range | None:
    return _moved(one, other, operator.sub)


def _product(one: Range, other: Range) -> Range | None:
    if other.point is None:
        one, other = other, one
    # A negative factor would exchange the ends.
    return _moved(one, other, operator.mul) if other.low > 0 or one.point is not None else None


def _quotient(one: Range, other: Range) -> Range | None:
    return _moved(one, other, operator.truediv) if other.low > 0 else None


def _less(one: Range, other: Range, *, or_equal: bool) -> bool | None:
    """Whether all elements of one range are less than those of the other; None if unknown."""
    if one.high < other.low or (one.high == other.low and (or_equal or one.is_open)):
        return True
    if one.low > other.high or (one.low == other.high and (not or_equal or other.is_open)):
        return False
    return None


def _compare(compute: Callable[[Range, Range], bool | None]) -> Callable[[Range, Range], Range | None]:
    def compared(one: Range, other: Range) -> Range | None:
        found = compute(one, other)
        return None if found is None else _decided(found, one, other)

    return compared


def _decided(found: bool, *of: Range) -> Range:
    return Range(float(found), float(found), is_scalar=all(one.is_scalar for one in of))


def _equal(one: Range, other: Range) -> bool | None:
    if one.point is not None and other.point is not None:
        return one.point == other.point
    return None


def _and(one: Range, other: Range) -> bool | None:
    return False if 0.0 in (one.point, other.point) else True if one.point == other.point == 1.0 else None


def _or(one: Range, other: Range) -> bool | None:
    return True if 1.0 in (one.point, other.point) else False if one.point == other.point == 0.0 else None


def _negated(found: bool | None) -> bool | None:
    return None if found is None else not found


def _floor(one: Range) -> Range | None:
    if not math.isfinite(one.low) or not math.isfinite(one.high):
        return None
    low, high = math.floor(one.low), math.ceil(one.high) - 1 if one.is_open else math.floor(one.high)
    return Range(low, high, is_scalar=one.is_scalar)


def _not(one: Range) -> Range | None:
    return None if one.point is None else _decided(one.point == 0, one)


_OF_TWO: dict[str, Callable[[Range, Range], Range | None]] = {
    "Add": _sum,
    "AddV2": _sum,
    "Sub": _difference,
    "Mul": _product,
    "RealDiv": _quotient,
    "Div": _quotient,
    "Less": _compare(lambda one, other: _less(one, other, or_equal=False)),
    "LessEqual": _compare(lambda one, other: _less(one, other, or_equal=True)),
    "Greater": _compare(lambda one, other: _less(other, one, or_equal=False)),
    "GreaterEqual": _compare(lambda one, other: _less(other, one, or_equal=True)),
    "Equal": _compare(_equal),
    "NotEqual": _compare(lambda one, other: _negated(_equal(one, other))),
    "LogicalAnd": _compare(_and),
    "LogicalOr": _compare(_or),
}
_OF_ONE: dict[str, Callable[[Range], Range | None]] = {"Floor": _floor, "LogicalNot": _not}
_ROUNDED = frozenset("Add AddV2 Sub Mul RealDiv Div Floor".split())
"""Operators whose results are rounded to the element type."""


def infer_range(node: Node, inputs: Sequence[Range | None]) -> Range | None:
    """The range of a node's first result, from those of its inputs; None if it is not known."""
    if node.op in RANDOM:
        return Range(0.0, 1.0, is_open=True)
    if node.op in IDENTITIES:
        return inputs[0] if inputs else None
    if node.op == "Cast" and len(inputs) == 1 and inputs[0] is not None:
        # A cast of other numbers rounds them.
        return inputs[0] if inputs[0].point in (0.0, 1.0) else None
    found = None
    if len(inputs) == 2 and inputs[0] is not None and inputs[1] is not None and node.op in _OF_TWO:
        found = _OF_TWO[node.op](inputs[0], inputs[1])
    elif len(inputs) == 1 and inputs[0] is not None and node.op in _OF_ONE:
        found = _OF_ONE[node.op](inputs[0])
    return _rounded(found, node) if found is not None and node.op in _ROUNDED else found


def _rounded(found: Range, node: Node) -> Range | None:
    """The range after the rounding of the node's element type; None for integers that might overflow."""
    kind = numpy_type(node.attribute("T").type)
    if kind is None or (not np.issubdtype(kind, np.floating) and kind.name != "bfloat16"):
        return None
    with np.errstate(over="ignore"):
        ends = float(kind.type(found.low)), float(kind.type(found.high))
    return dataclasses.replace(found, low=ends[0], high=ends[1])
