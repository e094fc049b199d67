"""Forms of operators that compute each element by itself."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ....registration import DataType, GraphContext, Value, onnx_symbolic
from ....registration.dtypes import FLOATS
from .sizes import all_static, is_stored


def make_number(g: GraphContext, number: float, like: Value) -> Value:
    """A constant scalar of the element type of a value."""
    return g.constant(number, g.dtype(like))


def require_float(g: GraphContext, value: Value) -> None:
    if g.dtype(value) not in FLOATS:
        raise g.refuse("this form is one of floating-point numbers")


@onnx_symbolic("form::Neg.mul")
def neg_mul(g: GraphContext, X: Value) -> Value:
    """-1 * X."""
    return g.op("Mul", X, make_number(g, -1, X))


@onnx_symbolic("form::Neg.sub")
def neg_sub(g: GraphContext, X: Value) -> Value:
    """0 - X, but -0 for 0, of integers."""
    if g.dtype(X) in FLOATS or g.dtype(X) is None:
        raise g.refuse("the negative of 0.0 is -0.0, and 0 - 0.0 is 0.0")
    return g.op("Sub", make_number(g, 0, X), X)


@onnx_symbolic("form::Tanh.negative")
def tanh_of_negative(g: GraphContext, input: Value) -> Value:
    """-tanh(-x), which pnnx does not read as a part of x - tanh(x)."""
    return g.op("Neg", g.op("Tanh", g.op("Neg", input)))


@onnx_symbolic("form::Cast.comparison")
def cast_to_bool(g: GraphContext, input: Value, to: int, **attributes: Any) -> Value:
    """X != 0."""
    if DataType(to) != DataType.BOOL or g.dtype(input) in (None, DataType.BOOL):
        raise g.refuse("it does not convert numbers to bools")
    return g.op("Not", g.op("Equal", input, make_number(g, 0, input)))


@onnx_symbolic("form::Not.sub")
def not_sub(g: GraphContext, X: Value) -> Value:
    """1 - X, in FLOAT."""
    return g.cast(g.op("Sub", 1.0, g.cast(X, DataType.FLOAT)), DataType.BOOL)


@onnx_symbolic("form::Not.equal")
def not_equal(g: GraphContext, X: Value) -> Value:
    """X == 0, in FLOAT."""
    return g.op("Equal", g.cast(X, DataType.FLOAT), 0.0)


@onnx_symbolic("form::Not.less")
def not_less(g: GraphContext, X: Value) -> Value:
    """X < 0.5, in FLOAT."""
    return g.op("Less", g.cast(X, DataType.FLOAT), 0.5)


@onnx_symbolic("form::And.mul")
def and_mul(g: GraphContext, A: Value, B: Value) -> Value:
    """A * B, in FLOAT."""
    return g.cast(g.op("Mul", g.cast(A, DataType.FLOAT), g.cast(B, DataType.FLOAT)), DataType.BOOL)


@onnx_symbolic("form::Or.add")
def or_add(g: GraphContext, A: Value, B: Value) -> Value:
    """A + B, in FLOAT."""
    return g.cast(g.op("Add", g.cast(A, DataType.FLOAT), g.cast(B, DataType.FLOAT)), DataType.BOOL)


@onnx_symbolic("form::Or.max")
def or_max(g: GraphContext, A: Value, B: Value) -> Value:
    """The larger of A and B, in FLOAT; for consumers that store bools as numbers and expect 0 or 1."""
    return g.cast(g.op("Max", g.cast(A, DataType.FLOAT), g.cast(B, DataType.FLOAT)), DataType.BOOL)


@onnx_symbolic("form::Xor.abs")
def xor_abs(g: GraphContext, A: Value, B: Value) -> Value:
    """|A - B|, in FLOAT; for consumers that store bools as numbers and expect 0 or 1."""
    difference = g.op("Sub", g.cast(A, DataType.FLOAT), g.cast(B, DataType.FLOAT))
    return g.cast(g.op("Abs", difference), DataType.BOOL)


@onnx_symbolic("form::Xor.sub")
def xor_sub(g: GraphContext, A: Value, B: Value) -> Value:
    """A - B, in FLOAT."""
    return g.cast(g.op("Sub", g.cast(A, DataType.FLOAT), g.cast(B, DataType.FLOAT)), DataType.BOOL)


@onnx_symbolic("form::Where.arithmetic")
def where_arithmetic(g: GraphContext, condition: Value, X: Value, Y: Value) -> Value:
    """X * C + Y * (1 - C), where C is 1 or 0, of floating-point numbers of which each must be finite.

    Constant infinities become the largest number of the type. A computed infinity or NaN that is not selected
    makes the result NaN.
    """
    dtype = g.dtype(X)
    if dtype is None or dtype not in FLOATS:
        raise g.refuse("this form is one of floating-point numbers")
    return select_by_numbers(g, g.cast(condition, dtype), X, Y)


def select_by_numbers(g: GraphContext, condition: Value, X: Value, Y: Value) -> Value:
    """X where a condition is the number 1, and Y where it is 0."""
    complement = g.op("Add", g.op("Mul", condition, make_number(g, -1, X)), make_number(g, 1, X))
    terms = [
        g.op("Mul", _finite(g, operand), factor)
        for operand, factor in ((X, condition), (Y, complement))
        # A scalar 0 adds nothing, and no dimension either.
        if (array := g.constant_value(operand)) is None or array.ndim or array.any()
    ]
    if len(terms) == 2:
        return g.op("Add", *terms)
    return terms[0] if terms else g.op("Mul", condition, make_number(g, 0, X))


def _finite(g: GraphContext, value: Value) -> Value:
    array = g.constant_value(value)
    if array is None or np.isfinite(array).all():
        return value
    if np.isnan(array).any():
        raise g.refuse("a constant has NaN")
    limits = np.finfo(array.dtype)
    return g.constant(np.clip(array, limits.min, limits.max))


@onnx_symbolic("form::Greater.less")
def greater_less(g: GraphContext, A: Value, B: Value) -> Value:
    """B < A."""
    return g.op("Less", B, A)


@onnx_symbolic("form::Less.greater")
def less_greater(g: GraphContext, A: Value, B: Value) -> Value:
    """B > A."""
    return g.op("Greater", B, A)


@onnx_symbolic("form::Reciprocal.div")
def reciprocal_div(g: GraphContext, X: Value) -> Value:
    """1 / X."""
    return g.op("Div", make_number(g, 1, X), X)


@onnx_symbolic("form::Reciprocal.pow")
def reciprocal_pow(g: GraphContext, X: Value) -> Value:
    """X ** -1."""
    return g.op("Pow", X, make_number(g, -1, X))


@onnx_symbolic("form::Sqrt.pow")
def sqrt_pow(g: GraphContext, X: Value) -> Value:
    """X ** 0.5."""
    return g.op("Pow", X, make_number(g, 0.5, X))


@onnx_symbolic("form::Sub.add")
def sub_add(g: GraphContext, A: Value, B: Value) -> Value:
    """A + -1 * B."""
    return g.op("Add", A, g.op("Mul", B, make_number(g, -1, B)))


@onnx_symbolic("form::Div.pow")
def div_pow(g: GraphContext, A: Value, B: Value) -> Value:
    """A * B ** -1, of floating-point numbers."""
    require_float(g, A)
    return g.op("Mul", A, g.op("Pow", B, make_number(g, -1, B)))


@onnx_symbolic("form::Abs.max")
def abs_max(g: GraphContext, X: Value) -> Value:
    """The larger of X and -X."""
    return g.op("Max", X, g.op("Mul", X, make_number(g, -1, X)))


@onnx_symbolic("form::Abs.relu")
def abs_relu(g: GraphContext, X: Value) -> Value:
    """Relu(X) + Relu(-X), of floating-point numbers."""
    require_float(g, X)
    return g.op("Add", g.op("Relu", X), g.op("Relu", g.op("Mul", X, make_number(g, -1, X))))


@onnx_symbolic("form::LeakyRelu.relu")
def leaky_relu(g: GraphContext, X: Value, alpha: float = 0.01) -> Value:
    """Relu(X) - alpha * Relu(-X)."""
    negative = g.op("Relu", g.op("Mul", X, make_number(g, -1, X)))
    return g.op("Add", g.op("Relu", X), g.op("Mul", negative, make_number(g, -alpha, X)))


@onnx_symbolic("form::HardSigmoid.clip")
def hard_sigmoid(g: GraphContext, X: Value, alpha: float = 0.2, beta: float = 0.5) -> Value:
    """The line alpha * X + beta, between 0 and 1."""
    line = g.op("Add", g.op("Mul", X, make_number(g, alpha, X)), make_number(g, beta, X))
    return g.op("Clip", line, min=make_number(g, 0, X), max=make_number(g, 1, X))


@onnx_symbolic("form::Celu.elu")
def celu(g: GraphContext, X: Value, alpha: float = 1.0) -> Value:
    """Elu of the quotient, with another alpha than 1."""
    if alpha in (0, 1):
        raise g.refuse("alpha is 0 or 1")
    return g.op("Mul", g.op("Elu", g.op("Div", X, alpha)), alpha)


@onnx_symbolic("form::Pow.mul")
def pow_mul(g: GraphContext, X: Value, Y: Value) -> Value:
    """The square or the cube as products."""
    exponent = g.constant_value(Y)
    if exponent is None or exponent.size != 1 or exponent.item() not in (2, 3) or exponent.ndim > 1:
        raise g.refuse("the exponent is neither 2 nor 3")
    square = g.op("Mul", X, X)
    return square if exponent.item() == 2 else g.op("Mul", square, X)


@onnx_symbolic("form::Mul.half_of_input")
def mul_half_of_input(g: GraphContext, A: Value, B: Value) -> Value:
    """The half of a Gelu with Tanh is a factor of its input: consumers fail to fuse another order.

    Writes `x * 0.5 * (1 + Tanh(...))` for `x * (0.5 * (1 + Tanh(...)))`.
    """
    for x, product in ((A, B), (B, A)):
        node = product.producer()
        if node is None or node.op_type != "Mul" or node.domain:
            continue
        for half, total in (node.inputs, node.inputs[::-1]):
            added = None if total is None else total.producer()
            if half is None or g.constant_value(half) is None or added is None or added.op_type != "Add":
                continue
            sources = [value.producer() for value in added.inputs if value is not None]
            if any(source is not None and source.op_type == "Tanh" for source in sources):
                return g.op("Mul", g.op("Mul", x, half), total)
    raise g.refuse("it is not the product of a value with half of a Tanh and 1")


def _register_own_shape(op_type: str) -> None:
    @onnx_symbolic(f"form::{op_type}.own_shape")
    def with_reshaped_channel(g: GraphContext, A: Value, B: Value) -> Value:
        """An operand of one channel passes a Reshape to its own shape before its channel is broadcast."""
        operands = [A, B]
        shapes = [g.shape(operand) for operand in operands]
        for number, (shape, other) in enumerate(zip(shapes, reversed(shapes), strict=True)):
            if shape is None or other is None or len(shape) != len(other) or len(shape) < 3:
                continue
            producer = operands[number].producer()
            is_reshaped = is_stored(operands[number]) or (
                producer is not None and producer.op_type == "Reshape"
            )
            if shape[1] == 1 != other[1] and all_static(shape) and not is_reshaped:
                operands[number] = g.op("Reshape", operands[number], list(shape))
                return g.op(op_type, *operands)
        raise g.refuse("no computed operand has one channel, and the other one several")


for _op_type in ("Add", "Div", "Mul", "Sub"):
    _register_own_shape(_op_type)


@onnx_symbolic("form::Add.reshaped")
def add_reshaped(g: GraphContext, A: Value, B: Value) -> Value:
    """The first operand passes a Reshape to its own shape, which ends a pattern that consumers know."""
    shape, producer = g.shape(A), A.producer()
    if shape is None or not all_static(shape) or producer is None or producer.op_type == "Reshape":
        raise g.refuse("the sizes are not known, or it has a Reshape")
    return g.op("Add", g.op("Reshape", A, list(shape)), B)


@onnx_symbolic("form::Add.vector")
def add_vector(g: GraphContext, A: Value, B: Value) -> Value:
    """A constant with leading dimensions of size 1 as a vector, which consumers know as a bias."""
    operands = [A, B]
    for number, (operand, other) in enumerate(((A, B), (B, A))):
        array, rank = g.constant_value(operand), g.rank(other)
        if (
            array is not None
            and rank is not None
            and 1 < array.ndim <= rank
            and array.shape[-1] == array.size
        ):
            operands[number] = g.constant(array.reshape(-1), g.dtype(operand))
            return g.op("Add", *operands)
    raise g.refuse("no operand is a constant row with leading dimensions of size 1")


def _emit_unsqueezed(g: GraphContext, op_type: str, operands: list[Value]) -> Value:
    """Computed operands of two or more dimensions get the rank of the result by an Unsqueeze.

    Consumers without a batch dimension take a value that lacks it for one that they had removed it from, and
    broadcast from the wrong end. A Reshape does not tell them of the batch. A vector has one reading only.
    """
    ranks = [g.rank(operand) for operand in operands]
    rank_of_result = max((rank for rank in ranks if rank is not None), default=0)
    if None in ranks or rank_of_result < 4:
        raise g.refuse("a rank is unknown, or the result has few dimensions")
    unsqueezed = [
        g.op("Unsqueeze", operand, axes=list(range(rank_of_result - rank)))
        if rank is not None and 2 <= rank < rank_of_result and not is_stored(operand)
        else operand
        for operand, rank in zip(operands, ranks, strict=True)
    ]
    if unsqueezed == operands:
        raise g.refuse("no computed matrix has a lower rank than the result")
    return g.op(op_type, *unsqueezed)


def _emit_expanded(g: GraphContext, op_type: str, operands: list[Value]) -> Value:
    """The first of two operands that are both broadcast gets the shape of the result before."""
    first, second = (g.shape(operand) for operand in operands)
    if first is not None and second is not None:
        rank = max(len(first), len(second))
        sizes = [(*[1] * (rank - len(shape)), *shape) for shape in (first, second)]
        pairs = list(zip(*sizes, strict=True))
        if not (any(a == 1 != b for a, b in pairs) and any(b == 1 != a for a, b in pairs)):
            raise g.refuse("only one operand is broadcast")
    shape = g.op("Shape", g.op("Add", *operands))
    return g.op(op_type, g.op("Expand", operands[0], shape), operands[1])


def _is_reshaped_matrix(g: GraphContext, operand: Value) -> bool:
    """Whether the operand is a part of a matrix or a Reshape of one, or is computed from one element-wise."""
    shaping, producer = ("Gather", "Reshape", "Squeeze"), operand.producer()
    while producer is not None and producer.op_type not in shaping and len(producer.inputs) == 1:
        producer = producer.inputs[0].producer() if producer.inputs[0] is not None else None
    source = producer.inputs[0] if producer is not None and producer.op_type in shaping else None
    return source is not None and g.rank(source) != 1


def _emit_one_row(g: GraphContext, op_type: str, operands: list[Value], **attributes: int) -> Value:
    """A computed vector, beside a constant or a vector that was a matrix, as a matrix of one row."""
    ranks = [g.rank(operand) for operand in operands]
    if None in ranks or max(rank or 0 for rank in ranks) != 1:
        raise g.refuse("the result is not a vector")
    if not any(is_stored(operand) or _is_reshaped_matrix(g, operand) for operand in operands):
        raise g.refuse("no operand is constant or a reshaped matrix")
    rows = [
        g.op("Reshape", operand, [1, -1]) if rank == 1 and not is_stored(operand) else operand
        for operand, rank in zip(operands, ranks, strict=True)
    ]
    if rows == operands:
        raise g.refuse("no operand is a computed vector")
    return g.op("Reshape", g.op(op_type, *rows, **attributes), [-1])


def register_form_of_operands(op_type: str, form: str, emit: Callable[..., Value]) -> None:
    """Register a form by the names that the schema of the operator has for its operands."""
    if op_type in ("Max", "Min"):

        @onnx_symbolic(f"form::{op_type}.{form}")
        def of_several(g: GraphContext, data_0: list[Value]) -> Value:
            return emit(g, op_type, data_0)

    elif op_type == "Pow":

        @onnx_symbolic(f"form::{op_type}.{form}")
        def of_base(g: GraphContext, X: Value, Y: Value) -> Value:
            return emit(g, op_type, [X, Y])

    else:

        @onnx_symbolic(f"form::{op_type}.{form}")
        def of_two(g: GraphContext, A: Value, B: Value) -> Value:
            return emit(g, op_type, [A, B])


@onnx_symbolic("form::Where.one_row")
def where_of_rows(g: GraphContext, condition: Value, X: Value, Y: Value) -> Value:
    """Vectors as matrices of one row, if one is constant or a Reshape makes it of a matrix."""
    operands = [condition, X, Y]
    if any(g.rank(operand) not in (0, 1) for operand in operands):
        raise g.refuse("the result is not a vector")
    if not any(is_stored(operand) or _is_reshaped_matrix(g, operand) for operand in operands):
        raise g.refuse("no operand is constant or a reshaped matrix")
    rows = [
        operand if is_stored(operand) or not g.rank(operand) else g.op("Reshape", operand, [1, -1])
        for operand in operands
    ]
    return g.op("Reshape", g.op("Where", *rows), [-1])


@onnx_symbolic("form::Where.expanded")
def where_of_expanded(g: GraphContext, condition: Value, X: Value, Y: Value) -> Value:
    """Branches of several elements get the shape of the result before."""
    symbolic = [g.shape(operand) for operand in (condition, X, Y)]
    if any(sizes is None or not all_static(sizes) for sizes in symbolic):
        raise g.refuse("the sizes are not known")
    shapes = [tuple(size for size in sizes or () if isinstance(size, int)) for sizes in symbolic]
    shape = np.broadcast_shapes(*shapes)
    branches = [
        operand if math.prod(sizes) == 1 or sizes == shape else g.op("Expand", operand, [*shape])
        for operand, sizes in zip((X, Y), shapes[1:], strict=True)
    ]
    if branches == [X, Y]:
        raise g.refuse("no branch of several elements is broadcast")
    return g.op("Where", condition, *branches)


def _emit_pairs(g: GraphContext, op_type: str, operands: list[Value]) -> Value:
    """Several operands of different shapes two at a time."""
    shapes = [g.shape(operand) for operand in operands]
    if len(operands) < 3 or (None not in shapes and all(shape == shapes[0] for shape in shapes)):
        raise g.refuse("it has fewer than three operands, or all have one shape")
    return functools.reduce(lambda first, second: g.op(op_type, first, second), operands)


for _op_type in ("Max", "Min"):
    register_form_of_operands(_op_type, "pairs", _emit_pairs)


@onnx_symbolic("form::Sum.pairs")
def sum_of_pairs(g: GraphContext, data_0: list[Value]) -> Value:
    """Additions, two operands at a time."""
    return _emit_pairs(g, "Add", data_0)


@onnx_symbolic("form::Mean.pairs")
def mean_of_pairs(g: GraphContext, data_0: list[Value]) -> Value:
    """Additions, two operands at a time, divided by the number of operands."""
    return g.op("Div", _emit_pairs(g, "Add", data_0), make_number(g, len(data_0), data_0[0]))


for _op_type in ("Add", "Div", "Max", "Min", "Mul", "Pow", "Sub"):
    register_form_of_operands(_op_type, "unsqueezed", _emit_unsqueezed)
    register_form_of_operands(_op_type, "one_row", _emit_one_row)

register_form_of_operands("MatMul", "unsqueezed", _emit_unsqueezed)

for _op_type in ("Greater", "GreaterOrEqual", "Less", "LessOrEqual"):
    register_form_of_operands(_op_type, "expanded", _emit_expanded)

for _op_type in ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"):
    register_form_of_operands(_op_type, "one_row", _emit_one_row)


@onnx_symbolic("form::Mod.one_row")
def mod_of_rows(g: GraphContext, A: Value, B: Value, fmod: int = 0) -> Value:
    """A computed vector, beside a constant or the vector of a product, as a matrix of one row."""
    return _emit_one_row(g, "Mod", [A, B], fmod=fmod)


@onnx_symbolic("form::Floor.exact_quotient")
def floor_of_quotient(g: GraphContext, X: Value) -> Value:
    """The floor of a quotient, and 1 more where the remainder is a whole divisor.

    ncnn divides by an approximate reciprocal, and the floor of a quotient that should be 2 and is 1.9999999
    is 1. The remainder is exact where the quotient is small; a divisor of 0 has no remainder.
    """
    dividend, divisor = _operands_of_quotient(g, X)
    floor = g.op("Floor", g.op("Mul", dividend, g.op("Reciprocal", divisor)))
    excess = g.op("Sub", g.op("Sub", dividend, g.op("Mul", floor, divisor)), divisor)
    constant = g.constant_value(divisor)
    if constant is None or (constant < 0).any():
        excess = g.op("Mul", excess, divisor)
    # The floor of a number from -1 to 0 is 0 for 0 only.
    is_smaller = g.op("Floor", g.op("Clip", excess, make_number(g, -1, X), make_number(g, 0, X)))
    return g.op("Add", g.op("Add", floor, is_smaller), make_number(g, 1, X))


@onnx_symbolic("form::Ceil.exact_quotient")
def ceil_of_quotient(g: GraphContext, X: Value) -> Value:
    """The negative floor of the quotient of the negative dividend, as `Floor.exact_quotient` has it."""
    dividend, divisor = _operands_of_quotient(g, X)
    return g.op("Neg", floor_of_quotient(g, g.op("Div", g.op("Neg", dividend), divisor)))


def _operands_of_quotient(g: GraphContext, value: Value) -> tuple[Value, Value]:
    """The operands of the Div that computes a value of floats."""
    require_float(g, value)
    node = value.producer()
    operands = node.inputs if node is not None and node.op_type == "Div" and not node.domain else ()
    if len(operands) != 2 or operands[0] is None or operands[1] is None:
        raise g.refuse("the operand is no quotient")
    constant = g.constant_value(operands[1])
    if constant is not None and not constant.all():
        raise g.refuse("a divisor is 0")
    return operands[0], operands[1]
