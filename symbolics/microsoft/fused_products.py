"""Matrix products and convolutions with the transpositions, sums and activations that are fused into them."""

from ...registration import DataType, GraphContext, Value
from ..compositions.size_arithmetic import known_rank
from . import microsoft_symbolic
from .fused_activations import activate


def _transpose_matrices(g: GraphContext, matrices: Value, swaps_last: int, moves_batch: int) -> Value:
    """A stack of matrices with its last two dimensions swapped.

    Args:
        moves_batch: whether the batch dimensions lie between the two dimensions of the matrices.
    """
    rank = known_rank(g, matrices) if swaps_last or moves_batch else 0
    perm = list(range(rank))
    # The first dimension of such a stack is that of the matrix rows, behind which the batch comes.
    if moves_batch and rank > 2:
        perm = [*range(1, rank - 1), 0, rank - 1]
    if swaps_last and rank > 1:
        perm[-2:] = perm[:-3:-1]
    return g.op("Transpose", matrices, perm=perm) if perm != list(range(rank)) else matrices


@microsoft_symbolic("FusedMatMul", "TransposeMatMul")
def fused_mat_mul(
    g: GraphContext,
    A: Value,
    B: Value,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> Value:
    first, second = (
        _transpose_matrices(g, A, transA, transBatchA),
        _transpose_matrices(g, B, transB, transBatchB),
    )
    product = g.op("MatMul", first, second)
    return product if alpha == 1 else g.op("Mul", product, alpha)


@microsoft_symbolic("FusedGemm")
def fused_gemm(
    g: GraphContext,
    A: Value,
    B: Value,
    C: Value | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    activation: str = "",
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
) -> Value:
    product = g.op("Gemm", A, B, C, alpha=alpha, beta=beta, transA=transA, transB=transB)
    parameters = [number for number in (activation_alpha, activation_beta) if number is not None]
    return activate(g, product, activation, parameters)


@microsoft_symbolic("FusedConv")
def fused_conv(
    g: GraphContext,
    X: Value,
    W: Value,
    B: Value | None = None,
    Z: Value | None = None,
    activation: str = "",
    activation_params: list[float] | None = None,
    kernel_shape: list[int] | None = None,
    strides: list[int] | None = None,
    dilations: list[int] | None = None,
    group: int = 1,
    pads: list[int] | None = None,
    auto_pad: str = "NOTSET",
) -> Value:
    """The sum with `Z` precedes the activation."""
    convolved = g.op(
        "Conv",
        X,
        W,
        B,
        kernel_shape=kernel_shape,
        strides=strides,
        dilations=dilations,
        group=group,
        pads=pads,
        auto_pad=auto_pad,
    )
    added = convolved if Z is None else g.op("Add", convolved, Z)
    return activate(g, added, activation, activation_params or [])


@microsoft_symbolic("GemmFastGelu")
def gemm_fast_gelu(g: GraphContext, X: Value, W: Value, bias: Value | None = None) -> Value:
    product = g.op("MatMul", X, W)
    return g.op("Gelu", product if bias is None else g.op("Add", product, bias), approximate="tanh")


@microsoft_symbolic("MatMulInteger16")
def mat_mul_integer_16(g: GraphContext, A: Value, B: Value) -> Value:
    return g.op("MatMul", g.cast(A, DataType.INT32), g.cast(B, DataType.INT32))
