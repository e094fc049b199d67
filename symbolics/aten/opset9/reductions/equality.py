"""Comparison of whole tensors: equal, allclose."""

import functools
from typing import Any

import onnx_ir as ir

from .....registration import GraphContext, Value, onnx_symbolic
from ....compositions.branches import choose
from ....compositions.size_arithmetic import same_size

_FLAG = ir.Shape([])


def _equal_shapes(g: GraphContext, self: Value, operand: Value) -> Value | bool:
    """Whether the shapes are equal, as a constant or computed at run time."""
    first_shape, second_shape = g.shape(self), g.shape(operand)
    if first_shape is None or second_shape is None:
        raise g.refuse("the ranks of both tensors must be known")
    if len(first_shape) != len(second_shape):
        return False
    pairs = [
        (dim, a, b)
        for dim, (a, b) in enumerate(zip(first_shape, second_shape, strict=True))
        if not same_size(a, b)
    ]
    if any(isinstance(a, int) and isinstance(b, int) for _, a, b in pairs):
        return False
    if not pairs:
        return True
    equal_sizes = [g.call("sym::eq", a=g.size(self, dim), b=g.size(operand, dim)) for dim, _, _ in pairs]
    return functools.reduce(lambda a, b: g.op("And", a, b), equal_sizes)


@onnx_symbolic("aten::is_same_size")
def is_same_size(g: GraphContext, self: Value, other: Value) -> Value:
    return g.constant(_equal_shapes(g, self, other))


@onnx_symbolic("aten::equal")
def equal(g: GraphContext, self: Value, other: Value) -> Value:
    """True if the shapes and all elements are equal."""
    same_shape = _equal_shapes(g, self, other)

    def compare_elements() -> list[Value]:
        return [g.call("aten::all", g.call("aten::eq", self, other))]

    if isinstance(same_shape, bool):
        return compare_elements()[0] if same_shape else g.constant(False)
    # An If, because tensors of different shapes may not broadcast.
    return choose(g, same_shape, [compare_elements, lambda: [g.constant(False)]], [[_FLAG], [_FLAG]])[0]


@onnx_symbolic("aten::allclose")
def allclose(g: GraphContext, self: Value, other: Value, **tolerances: Any) -> Value:
    """True if all elements are close; the shapes may broadcast."""
    return g.call("aten::all", g.call("aten::isclose", self, other, **tolerances))
