"""Covariance, correlation and least squares.

Semantics: aten/src/ATen/native/Correlation.cpp and BatchLinearAlgebra.cpp.
"""

from .....registration import DataType, GraphContext, Value, dtypes, onnx_symbolic
from ....compositions import matrices as mx
from ....compositions.size_arithmetic import known_rank, same_size


def _result_dtype(g: GraphContext, *values: Value | None) -> DataType:
    """The float type that several values are promoted to; FLOAT for integers."""
    floats = {g.dtype(value) for value in values if value is not None} & dtypes.FLOATS
    if len(floats) == 1:
        return floats.pop() or DataType.FLOAT
    return DataType.DOUBLE if DataType.DOUBLE in floats else DataType.FLOAT


def _degrees_of_freedom(
    g: GraphContext, weights: Value | None, aweights: Value | None, total: Value, correction: int
) -> Value:
    """The sum of the weights minus the weighted correction, at least 0."""
    if correction == 0:
        return total
    loss: Value | float = float(correction)
    if weights is not None and aweights is not None:
        share = g.op("Div", mx.total(g, g.op("Mul", weights, aweights)), total)
        loss = g.op("Mul", share, loss)
    return g.op("Relu", g.op("Sub", total, loss))


@onnx_symbolic("aten::cov")
def cov(
    g: GraphContext,
    self: Value,
    correction: int = 1,
    fweights: Value | None = None,
    aweights: Value | None = None,
) -> Value:
    """Each row is a variable. Without degrees of freedom the result is a division by zero."""
    dtype = _result_dtype(g, self, aweights)
    all_weights = [g.cast(weight, dtype) for weight in (fweights, aweights) if weight is not None]
    values = g.cast(self, dtype)
    rank = known_rank(g, values)
    values = values if rank == 2 else g.op("Reshape", values, [1, -1])
    count = mx.width(g, values)
    weights = None
    for weight in all_weights:
        weight = weight if g.rank(weight) else g.op("Unsqueeze", weight, axes=[0])
        weights = weight if weights is None else g.op("Mul", weights, weight)
    weighted = values if weights is None else g.op("Mul", values, weights)
    total = g.cast(g.constant(count), dtype) if weights is None else mx.total(g, weights)
    centered = g.op("Sub", values, g.op("Div", mx.total(g, weighted, keepdim=True), total))
    # torch gives exactly 0 here, where rounding may leave a rest.
    if len(all_weights) == 1 and count == 1:
        centered = g.op("Mul", centered, 0.0)
    relative = None if aweights is None else all_weights[-1]
    freedom = _degrees_of_freedom(g, weights, relative, total, correction)
    if aweights is not None and fweights is None and count == 1 and correction == 1:
        freedom = g.constant(0.0, dtype)
    scaled = centered if weights is None else g.op("Mul", centered, weights)
    result = g.op("Div", g.op("MatMul", centered, mx.transpose(g, scaled)), freedom)
    return g.op("Squeeze", result, axes=[0, 1]) if mx.height(g, values) == 1 else result


@onnx_symbolic("aten::corrcoef")
def corrcoef(g: GraphContext, self: Value) -> Value:
    """The covariance divided by both standard deviations."""
    covariance = g.call("aten::cov", self)
    if g.rank(covariance) == 0:
        return g.op("Div", covariance, covariance)
    deviations = g.op("Sqrt", mx.diagonal(g, covariance))
    covariance = g.op("Div", covariance, mx.as_column(g, deviations))
    covariance = g.op("Div", covariance, mx.as_row(g, deviations))
    return g.call("aten::clamp", covariance, -1, 1)


@onnx_symbolic("aten::linalg_lstsq")
def linalg_lstsq(
    g: GraphContext, self: Value, b: Value, rcond: float | None = None, driver: str | None = None
) -> list[Value]:
    """The solution of least norm by SVD, the residuals, the rank and the singular values.

    For a matrix without full rank, gelsd and gelss return no residuals; here they are NaN.
    """
    driver = driver or "gelsy"
    dtype, rows, columns = mx.dtype_of(g, self), mx.height(g, self), mx.width(g, self)
    if not isinstance(rows, int) or not isinstance(columns, int):
        raise g.refuse(
            "the sizes of the matrix must be known, because they decide whether there are residuals"
        )
    matrix_shape, right_shape = g.shape(self) or (), g.shape(b) or ()
    is_vector = len(right_shape) == 1 or (
        len(matrix_shape) - 1 == len(right_shape)
        and all(same_size(x, y) for x, y in zip(matrix_shape[:-1], right_shape, strict=True))
    )
    right = mx.as_column(g, b) if is_vector else b
    solution, rank, values = _least_norm_solution(g, self, right, 0.0 if driver == "gels" else rcond)
    empty = mx.zeros(g, [0], dtype)
    residuals = empty
    # torch returns residuals only for these drivers and more rows than columns.
    if driver != "gelsy" and rows > columns:
        difference = g.op("Sub", g.op("MatMul", self, solution), right)
        residuals = mx.total(g, g.op("Mul", difference, difference), -2)
        if driver != "gels":
            full = g.cast(g.op("Equal", rank, min(rows, columns)), dtype)
            complete = mx.as_column(g, full)
            # 0 / 0 if the rank is deficient.
            residuals = g.op("Div", g.op("Mul", residuals, complete), complete)
    if is_vector:
        solution = g.op("Squeeze", solution, axes=[mx.matrix_rank(g, solution) - 1])
    return [
        solution,
        residuals,
        mx.zeros(g, [0], DataType.INT64) if driver == "gels" else rank,
        values if driver in ("gelsd", "gelss") else empty,
    ]


def _least_norm_solution(
    g: GraphContext, A: Value, right: Value, rcond: float | None
) -> tuple[Value, Value, Value]:
    """The least-squares solution of least norm, the rank and the singular values."""
    dtype, batch = mx.dtype_of(g, A), mx.batch_sizes(g, A)
    if mx.shorter(g, A) == 0:
        zeros = mx.zeros(g, [*batch, mx.width(g, A), mx.height(g, A)], dtype)
        rank = mx.zeros(g, batch, DataType.INT64)
        return g.op("MatMul", zeros, right), rank, mx.zeros(g, [*batch, 0], dtype)
    values, left_basis, basis = g.call_outputs("composed::svd", A, full=False, vectors=True)
    is_nonzero = g.call("composed::above_tolerance", A, values, None, rcond)
    unit = g.constant(1.0, dtype)
    inverses = mx.where(g, is_nonzero, g.op("Reciprocal", mx.where(g, is_nonzero, values, unit)), 0)
    projected = g.op("Mul", mx.as_column(g, inverses), g.op("MatMul", mx.transpose(g, left_basis), right))
    return g.op("MatMul", basis, projected), mx.total(g, g.cast(is_nonzero, DataType.INT64)), values
