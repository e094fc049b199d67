"""Products in the forms that consumers know."""

import numpy as np

from ....registration import GraphContext, Value, onnx_symbolic


@onnx_symbolic("form::Einsum.products")
def einsum(g: GraphContext, Inputs: list[Value], equation: str) -> Value:
    """With a vector among the operands: the composition of products and sums."""
    if all(g.rank(operand) != 1 for operand in Inputs):
        raise g.refuse("no operand is a vector")
    result: Value = g.call("onnx::Einsum", Inputs, equation)
    return result


@onnx_symbolic("form::Gemm.three_dimensions")
def gemm(
    g: GraphContext,
    A: Value,
    B: Value,
    C: Value | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Value:
    """A product of a batch of one matrix, with a constant weight."""
    weight = g.constant_value(B)
    if weight is None or transA or alpha != 1 or (C is not None and beta != 1):
        raise g.refuse("the weight is computed, the first operand is transposed, or a factor is not 1")
    matrix = g.constant(np.ascontiguousarray(weight.T)) if transB else B
    product = g.op("MatMul", g.op("Unsqueeze", A, axes=[0]), matrix)
    result: Value = g.op("Squeeze", product if C is None else g.op("Add", product, C), axes=[0])
    return result


@onnx_symbolic("form::MatMul.same_shape")
def matmul(g: GraphContext, A: Value, B: Value, result_shape: list[int] | None = None) -> Value:
    """A product behind which a Reshape to its own shape keeps a consumer from fusing the next operator."""
    if result_shape is None or 0 in result_shape:
        raise g.refuse("the sizes must be known")
    return g.op("Reshape", g.op("MatMul", A, B), result_shape)
