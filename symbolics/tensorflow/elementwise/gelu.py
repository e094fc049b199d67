"""Recognises Keras's exact GELU, `0.5 x erfc(-x sqrt(0.5))`: lowered by itself, Erfc takes 30 nodes."""

import math

from onnx_ir import Node

from ....registration import GraphContext, Value, arguments

_TOLERANCE = 1e-3
"""The relative tolerance for the factors, which half precision rounds."""


def _operands(value: Value | None, name: str) -> list[Value]:
    """The operands of the TensorFlow node that produces a source value; none if it is another operator."""
    node = None if value is None else value.producer()
    if node is None or node.domain != "tf" or node.op_type != name:
        return []
    return [item for item in node.inputs if item is not None]


def _unscaled_operand(value: Value, factor: float) -> Value | None:
    """The other factor of a product with a constant factor; None if the value is something else."""
    operands = _operands(value, "Mul")
    for position, item in enumerate(operands):
        array = None if item.const_value is None else item.const_value.numpy()
        if array is not None and array.size == 1 and len(operands) == 2:
            exact = math.isclose(float(array.reshape(()).item()), factor, rel_tol=_TOLERANCE)
            return operands[1 - position] if exact else None
    return None


def _matches(half: Value, tail: Value) -> bool:
    """Whether two source values are `0.5 x` and `erfc(-x sqrt(0.5))` of the same x."""
    operand, [*argument] = _unscaled_operand(half, 0.5), _operands(tail, "Erfc")
    if operand is None or not argument:
        return False
    inner = _unscaled_operand(argument[0], math.sqrt(0.5))
    return inner is not None and _operands(inner, "Neg") == [operand]


def gelu_operand(g: GraphContext, x: Value, y: Value) -> Value | None:
    """The x of a GELU whose last product is x * y; None if the product is something else."""
    node: Node | None = g.node
    if node is None or node.domain != "tf" or node.op_type != "Mul":
        return None
    node_arguments = arguments.arguments(node)
    for half, first, second in (
        (x, node_arguments["x"], node_arguments["y"]),
        (y, node_arguments["y"], node_arguments["x"]),
    ):
        if not _matches(first, second):
            continue
        producer = half.producer()
        if producer is None or producer.op_type != "Mul":
            return None
        # The lowered half is a product of x and a constant, so x is its only computed operand.
        operands = [item for item in producer.inputs if item is not None and item.const_value is None]
        return operands[0] if len(operands) == 1 else None
    return None
