"""Conversions of element types; copies, aliases and assertions, which compute nothing."""

from .....registration import DataType, GraphContext, Number, Value, onnx_symbolic


@onnx_symbolic("aten::to")
def to(
    g: GraphContext,
    self: Value,
    dtype: DataType | None = None,
    copy: bool = False,
    other: Value | None = None,
) -> Value:
    """Only the element type has a meaning in ONNX; `other` supplies its element type."""
    if dtype is None and other is not None:
        return g.call("aten::type_as", self=self, other=other)
    return self if dtype is None else g.cast(self, dtype)


@onnx_symbolic("aten::_to_copy")
def _to_copy(g: GraphContext, self: Value, dtype: DataType | None = None) -> Value:
    return self if dtype is None else g.cast(self, dtype)


@onnx_symbolic("aten::type_as")
def type_as(g: GraphContext, self: Value, other: Value) -> Value:
    """Cast, or CastLike (from opset 15) if the element type is unknown."""
    dtype = g.dtype(other)
    return g.op("CastLike", self, other) if dtype is None else g.cast(self, dtype)


def _identity(g: GraphContext, self: Value) -> Value:
    return self


for (
    _name
) in "alias alias_copy detach detach_copy lift lift_fresh lift_fresh_copy resolve_conj resolve_neg".split():
    onnx_symbolic(f"aten::{_name}")(_identity)


@onnx_symbolic(["aten::item", "aten::_local_scalar_dense"])
def item(g: GraphContext, self: Value) -> Value:
    """The number in a tensor of one element, as a zero-dim tensor of the number's own type."""
    [expected] = g.expected
    value = self if g.rank(self) == 0 else g.op("Reshape", self, g.constant([]))
    return value if expected.dtype is None else g.cast(value, expected.dtype)


@onnx_symbolic(["aten::contiguous", "aten::clone"])
def clone(g: GraphContext, self: Value) -> Value:
    return self


@onnx_symbolic("aten::_assert_tensor_metadata")
def _assert_tensor_metadata(
    g: GraphContext,
    a: Value,
    size: list[int | Value] | None = None,
    stride: list[int | Value] | None = None,
    dtype: DataType | None = None,
) -> tuple:
    return ()


@onnx_symbolic("aten::_assert_async")
def _assert_async(g: GraphContext, self: Value, assert_msg: str = "") -> tuple:
    return ()


@onnx_symbolic("aten::_assert_scalar")
def _assert_scalar(g: GraphContext, self: Value | Number, assert_msg: str = "") -> tuple:
    return ()


@onnx_symbolic(["aten::sym_constrain_range", "aten::sym_constrain_range_for_size"])
def sym_constrain_range(
    g: GraphContext, size: Value | Number, min: int | None = None, max: int | None = None
) -> tuple:
    return ()
