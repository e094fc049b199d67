"""Forms for consumers without batches, in which a leading dimension of size 1 keeps the batch as data."""

import numpy as np

from ....registration import GraphContext, Value, onnx_symbolic
from .arithmetic import register_form_of_operands
from .sizes import is_stored, static_shape


def _emit_lifted(g: GraphContext, op_type: str, operands: list[Value]) -> Value:
    """Computed operands get a leading dimension of size 1 by a Reshape, and the result loses it.

    Such a consumer takes a dimension of every operand for the batch if it takes one of another operand for
    it. A Reshape that changes the size of that dimension separates the values.
    """
    sizes = [static_shape(g, operand) for operand in operands]
    rank = max(map(len, sizes))
    if op_type == "MatMul":
        if min(map(len, sizes)) < 2:
            raise g.refuse("an operand is a vector")
        result_shape = [*np.broadcast_shapes(*(shape[:-2] for shape in sizes)), sizes[0][-2], sizes[1][-1]]
    else:
        result_shape = list(np.broadcast_shapes(*sizes))
    lifted = [
        operand if is_stored(operand) else g.op("Reshape", operand, [1] * (rank + 1 - len(shape)) + shape)
        for operand, shape in zip(operands, sizes, strict=True)
    ]
    return g.op("Reshape", g.op(op_type, *lifted), [int(size) for size in result_shape])


for _op_type in ("Add", "Div", "MatMul", "Max", "Min", "Mul", "Pow", "Sub"):
    register_form_of_operands(_op_type, "lifted", _emit_lifted)


@onnx_symbolic("form::Concat.lifted")
def lifted_concat(
    g: GraphContext, inputs: list[Value], axis: int, result_shape: list[int] | None = None
) -> Value:
    """Operands with a leading dimension of size 1, which the result loses, as in arithmetic."""
    if result_shape is None:
        raise g.refuse("the sizes are not known")
    dim = g.axis(axis, len(result_shape))
    lifted = [g.op("Reshape", operand, [1, *static_shape(g, operand)]) for operand in inputs]
    return g.op("Reshape", g.op("Concat", *lifted, axis=dim + 1), result_shape)


@onnx_symbolic("form::Expand.lifted")
def lifted_expand(
    g: GraphContext, input: Value, shape: Value, result_shape: list[int] | None = None
) -> Value:
    """Data with a leading dimension of size 1, which the result loses, as in arithmetic."""
    sizes = static_shape(g, input)
    if result_shape is None:
        raise g.refuse("the sizes are not known")
    leading = [1] * (len(result_shape) + 1 - len(sizes))
    data = g.op("Reshape", input, [*leading, *sizes])
    return g.op("Reshape", g.op("Expand", data, [1, *result_shape]), result_shape)
