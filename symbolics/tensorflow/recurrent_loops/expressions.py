"""Expressions that one iteration of a recurrent loop computes from its input, states and weights.

Equal expressions are one object, so that `is` compares them. Every expression is a matrix [batch, width],
except for `Weights` and numbers, which no iteration changes.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any, TypeAlias

from ....registration import Value

_MAXIMUM_TERMS = 8
"""Maximum terms of a linear combination; recurrent layers have at most four."""
INPUT = -1
"""The position of an iteration's input, where states have their index among the loop variables."""


@dataclasses.dataclass(frozen=True)
class Weights:
    """A block of a loop-invariant tensor.

    Attributes:
        value: the tensor: a value of the ONNX graph, or a constant of the source graph.
        ranges: the first element and the end of the block along each axis of the tensor.
        axes: the axes that the block has; along the others it has one element.
    """

    value: Value
    ranges: tuple[tuple[int, int], ...]
    axes: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the block."""
        return tuple(self.ranges[axis][1] - self.ranges[axis][0] for axis in self.axes)

    def part(self, axis: int, begin: int, end: int) -> Weights:
        """A part along one axis of the block."""
        tensor_axis = self.axes[axis]
        block_start = self.ranges[tensor_axis][0]
        ranges = list(self.ranges)
        ranges[tensor_axis] = block_start + begin, block_start + end
        return Weights(self.value, tuple(ranges), self.axes)

    def without(self, axis: int) -> Weights:
        """The block without an axis of one element."""
        return Weights(self.value, self.ranges, (*self.axes[:axis], *self.axes[axis + 1 :]))


@dataclasses.dataclass(frozen=True, eq=False)
class LoopOperand:
    """The input of the iteration, or a state before it, by its index among the loop variables or `INPUT`."""

    position: int
    width: int | None


@dataclasses.dataclass(frozen=True, eq=False)
class SideBySide:
    """Expressions side by side."""

    parts: tuple[Expression, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Linear:
    """A sum of matrix products, of elementwise products with vectors (peepholes), of vectors and numbers."""

    products: tuple[tuple[Expression, Weights], ...]
    peepholes: tuple[tuple[Expression, Weights], ...] = ()
    biases: tuple[Weights | float, ...] = ()

    @property
    def width(self) -> int:
        """The number of columns."""
        return (*self.products, *self.peepholes)[0][1].shape[-1]


@dataclasses.dataclass(frozen=True, eq=False)
class Mapped:
    """A function of each element: an activation of ONNX's recurrent operators, or `Clip` to a range."""

    function: str
    alpha: float
    beta: float
    argument: Expression


@dataclasses.dataclass(frozen=True, eq=False)
class Multiplied:
    """An elementwise product."""

    factors: tuple[Expression, Expression]


@dataclasses.dataclass(frozen=True, eq=False)
class Added:
    """A sum of two expressions, at least one of which is not a linear combination."""

    terms: tuple[Expression, Expression]


Expression: TypeAlias = LoopOperand | SideBySide | Linear | Mapped | Multiplied | Added
Term: TypeAlias = LoopOperand | SideBySide | Linear | Mapped | Multiplied | Added | Weights | float


