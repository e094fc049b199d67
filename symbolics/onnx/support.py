"""What the functions of several operators share: constants, axes that are computed, and today's operators."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...registration import DataType, GraphContext, Value, onnx_symbolic


def integers(g: GraphContext, value: Value | list[int] | None) -> list[int] | None:
    """Whole numbers where they are constant."""
    if value is None or isinstance(value, list):
        return value
    array = g.constant_value(value)
    return None if array is None else [int(item) for item in np.asarray(array).reshape(-1)]


def emitted_from(op_type: str, opset: int) -> None:
    """Note that from an opset on the operator means what it means today, so that its schema says it all."""

    def by_schema(g: GraphContext) -> Any:
        raise g.refuse(f"ONNX operator {op_type} is emitted as it is")

    by_schema.by_schema = True  # type: ignore[attr-defined]
    onnx_symbolic(f"canonical::{op_type}", opset=opset)(by_schema)


def today(g: GraphContext, op_type: str, /, *inputs: Any, outputs: int = 1, **arguments: Any) -> Any:
    """An operator as its newest version means it, whatever the opset has under its name."""
    symbolic = g.registry.lookup(f"canonical::{op_type}", "", g.opset)
    if symbolic is None or hasattr(symbolic.function, "by_schema"):
        flat = [item for each in inputs for item in (each if isinstance(each, list) else [each])]
        return g.op(op_type, *flat, outputs=outputs, **arguments)
    if "outputs" in symbolic.parameters:
        arguments["outputs"] = outputs
    return g.call(f"canonical::{op_type}", *inputs, **arguments)


def taken(g: GraphContext, values: Value, position: int) -> Value:
    """One of several whole numbers, zero-dim."""
    return g.op("Gather", g.cast(values, DataType.INT64), position, axis=0)


def from_front(g: GraphContext, axes: Value, rank: int) -> Value:
    """Axes counted from the front, one-dimensional."""
    axes = g.cast(axes, DataType.INT64)
    if g.rank(axes) != 1:
        axes = g.op("Reshape", axes, [-1])
    return g.op("Where", g.op("Less", axes, 0), g.op("Add", axes, rank), axes)


def chosen_axes(g: GraphContext, axes: Value, rank: int) -> Value:
    """Whether each of so many dimensions is among axes that are computed."""
    column = g.op("Unsqueeze", from_front(g, axes, rank), axes=[1])
    hits = g.op("Equal", column, np.arange(rank, dtype=np.int64))
    count = g.op("ReduceSum", g.cast(hits, DataType.INT64), axes=[0], keepdims=0)
    return g.op("Greater", count, 0)


def kept_sizes(g: GraphContext, data: Value, gone: Value) -> Value:
    """The sizes of the dimensions that are not gone."""
    return g.op("Compress", g.op("Shape", data), g.op("Not", gone), axis=0)


def by_axis(g: GraphContext, axis: Value, results: Sequence[Value]) -> Value:
    """Of what there is for each axis, the one of a computed axis; all of one shape."""
    whole = g.cast(axis, DataType.INT64)
    if g.rank(whole) != 0:
        whole = g.op("Reshape", whole, g.constant([], DataType.INT64))
    counted = g.op("Where", g.op("Less", whole, 0), g.op("Add", whole, len(results)), whole)
    chosen = results[0]
    for at, result in enumerate(results[1:], start=1):
        here = g.op("Equal", counted, g.constant(at, DataType.INT64))
        chosen = g.call("composed::where", condition=here, self=result, other=chosen)
    return chosen
