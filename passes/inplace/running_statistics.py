"""Writes updates of `running_mean` and `running_var` in training as functional source nodes.

From aten/src/ATen/native/Normalization.cpp: the new statistic is (1 - momentum) * old + momentum * batch,
with the unbiased variance; instance_norm averages the statistics of its instances over the batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import onnx_ir as ir
from onnx_ir import Value

from ...registration import GraphError
from ..source_builder import SourceBuilder, where


def _batch_statistic(build: SourceBuilder, node: ir.Node, name: str, values: Value) -> Value:
    """Compute the mean or the unbiased variance of a batch, per channel."""
    assert values.shape is not None
    per_instance = node.op_type == "instance_norm"
    if len(values.shape) < 2:
        raise GraphError(f"{where(node)}: a tensor of rank {len(values.shape)} has no channels")
    dims = [dim for dim in range(len(values.shape)) if dim != 1 and not (per_instance and dim == 0)]
    channels = ir.Shape([*values.shape[:1], values.shape[1]] if per_instance else [values.shape[1]])
    if name == "running_mean":
        result = build.emit(
            "aten::mean", {"self": values, "dim": dims}, "dim", dtype=values.dtype, shape=channels
        )
    else:
        arguments = {"self": values, "dim": dims, "correction": 1}
        result = build.emit("aten::var", arguments, "correction", dtype=values.dtype, shape=channels)
    if per_instance:
        shape = ir.Shape([values.shape[1]])
        result = build.emit(
            "aten::mean", {"self": result, "dim": [0]}, "dim", dtype=values.dtype, shape=shape
        )
    return result


def updated_statistics(
    build: SourceBuilder, node: ir.Node, arguments: Mapping[str, Any]
) -> Iterator[tuple[str, Value]]:
    """Yield the name and new value of each running statistic of a normalization in training.

    Raises:
        GraphError: the rank of the input is unknown.
    """
    values: Value = arguments["input"]
    if values.shape is None:
        raise GraphError(
            f"{where(node)}: the rank of its input must be known to update the running statistics"
        )
    # The operators of cuDNN and MIOpen call it `exponential_average_factor`, like their libraries.
    momentum = arguments["momentum" if "momentum" in arguments else "exponential_average_factor"]
    for name in ("running_mean", "running_var"):
        old = arguments.get(name)
        if old is None:
            continue
        # With half precision, statistics are usually kept in FLOAT.
        if old.dtype is not None and values.dtype != old.dtype:
            values = build.cast(values, old.dtype)
        batch = _batch_statistic(build, node, name, values)
        decayed = build.emit("aten::mul", {"self": old, "other": 1.0 - momentum}, "Tensor", like=old)
        added = build.emit("aten::mul", {"self": batch, "other": momentum}, "Tensor", like=old)
        yield name, build.emit("aten::add", {"self": decayed, "other": added}, "Tensor", like=old)
