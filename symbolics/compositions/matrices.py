"""Batches of matrices: rows, columns, masks and loops for the compositions of linear algebra.

A matrix is the last two dimensions of a value of known rank; the other dimensions are its batch. Loops run
over rows or columns, and each step works on the whole batch.
"""

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from ...registration import DataType, GraphContext, Number, Value
from ...registration.functions.results import as_list
from .list_values import loop_inputs
from .size_arithmetic import Size, compute, fold_size, known_rank

Step = Callable[..., Sequence[Value]]
"""Maps the number of the step (zero-dim INT64) and the carried values to new carried values."""


def matrix_rank(g: GraphContext, value: Value) -> int:
    """The rank of a batch of matrices.

    Raises:
        UnsupportedError: the rank is unknown.
    """
    rank = known_rank(g, value)
    if rank < 2:
        raise g.refuse("a matrix must have at least two dimensions")
    return rank


def height(g: GraphContext, value: Value) -> Size:
    """The number of rows."""
    return fold_size(g, g.size(value, matrix_rank(g, value) - 2))


def width(g: GraphContext, value: Value) -> Size:
    """The number of columns."""
    return fold_size(g, g.size(value, matrix_rank(g, value) - 1))


def shorter(g: GraphContext, value: Value) -> Size:
    """The smaller of the two sizes of a matrix."""
    return compute(g, "min", height(g, value), width(g, value))


def batch_sizes(g: GraphContext, value: Value) -> list[Size]:
    """The sizes before the last two."""
    return [fold_size(g, g.size(value, dim)) for dim in range(matrix_rank(g, value) - 2)]


def dtype_of(g: GraphContext, value: Value) -> DataType:
    """The element type of a matrix, which must be a float type.

    Raises:
        UnsupportedError: it is not a float type.
    """
    dtype = g.dtype(value) or DataType.FLOAT
    if dtype not in (DataType.FLOAT, DataType.DOUBLE):
        raise g.refuse(f"matrices must be FLOAT or DOUBLE, not {dtype.name}: cast them before")
    return dtype


def zeros(g: GraphContext, sizes: Sequence[Size], dtype: DataType) -> Value:
    """Zeros of given sizes, some of which may be computed."""
    result = g.call("composed::full", size=list(sizes), fill_value=0, dtype=dtype)
    if result.producer() is not None:
        result.shape = ir.Shape([size if isinstance(size, int) else None for size in sizes])
    return result


def positions(g: GraphContext, count: Size) -> Value:
    """The numbers from 0 to `count - 1`, INT64 `[count]`."""
    return g.call("packed::positions", count=count)


def numbers(g: GraphContext, count: Size) -> Value:
    """The numbers from 0 to `count - 1`, FLOAT `[count]`: below opset 9 only floats can be compared."""
    if isinstance(count, int):
        g.reserve(count)
        return g.constant(np.arange(count, dtype=np.float32))
    return g.cast(positions(g, count), DataType.FLOAT)


def where(g: GraphContext, mask: Value, self: Value, otherwise: Value | Number) -> Value:
    """`self` where the mask is true, else `other`."""
    return g.call("packed::chosen", mask=mask, self=self, other=otherwise)


def unit(g: GraphContext, count: Size, index: Value) -> Value:
    """A mask of one element of a vector, BOOL `[count]`."""
    return g.op("Equal", positions(g, count), index)


def after(g: GraphContext, count: Size, index: Value) -> Value:
    """A mask of the elements after a position, BOOL `[count]`."""
    return g.op("Greater", numbers(g, count), g.cast(index, DataType.FLOAT))


def diagonal_mask(g: GraphContext, rows: Size, columns: Size) -> Value:
    """A mask of the main diagonal, BOOL `[rows, columns]`."""
    if isinstance(rows, int) and isinstance(columns, int):
        g.reserve(rows, columns)
        return g.constant(np.eye(rows, columns, dtype=bool))
    down = g.op("Unsqueeze", positions(g, rows), axes=[1])
    return g.op("Equal", down, g.op("Unsqueeze", positions(g, columns), axes=[0]))


