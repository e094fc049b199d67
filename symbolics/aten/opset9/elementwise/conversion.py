"""Conversions of element types; copies, aliases and assertions, which compute nothing."""

from typing import Any

from .....registration import DataType, GraphContext, Value, onnx_symbolic


@onnx_symbolic(["aten::to", "aten::_to_copy"])
def to(
    g: GraphContext,
    self: Value,
    dtype: DataType | None = None,
    copy: bool = False,
    other: Value | None = None,
) -> Value:
    """Cast to `dtype`, or to the element type of `other`; devices and layouts have no meaning in ONNX."""
    if dtype is None and other is not None:
        return g.call("aten::type_as", self=self, other=other)
    return self if dtype is None else g.cast(self, dtype)


@onnx_symbolic("aten::type_as")
def type_as(g: GraphContext, self: Value, other: Value) -> Value:
    """Cast, or CastLike (from opset 15) if the element type is unknown."""
    dtype = g.dtype(other)
    return g.op("CastLike", self, other) if dtype is None else g.cast(self, dtype)


_COPIES = (
    "alias alias_copy clone contiguous detach detach_copy lift lift_fresh lift_fresh_copy resolve_conj "
    "resolve_neg"
)


@onnx_symbolic([f"aten::{name}" for name in _COPIES.split()])
def identity(g: GraphContext, self: Value) -> Value:
    return self


@onnx_symbolic(["aten::item", "aten::_local_scalar_dense"])
def item(g: GraphContext, self: Value) -> Value:
    """The number in a tensor of one element, as a zero-dim tensor of the number's own type."""
    [expected] = g.expected
    value = self if g.rank(self) == 0 else g.op("Reshape", self, g.constant([]))
    return value if expected.dtype is None else g.cast(value, expected.dtype)


_ASSERTIONS = (
    "_assert_async _assert_scalar _assert_tensor_metadata sym_constrain_range sym_constrain_range_for_size"
)


@onnx_symbolic([f"aten::{name}" for name in _ASSERTIONS.split()])
def assertion(g: GraphContext, **arguments: Any) -> tuple[()]:
    return ()
