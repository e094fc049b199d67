"""Matrix products: linear, matmul, mm, bmm, addmm, einsum."""

import re
import string

from .....registration import DataType, GraphContext, Number, Value, onnx_symbolic
from .....registration.dtypes import INTEGERS
from ....compositions.einsum import parse_equation, spell_equation
from ....compositions.integers import widen_for_sum
from ....compositions.matrices import transpose
from ....compositions.size_arithmetic import Size, compute, depends_on_data, known_rank, sizes_of


def _times_factor(g: GraphContext, value: Value, factor: Number) -> Value:
    return value if factor == 1 else g.op("Mul", value, factor)


def _weighted_sum(g: GraphContext, self: Value, product: Value, beta: Number, alpha: Number) -> Value:
    """`beta * self + alpha * product`; if beta is 0, ATen ignores `self` even if it is NaN or infinite.

    For integers the factors are truncated.
    """
    # ATen converts the factors to the element type.
    if g.dtype(product) in INTEGERS:
        beta, alpha = int(beta), int(alpha)
    product = _times_factor(g, product, alpha)
    if beta == 0:
        return product
    return g.op("Add", _times_factor(g, self, beta), product)


def _cast_to(g: GraphContext, out_dtype: DataType | None, *values: Value) -> tuple[Value, ...]:
    """The factors cast to the requested element type of the product."""
    return values if out_dtype is None else tuple(g.cast(value, out_dtype) for value in values)


@onnx_symbolic("aten::linear")
def linear(g: GraphContext, input: Value, weight: Value, bias: Value | None = None) -> Value:
    if g.rank(weight) == 1:
        product = g.op("MatMul", input, weight)
        return product if bias is None else g.op("Add", product, bias)
    # Gemm takes matrices only, and transposes the weight without a node.
    if g.rank(input) == 2 and bias is not None and g.has_kernel("Gemm", input):
        return g.op("Gemm", input, weight, bias, transB=1)
    product = g.op("MatMul", input, g.op("Transpose", weight, perm=[1, 0]))
    return product if bias is None else g.op("Add", product, bias)


@onnx_symbolic(["aten::matmul", "aten::linalg_matmul", "aten::vdot"])
def matmul(g: GraphContext, self: Value, other: Value) -> Value:
    return g.op("MatMul", self, other)


@onnx_symbolic(["aten::mm", "aten::bmm"])
def bmm(g: GraphContext, self: Value, mat2: Value, out_dtype: DataType | None = None) -> Value:
    return g.op("MatMul", *_cast_to(g, out_dtype, self, mat2))


@onnx_symbolic("aten::_int_mm")
def _int_mm(g: GraphContext, self: Value, mat2: Value) -> Value:
    """The product of 8-bit integers in INT32."""
    return g.op("MatMulInteger", self, mat2)


@onnx_symbolic("aten::mv")
def mv(g: GraphContext, self: Value, vec: Value) -> Value:
    return g.op("MatMul", self, vec)


@onnx_symbolic("aten::dot")
def dot(g: GraphContext, self: Value, tensor: Value) -> Value:
    return g.op("MatMul", self, tensor)


@onnx_symbolic("aten::addmm")
def addmm(
    g: GraphContext,
    self: Value,
    mat1: Value,
    mat2: Value,
    beta: Number = 1,
    alpha: Number = 1,
    out_dtype: DataType | None = None,
) -> Value:
    """Gemm; not for empty factors, because onnxruntime then ignores `beta`."""
    self, mat1, mat2 = _cast_to(g, out_dtype, self, mat1, mat2)
    is_empty = 0 in (g.shape(mat1) or ())
    if beta != 0 and g.has_kernel("Gemm", mat1) and not is_empty:
        return g.op("Gemm", mat1, mat2, self, alpha=float(alpha), beta=float(beta))
    return _weighted_sum(g, self, g.op("MatMul", mat1, mat2), beta, alpha)


