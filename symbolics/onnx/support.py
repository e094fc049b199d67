"""Helpers shared by several operators: constants, computed axes, and registration below an opset."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from ...registration import DataType, GraphContext, Value, default_registry


def integers(g: GraphContext, value: Value | list[int] | None) -> list[int] | None:
    """The integers of a value if it is constant, else None."""
    if value is None or isinstance(value, list):
        return value
    array = g.constant_value(value)
    return None if array is None else [int(number) for number in np.asarray(array).reshape(-1)]


Function = TypeVar("Function", bound=Callable[..., object])


def below(op_type: str, opset: int, *, any_data: bool = False) -> Callable[[Function], Function]:
    """Register an operator's newest meaning below an opset; see this package's docstring."""

    def register(function: Function) -> Function:
        default_registry.stand_in(op_type, opset, function, any_data=any_data)
        return function

    return register


def gather_number(g: GraphContext, values: Value, position: int) -> Value:
    """Select one of several integers, as a zero-dim value."""
    return g.op("Gather", g.cast(values, DataType.INT64), position, axis=0)


def wrap_axes(g: GraphContext, axes: Value, rank: int) -> Value:
    """Non-negative axes, one-dimensional."""
    axes = g.cast(axes, DataType.INT64)
    if g.rank(axes) != 1:
        axes = g.op("Reshape", axes, [-1])
    return g.op("Where", g.op("Less", axes, 0), g.op("Add", axes, rank), axes)


def mask_of_axes(g: GraphContext, axes: Value, rank: int) -> Value:
    """Whether each dimension is among computed axes."""
    column = g.op("Unsqueeze", wrap_axes(g, axes, rank), axes=[1])
    # One row per axis and one column per dimension: a dimension is chosen if its column has a hit.
    hits = g.op("Equal", column, np.arange(rank, dtype=np.int64))
    count = g.op("ReduceSum", g.cast(hits, DataType.INT64), axes=[0], keepdims=0)
    return g.op("Greater", count, 0)


def kept_sizes(g: GraphContext, data: Value, removed: Value) -> Value:
    """The sizes of the dimensions that are kept."""
    return g.op("Compress", g.op("Shape", data), g.op("Not", removed), axis=0)


def by_axis(g: GraphContext, axis: Value, results: Sequence[Value]) -> Value:
    """Select the value of a computed axis from values for each axis, all of the same shape."""
    integer_axis = g.cast(axis, DataType.INT64)
    if g.rank(integer_axis) != 0:
        integer_axis = g.op("Reshape", integer_axis, g.constant([], DataType.INT64))
    dim = g.op("Where", g.op("Less", integer_axis, 0), g.op("Add", integer_axis, len(results)), integer_axis)
    selected = results[0]
    for i, result in enumerate(results[1:], start=1):
        is_chosen = g.op("Equal", dim, g.constant(i, DataType.INT64))
        selected = g.call("composed::where", condition=is_chosen, self=result, other=selected)
    return selected
