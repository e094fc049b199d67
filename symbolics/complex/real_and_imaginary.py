"""Complex arithmetic on the real and imaginary parts of pairs, [..., 2]."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from ...registration import DataType, GraphContext, Number, Value
from ..compositions.size_arithmetic import known_rank

Operand = Value | Number | complex


@dataclasses.dataclass(frozen=True, slots=True)
class Parts:
    """The real and the imaginary part of a complex value, with the arithmetic of c10::complex.

    Attributes:
        g: the context that operators are emitted to.
        re: the real part.
        im: the imaginary part; None if it is known to be zero.
    """

    g: GraphContext
    re: Value
    im: Value | None = None

    @property
    def imaginary(self) -> Value:
        """The imaginary part, as zeros if it is None."""
        return self.im if self.im is not None else zeros_like(self.g, self.re)

    def pair(self) -> Value:
        """The value as a pair, [..., 2]."""
        g, rank = self.g, known_rank(self.g, self.re)
        real_array = g.constant_value(self.re) if self.im is None and g.is_foldable(self.re) else None
        if real_array is not None:
            return g.constant(np.stack([real_array, np.zeros_like(real_array)], axis=-1))
        real = g.op("Unsqueeze", self.re, axes=[rank])
        if self.im is None:
            # The pads are those before every dimension, then those behind: one zero behind the real part.
            return g.op("Pad", real, pads=[0] * (2 * rank + 1) + [1])
        return g.op("Concat", real, g.op("Unsqueeze", self.im, axes=[rank]), axis=rank)

    def map(self, function: Callable[[Value], Value]) -> Parts:
        """Apply a linear function to both parts."""
        return Parts(self.g, function(self.re), None if self.im is None else function(self.im))

    def conj(self) -> Parts:
        """The complex conjugate."""
        return self if self.im is None else Parts(self.g, self.re, self.g.op("Neg", self.im))

    def times_i(self) -> Parts:
        """The value times the imaginary unit."""
        return Parts(self.g, self.g.op("Neg", self.imaginary), self.re)

    def over_i(self) -> Parts:
        """The value divided by the imaginary unit."""
        return Parts(self.g, self.imaginary, self.g.op("Neg", self.re))

    def scale(self, factor: Value | float) -> Parts:
        """The value times a real factor."""
        im = None if self.im is None else self.g.op("Mul", self.im, factor)
        return Parts(self.g, self.g.op("Mul", self.re, factor), im)

    def __neg__(self) -> Parts:
        return Parts(
            self.g, self.g.op("Neg", self.re), None if self.im is None else self.g.op("Neg", self.im)
        )

    def __add__(self, addend: Parts | complex) -> Parts:
        return self._combine("Add", self._operand(addend))

    def __sub__(self, subtrahend: Parts | complex) -> Parts:
        subtrahend = self._operand(subtrahend)
        return (
            self + -subtrahend
            if self.im is None and subtrahend.im is not None
            else self._combine("Sub", subtrahend)
        )

    def _combine(self, op_type: str, operand: Parts) -> Parts:
        g = self.g
        re = g.op(op_type, self.re, operand.re)
        if self.im is None and operand.im is None:
            return Parts(g, re)
        # A part that is None still broadcasts to the result's shape.
        if self.im is None:
            return Parts(g, re, _broadcast(g, operand.imaginary, self.re))
        if operand.im is None:
            return Parts(g, re, _broadcast(g, self.im, operand.re))
        return Parts(g, re, g.op(op_type, self.im, operand.im))

    def __mul__(self, factor: Parts | complex) -> Parts:
        g, factor = self.g, self._operand(factor)
        if factor.im is None:
            return self.scale(factor.re)
        if self.im is None:
            return factor.scale(self.re)
        re = g.op("Sub", g.op("Mul", self.re, factor.re), g.op("Mul", self.im, factor.im))
        return Parts(g, re, g.op("Add", g.op("Mul", self.re, factor.im), g.op("Mul", self.im, factor.re)))

    def __truediv__(self, divisor: Parts | complex) -> Parts:
        """The quotient, scaled by the divisor's larger part to avoid overflow and underflow of its square."""
        g, divisor = self.g, self._operand(divisor)
        if divisor.im is None:
            # A real divisor divides each part, which is exact where the general formula rounds.
            im = None if self.im is None else g.op("Div", self.im, divisor.re)
            return Parts(g, g.op("Div", self.re, divisor.re), im)
        # After the division the larger part is 1 or -1, so the squares neither overflow nor vanish.
        scale = g.op("Max", g.op("Abs", divisor.re), g.op("Abs", divisor.im))
        scaled_divisor = Parts(g, g.op("Div", divisor.re, scale), g.op("Div", divisor.im, scale))
        product = self * scaled_divisor.conj()
        assert scaled_divisor.im is not None
        assert product.im is not None
        squares = (
            g.op("Mul", scaled_divisor.re, scaled_divisor.re),
            g.op("Mul", scaled_divisor.im, scaled_divisor.im),
        )
        denominator = g.op("Mul", g.op("Add", *squares), scale)
        return Parts(g, g.op("Div", product.re, denominator), g.op("Div", product.im, denominator))

    def matmul(self, right: Parts) -> Parts:
        """The matrix product."""
        g = self.g

        def product(a: Value, b: Value) -> Value:
            return g.op("MatMul", a, b)

        re = g.op("Sub", product(self.re, right.re), product(self.imaginary, right.imaginary))
        return Parts(g, re, g.op("Add", product(self.re, right.imaginary), product(self.imaginary, right.re)))

    def sum(self, dims: list[int], keepdim: bool = False) -> Parts:
        """The sum over dimensions."""
        return self.map(lambda part: self.g.call("aten::sum", part, dim=dims, keepdim=keepdim))

    def _operand(self, operand: Parts | complex) -> Parts:
        return operand if isinstance(operand, Parts) else number(self.g, operand, self.g.dtype(self.re))

    def modulus(self) -> Value:
        """The absolute value."""
        g = self.g
        if self.im is None:
            return g.op("Abs", self.re)
        return g.call("aten::hypot", self.re, self.im)

    def argument(self) -> Value:
        """The angle in the complex plane, in radians from -pi to pi."""
        return self.g.call("aten::atan2", self.imaginary, self.re)


