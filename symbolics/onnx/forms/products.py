"""Products in the forms that consumers know."""

from ....registration import GraphContext, Value, onnx_symbolic


@onnx_symbolic("form::Einsum.products")
def einsum(g: GraphContext, Inputs: list[Value], equation: str) -> Value:
    """With a vector among the operands: the composition of products and sums."""
    if all(g.rank(operand) != 1 for operand in Inputs):
        raise g.refuse("no operand is a vector")
    result: Value = g.call("onnx::Einsum", Inputs, equation)
    return result
