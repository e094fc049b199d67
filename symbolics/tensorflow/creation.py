"""Creates tensors from numbers and shapes: fills, ranges, one-hot rows."""

import onnx_ir as ir

from ...registration import DataType, GraphContext, Value, dtypes, onnx_symbolic
from ..compositions.operator_tables import register_functions
from ..compositions.size_arithmetic import fold_size, known_rank
from ._common import integers, number, select_elements, shape_operand, vector


@onnx_symbolic("tf::Fill")
def fill(g: GraphContext, dims: Value, value: Value) -> Value:
    dtype, sizes = g.dtype(value) or DataType.FLOAT, shape_operand(g, dims)
    if dtype == DataType.STRING:
        # ConstantOfShape does not make strings.
        return g.op("Expand", value, vector(g, sizes))
    return g.call("composed::full", size=sizes, fill_value=value, dtype=dtype)


register_functions("tf", "x", {"OnesLike": lambda g, x: g.call("aten::ones_like", x, g.dtype(x))})


@onnx_symbolic("tf::ZerosLike")
def zeros_like(g: GraphContext, x: Value) -> Value:
    """Zeros, or empty strings."""
    if g.dtype(x) == DataType.STRING:
        return g.call("tf::Fill", g.op("Shape", x), g.constant("", DataType.STRING))
    return g.call("aten::zeros_like", x, g.dtype(x))


@onnx_symbolic("tf::Empty")
def empty(g: GraphContext, shape: Value, dtype: DataType, init: bool = False) -> Value:
    """TensorFlow leaves the elements undefined; here they are 0."""
    return g.call("composed::full", size=shape_operand(g, shape), fill_value=0, dtype=dtype)


def _scalar(g: GraphContext, value: Value) -> Value:
    """Set the rank of an operand to 0, which the operator demands."""
    if g.rank(value) is None:
        value = g.op("Reshape", value, g.constant([], DataType.INT64))
        value.shape = ir.Shape([])
    return value


@onnx_symbolic("tf::Range")
def range_(g: GraphContext, start: Value, limit: Value, delta: Value) -> Value:
    first, last, step = (_scalar(g, item) for item in (start, limit, delta))
    dtype = g.dtype(start) or DataType.INT32
    # Integers as ints let `arange` count its elements, and stay constants.
    numbers = [g.constant_value(item) if g.is_foldable(item) else None for item in (first, last, step)]
    if dtype in dtypes.INTEGERS:
        bounds = [
            item if array is None else int(array.item())
            for item, array in zip((first, last, step), numbers, strict=True)
        ]
        return g.call("aten::arange", start=bounds[0], end=bounds[1], step=bounds[2], dtype=dtype)
    return g.call("aten::arange", start=first, end=last, step=step, dtype=dtype)


@onnx_symbolic("tf::LinSpace")
def lin_space(g: GraphContext, start: Value, stop: Value, num: Value) -> Value:
    dtype = g.dtype(start) or DataType.FLOAT
    count = integers(g, num)
    first, last = _scalar(g, start), _scalar(g, stop)
    if count is not None:
        return g.call("aten::linspace", start=first, end=last, steps=count[0], dtype=dtype)
    total = number(g, num)
    # One element has no gap: a divisor of 1 avoids a division by zero.
    gaps = g.call("sym::max", a=g.call("sym::sub", a=total, b=1), b=1)
    step = g.op("Div", g.op("Sub", last, first), g.cast(gaps, dtype))
    positions = g.cast(g.call("sym::range", start=0, end=total), dtype)
    return g.op("Add", first, g.op("Mul", positions, step))


@onnx_symbolic("tf::OneHot")
def one_hot(
    g: GraphContext, indices: Value, depth: Value, on_value: Value, off_value: Value, axis: int = -1
) -> Value:
    """Rows of `off_value` with one `on_value`, or with none for an index out of range.

    ONNX's OneHot would count a negative index from the end.
    """
    rank = known_rank(g, indices)
    new_axis = g.axis(axis, rank + 1)
    count = fold_size(g, number(g, depth))
    column = g.op("Unsqueeze", g.cast(indices, DataType.INT64), axes=[new_axis])
    positions = g.call("sym::range", start=0, end=count)
    trailing = rank - new_axis
    # The positions must broadcast along the new axis, which may have dimensions after it.
    positions = g.op("Unsqueeze", positions, axes=list(range(1, trailing + 1))) if trailing else positions
    is_hot = g.op("Equal", column, positions)
    dtype = g.dtype(on_value)
    # The usual 1 and 0 need no Where: the comparison itself is cast.
    if dtype is not None and _is_number(g, on_value, 1) and _is_number(g, off_value, 0):
        return g.cast(is_hot, dtype)
    return select_elements(g, is_hot, on_value, off_value)


def _is_number(g: GraphContext, value: Value, expected: int) -> bool:
    """Whether a value is a constant with this one number."""
    array = g.constant_value(value)
    return array is not None and array.dtype.kind in "fiub" and array.item() == expected