@onnx_symbolic("aten::baddbmm")
def baddbmm(
    g: GraphContext,
    self: Value,
    batch1: Value,
    batch2: Value,
    beta: Number = 1,
    alpha: Number = 1,
    out_dtype: DataType | None = None,
) -> Value:
    self, batch1, batch2 = _cast_to(g, out_dtype, self, batch1, batch2)
    return _weighted_sum(g, self, g.op("MatMul", batch1, batch2), beta, alpha)


@onnx_symbolic("aten::addbmm")
def addbmm(
    g: GraphContext, self: Value, batch1: Value, batch2: Value, beta: Number = 1, alpha: Number = 1
) -> Value:
    product = g.op("ReduceSum", g.op("MatMul", batch1, batch2), axes=[0], keepdims=0)
    return _weighted_sum(g, self, product, beta, alpha)


@onnx_symbolic("aten::addmv")
def addmv(g: GraphContext, self: Value, mat: Value, vec: Value, beta: Number = 1, alpha: Number = 1) -> Value:
    return _weighted_sum(g, self, g.op("MatMul", mat, vec), beta, alpha)


@onnx_symbolic(["aten::outer", "aten::ger"])
def outer(g: GraphContext, self: Value, vec2: Value) -> Value:
    return g.op("Mul", g.op("Unsqueeze", self, axes=[1]), g.op("Unsqueeze", vec2, axes=[0]))


@onnx_symbolic("aten::kron")
def kron(g: GraphContext, self: Value, other: Value) -> Value:
    """All products of an element of each, in blocks of the shape of `other`."""
    rank = max(known_rank(g, self), known_rank(g, other))
    padded: list[list[Size]] = [
        [*[1] * (rank - known_rank(g, item)), *sizes_of(g, item)] for item in (self, other)
    ]
    outer_sizes, inner_sizes = padded
    blocks = g.call("aten::reshape", self, [size for length in outer_sizes for size in (length, 1)])
    block = g.call("aten::reshape", other, [size for length in inner_sizes for size in (1, length)])
    sizes = [compute(g, "mul", *pair) for pair in zip(outer_sizes, inner_sizes, strict=True)]
    return g.call("aten::reshape", g.op("Mul", blocks, block), sizes)


@onnx_symbolic("aten::addr")
def addr(
    g: GraphContext, self: Value, vec1: Value, vec2: Value, beta: Number = 1, alpha: Number = 1
) -> Value:
    return _weighted_sum(g, self, outer(g, vec1, vec2), beta, alpha)


@onnx_symbolic("aten::inner")
def inner(g: GraphContext, self: Value, other: Value) -> Value:
    rank, other_rank = g.rank(self), g.rank(other)
    if rank is None or other_rank is None:
        raise g.refuse("the ranks of both tensors must be known")
    if rank == 0 or other_rank == 0:
        return g.op("Mul", self, other)
    if other_rank == 1:
        return g.op("MatMul", self, other)
    if other_rank == 2:
        return g.op("MatMul", self, transpose(g, other))
    features = g.size(other, -1)
    # All leading dimensions of the second tensor become columns of one matrix.
    columns = g.op("Transpose", g.op("Reshape", other, [-1, features]), perm=[1, 0])
    sizes = [*(g.size(self, i) for i in range(rank - 1)), *(g.size(other, i) for i in range(other_rank - 1))]
    return g.op("Reshape", g.op("MatMul", self, columns), sizes)


@onnx_symbolic("aten::chain_matmul")
def chain_matmul(g: GraphContext, matrices: list[Value]) -> Value:
    result = matrices[0]
    for matrix in matrices[1:]:
        result = g.op("MatMul", result, matrix)
    return result


@onnx_symbolic("aten::linalg_multi_dot")
def linalg_multi_dot(g: GraphContext, tensors: list[Value]) -> Value:
    return chain_matmul(g, tensors)


@onnx_symbolic("aten::linalg_vecdot")
def linalg_vecdot(g: GraphContext, x: Value, y: Value, dim: int = -1) -> Value:
    product = g.op("Mul", x, y)
    rank = g.rank(product)
    axis = dim + rank if dim < 0 and rank is not None else dim
    return g.op("ReduceSum", product, axes=[axis], keepdims=0)