def triangle_mask(g: GraphContext, rows: Size, columns: Size, upper: bool, strict: bool) -> Value:
    """A mask of a triangle, BOOL `[rows, columns]`.

    Args:
        strict: whether to exclude the diagonal.
    """
    if isinstance(rows, int) and isinstance(columns, int):
        g.reserve(rows, columns)
        indices = np.arange(rows)[:, None], np.arange(columns)
        smaller, larger = indices if upper else indices[::-1]
        return g.constant(smaller < larger if strict else smaller <= larger)
    down = g.op("Unsqueeze", numbers(g, rows), axes=[1])
    right = g.op("Unsqueeze", numbers(g, columns), axes=[0])
    low, high = (down, right) if upper else (right, down)
    return g.op("Less", low, high) if strict else g.op("Not", g.op("Greater", low, high))


def triangle(g: GraphContext, value: Value, upper: bool, strict: bool = False) -> Value:
    """A triangle of a matrix, with zeros elsewhere."""
    mask = triangle_mask(g, height(g, value), width(g, value), upper, strict)
    return where(g, mask, value, 0)


def identity(g: GraphContext, rows: Size, columns: Size, dtype: DataType) -> Value:
    """Ones on the main diagonal."""
    return g.cast(diagonal_mask(g, rows, columns), dtype)


def identities(g: GraphContext, like: Value, rows: Size, columns: Size) -> Value:
    """An identity matrix for each matrix of a batch, in its element type."""
    dtype = g.dtype(like) or DataType.FLOAT
    # Adding the zeros of the batch broadcasts the matrix; Expand begins at opset 8.
    matrix = identity(g, rows, columns, dtype)
    batch = batch_sizes(g, like)
    return g.op("Add", zeros(g, [*batch, 1, 1], dtype), matrix) if batch else matrix


def transpose(g: GraphContext, value: Value) -> Value:
    """The transposed matrix."""
    rank = matrix_rank(g, value)
    return g.op("Transpose", value, perm=[*range(rank - 2), rank - 1, rank - 2])


def row(g: GraphContext, value: Value, index: Value) -> Value:
    """One row, `[..., columns]`."""
    return g.op("Gather", value, index, axis=matrix_rank(g, value) - 2)


def column(g: GraphContext, value: Value, index: Value) -> Value:
    """One column, `[..., rows]`."""
    return g.op("Gather", value, index, axis=matrix_rank(g, value) - 1)


def element(g: GraphContext, vector: Value, index: Value) -> Value:
    """One element of each vector, `[..., 1]`."""
    axis = known_rank(g, vector) - 1
    return g.op("Unsqueeze", g.op("Gather", vector, index, axis=axis), axes=[axis])


def as_column(g: GraphContext, vector: Value) -> Value:
    """`[..., n]` as `[..., n, 1]`."""
    return g.op("Unsqueeze", vector, axes=[known_rank(g, vector)])


def as_row(g: GraphContext, vector: Value) -> Value:
    """`[..., n]` as `[..., 1, n]`."""
    return g.op("Unsqueeze", vector, axes=[known_rank(g, vector) - 1])


def outer(g: GraphContext, down: Value, right: Value) -> Value:
    """The products of the elements of two vectors, as a matrix."""
    return g.op("Mul", as_column(g, down), as_row(g, right))


def total(g: GraphContext, value: Value, dim: int = -1, keepdim: bool = False) -> Value:
    """The sum over one dimension, counted from the end."""
    return g.op("ReduceSum", value, axes=[known_rank(g, value) + dim], keepdims=int(keepdim))


