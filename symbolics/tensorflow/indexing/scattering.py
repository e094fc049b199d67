"""Writes by index."""

from __future__ import annotations

from ....registration import DataType, GraphContext, Value, onnx_symbolic
from ...compositions.integers import widened
from .._common import HALVES, elements, restored, sizes


def _wide(g: GraphContext, value: Value) -> Value:
    """Half precision as FLOAT and narrow integers as INT32: runtimes combine no others."""
    return g.cast(value, DataType.FLOAT) if g.dtype(value) in HALVES else widened(g, value)


def _combined(g: GraphContext, tensor: Value, indices: Value, updates: Value, reduction: str) -> Value:
    places = g.cast(indices, DataType.INT64)
    if reduction == "none":
        return g.op("ScatterND", tensor, places, updates)
    result = g.op("ScatterND", _wide(g, tensor), places, _wide(g, updates), reduction=reduction)
    return restored(g, result, g.dtype(tensor))


@onnx_symbolic("tf::ScatterNd")
def scatter_nd(g: GraphContext, indices: Value, updates: Value, shape: Value) -> Value:
    """Updates of one place are added to zeros."""
    wanted = elements(g, shape)
    dtype = g.dtype(updates) or DataType.FLOAT
    zeros = g.call(
        "composed::full", size=sizes(g, shape) if wanted is None else wanted, fill_value=0, dtype=dtype
    )
    return _combined(g, zeros, indices, updates, "add")


@onnx_symbolic("tf::TensorScatterUpdate")
def tensor_scatter_update(g: GraphContext, tensor: Value, indices: Value, updates: Value) -> Value:
    return _combined(g, tensor, indices, updates, "none")


@onnx_symbolic("tf::TensorScatterAdd")
def tensor_scatter_add(g: GraphContext, tensor: Value, indices: Value, updates: Value) -> Value:
    return _combined(g, tensor, indices, updates, "add")


@onnx_symbolic("tf::TensorScatterSub")
def tensor_scatter_sub(g: GraphContext, tensor: Value, indices: Value, updates: Value) -> Value:
    return _combined(g, tensor, indices, g.op("Neg", _wide(g, updates)), "add")


@onnx_symbolic("tf::TensorScatterMax")
def tensor_scatter_max(g: GraphContext, tensor: Value, indices: Value, updates: Value) -> Value:
    return _combined(g, tensor, indices, updates, "max")


@onnx_symbolic("tf::TensorScatterMin")
def tensor_scatter_min(g: GraphContext, tensor: Value, indices: Value, updates: Value) -> Value:
    return _combined(g, tensor, indices, updates, "min")
