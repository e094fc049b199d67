"""Operators on optional values; below 18 they do not take tensors."""

import onnx_ir as ir

from ...registration import GraphContext, Value
from .support import below


@below("OptionalGetElement", 18)
def get_element(g: GraphContext, input: Value) -> Value:
    """Below 18 a value that is not optional is returned unchanged."""
    if isinstance(input.type, ir.OptionalType):
        return g.op("OptionalGetElement", input)
    return g.op("Identity", input)


@below("OptionalHasElement", 18)
def has_element(g: GraphContext, input: Value | None = None) -> Value:
    """Below 18: true for a value that is not optional, and false for an omitted input."""
    if input is not None and isinstance(input.type, ir.OptionalType):
        return g.op("OptionalHasElement", input)
    if input is not None and input.type is None:
        raise g.refuse("it must be known whether its input may be absent", first_opset=18)
    return g.constant(input is not None)
