"""Functions of whole matrices: pseudo-inverse, rank, condition, norms, powers and the exponential.

Semantics: aten/src/ATen/native/LinearAlgebra.cpp.
"""

import functools
import math
from collections.abc import Sequence

import numpy as np

from .....registration import DataType, GraphContext, Number, Value, onnx_symbolic
from ....compositions import matrices as mx
from ....compositions.operands import floating
from ....compositions.size_arithmetic import Size, known_rank

Tolerance = Value | float | None


def _is_empty(g: GraphContext, value: Value) -> bool:
    return 0 in (mx.height(g, value), mx.width(g, value))


def _add_column_dim(g: GraphContext, value: Value | float, dtype: DataType) -> Value:
    """A tolerance for each matrix, with a dimension added to compare with its singular values."""
    value = g.constant(value, dtype)
    return mx.as_column(g, value) if g.rank(value) else value


@onnx_symbolic("composed::above_tolerance")
def above_tolerance(g: GraphContext, A: Value, sizes: Value, atol: Tolerance, rtol: Tolerance) -> Value:
    """Whether each singular value, or absolute eigenvalue, is above the tolerance.

    The default of `rtol` is the larger size times the machine epsilon, or 0 if `atol` is above 0.
    """
    largest, dtype = mx.largest(g, sizes), mx.dtype_of(g, A)
    extents = [g.cast(g.constant(size), dtype) for size in (mx.height(g, A), mx.width(g, A))]
    if isinstance(rtol, (Value, float, int)):
        relative = _add_column_dim(g, rtol, dtype)
    else:
        longer = mx.where(g, g.op("Less", *extents), extents[1], extents[0])
        # The default of NumPy and torch: rounding errors grow with the size.
        relative = g.op("Mul", longer, float(np.finfo(dtype.numpy()).eps))
        if isinstance(atol, Value):
            positive = g.op("Greater", _add_column_dim(g, atol, dtype), 0.0)
            relative = g.op("Mul", relative, g.op("Sub", 1.0, g.cast(positive, dtype)))
        elif atol is not None and atol > 0:
            relative = g.constant(0.0, dtype)
    bound = g.op("Mul", relative, largest)
    if isinstance(atol, Value) or (atol is not None and atol != 0):
        absolute = _add_column_dim(g, atol, dtype)
        bound = mx.where(g, g.op("Less", bound, absolute), absolute, bound)
    return g.op("Greater", sizes, bound)


@onnx_symbolic("composed::pinv")
def composed_pinv(g: GraphContext, A: Value, atol: Tolerance, rtol: Tolerance, hermitian: bool) -> Value:
    """The pseudo-inverse from the singular values above a tolerance, or from eigenvalues if symmetric."""
    dtype = mx.dtype_of(g, A)
    if _is_empty(g, A):
        return mx.zeros(g, [*mx.batch_sizes(g, A), mx.width(g, A), mx.height(g, A)], dtype)
    if hermitian:
        values, left_basis = g.call_outputs("composed::eigh", A, upper=False, vectors=True)
        right_basis = left_basis
    else:
        values, left_basis, right_basis = g.call_outputs("composed::svd", A, full=False, vectors=True)
    is_nonzero = g.call("composed::above_tolerance", A, g.op("Abs", values), atol, rtol)
    unit = g.constant(1.0, dtype)
    inverses = mx.where(g, is_nonzero, g.op("Reciprocal", mx.where(g, is_nonzero, values, unit)), 0)
    return g.op("MatMul", g.op("Mul", right_basis, mx.as_row(g, inverses)), mx.transpose(g, left_basis))


@onnx_symbolic("aten::linalg_pinv")
def linalg_pinv(
    g: GraphContext,
    self: Value,
    rcond: Tolerance = None,
    hermitian: bool = False,
    atol: Tolerance = None,
    rtol: Tolerance = None,
) -> Value:
    return g.call("composed::pinv", self, atol, rtol if rcond is None else rcond, hermitian)


@onnx_symbolic("aten::pinverse")
def pinverse(g: GraphContext, self: Value, rcond: float = 1e-15) -> Value:
    return g.call("composed::pinv", self, None, rcond, False)


@onnx_symbolic("composed::matrix_rank")
def composed_matrix_rank(
    g: GraphContext, A: Value, atol: Tolerance, rtol: Tolerance, hermitian: bool
) -> Value:
    """The number of singular values above a tolerance, INT64."""
    if _is_empty(g, A):
        return mx.zeros(g, mx.batch_sizes(g, A), DataType.INT64)
    values = g.call("aten::linalg_eigvalsh" if hermitian else "aten::linalg_svdvals", A)
    is_nonzero = g.call("composed::above_tolerance", A, g.op("Abs", values), atol, rtol)
    return mx.total(g, g.cast(is_nonzero, DataType.INT64))


