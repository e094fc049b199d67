"""Masks, comparisons and integers in floating-point arithmetic, for consumers that compute in floats only.

A mask is the numbers 0 and 1 from the input that it depends on to the node that reads it. An integer input is
the index of a row of a table, which is its number as a float: consumers read integers only as indices.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from ....registration import DataType, GraphContext, Value, onnx_symbolic
from ....registration.dtypes import FLOATS
from ..support import integers
from .arithmetic import select_by_numbers
from .selection import MAXIMUM_ROWS, one_hot_product
from .sizes import is_stored, static_shape

_EXACT_INTEGERS = 1 << 24
"""Floats represent every integer below this one."""
_UNKNOWN_RANGE = range(-(1 << 15), 1 << 15)
"""The numbers in the table of an input that selects no rows of a weight, and so has no limits."""
_MASK_ROWS = 256
"""The rows of the table that says whether an integer is 0."""
_SCALE = float(1 << 100)
"""Twice multiplied with the smallest positive number, it gives more than 1."""
_MOVEMENTS = {"Concat", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Tile"}
_MOVEMENTS |= {"Transpose", "Unsqueeze"}
_COMPARISONS = {"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"}
_UNBOUNDED = {"Acos", "Acosh", "Asin", "Atanh", "Div", "Log", "Pow", "Reciprocal", "Sqrt", "Tan"}
"""Operators with results that may be infinite or NaN for finite operands."""


class _Numbers(NamedTuple):
    """Integers as floats, and a bound of their absolute values."""

    value: Value
    bound: int


@onnx_symbolic("form::Where.numbers")
def where_numbers(g: GraphContext, condition: Value, X: Value, Y: Value) -> Value:
    """X * C + Y * (1 - C), where C is the condition as arithmetic of 0 and 1.

    Constant infinities become the largest number of the type. Operands of which elements that are not
    selected are often infinite or NaN, such as logarithms, are refused.
    """
    for operand in (X, Y):
        producer = operand.producer()
        if producer is not None and producer.op_type in _UNBOUNDED and g.constant_value(operand) is None:
            raise g.refuse(f"the product of 0 and an infinite result of {producer.op_type} is NaN")
    dtype = g.dtype(X)
    if dtype is None or dtype not in FLOATS:
        raise g.refuse("it selects integers or bools")
    return select_by_numbers(g, g.cast(mask_as_numbers(g, condition), dtype), X, Y)


@onnx_symbolic("form::Cast.numbers")
def cast_numbers(
    g: GraphContext, input: Value, to: int, saturate: int = 1, round_mode: str | None = None
) -> Value:
    """Bools and integers as floats, computed as floats from the inputs on."""
    dtype = g.dtype(input)
    if DataType(to) not in FLOATS or dtype is None or dtype in FLOATS:
        raise g.refuse("it does not convert bools or integers to floats")
    number = mask_as_numbers(g, input) if dtype is DataType.BOOL else _as_numbers(g, input).value
    return g.cast(number, DataType(to))


@onnx_symbolic("form::Gather.numbers")
def gather_numbers(g: GraphContext, data: Value, indices: Value, axis: int = 0) -> Value:
    """Rows of a constant table, selected by computed positions: the product of one-hot rows and the table."""
    table, shape = g.constant_value(data), g.shape(data)
    if table is None or shape is None or len(shape) != 2 or axis % 2 or g.dtype(data) not in FLOATS:
        raise g.refuse("the table is computed, no matrix, or not of floats")
    source = indices
    while (producer := source.producer()) is not None and producer.op_type in _MOVEMENTS:
        operand = producer.inputs[0]
        assert operand is not None
        source = operand
    if source.producer() is None or table.shape[0] > MAXIMUM_ROWS:
        raise g.refuse(f"the positions are an input, or the table has more than {MAXIMUM_ROWS} rows")
    return one_hot_product(g, data, _as_numbers(g, indices).value, static_shape(g, indices))


def mask_as_numbers(g: GraphContext, mask: Value) -> Value:
    """A value of bools as the numbers 0.0 and 1.0.

    Raises:
        UnsupportedError: an operator that computes the mask has no arithmetic form, or the mask is an input.
    """
    producer = mask.producer()
    # Folding computes this after the forms.
    if is_stored(mask):
        return g.cast(mask, DataType.FLOAT)
    if producer is None or producer.domain:
        raise g.refuse("a mask is an input of bools")
    operands = [operand for operand in producer.inputs if operand is not None]
    op_type = producer.op_type
    if op_type in _MOVEMENTS:
        count = len(operands) if op_type == "Concat" else 1
        return _move(g, producer, [mask_as_numbers(g, operand) for operand in operands[:count]])
    if op_type in _COMPARISONS:
        return _compare(g, op_type, operands[0], operands[1])
    if op_type == "Cast":
        return _nonzero(g, operands[0])
    if op_type in ("And", "Not", "Or", "Where", "Xor"):
        numbers = [mask_as_numbers(g, operand) for operand in operands]
        return _combine(g, op_type, numbers)
    raise g.refuse(f"a mask is computed by {op_type}")


def _combine(g: GraphContext, op_type: str, numbers: list[Value]) -> Value:
    first, *operands = numbers
    result: Value
    if op_type == "And":
        result = g.op("Mul", first, *operands)
    elif op_type == "Or":
        result = g.op("Max", first, *operands)
    elif op_type == "Xor":
        result = g.op("Abs", g.op("Sub", first, *operands))
    elif op_type == "Not":
        result = g.op("Sub", 1.0, first)
    else:
        result = select_by_numbers(g, first, *operands)
    return result


def _compare(g: GraphContext, op_type: str, first: Value, second: Value) -> Value:
    """A comparison by the sign of the difference, of which NaN and two equal infinities have none."""
    dtype = g.dtype(first)
    is_float = dtype in FLOATS
    result: Value
    if is_float:
        operands = [first, second]
        limits = [g.constant_value(operand) for operand in operands]
        if any(array is not None and not np.isfinite(array).all() for array in limits):
            raise g.refuse("a number is compared with infinity or NaN")
        # Infinities of masks are written as the lowest number: what is below that number is one of them.
        lowest = [array is not None and bool((array == np.finfo(array.dtype).min).all()) for array in limits]
        if (op_type, lowest.index(True) if any(lowest) else None) in (("Less", 1), ("Greater", 0)):
            op_type += "OrEqual"
    elif dtype is DataType.BOOL:
        operands = [mask_as_numbers(g, first), mask_as_numbers(g, second)]
    else:
        operands = [_as_numbers(g, first).value, _as_numbers(g, second).value]
    if op_type in ("Greater", "LessOrEqual"):
        operands.reverse()
    distance = g.op("Sub", operands[1], operands[0])
    if op_type == "Equal":
        distance = g.op("Abs", distance)
    # Integers differ by 1 or more, floats by a number that the products make larger than 1.
    for _ in range(2 if is_float else 0):
        distance = g.op("Clip", g.op("Mul", distance, g.constant(_SCALE, dtype)), min=0.0, max=1.0)
    result = distance if is_float else g.op("Clip", distance, min=0.0, max=1.0)
    return result if op_type in ("Less", "Greater") else g.op("Sub", g.constant(1.0, g.dtype(result)), result)


def _nonzero(g: GraphContext, operand: Value) -> Value:
    """Whether the elements differ from 0."""
    dtype = g.dtype(operand)
    if dtype is DataType.BOOL:
        return mask_as_numbers(g, operand)
    if dtype in FLOATS:
        return g.op("Sub", 1.0, _compare(g, "Equal", operand, g.constant(0.0, dtype)))
    product = operand.producer()
    if product is not None and product.op_type == "Mul":
        # The product itself may be too large for a float.
        return g.op("Mul", *(_nonzero(g, factor) for factor in product.inputs if factor is not None))
    source, path = operand, []
    while (producer := source.producer()) is not None and producer.op_type in _MOVEMENTS - {"Concat"}:
        path.append(producer)
        moved = producer.inputs[0]
        assert moved is not None
        source = moved
    if producer is not None or g.constant_value(source) is not None:
        return g.op("Clip", g.op("Abs", _as_numbers(g, operand).value), min=0.0, max=1.0)
    table = np.ones(_MASK_ROWS, np.float32)
    table[0] = 0
    number = _rows_of_table(g, table, source)
    for producer in reversed(path):
        number = _move(g, producer, [number])
    return number


def _as_numbers(g: GraphContext, value: Value) -> _Numbers:
    """A value of integers as floats, exactly.

    Raises:
        UnsupportedError: an operator that computes the integers has no form in floats, or they may be too
            large.
    """
    array, producer = g.constant_value(value), value.producer()
    if array is not None:
        bound = max((abs(int(number)) for number in array.reshape(-1)), default=0)
        result = _Numbers(g.constant(array.astype(np.float32), DataType.FLOAT), bound)
    elif producer is None:
        numbers = _input_range(g, value) or _UNKNOWN_RANGE
        # Rows for negative numbers are at the end, where negative indices select them.
        start, stop = min(numbers.start, 0), max(numbers.stop, 1)
        table = np.array([*range(stop), *range(start, 0)], np.float32)
        result = _Numbers(_rows_of_table(g, table, value), max(-start, stop))
    else:
        result = _computed_numbers(g, producer)
    if result.bound >= _EXACT_INTEGERS:
        raise g.refuse("integers may be too large for floats")
    return result


def _computed_numbers(g: GraphContext, producer: ir.Node) -> _Numbers:
    op_type = producer.op_type
    operands = [operand for operand in producer.inputs if operand is not None]
    if op_type == "Cast" and g.dtype(operands[0]) is DataType.BOOL:
        return _Numbers(mask_as_numbers(g, operands[0]), 1)
    if op_type == "Where":
        first, second = (_as_numbers(g, operand) for operand in operands[1:])
        selected = select_by_numbers(g, mask_as_numbers(g, operands[0]), first.value, second.value)
        return _Numbers(selected, max(first.bound, second.bound))
    is_integer = all(g.dtype(operand) not in FLOATS for operand in operands)
    if is_integer and op_type in {*_MOVEMENTS, "Cast", "Abs", "Neg", "CumSum", "ReduceSum"}:
        count = len(operands) if op_type == "Concat" else 1
        numbers = [_as_numbers(g, operand) for operand in operands[:count]]
        bound = max(number.bound for number in numbers)
        values = [number.value for number in numbers]
        if op_type == "Cast":
            return _Numbers(values[0], bound)
        if op_type in ("CumSum", "ReduceSum"):
            bound *= math.prod(static_shape(g, operands[0]))
        return _Numbers(_move(g, producer, values), bound)
    if is_integer and op_type in ("Add", "Mul", "Sub"):
        first, second = (_as_numbers(g, operand) for operand in operands)
        bound = first.bound * second.bound if op_type == "Mul" else first.bound + second.bound
        return _Numbers(g.op(op_type, first.value, second.value), bound)
    raise g.refuse(f"integers are computed by {op_type}")


def _move(g: GraphContext, node: ir.Node, operands: list[Value]) -> Value:
    """The operator of a node with other first inputs."""
    attributes = {name: attribute.value for name, attribute in node.attributes.items()}
    result: Value = g.op(node.op_type, *operands, *node.inputs[len(operands) :], **attributes)
    result.shape = node.outputs[0].shape
    return result


def _rows_of_table(g: GraphContext, table: np.ndarray, indices: Value) -> Value:
    """Elements of a table, as rows of one element: consumers know tables as embeddings."""
    sizes = static_shape(g, indices)
    rows = g.op("Gather", g.constant(table[:, None], DataType.FLOAT), indices, axis=0)
    result: Value = g.op("Reshape", rows, sizes)
    result.shape = ir.Shape(sizes)
    return result


def _input_range(g: GraphContext, value: Value) -> range | None:
    """The integers that an input may have, because they or sums with constants select rows of weights."""
    ranges: list[range] = []
    for node, position in value.uses():
        if node.op_type == "Gather" and position == 1:
            shape = None if node.inputs[0] is None else node.inputs[0].shape
            axis = node.attributes.get_int("axis", 0)
            size = shape[axis] if shape is not None else None
            if isinstance(size, int):
                ranges.append(range(-size, size))
        elif node.op_type in _MOVEMENTS and position == 0:
            ranges.extend(filter(None, [_input_range(g, node.outputs[0])]))
        elif node.op_type in ("Add", "Sub"):
            offsets = integers(g, node.inputs[1 - position])
            after = _input_range(g, node.outputs[0])
            if offsets and after is not None and (node.op_type == "Add" or position == 0):
                signed = [offset if node.op_type == "Add" else -offset for offset in offsets]
                ranges.append(range(after.start - max(signed), after.stop - min(signed)))
    if not ranges:
        return None
    return range(max(numbers.start for numbers in ranges), min(numbers.stop for numbers in ranges))
