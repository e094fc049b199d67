"""Operators that return a tensor unchanged, check it, or print it."""

import onnx_ir as ir

from ...registration import DataType, GraphContext, Value, onnx_symbolic
from ..compositions.operator_tables import register_functions, register_variant

_IDENTITIES = ("Identity", "Snapshot", "GuaranteeConst", "RefIdentity", "StopGradient")
register_functions("tf", "input", dict.fromkeys(_IDENTITIES, lambda g, input: input))
register_functions("tf", "x", {"DeepCopy": lambda g, x: x})


@onnx_symbolic("tf::IdentityN")
def identity_n(g: GraphContext, input: list[Value]) -> list[Value]:
    return input


@onnx_symbolic(["tf::CheckNumerics", "tf::CheckNumericsV2"])
def check_numerics(g: GraphContext, tensor: Value, message: str = "") -> Value:
    """The check is omitted."""
    return tensor


@onnx_symbolic("tf::Print")
def print_(
    g: GraphContext, input: Value, data: list[Value], message: str = "", first_n: int = -1, summarize: int = 3
) -> Value:
    """Nothing is printed."""
    return input


register_variant("tf::PreventGradient", print_, data=[], first_n=-1, summarize=3)


@onnx_symbolic("tf::PrintV2")
def print_v2(g: GraphContext, input: Value, output_stream: str = "stderr", end: str = "\n") -> tuple[()]:
    return ()


@onnx_symbolic("tf::NoOp")
def no_op(g: GraphContext) -> tuple[()]:
    return ()


@onnx_symbolic("tf::Assert")
def assert_(g: GraphContext, condition: Value, data: list[Value], summarize: int = 3) -> tuple[()]:
    """The assertion is omitted."""
    return ()


@onnx_symbolic("tf::PlaceholderWithDefault")
def placeholder_with_default(g: GraphContext, input: Value, shape: list[int] | None = None) -> Value:
    """A placeholder that is not an input of the model is replaced by its default."""
    return input


@onnx_symbolic("tf::EnsureShape")
def ensure_shape(g: GraphContext, input: Value, shape: list[int] | None = None) -> Value:
    """The check is omitted; the value gets the stated shape."""
    current_shape = g.shape(input)
    if shape is None or current_shape is not None:
        return input
    result = g.op("Identity", input)
    result.shape = ir.Shape([None if size < 0 else size for size in shape])
    return result


@onnx_symbolic("tf::ToBool")
def to_bool(g: GraphContext, input: Value) -> Value:
    """A scalar is true if it is not 0, any other tensor if it has elements."""
    rank = g.rank(input)
    if rank is None:
        raise g.refuse("the rank of its input is unknown")
    return g.cast(input if rank == 0 else g.op("Size", input), DataType.BOOL)