def largest(g: GraphContext, value: Value, dim: int = -1) -> Value:
    """The largest of non-negative elements over a dimension, which is kept; 0 if the dimension is empty."""
    axis = known_rank(g, value) + dim
    sizes = [fold_size(g, g.size(value, i)) for i in range(known_rank(g, value))]
    if not isinstance(sizes[axis], int) or sizes[axis] == 0:
        sizes[axis] = 1
        zero = zeros(g, sizes, g.dtype(value) or DataType.FLOAT)
        value = g.op("Concat", value, zero, axis=axis)
    # Without the zero, ReduceMax of no elements would be undefined or minus infinity.
    return g.op("ReduceMax", value, axes=[axis], keepdims=1)


def is_zero(g: GraphContext, value: Value) -> Value:
    """A mask of the zeros among floats."""
    # Equal does not take floats below opset 11; a Cast to BOOL is false for 0 only.
    return g.op("Not", g.cast(value, DataType.BOOL))


def diagonal(g: GraphContext, value: Value) -> Value:
    """The main diagonal of a square matrix, `[..., n]`."""
    # Masks and sums, because a Gather of a diagonal would need the indices of each size.
    mask = diagonal_mask(g, height(g, value), width(g, value))
    return total(g, where(g, mask, value, 0))


def leading(g: GraphContext, value: Value, count: Size, dim: int = -1) -> Value:
    """The first rows (dim -2) or columns, or elements of a vector (dim -1)."""
    axis = known_rank(g, value) + dim
    size = fold_size(g, g.size(value, axis))
    if isinstance(size, int) and size == count:
        return value
    # Slice takes computed bounds only from opset 10 on.
    return g.op("Gather", value, positions(g, count), axis=axis)


def exchange_rows(g: GraphContext, value: Value, first: Value, second: Value, axis: int = -2) -> Value:
    """Exchange two rows (axis -2), or two elements of vectors (axis -1).

    Args:
        first, second: BOOL masks of the two rows; if both mark the same row, nothing changes.
    """
    orient = as_column if axis == -2 else (lambda g, mask: mask)
    first, second = orient(g, first), orient(g, second)
    of_first = total(g, where(g, first, value, 0), axis, keepdim=True)
    of_second = total(g, where(g, second, value, 0), axis, keepdim=True)
    return where(g, first, of_second, where(g, second, of_first, value))


def first_largest(g: GraphContext, sizes: Value, count: Size) -> tuple[Value, Value]:
    """The largest of the numbers in each row, `[..., 1]`, and its first position, FLOAT `[..., 1]`."""
    axis = (g.rank(sizes) or 1) - 1
    largest = g.op("ReduceMax", sizes, axes=[axis], keepdims=1)
    is_smaller = g.cast(g.op("Less", sizes, largest), DataType.FLOAT)
    # ReduceMin then finds the first of the largest; ArgMax is undefined among equal ones at low opsets.
    penalty = g.op("Mul", is_smaller, g.cast(g.constant(count), DataType.FLOAT))
    return largest, g.op("ReduceMin", g.op("Add", penalty, numbers(g, count)), axes=[axis], keepdims=1)


def run_loop(
    g: GraphContext,
    trips: Size,
    step: Step,
    initial: Sequence[Value],
    keep_going: Callable[..., Value] | None = None,
) -> list[Value]:
    """A Loop whose carried values keep their shapes.

    Args:
        keep_going: maps the new carried values to a zero-dim BOOL, whether to continue. Evaluated after
            each step.

    Returns:
        The carried values after the last step.
    """
    trips = fold_size(g, trips)
    if isinstance(trips, int) and trips <= 0:
        return list(initial)

    def build(iteration: Value, condition: Value, *carried: Value) -> list[Value]:
        new = step(iteration, *carried)
        return [g.constant(True) if keep_going is None else keep_going(*new), *new]

    formals = [Value(name="carried", type=value.type, shape=value.shape) for value in initial]
    body = g.subgraph(build, [*loop_inputs(), *formals], "steps")
    results = as_list(
        g.op("Loop", g.constant(trips, DataType.INT64), None, *initial, body=body, outputs=len(initial))
    )
    for result, value in zip(results, initial, strict=True):
        result.type, result.shape = value.type, value.shape
    return results
