"""Compositions at opsets 7 and 8 of ONNX operators that begin later, or whose element types do.

Selection uses positions: both alternatives are concatenated, and each result is gathered from one of them.
That is exact for every element type, infinity and NaN included.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from ...registration import DataType, GraphContext, Number, Value, dtypes, onnx_symbolic
from ...registration.construction.constant_pool import to_array
from ..compositions.size_arithmetic import Size, compute, known_rank, product, sizes_of
from ..compositions.special.formulas import Formula, polynomial
from ..compositions.special.hyperbolic_formulas import FORMULAS


def _positions(g: GraphContext, value: Value) -> tuple[Value, Size]:
    """The row-major position of each element, in the value's shape; and the number of elements."""
    shape = g.shape(value)
    if shape is not None and all(isinstance(size, int) for size in shape):
        static_sizes = [size for size in shape if isinstance(size, int)]
        count = math.prod(static_sizes)
        g.reserve(count)
        return g.constant(np.arange(count, dtype=np.int64).reshape(static_sizes)), count
    if shape is None:
        total = g.op("ReduceProd", g.op("Shape", value), axes=[0], keepdims=0)
        return g.op("Reshape", g.call("sym::range", start=0, end=total), g.op("Shape", value)), total
    sizes = sizes_of(g, value)
    return _grid(g, sizes), product(g, sizes)


def _grid(g: GraphContext, sizes: Sequence[Size]) -> Value:
    """The row-major positions of a shape, as a broadcast sum over dimensions.

    A Reshape of their range would read a size of 0 as a copy.
    """
    last = list(itertools.takewhile(lambda size: isinstance(size, int), reversed(sizes)))
    fixed = [size for size in reversed(last) if isinstance(size, int)]
    count = math.prod(fixed)
    g.reserve(count)
    # The trailing dimensions of known size are one constant; only the leading ones need nodes.
    result = g.constant(np.arange(count, dtype=np.int64).reshape(fixed))
    stride: Size = count
    for dim in reversed(range(len(sizes) - len(fixed))):
        steps = g.call("sym::range", start=0, end=sizes[dim])
        later = list(range(1, len(sizes) - dim))
        offsets = g.op("Unsqueeze", g.op("Mul", steps, stride), axes=later) if later else steps
        result = g.op("Add", offsets, result)
        stride = compute(g, "mul", stride, sizes[dim])
    return result


def _flat(g: GraphContext, value: Value) -> Value:
    return g.op("Reshape", value, [-1])


@onnx_symbolic("onnx::Where", opset=8)
def where(g: GraphContext, condition: Value, X: Value | Number, Y: Value | Number) -> Value:
    """Below 9: Gather from both alternatives."""
    dtype = next((g.dtype(operand) for operand in (X, Y) if isinstance(operand, Value)), None)
    first, second = g.constant(X, dtype), g.constant(Y, dtype)
    (first_positions, count), (second_positions, _) = _positions(g, first), _positions(g, second)
    second_positions = g.op("Add", second_positions, g.constant(count, DataType.INT64))
    # `second + condition * (first - second)` selects an index, without arithmetic on the elements.
    takes_first = g.cast(condition, DataType.INT64)
    positions = g.op(
        "Add", g.op("Mul", takes_first, g.op("Sub", first_positions, second_positions)), second_positions
    )
    return g.op("Gather", g.op("Concat", _flat(g, first), _flat(g, second), axis=0), positions)


@onnx_symbolic("onnx::Expand", opset=7)
def expand(g: GraphContext, input: Value, shape: Value | list[int | Value]) -> Value:
    """At 7: tile dimensions of known size 1, else gather by positions broadcast to the target shape."""
    target = g.constant(shape)
    if isinstance(shape, list) and g.rank(input) is not None:
        added = len(shape) - known_rank(g, input)
        input_sizes = (*[1] * added, *(g.shape(input) or ()))
        if added >= 0 and all(size == 1 or item == 1 for size, item in zip(input_sizes, shape, strict=True)):
            expanded = g.op("Unsqueeze", input, axes=list(range(added))) if added else input
            return g.op("Tile", expanded, target)
    target_array, length = g.constant_value(target), g.shape(target)
    if target_array is not None:
        g.reserve(*target_array.tolist())
        zeros = g.constant(np.zeros(target_array.tolist(), dtype=np.int64))
    elif length is not None and isinstance(length[0], int):
        g.reserve(length[0])
        zeros = g.op("Tile", g.constant(np.zeros([1] * length[0], dtype=np.int64)), target)
    else:
        raise g.refuse("the number of dimensions of the new shape must be known", first_opset=8)
    return g.op("Gather", _flat(g, input), g.op("Add", _positions(g, input)[0], zeros))


