"""Eigenvalues of symmetric matrices, and singular values, by Jacobi rotations.

Every sweep rotates each pair of rows or columns once, in rounds of disjoint pairs that are rotated at the
same time. Sweeps repeat until nothing is left to rotate. Eigenvectors and singular vectors are unique only up
to their sign, or up to a rotation if values are equal, so LAPACK's may differ. Here the largest component of
each eigenvector is positive, and of each right singular vector (left, if the matrix is known to be wide).

Semantics: aten/src/ATen/native/BatchLinearAlgebra.cpp. Methods: Golub and Van Loan, Matrix Computations,
8.5 (Jacobi, its parallel ordering) and 8.6.3 (one-sided Jacobi).
"""

from collections.abc import Callable, Sequence

import numpy as np

from .....registration import DataType, GraphContext, Value, onnx_symbolic
from ....compositions import matrices as mx
from ....compositions.size_arithmetic import Size, compute, known_rank, mark_non_negative

_SWEEPS = 30
"""Bound on sweeps; matrices need far fewer."""

Rotate = Callable[..., Sequence[Value]]
"""Maps the partner of each index (INT64 `[n]`) and the carried values to new ones; the last one counts the
rotated pairs of a sweep.
"""


def _partners(g: GraphContext, count: Size, rounds: Size, round_number: Value) -> Value:
    """The partner of each index in a round; an index without a partner gets itself.

    The sum of a pair's indices is the round's number, modulo the number of rounds, which is odd.
    """
    indices = mx.positions(g, count)
    partners = g.call("sym::mod", a=g.op("Sub", round_number, indices), b=rounds)
    return mx.where(g, g.op("Equal", partners, g.constant(count)), indices, partners)


def _sweeps(g: GraphContext, count: Size, rotate: Rotate, initial: Sequence[Value]) -> list[Value]:
    """The carried values after the last sweep."""
    # An odd number of rounds pairs each index with every other one exactly once.
    rounds = compute(g, "add", count, compute(g, "sub", 1, compute(g, "mod", count, 2)))
    zero = g.constant(0.0)

    def rotate_round(round_number: Value, *carried: Value) -> Sequence[Value]:
        return rotate(_partners(g, count, rounds, mark_non_negative(round_number)), *carried)

    def sweep(number: Value, *carried: Value) -> Sequence[Value]:
        return mx.run_loop(g, rounds, rotate_round, [*carried[:-1], zero])

    def has_rotated(*carried: Value) -> Value:
        return g.op("Greater", carried[-1], 0.0)

    if count == 0:
        return list(initial)
    return mx.run_loop(g, _SWEEPS, sweep, [*initial, zero], has_rotated)[:-1]


def _rotation(g: GraphContext, diagonal: Value, partners: Value, off: Value) -> tuple[Value, Value]:
    """Cosine and sine for each index; a pair has equal cosines and opposite sines.

    Args:
        diagonal: diagonal elements of a symmetric matrix, `[..., n]`.
        off: its element between each index and its partner, 0 if no rotation is needed.
    """
    dtype = mx.dtype_of(g, diagonal)
    count = g.size(diagonal, known_rank(g, diagonal) - 1)
    is_unrotated = g.cast(mx.is_zero(g, off), dtype)
    partner_diagonal = g.op("Gather", diagonal, partners, axis=known_rank(g, diagonal) - 1)
    angle = g.op(
        "Div", g.op("Sub", partner_diagonal, diagonal), g.op("Add", g.op("Mul", off, 2.0), is_unrotated)
    )
    first = g.op("Greater", g.cast(partners, DataType.FLOAT), mx.numbers(g, count))
    order = g.op("Sub", g.op("Mul", g.cast(first, dtype), 2.0), 1.0)
    negative, positive = g.op("Less", angle, 0.0), g.op("Greater", angle, 0.0)
    sign = g.op("Sub", g.cast(positive, dtype), g.cast(negative, dtype))
    # Equal diagonal elements need a rotation by 45 degrees, in opposite directions for both of a pair.
    sign = g.op("Add", sign, g.op("Mul", order, g.cast(mx.is_zero(g, angle), dtype)))
    root = g.op("Sqrt", g.op("Add", g.op("Mul", angle, angle), 1.0))
    tangent = g.op("Div", sign, g.op("Add", g.op("Abs", angle), root))
    tangent = g.op("Mul", tangent, g.op("Sub", 1.0, is_unrotated))
    cosine = g.op("Reciprocal", g.op("Sqrt", g.op("Add", g.op("Mul", tangent, tangent), 1.0)))
    return cosine, g.op("Mul", tangent, cosine)


