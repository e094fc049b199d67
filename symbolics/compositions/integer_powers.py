"""Powers of integers by repeated squaring: they wrap around as in torch. Pow computes in floats."""

import numpy as np
import onnx_ir as ir

from ...registration import DataType, GraphContext, Value
from .list_values import loop_inputs
from .size_arithmetic import is_non_negative

_MOST_UNROLLED_BITS = 6


def power_of_constant(g: GraphContext, base: Value, exponent: int) -> Value:
    """An integer to a constant power that is not negative."""
    result = None
    while exponent:
        if exponent & 1:
            result = base if result is None else g.op("Mul", result, base)
        exponent >>= 1
        base = g.op("Mul", base, base) if exponent else base
    return g.op("Add", g.op("Mul", base, 0), 1) if result is None else result


def power_of_number(g: GraphContext, base: np.ndarray, exponent: Value) -> Value:
    """The powers of one integer, from a table; those of even numbers from 64 on are 0."""
    exponent = g.cast(exponent, DataType.INT64)
    if base == -1:
        position, exponents = g.call("aten::remainder", exponent, 2), range(2)
    else:
        last = 64 if base % 2 == 0 else 1024
        position, exponents = g.op("Add", g.call("aten::clamp", exponent, -1, last), 1), range(-1, last + 1)
    width = 8 * base.itemsize
    powers = [int(base == 1) if e < 0 else pow(int(base), e, 1 << width) for e in exponents]
    table = np.array(powers, np.uint64).astype(f"uint{width}").view(base.dtype)
    return g.op("Gather", g.constant(table), position)


def power_of_integers(g: GraphContext, base: Value, exponent: Value) -> Value:
    """Integers to computed powers. Of negative powers only those of 1 and -1 are not 0 (ATen's `powi_impl`).

    A Loop with an iteration for each bit of the largest exponent, unless all exponents are known and small.
    """
    dtype = g.dtype(base) or DataType.INT64
    exponents = g.constant_value(exponent)
    base, exponent = g.cast(base, DataType.INT64), g.cast(exponent, DataType.INT64)
    is_unsigned = np.iinfo((g.dtype(exponent) or DataType.INT64).numpy()).min == 0
    if exponents is not None and exponents.size:
        is_unsigned = int(exponents.min()) >= 0
    has_negative = not (is_unsigned or is_non_negative(exponent))
    remaining = g.op("Abs", exponent) if has_negative else exponent
    # The operands are broadcast before the iterations.
    ones = g.op("Add", g.op("Add", g.op("Mul", base, 0), g.op("Mul", exponent, 0)), 1)
    values = [ones, g.op("Mul", base, ones), g.op("Mul", remaining, ones)]
    bits = None if exponents is None else max(map(abs, exponents.ravel().tolist()), default=0).bit_length()
    if bits is not None and bits <= _MOST_UNROLLED_BITS:
        for _ in range(bits):
            values = _multiply_by_bit(g, *values)
    else:
        values = _multiply_in_loop(g, values)
    result = values[0]
    if has_negative:
        is_unit = g.call("aten::eq", g.op("Abs", base), 1)
        keeps = g.op("Or", is_unit, g.op("Not", g.op("Less", exponent, 0)))
        result = g.op("Mul", result, g.cast(keeps, DataType.INT64))
    return g.cast(result, dtype)


def _multiply_by_bit(g: GraphContext, result: Value, square: Value, remaining: Value) -> list[Value]:
    """Multiply by the power of two that the lowest bit of the exponent stands for, and go to the next bit."""
    half = g.op("Div", remaining, 2)
    bit = g.op("Sub", remaining, g.op("Mul", half, 2))
    factor = g.op("Add", g.op("Mul", bit, g.op("Sub", square, 1)), 1)
    return [g.op("Mul", result, factor), g.op("Mul", square, square), half]


def _multiply_in_loop(g: GraphContext, values: list[Value]) -> list[Value]:
    names = ("power", "square", "remaining")
    tensor_type = ir.TensorType(DataType.INT64)
    formals = [
        Value(name=name, type=tensor_type, shape=value.shape)
        for name, value in zip(names, values, strict=True)
    ]

    def is_positive_anywhere(remaining: Value) -> Value:
        positive = g.cast(g.op("Greater", remaining, 0), DataType.FLOAT)
        # ReduceMax of no elements is undefined.
        return g.op("Greater", g.op("ReduceSum", positive, keepdims=0), 0.5)

    def build(iteration: Value, keep_going: Value, *carried: Value) -> list[Value]:
        results = _multiply_by_bit(g, *carried)
        return [is_positive_anywhere(results[-1]), *results]

    body = g.subgraph(build, [*loop_inputs(), *formals], "bit")
    keep_going = is_positive_anywhere(values[-1])
    results: list[Value] = g.op("Loop", None, keep_going, *values, body=body, outputs=len(values))
    for result, value in zip(results, values, strict=True):
        result.type, result.shape = value.type, value.shape
    return results