@onnx_symbolic("aten::linalg_matrix_rank")
def linalg_matrix_rank(
    g: GraphContext,
    self: Value | None = None,
    input: Value | None = None,
    tol: Tolerance = None,
    atol: Tolerance = None,
    rtol: Tolerance = None,
    hermitian: bool = False,
) -> Value:
    """The overloads with tensors call the matrix `input`; `tol` is absolute."""
    bounds = (atol, rtol) if tol is None else (tol, 0.0)
    return g.call("composed::matrix_rank", input if self is None else self, *bounds, hermitian)


@onnx_symbolic("aten::linalg_matrix_norm")
def linalg_matrix_norm(
    g: GraphContext,
    self: Value,
    ord: Number | str = "fro",
    dim: Sequence[int] = (-2, -1),
    keepdim: bool = False,
    dtype: DataType | None = None,
) -> Value:
    """The norms `fro`, `nuc` (sum of singular values), 2 and -2 (largest, smallest), 1, -1, inf and -inf."""
    self = floating(g, self) if dtype is None else g.cast(self, dtype)
    # The Frobenius norm is the vector norm of all elements.
    if ord == "fro":
        return g.call("aten::linalg_vector_norm", self, 2, dim, keepdim)
    rank = known_rank(g, self)
    matrix_dims = [d % rank for d in dim]
    perm = [*(d for d in range(rank) if d not in matrix_dims), *matrix_dims]
    matrix = self if perm == list(range(rank)) else g.op("Transpose", self, perm=perm)
    order = math.nan if isinstance(ord, str) else float(ord)
    if ord == "nuc":
        result = mx.total(g, g.call("aten::linalg_svdvals", matrix))
    elif abs(order) in (1, 2, math.inf):
        if abs(order) == 2:
            values = g.call("aten::linalg_svdvals", matrix)
        else:
            values = mx.total(g, g.op("Abs", matrix), -1 if math.isinf(order) else -2)
        if order > 0:
            result = g.op("Squeeze", mx.largest(g, values), axes=[rank - 2])
        else:
            result = g.op("ReduceMin", values, axes=[rank - 2], keepdims=0)
    else:
        raise g.refuse(f"a matrix has no norm of order {ord}")
    return g.op("Unsqueeze", result, axes=sorted(d % rank for d in dim)) if keepdim else result


@onnx_symbolic("aten::linalg_norm")
def linalg_norm(
    g: GraphContext,
    self: Value,
    ord: Number | str | None = None,
    dim: list[int] | None = None,
    keepdim: bool = False,
    dtype: DataType | None = None,
) -> Value:
    """The matrix norm if `ord` and the dims select it, else the vector norm."""
    count = known_rank(g, self) if dim is None else len(dim)
    if not isinstance(ord, str) and (ord is None or count != 2):
        return g.call("aten::linalg_vector_norm", self, 2 if ord is None else ord, dim, keepdim, dtype)
    return g.call("aten::linalg_matrix_norm", self, ord, [-2, -1] if dim is None else dim, keepdim, dtype)


@onnx_symbolic("aten::nuclear_norm")
def nuclear_norm(g: GraphContext, self: Value, dim: Sequence[int] = (-2, -1), keepdim: bool = False) -> Value:
    return g.call("aten::linalg_matrix_norm", self, "nuc", dim, keepdim)


@onnx_symbolic("aten::linalg_cond")
def linalg_cond(g: GraphContext, self: Value, p: Number | str | None = None) -> Value:
    """The ratio of extreme singular values, or the norm of a matrix times the norm of its inverse."""
    dtype = mx.dtype_of(g, self)
    if 0 in (g.shape(self) or ()):
        return mx.zeros(g, mx.batch_sizes(g, self), dtype)
    p = 2 if p is None else p
    if p in (2, -2):
        values = g.call("aten::linalg_svdvals", self)
        axis = known_rank(g, values) - 1
        extremes = [g.op(op_type, values, axes=[axis], keepdims=0) for op_type in ("ReduceMax", "ReduceMin")]
        return g.op("Div", *(extremes if p == 2 else reversed(extremes)))
    # Replace a singular matrix, whose inverse would be infinite or NaN, by an invertible one.
    singular = g.cast(g.call_outputs("aten::linalg_inv_ex", self)[1], DataType.BOOL)
    size = mx.height(g, self)
    mask = mx.as_column(g, mx.as_column(g, singular))
    inverse = g.call("aten::linalg_inv", mx.where(g, mask, mx.identity(g, size, size, dtype), self))
    norms = [g.call("aten::linalg_matrix_norm", x, p) for x in (self, inverse)]
    regular = g.cast(g.op("Not", singular), dtype)
    return g.op("Div", mx.where(g, singular, g.constant(1.0, dtype), g.op("Mul", *norms)), regular)