def _same_shape(g: GraphContext, a: Value, b: Value) -> tuple[Value, Value]:
    """Broadcast two values to the same shape."""
    if g.shape(a) is not None and g.shape(a) == g.shape(b) and None not in map(_name, g.shape(a) or ()):
        return a, b
    (first_positions, _), (second_positions, _) = _positions(g, a), _positions(g, b)
    first, second = (
        g.op("Add", positions, g.op("Mul", other_positions, 0))
        for positions, other_positions in (
            (first_positions, second_positions),
            (second_positions, first_positions),
        )
    )
    return g.op("Gather", _flat(g, a), first), g.op("Gather", _flat(g, b), second)


def _name(size: object) -> object:
    return size if isinstance(size, int) else getattr(size, "value", None)


def _register_broadcast_extreme(op_type: str, first_is_less: bool) -> None:
    @onnx_symbolic(f"composed::broadcast_{op_type.lower()}", opset=7)
    def extreme(g: GraphContext, a: Value, b: Value) -> Value:
        """Max and Min at 7: floats of the same shape; integers, and DOUBLE in onnxruntime, use Where."""
        if g.dtype(a) == DataType.DOUBLE:
            takes_second = g.op("Less", *((a, b) if not first_is_less else (b, a)))
            # Less is false for NaN, which must reach the result.
            return g.op("Where", g.op("Or", takes_second, g.op("IsNaN", b)), b, a)
        if g.dtype(a) not in dtypes.FLOATS:
            less = g.op("Less", a, b)
            return g.op("Where", less, a, b) if first_is_less else g.op("Where", less, b, a)
        return g.op(op_type, *_same_shape(g, a, b))


_register_broadcast_extreme("Max", first_is_less=False)
_register_broadcast_extreme("Min", first_is_less=True)


def _as_doubles(g: GraphContext, number: Value | Number) -> tuple[Value, Value]:
    """An integer as two exact doubles: its quotient by 2^32, and the remainder with the number's sign."""
    integer = g.constant(number, DataType.INT64)
    # Both halves have at most 32 bits, which DOUBLE represents exactly.
    high = g.op("Div", integer, 2**32)
    return g.cast(high, DataType.DOUBLE), g.cast(
        g.op("Sub", integer, g.op("Mul", high, 2**32)), DataType.DOUBLE
    )


@onnx_symbolic("onnx::Less", opset=8)
def less(g: GraphContext, A: Value | Number, B: Value | Number) -> Value:
    """Below 9: integers compare by halves, because Less takes only floats."""
    if any(isinstance(operand, Value) and g.dtype(operand) == DataType.UINT64 for operand in (A, B)):
        raise g.refuse("unsigned 64-bit integers cannot be compared", first_opset=9)
    (high, low), (other_high, other_low) = _as_doubles(g, A), _as_doubles(g, B)
    below, above = g.op("Less", high, other_high), g.op("Less", other_high, high)
    return g.op("Or", below, g.op("And", g.op("Not", above), g.op("Less", low, other_low)))


@onnx_symbolic("onnx::Greater", opset=8)
def greater(g: GraphContext, A: Value | Number, B: Value | Number) -> Value:
    """Below 9: Less with exchanged operands."""
    return g.op("Less", B, A) if isinstance(B, Value) else less(g, B, A)


@onnx_symbolic("onnx::IsNaN", opset=8)
def is_nan(g: GraphContext, X: Value) -> Value:
    """Below 9: neither below 1 nor above 0."""
    return g.op("Not", g.op("Or", g.op("Less", X, 1.0), g.op("Greater", X, 0.0)))


# The rational approximation of erf on [-4, 4] that Eigen and XLA compute in float32: x P(x^2) / Q(x^2).
_ERF_P = (
    -2.72614225801306e-10,
    2.77068142495902e-08,
    -2.10102402082508e-06,
    -5.69250639462346e-05,
    -7.34990630326855e-04,
    -2.95459980854025e-03,
    -1.60960333262415e-02,
)
_ERF_Q = (
    -1.45660718464996e-05,
    -2.13374055278905e-04,
    -1.68282697438203e-03,
    -7.37332916720468e-03,
    -1.42647390514189e-02,
)


@onnx_symbolic("onnx::Erf", opset=8)
def erf(g: GraphContext, input: Value) -> Value:
    """Below 9: a rational function with FLOAT accuracy. FLOAT16 cannot represent its coefficients."""
    if g.dtype(input) == DataType.DOUBLE:
        return g.call("composed::erf_of_double", input)
    if g.dtype(input) == DataType.FLOAT16:
        return g.cast(g.op("Erf", g.cast(input, DataType.FLOAT)), DataType.FLOAT16)
    # Beyond 4 erf is 1 in FLOAT, and the polynomials would grow without bound.
    x = g.op("Clip", input, min=-4.0, max=4.0)
    square = Formula(g, g.op("Mul", x, x))
    return (Formula(g, x) * polynomial(square, _ERF_P) / polynomial(square, _ERF_Q)).value


