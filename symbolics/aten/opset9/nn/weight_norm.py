"""Weight normalization: a weight as a magnitude `g` times a direction `v / norm(v)`.

Source: aten/src/ATen/native/WeightNorm.cpp.
"""

from .....registration import DataType, GraphContext, Value, onnx_symbolic
from ....compositions.moments import cast_like, widen_halves
from ....compositions.size_arithmetic import known_rank


@onnx_symbolic("aten::norm_except_dim")
def norm_except_dim(g: GraphContext, v: Value, pow: int = 2, dim: int = 0) -> Value:
    """The norm over all dimensions but one, which are kept with size 1; -1 is the norm of the whole."""
    if dim == -1:
        return g.call("aten::norm", v, pow)
    rank = known_rank(g, v)
    axes = [axis for axis in range(rank) if axis != dim % rank]
    if axes:
        return g.call("aten::norm", v, pow, dim=axes, keepdim=True)
    # No axis is reduced, where a norm without axes would reduce all: each element is its own norm.
    return g.call("aten::norm", g.op("Unsqueeze", v, axes=[1]), pow, dim=[1])


# The schema calls the magnitude `g`, so the graph under construction has another name here.
@onnx_symbolic("aten::_weight_norm")
def _weight_norm(graph: GraphContext, v: Value, g: Value, dim: int = 0) -> Value:
    return graph.call_outputs("aten::_weight_norm_interface", v, g, dim)[0]


@onnx_symbolic("aten::_weight_norm_interface")
def _weight_norm_interface(graph: GraphContext, v: Value, g: Value, dim: int = 0) -> tuple[Value, Value]:
    """The weight and the norm, computed in FLOAT for half precision; the norm of BFLOAT16 stays FLOAT."""
    direction, [magnitude] = widen_halves(graph, v, g)
    assert magnitude is not None
    norm = graph.call("aten::norm_except_dim", direction, 2, dim)
    weight = graph.op("Mul", direction, graph.op("Div", magnitude, norm))
    is_narrow = graph.dtype(g) != DataType.BFLOAT16
    return cast_like(graph, weight, v), cast_like(graph, norm, g) if is_narrow else norm