def _multiply_before_gather(g: GraphContext, equation: str, tensors: list[Value]) -> Value | None:
    """The products with rows of a small table, of which each position selects others: `bhld,lrd->bhlr`.

    Relative positions are such rows. Selected before the product, they have the square of the length times
    the width; selected from the products with all rows, they have only the size of the result.

    Returns:
        None for other products, and for tables with many more rows than columns.
    """
    match = re.fullmatch(r"(\w+)(\w)(\w),\2(\w)\3->\1\2\4", equation)
    if match is None or len(set("".join(match.groups()))) < len("".join(match.groups())):
        return None
    gather = tensors[1].producer()
    if gather is None or gather.op_type != "Gather" or g.dtype(tensors[0]) in INTEGERS:
        return None
    table, indices = gather.inputs
    axis = gather.attributes.get_int("axis", 0)
    if table is None or indices is None or (axis, g.rank(table), g.rank(indices)) != (0, 2, 2):
        return None
    rows, columns = g.size(table, 0), g.size(table, 1)
    if not (isinstance(rows, int) and isinstance(columns, int) and rows <= 2 * columns):
        return None
    outer = len(match[1])
    products = g.op("MatMul", tensors[0], g.op("Transpose", table, perm=[1, 0]))
    flat = g.op("Reshape", products, [*(g.size(products, dim) for dim in range(outer)), -1])
    # Those of position `i` begin at `i * rows`; an index may count from the end of the table.
    index = g.cast(indices, DataType.INT64)
    starts = g.op("Mul", g.op("Range", 0, g.size(index, 0), 1), rows)
    index = g.op("Add", g.op("Mod", index, rows), g.op("Unsqueeze", starts, axes=[1]))
    return g.op("Gather", flat, index, axis=outer)


@onnx_symbolic("aten::einsum")
def einsum(g: GraphContext, equation: str, tensors: list[Value]) -> Value:
    """Ellipses of known ranks become labels: runtimes broadcast only ellipses of equal rank.

    onnxruntime's Einsum crashes if a size is 0, so products are composed that are known to be empty, or whose
    sizes depend on data.
    """
    ranks = [rank for rank in map(g.rank, tensors) if rank is not None]
    text = equation.replace(" ", "")
    if "..." in text and len(ranks) == len(tensors):
        text = spell_equation(parse_equation(g, text, ranks))
    product = _multiply_before_gather(g, text, tensors)
    if product is not None:
        return product
    # Runtimes have kernels for few element types.
    wide, dtype = widen_for_sum(g, tensors)
    sizes = [size for tensor in tensors for size in g.shape(tensor) or ()]
    may_be_empty = len(ranks) == len(tensors) and any(size == 0 or depends_on_data(size) for size in sizes)
    result = g.call("onnx::Einsum", wide, text) if may_be_empty else g.op("Einsum", *wide, equation=text)
    return result if dtype is None else g.cast(result, dtype)


@onnx_symbolic("aten::bilinear")
def bilinear(
    g: GraphContext, input1: Value, input2: Value, weight: Value, bias: Value | None = None
) -> Value:
    result = g.call("aten::einsum", equation="...n,anm,...m->...a", tensors=[input1, weight, input2])
    return result if bias is None else g.op("Add", result, bias)


@onnx_symbolic("aten::_trilinear")
def trilinear(
    g: GraphContext,
    i1: Value,
    i2: Value,
    i3: Value,
    expand1: list[int],
    expand2: list[int],
    expand3: list[int],
    sumdim: list[int],
    unroll_dim: int = 1,
) -> Value:
    """The product of three tensors, each without some of the dimensions, summed over some: see `bilinear`."""
    labels = string.ascii_letters[: known_rank(g, i1) + len(expand1)]
    *operands, result = (
        "".join(label for axis, label in enumerate(labels) if axis not in absent)
        for absent in (expand1, expand2, expand3, sumdim)
    )
    return g.call("aten::einsum", equation=f"{','.join(operands)}->{result}", tensors=[i1, i2, i3])
