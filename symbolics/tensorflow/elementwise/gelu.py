"""Keras's exact GELU, `0.5 x erfc(-x sqrt(0.5))`, found in the source graph: Erfc alone takes 30 nodes."""

from __future__ import annotations

import math

from onnx_ir import Node

from ....registration import GraphContext, Value, arguments

_TOLERANCE = 1e-3
"""Relative; half precision rounds the factors to this."""


def _operands(value: Value | None, name: str) -> list[Value]:
    """The operands of the TensorFlow node that makes a source value, if it is the given operator."""
    node = None if value is None else value.producer()
    if node is None or node.domain != "tf" or node.op_type != name:
        return []
    return [item for item in node.inputs if item is not None]


def _scaled(value: Value, factor: float) -> Value | None:
    """The other factor of a product with the given constant."""
    operands = _operands(value, "Mul")
    for place, item in enumerate(operands):
        array = None if item.const_value is None else item.const_value.numpy()
        if array is not None and array.size == 1 and len(operands) == 2:
            exact = math.isclose(float(array.reshape(()).item()), factor, rel_tol=_TOLERANCE)
            return operands[1 - place] if exact else None
    return None


def _matches(half: Value, tail: Value) -> bool:
    """Whether two source values are `0.5 x` and `erfc(-x sqrt(0.5))` of the same x."""
    operand, [*argument] = _scaled(half, 0.5), _operands(tail, "Erfc")
    if operand is None or not argument:
        return False
    inner = _scaled(argument[0], math.sqrt(0.5))
    return inner is not None and _operands(inner, "Neg") == [operand]


def gelu_operand(g: GraphContext, x: Value, y: Value) -> Value | None:
    """The x of a GELU whose last product is being lowered; None if the product is something else."""
    node: Node | None = g.node
    if node is None or node.domain != "tf" or node.op_type != "Mul":
        return None
    given = arguments.arguments(node)
    for half, first, second in ((x, given["x"], given["y"]), (y, given["y"], given["x"])):
        if not _matches(first, second):
            continue
        made = half.producer()
        if made is None or made.op_type != "Mul":
            return None
        operands = [item for item in made.inputs if item is not None and item.const_value is None]
        return operands[0] if len(operands) == 1 else None
    return None
