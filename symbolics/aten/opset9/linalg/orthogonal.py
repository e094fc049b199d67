"""QR by Householder reflections, and products with them, with LAPACK's signs.

Semantics: aten/src/ATen/native/BatchLinearAlgebra.cpp; geqrf, orgqr and ormqr of LAPACK.
"""

from .....registration import GraphContext, Value, onnx_symbolic
from ....compositions import matrices as mx
from ....compositions.size_arithmetic import Size, compute


@onnx_symbolic(["composed::householder", "aten::geqrf"])
def composed_householder(g: GraphContext, self: Value) -> list[Value]:
    """R on and above the diagonal, the vectors of the reflections below it, and their factors.

    For a column x with first element a and norm n: `b = -sign(a) n`, the factor is `(b - a) / b`, and the
    vector is 1 followed by the other elements of `x / (a - b)`. If everything below a is zero, the factor
    is 0.

    Returns:
        `[..., m, n]` and `[..., min(m, n)]`.
    """
    rows, columns = mx.height(g, self), mx.width(g, self)
    count, dtype = mx.shorter(g, self), mx.dtype_of(g, self)

    def step(index: Value, matrix: Value, factors: Value) -> list[Value]:
        values = mx.column(g, matrix, index)
        below = mx.after(g, rows, index)
        lower_values = mx.where(g, below, values, 0)
        first = mx.element(g, values, index)
        length = _norm(g, lower_values, first)
        is_zero_below = mx.is_zero(g, mx.total(g, g.op("Abs", lower_values), keepdim=True))
        negative = g.cast(g.op("Less", first, 0.0), dtype)
        # The sign opposite to the first element, so that `a - b` adds sizes and loses no digits.
        sign = g.op("Sub", g.op("Mul", negative, 2.0), 1.0)
        head = mx.where(g, is_zero_below, first, g.op("Mul", sign, length))
        zero_divisor = g.cast(is_zero_below, dtype)
        factor = g.op("Div", g.op("Sub", head, first), g.op("Add", head, g.cast(mx.is_zero(g, head), dtype)))
        tail = g.op("Div", lower_values, g.op("Add", g.op("Sub", first, head), zero_divisor))
        vector = g.op("Add", tail, g.cast(mx.unit(g, rows, index), dtype))
        right = mx.where(g, mx.after(g, columns, index), matrix, 0)
        products = g.op("MatMul", mx.as_row(g, vector), right)
        change = g.op("Mul", mx.as_column(g, g.op("Mul", vector, factor)), products)
        column = mx.where(g, below, tail, mx.where(g, mx.unit(g, rows, index), head, values))
        is_current = mx.as_row(g, mx.unit(g, columns, index))
        matrix = mx.where(g, is_current, mx.as_column(g, column), g.op("Sub", matrix, change))
        added = g.op("Mul", factor, g.cast(mx.unit(g, count, index), dtype))
        return [matrix, g.op("Add", factors, added)]

    factors = mx.zeros(g, [*mx.batch_sizes(g, self), count], dtype)
    return mx.run_loop(g, count, step, [self, factors])


def _norm(g: GraphContext, values: Value, first: Value) -> Value:
    """The norm of a vector and one more element, `[..., 1]`, without overflow."""
    axis = (g.rank(values) or 1) - 1
    # Dividing by the sum of sizes keeps every square below 1.
    largest = g.op("ReduceMax", g.op("Abs", values), axes=[axis], keepdims=1)
    scale = g.op("Add", largest, g.op("Abs", first))
    scale = g.op("Add", scale, g.cast(mx.is_zero(g, scale), mx.dtype_of(g, values)))
    scaled_values, scaled_first = g.op("Div", values, scale), g.op("Div", first, scale)
    squares = g.op(
        "Add",
        mx.total(g, g.op("Mul", scaled_values, scaled_values), keepdim=True),
        g.op("Mul", scaled_first, scaled_first),
    )
    return g.op("Mul", scale, g.op("Sqrt", squares))


@onnx_symbolic("composed::reflect")
def composed_reflect(
    g: GraphContext, vectors: Value, factors: Value, matrix: Value, transpose: bool
) -> Value:
    """`Q other`, or `Q^T other`, for the product Q of the reflections of `composed::householder`."""
    rows, count = mx.height(g, vectors), g.size(factors, (g.rank(factors) or 1) - 1)
    last = compute(g, "sub", count, 1)
    dtype = mx.dtype_of(g, matrix)

    def step(iteration: Value, matrix: Value) -> list[Value]:
        # `Q` applies the last reflection first, and `Q^T` the first one.
        index = iteration if transpose else g.op("Sub", g.constant(last), iteration)
        tail = mx.where(g, mx.after(g, rows, index), mx.column(g, vectors, index), 0)
        vector = g.op("Add", tail, g.cast(mx.unit(g, rows, index), dtype))
        products = g.op("MatMul", mx.as_row(g, vector), matrix)
        scaled = g.op("Mul", vector, mx.element(g, factors, index))
        return [g.op("Sub", matrix, g.op("Mul", mx.as_column(g, scaled), products))]

    return mx.run_loop(g, count, step, [matrix])[0]


@onnx_symbolic("composed::orthogonal")
def composed_orthogonal(g: GraphContext, vectors: Value, factors: Value, columns: int | Value) -> Value:
    """The first columns of the product of reflections."""
    start = mx.identities(g, vectors, mx.height(g, vectors), columns)
    return g.call("composed::reflect", vectors, factors, start, transpose=False)


@onnx_symbolic("aten::linalg_householder_product")
def linalg_householder_product(g: GraphContext, input: Value, tau: Value) -> Value:
    return g.call("composed::orthogonal", input, tau, mx.width(g, input))


@onnx_symbolic("aten::orgqr")
def orgqr(g: GraphContext, self: Value, input2: Value) -> Value:
    return g.call("aten::linalg_householder_product", self, input2)


@onnx_symbolic("aten::ormqr")
def ormqr(
    g: GraphContext, self: Value, input2: Value, input3: Value, left: bool = True, transpose: bool = False
) -> Value:
    """A product from the right: `C Q` is `(Q^T C^T)^T`."""
    matrix = input3 if left else mx.transpose(g, input3)
    result = g.call("composed::reflect", self, input2, matrix, transpose == left)
    return result if left else mx.transpose(g, result)


@onnx_symbolic("aten::linalg_qr")
def linalg_qr(g: GraphContext, A: Value, mode: str = "reduced") -> list[Value]:
    packed, factors = g.call_outputs("composed::householder", A)
    upper = mx.triangle(g, packed, upper=True)
    count = mx.shorter(g, A)
    if mode == "r":
        return [mx.zeros(g, [0], mx.dtype_of(g, A)), mx.leading(g, upper, count, -2)]
    columns: Size = mx.height(g, A) if mode == "complete" else count
    orthogonal = g.call("composed::orthogonal", packed, factors, columns)
    return [orthogonal, upper if mode == "complete" else mx.leading(g, upper, count, -2)]


@onnx_symbolic("aten::qr")
def qr(g: GraphContext, self: Value, some: bool = True) -> list[Value]:
    return g.call_outputs("aten::linalg_qr", self, "reduced" if some else "complete")