class Algebra:
    """Makes expressions. A method returns None for expressions that no recurrent operator computes."""

    def __init__(self) -> None:
        self._expressions: dict[tuple[Any, ...], Any] = {}

    def make(self, expression_class: Any, *fields: Any) -> Any:
        """Make an expression of a class with these fields."""
        key = (expression_class, *fields)
        if key not in self._expressions:
            self._expressions[key] = expression_class(*fields)
        return self._expressions[key]

    def linear(self, term: Term | None) -> Linear | None:
        """A term as a linear combination."""
        if isinstance(term, Linear):
            return term
        # x + offset: the offset is a bias.
        if isinstance(term, Mapped) and (term.function, term.alpha) == ("Affine", 1):
            inner = self.linear(term.argument)
            return None if inner is None else self.add_to(inner, biases=(term.beta,))
        return None

    def add_to(self, linear: Linear, products: Any = (), peepholes: Any = (), biases: Any = ()) -> Any:
        """A linear combination with further terms."""
        fields = [(*linear.products, *products), (*linear.peepholes, *peepholes), (*linear.biases, *biases)]
        return self.make(Linear, *fields) if max(map(len, fields)) <= _MAXIMUM_TERMS else None

    def add(self, a: Term, b: Term) -> Term | None:
        """A sum."""
        if isinstance(a, (float, Weights)):
            a, b = b, a
        if isinstance(a, (float, Weights)):
            return None
        if isinstance(b, float):
            return self.affine(a, 1.0, b)
        first = self.linear(a)
        if isinstance(b, Weights):
            fits = first is not None and b.shape == (first.width,)
            return self.add_to(first, biases=(b,)) if fits else None  # type: ignore[arg-type]
        second = self.linear(b)
        if first is None or second is None:
            result: Term | None = self.make(Added, (a, b))
            return result
        if first.width != second.width:
            return None
        result = self.add_to(first, second.products, second.peepholes, second.biases)
        return result

    def multiply(self, a: Term, b: Term) -> Term | None:
        """An elementwise product."""
        if isinstance(a, (float, Weights)):
            a, b = b, a
        if isinstance(a, (float, Weights)):
            return None
        if isinstance(b, float):
            return self.affine(a, b, 0.0)
        if isinstance(b, Weights):
            return self.make(Linear, (), ((a, b),)) if len(b.shape) == 1 else None
        result: Term | None = self.make(Multiplied, (a, b))
        return result

    def affine(self, a: Expression, scale: float, offset: float) -> Expression:
        """`scale * a + offset`."""
        if isinstance(a, Mapped) and a.function == "Affine":
            scale, offset = scale * a.alpha, scale * a.beta + offset
            a = a.argument
        # A positive factor keeps the order of the limits, so the Clip can stay outermost.
        if isinstance(a, Mapped) and a.function == "Clip" and offset == 0 and scale > 0:
            return self.clip(self.affine(a.argument, scale, 0.0), scale * a.alpha, scale * a.beta)
        if (scale, offset) == (1, 0):
            return a
        result: Expression = self.make(Mapped, "Affine", scale, offset, a)
        return result

    def clip(self, a: Expression, low: float, high: float) -> Expression:
        """Limit elements to a range; the range from 0 to 1 is a HardSigmoid."""
        if isinstance(a, Mapped) and a.function == "Clip":
            if a.alpha > high or low > a.beta:
                result: Expression = self.make(Mapped, "Clip", low, high, a)
                return result
            low, high = max(low, a.alpha), min(high, a.beta)
            a = a.argument
        # Keras divides a Relu6 by 6, so the upper bound may differ from 1 by rounding.
        if low == 0 and abs(high - 1) < 1e-6:
            scale, offset, argument = 1.0, 0.0, a
            if isinstance(a, Mapped) and a.function == "Affine":
                scale, offset, argument = a.alpha, a.beta, a.argument
            result = self.make(Mapped, "HardSigmoid", scale, offset, argument)
            return result
        result = self.make(Mapped, "Clip", low, high, a)
        return result

    def matmul(self, a: Term, b: Term) -> Term | None:
        """A product with a matrix of weights."""
        if not isinstance(b, Weights) or len(b.shape) != 2 or isinstance(a, (float, Weights)):
            return None
        if not isinstance(a, SideBySide):
            product: Term | None = self.make(Linear, ((a, b),))
            return product
        widths = [width_of(part) for part in a.parts]
        if widths.count(None) > 1:
            return None
        # At most one part has an unknown width: it takes the remaining rows of the matrix.
        unknown_width = b.shape[0] - sum(width for width in widths if width is not None)
        ends = list(itertools.accumulate(unknown_width if width is None else width for width in widths))
        if ends[-1] != b.shape[0] or (None in widths and unknown_width <= 0):
            return None
        parts = zip(a.parts, [0, *ends], ends, strict=False)
        product = self.make(Linear, tuple((part, b.part(0, begin, end)) for part, begin, end in parts))
        return product

    def columns(self, a: Term | None, begin: int, end: int) -> Term | None:
        """Some columns; of weights, those along the last axis."""
        if isinstance(a, Weights):
            return a.part(len(a.shape) - 1, begin, end)
        if isinstance(a, Mapped):
            inner = self.columns(a.argument, begin, end)
            return None if inner is None else self.make(Mapped, a.function, a.alpha, a.beta, inner)
        if not isinstance(a, Linear) or a.peepholes:
            return None
        result: Term | None = self.make(
            Linear,
            tuple((operand, weights.part(1, begin, end)) for operand, weights in a.products),
            (),
            tuple(item if isinstance(item, float) else item.part(0, begin, end) for item in a.biases),
        )
        return result


def width_of(a: Term | None) -> int | None:
    """The number of columns, if known."""
    if isinstance(a, (LoopOperand, Linear)):
        return a.width
    if isinstance(a, Weights):
        return a.shape[-1] if a.shape else None
    if isinstance(a, Mapped):
        return width_of(a.argument)
    if isinstance(a, (Multiplied, Added)):
        operands = a.factors if isinstance(a, Multiplied) else a.terms
        return next((width for width in map(width_of, operands) if width is not None), None)
    return None
