"""Comparison of whole tensors: equal, allclose."""

import functools
from typing import Any

import onnx_ir as ir

from .....registration import GraphContext, Value, onnx_symbolic
from ....compositions.branches import choose
from ....compositions.sizes import same

_FLAG = ir.Shape([])


def _equal_shapes(g: GraphContext, self: Value, other: Value) -> Value | bool:
    """Whether the shapes are equal, as a constant or computed at run time."""
    ours, theirs = g.shape(self), g.shape(other)
    if ours is None or theirs is None:
        raise g.refuse("the ranks of both tensors must be known")
    if len(ours) != len(theirs):
        return False
    pairs = [(at, a, b) for at, (a, b) in enumerate(zip(ours, theirs, strict=True)) if not same(a, b)]
    if any(isinstance(a, int) and isinstance(b, int) for _, a, b in pairs):
        return False
    if not pairs:
        return True
    found = [g.call("sym::eq", a=g.size(self, at), b=g.size(other, at)) for at, _, _ in pairs]
    return functools.reduce(lambda a, b: g.op("And", a, b), found)


@onnx_symbolic("aten::is_same_size")
def is_same_size(g: GraphContext, self: Value, other: Value) -> Value:
    return g.constant(_equal_shapes(g, self, other))


@onnx_symbolic("aten::equal")
def equal(g: GraphContext, self: Value, other: Value) -> Value:
    """True if the shapes and all elements are equal."""
    alike = _equal_shapes(g, self, other)

    def compared() -> list[Value]:
        return [g.call("aten::all", g.call("aten::eq", self, other))]

    if isinstance(alike, bool):
        return compared()[0] if alike else g.constant(False)
    return choose(g, alike, [compared, lambda: [g.constant(False)]], [[_FLAG], [_FLAG]])[0]


@onnx_symbolic("aten::allclose")
def allclose(g: GraphContext, self: Value, other: Value, **tolerances: Any) -> Value:
    """True if all elements are close; the shapes may broadcast."""
    return g.call("aten::all", g.call("aten::isclose", self, other, **tolerances))