@onnx_symbolic(["aten::linalg_matrix_power", "aten::matrix_power"])
def linalg_matrix_power(g: GraphContext, self: Value, n: int) -> Value:
    """Repeated squaring; of the inverse if `n` is negative."""
    if n == 0:
        return mx.identities(g, self, mx.height(g, self), mx.width(g, self))
    square = g.call("aten::linalg_inv", self) if n < 0 else self
    remaining_power = abs(n)
    factors = []
    while remaining_power:
        if remaining_power % 2:
            factors.append(square)
        remaining_power //= 2
        square = g.op("MatMul", square, square) if remaining_power else square
    return functools.reduce(lambda a, b: g.op("MatMul", a, b), factors)


# The Taylor polynomial of degree 18 of the exponential in five products, and the 1-norm up to which it is
# exact to rounding: Bader, Blanes, Casas, "Computing the matrix exponential with an optimized Taylor
# polynomial approximation", 2019. A row for each factor, its coefficients for the powers 0, 1, 2, 3 and 6.
_EXACT_NORM = {DataType.FLOAT: 3.010066362817634, DataType.DOUBLE: 1.090863719290036}
_FACTORS = (
    (0.0, -1.00365581030144618291e-01, -8.02924648241156932449e-03, -8.92138498045729985177e-04, 0.0),
    (
        0.0,
        3.97849749499645077844e-01,
        1.36783778460411720168e00,
        4.98289622525382669416e-01,
        -6.37898194594723280150e-04,
    ),
    (
        -1.09676396052962061844e01,
        1.68015813878906206114e00,
        5.71779846478865511061e-02,
        -6.98210122488052056106e-03,
        3.34975017086070470649e-05,
    ),
    (
        -9.04316832390810593223e-02,
        -6.76404519071381882256e-02,
        6.75961301770459654925e-02,
        2.95552570429315521194e-02,
        -1.39180257516060693404e-05,
    ),
    (0.0, 0.0, -9.23364619367118555360e-02, -1.69364939002081722752e-02, -1.40086798182036094347e-05),
)


@onnx_symbolic(["aten::linalg_matrix_exp", "aten::matrix_exp"])
def linalg_matrix_exp(g: GraphContext, self: Value) -> Value:
    """A Taylor polynomial of the matrix divided by 2**k, then squared k times."""
    if _is_empty(g, self):
        return self
    dtype = mx.dtype_of(g, self)
    norm = mx.as_column(g, mx.largest(g, mx.total(g, g.op("Abs", self), -2)))
    # At least 1, so that the logarithm is finite and not negative.
    ratio = g.call("aten::clamp_min", g.op("Div", norm, _EXACT_NORM[dtype]), 1)
    # Halving the matrix k times brings its norm into the range of the polynomial.
    squarings = g.op("Ceil", g.op("Div", g.op("Log", ratio), math.log(2.0)))
    scaled = g.op("Div", self, g.op("Pow", g.constant(2.0, dtype), squarings))
    matrix_squarings = g.cast(squarings, DataType.FLOAT)
    all_squarings = g.op("Concat", g.constant([0.0]), g.op("Reshape", matrix_squarings, [-1]), axis=0)
    trips = g.cast(g.op("ReduceMax", all_squarings, axes=[0], keepdims=0), DataType.INT64)

    def step(index: Value, power: Value) -> list[Value]:
        is_unfinished = g.op("Less", g.cast(index, DataType.FLOAT), matrix_squarings)
        # Each matrix of the batch is squared its own number of times.
        return [mx.where(g, is_unfinished, g.op("MatMul", power, power), power)]

    return mx.run_loop(g, trips, step, [_taylor(g, scaled)])[0]


def _taylor(g: GraphContext, matrix: Value) -> Value:
    """The polynomial of degree 18, as ATen evaluates it."""
    size: Size = mx.height(g, matrix)
    square = g.op("MatMul", matrix, matrix)
    cube = g.op("MatMul", matrix, square)
    powers = [mx.identity(g, size, size, mx.dtype_of(g, matrix)), matrix, square, cube]
    powers.append(g.op("MatMul", cube, cube))

    def combine_powers(coefficients: Sequence[float]) -> Value:
        terms = [g.op("Mul", power, c) for power, c in zip(powers, coefficients, strict=True) if c]
        return functools.reduce(lambda a, b: g.op("Add", a, b), terms)

    first, low_terms, factor, added, last = map(combine_powers, _FACTORS)
    ninth = g.op("Add", added, g.op("MatMul", first, last))
    return g.op("Add", low_terms, g.op("MatMul", g.op("Add", factor, ninth), ninth))