def _rotate(
    g: GraphContext, value: Value, partners: Value, rotation: tuple[Value, Value], rows: bool = False
) -> Value:
    """The columns, or rows, of a matrix rotated with their partners."""
    orient = mx.as_column if rows else mx.as_row
    cosine, sine = (orient(g, part) for part in rotation)
    partner_values = g.op("Gather", value, partners, axis=mx.matrix_rank(g, value) - (2 if rows else 1))
    return g.op("Sub", g.op("Mul", value, cosine), g.op("Mul", partner_values, sine))


def _tolerance(g: GraphContext, value: Value) -> float:
    """The relative size below which a number is negligible in the element type."""
    return float(np.finfo(mx.dtype_of(g, value).numpy()).eps) / 16


def _count(g: GraphContext, flags: Value) -> Value:
    """The number of true elements, a zero-dim FLOAT."""
    return g.op("ReduceSum", g.cast(flags, DataType.FLOAT), keepdims=0)


def _order(g: GraphContext, values: Value, descending: bool) -> Value:
    """The permutation matrix that sorts columns by their values; the sort is stable."""
    rank = known_rank(g, values)
    count = g.size(values, rank - 1)
    column, row = mx.as_column(g, values), mx.as_row(g, values)
    before = g.op("Greater" if descending else "Less", row, column)
    after = g.op("Less" if descending else "Greater", row, column)
    tie = g.op("Not", g.op("Or", before, after))
    earlier = mx.triangle_mask(g, count, count, upper=False, strict=True)
    precedes = g.op("Or", before, g.op("And", tie, earlier))
    ranks = g.cast(mx.total(g, g.cast(precedes, DataType.FLOAT)), DataType.INT64)
    is_ranked = g.op("Equal", mx.as_column(g, ranks), mx.positions(g, count))
    return g.cast(is_ranked, mx.dtype_of(g, values))


def _as_vector(g: GraphContext, value: Value, order: Value) -> Value:
    """A vector of each matrix, permuted."""
    result = g.op("MatMul", mx.as_row(g, value), order)
    return g.op("Squeeze", result, axes=[mx.matrix_rank(g, result) - 2])


@onnx_symbolic("composed::eigh")
def composed_eigh(g: GraphContext, A: Value, upper: bool, vectors: bool) -> list[Value]:
    """The eigenvalues in ascending order, and on request the eigenvectors in columns."""
    size = mx.height(g, A)
    half = mx.triangle(g, A, upper, strict=True)
    on_diagonal = mx.diagonal_mask(g, size, size)
    matrix = g.op("Add", g.op("Add", half, mx.transpose(g, half)), mx.where(g, on_diagonal, A, 0))
    scale = mx.total(g, mx.total(g, g.op("Abs", matrix), keepdim=True), -2, keepdim=True)
    bound = g.op("Div", g.op("Mul", scale, _tolerance(g, A)), g.cast(g.constant(size), mx.dtype_of(g, A)))
    bound = g.op("Squeeze", bound, axes=[mx.matrix_rank(g, A) - 1])

    def rotate(partners: Value, matrix: Value, *carried: Value) -> list[Value]:
        is_pair = g.op("Equal", mx.as_column(g, partners), mx.positions(g, size))
        is_pair = g.op("And", is_pair, g.op("Not", on_diagonal))
        off = mx.total(g, mx.where(g, is_pair, matrix, 0))
        is_unfinished = g.op("Greater", g.op("Abs", off), bound)
        rotation = _rotation(g, mx.diagonal(g, matrix), partners, off)
        matrix = _rotate(g, _rotate(g, matrix, partners, rotation), partners, rotation, rows=True)
        # What a rotation has made zero is set to zero, and symmetry is restored, against rounding errors.
        matrix = mx.where(g, g.op("Not", is_pair), matrix, 0)
        matrix = g.op("Mul", g.op("Add", matrix, mx.transpose(g, matrix)), 0.5)
        rotated_bases = [_rotate(g, value, partners, rotation) for value in carried[:-1]]
        return [matrix, *rotated_bases, g.op("Add", carried[-1], _count(g, is_unfinished))]

    initial = [matrix, mx.identities(g, A, size, size)] if vectors else [matrix]
    matrix, *rotated_bases = _sweeps(g, size, rotate, initial)
    values = mx.diagonal(g, matrix)
    order = _order(g, values, descending=False)
    bases = [g.op("MatMul", value, order) for value in rotated_bases]
    return [_as_vector(g, values, order), *(g.op("Mul", basis, _signs(g, basis)) for basis in bases)]


