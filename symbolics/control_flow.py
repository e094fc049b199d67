"""Branches and loops of the `prim` dialect, as TorchScript has them: If and Loop."""

from collections.abc import Sequence

import numpy as np

from ..registration import DataType, GraphContext, Number, Value, onnx_symbolic
from .sizes import known

_ENDLESS = np.iinfo(np.int64).max


@onnx_symbolic("prim::Constant")
def constant(g: GraphContext, value: Number) -> Value:
    """A Python number where a block has to return a value."""
    [expected] = g.expected
    return g.constant(value, expected.dtype)


def constant_condition(g: GraphContext, condition: Value | bool) -> bool | None:
    """A condition where it is known as the graph is built."""
    if isinstance(condition, bool):
        return condition
    array = g.constant_value(condition) if g.is_foldable(condition) else None
    return None if array is None else bool(array.item())


@onnx_symbolic("prim::If")
def if_(g: GraphContext, condition: Value | bool) -> Sequence[Value]:
    """A branch; the one that is always taken stands in its place."""
    then_branch, else_branch = g.blocks
    decided = constant_condition(g, condition)
    if decided is not None:
        return (then_branch if decided else else_branch).inline()
    count = len(g.expected)
    if count == 0:
        return []
    results = g.op(
        "If",
        g.cast(g.constant(condition), DataType.BOOL),
        then_branch=then_branch.subgraph(),
        else_branch=else_branch.subgraph(),
        outputs=count,
    )
    return results if count > 1 else [results]


@onnx_symbolic("prim::Loop")
def loop(
    g: GraphContext, max_trip_count: Value | int, condition: Value | bool, carried: list[Value | Number]
) -> Sequence[Value]:
    """A loop that carries values. One that never runs gives what it was given."""
    [body] = g.blocks
    initial = [g.constant(value, formal.dtype) for value, formal in zip(carried, g.expected, strict=True)]
    trips = known(g, max_trip_count)
    decided = constant_condition(g, condition)
    if decided is False or trips == 0 or not initial:
        return initial

    def build(iteration: Value, going: Value, *values: Value) -> list[Value]:
        return body.inline(iteration, *values)

    iteration, *formal = body.graph.inputs
    going = Value(name="condition_in", type=body.graph.outputs[0].type, shape=iteration.shape)
    graph = g.subgraph(build, [iteration, going, *formal], "body")
    results = g.op(
        "Loop",
        None if trips == _ENDLESS else g.constant(trips, DataType.INT64),
        None if decided else condition,
        *initial,
        body=graph,
        outputs=len(initial),
    )
    return results if len(initial) > 1 else [results]
