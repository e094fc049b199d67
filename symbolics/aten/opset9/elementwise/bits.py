"""Operators on integers: bitwise logic, shifts, hashes, greatest common divisor, least common multiple."""

from collections.abc import Sequence

import numpy as np

from .....registration import DataType, GraphContext, Number, Value, dtypes, onnx_symbolic
from ....compositions.bits import bit_width, floored_modulo
from ....compositions.list_values import loop_inputs
from ....compositions.operands import as_operands
from ....compositions.size_arithmetic import known_rank
from ....compositions.special.formulas import Formula, broadcast, iterate


def _register_bitwise(name: str, logical: str) -> None:
    @onnx_symbolic([f"aten::bitwise_{name}", f"aten::__{name}__"])
    def bitwise(g: GraphContext, self: Value | Number, other: Value | Number) -> Value:
        self, other = as_operands(g, self, other)
        return g.op(logical if g.dtype(self) == DataType.BOOL else f"Bitwise{logical}", self, other)


_register_bitwise("and", "And")
_register_bitwise("or", "Or")
_register_bitwise("xor", "Xor")


@onnx_symbolic("aten::bitwise_not")
def bitwise_not(g: GraphContext, self: Value) -> Value:
    return g.op("Not" if g.dtype(self) == DataType.BOOL else "BitwiseNot", self)


def _shift(
    g: GraphContext, self: Value | Number, shift_operand: Value | Number
) -> tuple[Formula, Formula, Formula, Value]:
    """The operand and the shift as INT64, whether the shift is within the type, and the original operand."""
    value, amount = as_operands(g, self, shift_operand)
    if g.dtype(value) == DataType.UINT64:
        raise g.refuse("shifts of UINT64 are not supported")
    shift = Formula(g, g.constant(amount, DataType.INT64))
    # C++ does not define other shifts; ATen gives 0, or the sign.
    inside = (shift > -1) & (shift < bit_width(g, value))
    return Formula(g, g.cast(value, DataType.INT64)), shift, inside, value


def _power_of_two(exponent: Formula, largest: int) -> Formula:
    """Exact powers of two, for exponents from 0 to `largest`."""
    powers = np.left_shift(np.int64(1), np.arange(largest + 1, dtype=np.int64))
    return Formula(exponent.g, exponent.g.op("Gather", powers, exponent.value))


@onnx_symbolic(["aten::bitwise_left_shift", "aten::__lshift__"])
def bitwise_left_shift(g: GraphContext, self: Value | Number, other: Value | Number) -> Value:
    """Left shift; 0 if the shift is negative or not less than the number of bits."""
    value, shift, inside, like = _shift(g, self, other)
    amount = inside.chosen(shift, 0)
    result = inside.chosen(value * _power_of_two(amount, bit_width(g, like) - 1), 0)
    return g.cast(result.value, g.dtype(like) or DataType.INT64)


@onnx_symbolic(["aten::bitwise_right_shift", "aten::__rshift__"])
def bitwise_right_shift(g: GraphContext, self: Value | Number, other: Value | Number) -> Value:
    """Right shift as flooring division; a shift that is negative or too long leaves only the sign."""
    value, shift, inside, like = _shift(g, self, other)
    width = bit_width(g, like)
    # Two divisions, because the power of two for a whole shift does not fit a signed type.
    first, second = (width // 2, width - width // 2)
    amount = inside.chosen(shift, width - 1 if g.dtype(like) not in dtypes.UNSIGNED else width)
    near = (amount < first).chosen(amount, first)
    for part, largest in ((near, first), (amount - near, second)):
        divisor = _power_of_two(part, largest)
        value = (value - floored_modulo(value, divisor)) / divisor
    return g.cast(value.value, g.dtype(like) or DataType.INT64)


def _greatest_divisor(a: Formula, b: Formula) -> Formula:
    """Euclid's algorithm on INT64."""

    def step(_: Formula, smaller: Formula, larger: Formula) -> tuple[list[Formula], Formula]:
        vanishes = smaller.equals(0)
        # Elements that are done still compute; a divisor of 1 keeps them from dividing by 0.
        divisor = vanishes.chosen(1, smaller)
        remainder = vanishes.chosen(0, larger - larger / divisor * divisor)
        return [remainder, smaller], remainder > 0

    a, b = broadcast(abs(a), b), broadcast(abs(b), a)
    return iterate(a > 0, [a, b], step)[1]


@onnx_symbolic("aten::gcd")
def gcd(g: GraphContext, self: Value, other: Value) -> Value:
    a, b = (Formula(g, g.cast(value, DataType.INT64)) for value in (self, other))
    return g.cast(_greatest_divisor(a, b).value, g.dtype(self) or DataType.INT64)


@onnx_symbolic("aten::lcm")
def lcm(g: GraphContext, self: Value, other: Value) -> Value:
    """The least common multiple; 0 if both are 0. The absolute value has at least 32 bits, as in C."""
    a, b = (Formula(g, g.cast(value, DataType.INT64)) for value in (self, other))
    divisor = _greatest_divisor(a, b)
    # Division first keeps the product small.
    product = a / divisor.equals(0).chosen(1, divisor) * b
    dtype = g.dtype(self) or DataType.INT64
    counted = g.cast(product.value, dtype) if dtype == DataType.INT32 else product.value
    return g.cast(g.op("Abs", counted), dtype)


@onnx_symbolic("aten::hash_tensor")
def hash_tensor(
    g: GraphContext, self: Value, dim: Sequence[int] = (), keepdim: bool = False, mode: int = 0
) -> Value:
    """The exclusive or of all numbers as 64 bits: floats are cast to DOUBLE, integers to INT64.

    A Loop over the bits finds whether each is set an odd number of times; ONNX has no such reduction.
    """
    if mode != 0:
        raise g.refuse(f"mode {mode} is unknown; PyTorch does not have it either")
    if g.dtype(self) in dtypes.FLOATS:
        numbers = g.call("composed::bits_of_double", g.cast(self, DataType.DOUBLE))
    else:
        numbers = g.cast(self, DataType.INT64)
    rank = known_rank(g, self)
    axes = sorted({axis % rank for axis in dim}) or list(range(rank)) if rank else None

    powers = np.left_shift(np.int64(1), np.arange(64, dtype=np.int64))

    def build(iteration: Value, condition: Value, remaining_bits: Value, result: Value) -> list[Value]:
        number = Formula(g, remaining_bits)
        bit = floored_modulo(number, 2)
        count = bit.value if axes is None else g.op("ReduceSum", bit.value, axes=axes, keepdims=int(keepdim))
        power = Formula(g, g.op("Gather", powers, iteration, axis=0))
        total = floored_modulo(Formula(g, count), 2) * power + Formula(g, result)
        return [condition, ((number - bit) / 2).value, total.value]

    zero = g.constant(0)
    formals = [Value(name="rest", type=numbers.type, shape=numbers.shape), Value(name="hash", type=zero.type)]
    body = g.subgraph(build, [*loop_inputs(), *formals], "bits")
    _, result = g.op("Loop", g.constant(64), None, numbers, zero, body=body, outputs=2)
    result.type = zero.type
    return g.cast(result, DataType.UINT64)