@onnx_symbolic("onnx::Sign", opset=8)
def sign(g: GraphContext, input: Value) -> Value:
    """Below 9: the difference of two comparisons."""
    dtype = g.dtype(input) or DataType.FLOAT
    positive = g.cast(g.op("Greater", input, 0), dtype)
    return g.op("Sub", positive, g.cast(g.op("Less", input, 0), dtype))


@onnx_symbolic("onnx::ConstantOfShape", opset=8)
def constant_of_shape(g: GraphContext, input: Value | list[int | Value], value: Any = None) -> Value:
    """Below 9: a constant, or for computed sizes one repeated element."""
    fill_value = value.numpy() if isinstance(value, ir.TensorProtocol) else value
    content = np.zeros(1, dtype=np.float32) if fill_value is None else to_array(fill_value).reshape(1)
    sizes = g.constant(input, DataType.INT64)
    sizes_array, shape = g.constant_value(sizes), g.shape(sizes)
    if sizes_array is not None:
        g.reserve(*sizes_array.tolist())
        return g.constant(np.full(sizes_array.tolist(), content))
    length = len(input) if isinstance(input, list) else None if shape is None else shape[0]
    if not isinstance(length, int):
        return g.op("Expand", g.constant(content.reshape(())), sizes)
    return g.op("Tile", g.constant(content.reshape([1] * length)), sizes)


@onnx_symbolic("onnx::Flatten", opset=8)
def flatten(g: GraphContext, input: Value, axis: int = 1) -> Value:
    """Before opset 9 Flatten takes floats only: reshapes to the sizes before an axis and from it on."""
    sizes = sizes_of(g, input)
    dim = axis if axis >= 0 else axis + len(sizes)
    rows, columns = product(g, sizes[:dim]), product(g, sizes[dim:])
    # Reshape infers one size by itself; a size of 0 is given, because -1 cannot be inferred beside it.
    if isinstance(columns, int) and columns:
        rows = -1
    elif isinstance(rows, int) and rows:
        columns = -1
    return g.op("Reshape", input, [rows, columns])


@onnx_symbolic("onnx::Scatter", opset=8)
def scatter(g: GraphContext, data: Value, indices: Value, updates: Value, axis: int = 0) -> Value:
    """Below 9: one slice of the indices after the other, so that the last write to a position stays.

    With constant indices and known sizes a Gather takes each element from the data or from the last update.
    """
    positions, sizes = g.constant_value(indices), g.shape(data)
    shape = [size for size in sizes or () if isinstance(size, int)]
    if positions is not None and sizes is not None and len(shape) == len(sizes):
        total = math.prod(shape)
        g.reserve(total)
        grid: list[Any] = list(np.indices(positions.shape))
        grid[axis] = positions % shape[axis]
        sources = np.arange(total)
        sources[np.ravel_multi_index(grid, shape).reshape(-1)] = total + np.arange(positions.size)
        elements = g.op("Concat", g.op("Reshape", data, [-1]), g.op("Reshape", updates, [-1]), axis=0)
        return g.op("Reshape", g.op("Gather", elements, sources, axis=0), shape)
    return g.call("composed::scatter_slices", data, axis, indices, updates, "none")


@onnx_symbolic("onnx::NonZero", opset=8)
def nonzero(g: GraphContext, X: Value) -> Value:
    """Below 9: the k-th position is the number of positions with at most k nonzero elements up to them."""
    shape = g.shape(X)
    if shape is not None and 0 in shape:
        return g.constant(np.zeros((len(shape), 0), dtype=np.int64))
    flat = _flat(g, X)
    is_nonzero = g.cast(g.cast(flat, DataType.BOOL), DataType.INT64)
    running_count = g.call("aten::cumsum", is_nonzero, 0)
    count = g.op("ReduceSum", is_nonzero, axes=[0], keepdims=0)
    ranks = g.op("Unsqueeze", g.call("sym::range", start=0, end=count), axes=[1])
    # Position k is passed by every running count up to k.
    passed = g.op("Not", g.op("Greater", g.op("Unsqueeze", running_count, axes=[0]), ranks))
    positions = g.op("ReduceSum", g.cast(passed, DataType.INT64), axes=[1], keepdims=0)
    rows: list[Value] = []
    for size in reversed(sizes_of(g, X)[1:]):
        # onnxruntime refuses to divide no positions by a size of 0.
        divisor = size if isinstance(size, int) else g.op("Max", size, 1)
        quotient = g.op("Div", positions, divisor)
        rows.insert(0, g.op("Unsqueeze", g.op("Sub", positions, g.op("Mul", quotient, divisor)), axes=[0]))
        positions = quotient
    rows.insert(0, g.op("Unsqueeze", positions, axes=[0]))
    return g.op("Concat", *rows, axis=0)


def _register_formula(op_type: str) -> None:
    @onnx_symbolic(f"onnx::{op_type}", opset=8)
    def compose(g: GraphContext, input: Value) -> Value:
        return FORMULAS[op_type](Formula(g, input)).value


for _op_type in FORMULAS:
    _register_formula(_op_type)