def zeros_like(g: GraphContext, value: Value) -> Value:
    """Zeros with the shape and element type of a value."""
    return g.call("aten::zeros_like", value)


def _broadcast(g: GraphContext, part: Value, like: Value) -> Value:
    """A part broadcast to the common shape with another value."""
    sizes = g.shape(like)
    if sizes == () or (sizes == g.shape(part) and all(isinstance(size, int) for size in sizes or (None,))):
        return part
    return g.op("Add", part, zeros_like(g, like))


def number(g: GraphContext, scalar: complex, dtype: DataType | None) -> Parts:
    """A Python number as `Parts` of an element type."""
    scalar = complex(scalar)
    # Real numbers have no imaginary part, so that arithmetic with them stays real.
    return Parts(g, g.constant(scalar.real, dtype), g.constant(scalar.imag, dtype) if scalar.imag else None)


def split(g: GraphContext, pair: Value) -> Parts:
    """The parts of a pair; if `Parts.pair` made it, the values that it was joined from."""
    rank = known_rank(g, pair)
    if g.is_foldable(pair):
        array = g.constant_value(pair)
        if array is not None:
            # A constant whose imaginary part is 0 is treated as real.
            im = g.constant(array[..., 1]) if array[..., 1].any() else None
            return Parts(g, g.constant(array[..., 0]), im)
    parts = _joined_parts(pair, rank)
    if parts is not None:
        return Parts(g, *parts)
    return Parts(g, g.op("Gather", pair, 0, axis=rank - 1), g.op("Gather", pair, 1, axis=rank - 1))


def operands(g: GraphContext, *arguments: Operand) -> list[Parts]:
    """Pairs and Python numbers as `Parts`; numbers get the element type of the first pair."""
    dtype = next((g.dtype(operand) for operand in arguments if isinstance(operand, Value)), None)
    return [
        split(g, operand) if isinstance(operand, Value) else number(g, operand, dtype)
        for operand in arguments
    ]


def _joined_parts(pair: Value, rank: int) -> tuple[Value, Value | None] | None:
    """The values that `Parts.pair` joined."""
    producer = pair.producer()
    if producer is None or producer.domain:
        return None
    if producer.op_type == "Concat" and len(producer.inputs) == 2:
        parts = [_before_unsqueeze(value, rank) for value in producer.inputs]
        axis = producer.attributes["axis"].as_int()
        if axis == rank - 1 and parts[0] is not None and parts[1] is not None:
            return parts[0], parts[1]
    # A Pad by one zero at the end of the last dimension is a real number as a pair.
    if producer.op_type == "Pad" and _numbers(producer, "pads") == [0] * (2 * rank - 1) + [1]:
        mode = producer.attributes.get("mode")
        part = _before_unsqueeze(producer.inputs[0], rank)
        if part is not None and (mode is None or mode.as_string() == "constant"):
            return part, None
    return None


def _before_unsqueeze(value: Value | None, rank: int) -> Value | None:
    producer = value.producer() if value is not None else None
    if producer is None or producer.op_type != "Unsqueeze" or _numbers(producer, "axes") != [rank - 1]:
        return None
    return producer.inputs[0]


def _numbers(node: ir.Node, name: str) -> list[int] | None:
    """The numbers of an argument that is an attribute up to some opset, and the second input after it."""
    if name in node.attributes:
        return list(node.attributes[name].as_ints())
    value = node.inputs[1] if len(node.inputs) > 1 else None
    array = value.const_value if value is not None else None
    return None if array is None else array.numpy().reshape(-1).tolist()
