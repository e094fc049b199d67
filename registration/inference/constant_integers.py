"""Reads integers that operators take as constants: sizes, axes and bounds."""

from __future__ import annotations

import onnx_ir as ir

from .tensor_sizes import element_count

MAXIMUM_RANK = 64
"""Shapes with more dimensions count as unknown: a few nodes, such as `Gather(x, x)`, can make millions."""


def integers(value: ir.Value | None) -> list[int] | None:
    """The integers of a small constant; None if the value is computed, or has more than the largest rank.

    An initializer that is also an input of the graph is only a default, and no constant.
    """
    if value is None or value.is_graph_input():
        return None
    tensor = value.const_value
    if tensor is None:
        producer = value.producer()
        # The constants of functions, and of graphs that no pass has read, are still nodes.
        is_constant = producer is not None and producer.op_type == "Constant" and not producer.domain
        attribute = producer.attributes.get("value") if producer is not None and is_constant else None
        if attribute is None or attribute.type != ir.AttributeType.TENSOR or attribute.is_ref():
            return None
        tensor = attribute.as_tensor()
    # A tensor that is computed when it is read may be the result of large weights.
    is_integral = tensor.dtype.is_integer() and type(tensor) is not ir.LazyTensor
    if not is_integral or element_count(tensor) > MAXIMUM_RANK:
        return None
    numbers: list[int] = tensor.numpy().reshape(-1).tolist()
    return numbers


def argument(node: ir.Node, name: str, position: int) -> list[int] | None:
    """The integers of an argument that is an attribute in some opsets and an input in others.

    Args:
        position: the index of the input.

    Returns:
        None if the node does not have the argument, or if it is not a constant.
    """
    attribute = node.attributes.get(name)
    if attribute is not None:
        return list(attribute.as_ints())
    return integers(node.inputs[position]) if position < len(node.inputs) else None
