"""Questions to values that may be missing; below 18 a tensor cannot be asked."""

import onnx_ir as ir

from ...registration import GraphContext, Value, onnx_symbolic
from .support import emitted_from


@onnx_symbolic("canonical::OptionalGetElement")
def get_element(g: GraphContext, input: Value) -> Value:
    """Below 18 a value that cannot be missing is itself."""
    if isinstance(input.type, ir.OptionalType):
        return g.op("OptionalGetElement", input)
    return g.op("Identity", input)


@onnx_symbolic("canonical::OptionalHasElement")
def has_element(g: GraphContext, input: Value | None = None) -> Value:
    """Below 18 a value that cannot be missing is there, and one that is left out is not."""
    if input is not None and isinstance(input.type, ir.OptionalType):
        return g.op("OptionalHasElement", input)
    if input is not None and input.type is None:
        raise g.refuse("whether its input may be missing is unknown", first_opset=18)
    return g.constant(input is not None)


emitted_from("OptionalGetElement", 18)
emitted_from("OptionalHasElement", 18)
