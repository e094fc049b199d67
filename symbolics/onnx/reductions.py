"""Reductions over computed axes, over no axes, and for element types that an opset lacks."""

from collections.abc import Callable

import onnx_ir as ir

from ...registration import DataType, GraphContext, Value
from ..compositions.branches import choose
from ..compositions.size_arithmetic import known_rank
from .support import below, integers, kept_sizes, mask_of_axes

Step = Callable[[GraphContext, Value], Value]


def _keep(g: GraphContext, value: Value) -> Value:
    return value


def _unary(op_type: str) -> Step:
    return lambda g, value: g.op(op_type, value)


def _square(g: GraphContext, value: Value) -> Value:
    return g.op("Mul", value, value)


_OF_ITSELF = "ReduceSum ReduceMax ReduceMin ReduceProd ReduceMean ReduceLogSumExp"

# The function of each element, the reduction, and the function of the result.
REDUCTIONS_BY_OTHERS: dict[str, tuple[Step, str, Step]] = {
    **{name: (_keep, name, _keep) for name in _OF_ITSELF.split()},
    "ReduceL1": (_unary("Abs"), "ReduceSum", _keep),
    "ReduceL2": (_square, "ReduceSum", _unary("Sqrt")),
    "ReduceSumSquare": (_square, "ReduceSum", _keep),
    "ReduceLogSum": (_keep, "ReduceSum", _unary("Log")),
}


_OF_BOOL = ("ReduceMax", "ReduceMin")
"""The reductions that take BOOL from opset 20."""


def _register(op_type: str) -> None:
    before, _, after = REDUCTIONS_BY_OTHERS[op_type]

    @below(op_type, 13 if op_type == "ReduceSum" else 18)
    def reduce(
        g: GraphContext,
        data: Value,
        axes: Value | list[int] | None = None,
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> Value:
        """Below 18 (ReduceSum: 13) axes are constant and not empty; an empty list means all, or none."""
        constant_axes = integers(g, axes)
        shape = g.shape(axes) if isinstance(axes, Value) else None
        if constant_axes == [] or axes is None or (shape is not None and shape == (0,)):
            if noop_with_empty_axes:
                # Over no axes log(exp(x)) is x, like the other reductions.
                return after(g, g.op("Identity", before(g, data)))
            return _reduce(g, op_type, data, None, keepdims)
        if constant_axes is not None:
            rank = g.rank(data)
            if rank is not None:
                constant_axes = [g.axis(axis, rank) for axis in constant_axes]
            return _reduce(g, op_type, data, constant_axes, keepdims)
        assert isinstance(axes, Value)
        return _by_computed_axes(g, op_type, data, axes, keepdims, noop_with_empty_axes)

    if op_type not in _OF_BOOL:
        return

    @below(op_type, 20)
    def reduce_bool(
        g: GraphContext, data: Value, axes: Value | list[int] | None = None, keepdims: int = 1, **noop: int
    ) -> Value:
        """At 18 and 19: no BOOL."""
        if not noop.get("noop_with_empty_axes"):
            return _reduce(g, op_type, data, axes, keepdims)
        return g.op(op_type, data, outputs=1, axes=axes, keepdims=keepdims, **noop)


def _reduce(
    g: GraphContext, op_type: str, data: Value, axes: Value | list[int] | None, keepdims: int
) -> Value:
    """Reduce BOOL below 20 by counting: without elements the minimum is true and the maximum false."""
    if g.dtype(data) != DataType.BOOL or op_type not in _OF_BOOL or g.has(op_type, dtype=DataType.BOOL):
        return g.op(op_type, data, axes=axes, keepdims=keepdims)
    least = op_type == "ReduceMin"
    # All are true if no element is false; any is true if one is.
    counted = g.cast(g.op("Not", data) if least else data, DataType.INT32)
    any_true = g.op("Greater", g.op("ReduceSum", counted, axes=axes, keepdims=keepdims), 0)
    return g.op("Not", any_true) if least else any_true


def _by_computed_axes(
    g: GraphContext, op_type: str, data: Value, axes: Value, keepdims: int, noop: int
) -> Value:
    """Reduce one dimension after the other, if it is among the axes."""
    before, base, after = REDUCTIONS_BY_OTHERS[op_type]
    rank = known_rank(g, data)
    is_reduced = mask_of_axes(g, axes, rank)
    # An empty list of axes reduces all dimensions.
    shape = g.shape(axes)
    has_axes = shape is not None and len(shape) == 1 and isinstance(shape[0], int) and shape[0] > 0
    if not noop and not has_axes:
        none = g.op("Equal", g.op("Size", axes), g.constant(0))
        is_reduced = g.op("Or", is_reduced, none)
    value = before(g, data)
    # The axes are known only at run time, so each dimension gets an If.
    for dim in range(rank):
        is_reduced_dim = g.op("Gather", is_reduced, dim, axis=0)
        value = _reduce_if(g, base, value, dim, is_reduced_dim, rank)
    value = after(g, value)
    if not keepdims:
        value = g.op("Reshape", value, kept_sizes(g, value, is_reduced))
    return value


def _reduce_if(g: GraphContext, base: str, value: Value, dim: int, condition: Value, rank: int) -> Value:
    shape = value.shape
    sizes = list(shape) if shape is not None else [None] * rank
    reduced = ir.Shape([*sizes[:dim], 1, *sizes[dim + 1 :]])
    [result] = choose(
        g,
        condition,
        [lambda: [_reduce(g, base, value, [dim], 1)], lambda: [g.op("Identity", value)]],
        [[reduced], [shape]],
    )
    result.shape = ir.Shape([*sizes[:dim], None, *sizes[dim + 1 :]])
    if result.dtype is None and value.dtype is not None:
        result.type = ir.TensorType(value.dtype)
    return result


for _op_type in REDUCTIONS_BY_OTHERS:
    _register(_op_type)