def _signs(g: GraphContext, basis: Value) -> Value:
    """1 or -1 for each column, `[..., 1, n]`: the sign of its largest component, or the first of equal ones.

    Components that differ only by rounding count as equal, so that the sign does not depend on rounding.
    """
    dtype, rows = mx.dtype_of(g, basis), mx.height(g, basis)
    sizes = g.op("Abs", basis)
    # Components within a thousandth of the largest count as equal.
    threshold = g.op("Mul", mx.largest(g, sizes, -2), 0.999)
    priority = g.op("Sub", g.cast(g.constant(rows), DataType.FLOAT), mx.numbers(g, rows))
    priority = g.op(
        "Mul", g.cast(g.op("Greater", sizes, threshold), DataType.FLOAT), mx.as_column(g, priority)
    )
    is_first = g.op("Not", g.op("Less", priority, mx.largest(g, priority, -2)))
    value = mx.total(g, mx.where(g, is_first, basis, 0), -2, keepdim=True)
    return g.op("Sub", 1.0, g.op("Mul", g.cast(g.op("Less", value, 0.0), dtype), 2.0))


@onnx_symbolic("composed::svd")
def composed_svd(g: GraphContext, A: Value, full: bool, vectors: bool) -> list[Value]:
    """The singular values in descending order, and on request U and V in columns.

    The columns of A are rotated until they are orthogonal. QR then makes U, whose columns are orthonormal
    even for zero singular values.
    """
    rows, columns = mx.height(g, A), mx.width(g, A)
    # One-sided rotations work on columns: the fewer, the quicker.
    if isinstance(rows, int) and isinstance(columns, int) and rows < columns:
        values, *bases = composed_svd(g, mx.transpose(g, A), full, vectors)
        return [values, *reversed(bases)]
    count, dtype = mx.shorter(g, A), mx.dtype_of(g, A)
    scale = g.op("Abs", A)
    scale = mx.total(g, mx.total(g, scale, keepdim=True), -2, keepdim=True)
    scale = g.op("Add", scale, g.cast(mx.is_zero(g, scale), dtype))
    # Scaled by the sum of all absolute values, no square overflows, and values below the tolerance are noise.
    matrix = g.op("Div", A, scale)
    rotated, *bases = _orthogonalise(g, matrix, mx.identities(g, A, columns, columns) if vectors else None)
    norms = g.op("Sqrt", mx.total(g, g.op("Mul", rotated, rotated), -2))
    order = _order(g, norms, descending=True)
    values = _as_vector(g, norms, order)
    values = g.op("Mul", values, g.op("Squeeze", scale, axes=[mx.matrix_rank(g, A) - 1]))
    values = mx.leading(g, values, count)
    if not vectors:
        return [values]
    right_basis = g.op("MatMul", bases[0], order)
    signs = _signs(g, right_basis)
    left_basis = mx.leading(g, g.op("Mul", g.op("MatMul", rotated, order), signs), count)
    right_basis = g.op("Mul", right_basis, signs)
    return [
        values,
        _basis(g, left_basis, rows if full else count),
        right_basis if full else mx.leading(g, right_basis, count),
    ]


def _orthogonalise(g: GraphContext, matrix: Value, basis: Value | None) -> list[Value]:
    """Rotate the columns of a matrix until they are orthogonal, and apply the same rotations to a basis."""
    columns = mx.width(g, matrix)
    tolerance = _tolerance(g, matrix)

    def rotate(partners: Value, matrix: Value, *carried: Value) -> list[Value]:
        partner_columns = g.op("Gather", matrix, partners, axis=mx.matrix_rank(g, matrix) - 1)
        is_alone = g.op("Equal", partners, mx.positions(g, columns))
        off = mx.total(g, g.op("Mul", matrix, partner_columns), -2)
        off = mx.where(g, g.op("Not", is_alone), off, 0)
        squares = mx.total(g, g.op("Mul", matrix, matrix), -2)
        partner_squares = g.op("Gather", squares, partners, axis=known_rank(g, squares) - 1)
        sizes = g.op("Mul", g.op("Sqrt", squares), g.op("Sqrt", partner_squares))
        # Because of rounding, columns are orthogonal only up to a few units; noise never is.
        bound = g.op("Add", g.op("Mul", sizes, 64 * tolerance), tolerance * tolerance)
        is_unfinished = g.op("Greater", g.op("Abs", off), bound)
        off = mx.where(g, is_unfinished, off, 0)
        rotation = _rotation(g, squares, partners, off)
        rotated = [_rotate(g, value, partners, rotation) for value in (matrix, *carried[:-1])]
        return [*rotated, g.op("Add", carried[-1], _count(g, is_unfinished))]

    return _sweeps(g, columns, rotate, [matrix] if basis is None else [matrix, basis])


def _basis(g: GraphContext, orthogonal: Value, columns: Size) -> Value:
    """Orthonormal columns, the first of which have the directions of the given orthogonal columns."""
    packed, factors = g.call_outputs("composed::householder", orthogonal)
    basis = g.call("composed::orthogonal", packed, factors, columns)
    rows = mx.height(g, packed)
    mask = mx.diagonal_mask(g, rows, mx.width(g, packed))
    heads = mx.leading(g, mx.total(g, mx.where(g, mask, packed, 0)), columns)
    # Householder's R may be negative on its diagonal, which flips the direction of a column.
    is_negative = g.cast(g.op("Less", heads, 0.0), mx.dtype_of(g, packed))
    return g.op("Mul", basis, mx.as_row(g, g.op("Sub", 1.0, g.op("Mul", is_negative, 2.0))))


@onnx_symbolic("aten::_linalg_eigh")
def _linalg_eigh(g: GraphContext, A: Value, UPLO: str = "L", compute_v: bool = True) -> list[Value]:
    results = g.call_outputs("composed::eigh", A, UPLO.upper() == "U", compute_v)
    return results if compute_v else [*results, mx.zeros(g, [0], mx.dtype_of(g, A))]


@onnx_symbolic("aten::linalg_eigh")
def linalg_eigh(g: GraphContext, self: Value, UPLO: str = "L") -> list[Value]:
    return g.call_outputs("composed::eigh", self, UPLO.upper() == "U", vectors=True)


@onnx_symbolic("aten::linalg_eigvalsh")
def linalg_eigvalsh(g: GraphContext, self: Value, UPLO: str = "L") -> Value:
    return g.call_outputs("composed::eigh", self, UPLO.upper() == "U", vectors=False)[0]


@onnx_symbolic("aten::_linalg_svd")
def _linalg_svd(
    g: GraphContext, A: Value, full_matrices: bool = False, compute_uv: bool = True
) -> list[Value]:
    """U, the singular values and V transposed. The driver chooses a method on CUDA only."""
    if not compute_uv:
        empty = mx.zeros(g, [0], mx.dtype_of(g, A))
        return [empty, g.call("aten::linalg_svdvals", A), empty]
    values, left_basis, right_basis = g.call_outputs("composed::svd", A, full_matrices, vectors=True)
    return [left_basis, values, mx.transpose(g, right_basis)]


@onnx_symbolic("aten::linalg_svd")
def linalg_svd(g: GraphContext, A: Value, full_matrices: bool = True) -> list[Value]:
    return g.call_outputs("aten::_linalg_svd", A, full_matrices)


@onnx_symbolic("aten::linalg_svdvals")
def linalg_svdvals(g: GraphContext, A: Value) -> Value:
    return g.call_outputs("composed::svd", A, full=False, vectors=False)[0]


@onnx_symbolic("aten::svd")
def svd(g: GraphContext, self: Value, some: bool = True, compute_uv: bool = True) -> list[Value]:
    """`torch.svd`: V is not transposed; without vectors, U and V are zeros."""
    if compute_uv:
        values, left_basis, right_basis = g.call_outputs("composed::svd", self, not some, vectors=True)
        return [left_basis, values, right_basis]
    batch, dtype = mx.batch_sizes(g, self), mx.dtype_of(g, self)
    rows, columns = mx.height(g, self), mx.width(g, self)
    values = g.call("aten::linalg_svdvals", self)
    return [mx.zeros(g, [*batch, rows, rows], dtype), values, mx.zeros(g, [*batch, columns, columns], dtype)]
