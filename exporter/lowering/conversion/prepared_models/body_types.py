"""Derives undeclared types of the inputs and outputs of the sub-graphs of If, Loop and Scan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir
from onnx_ir import DataType, Value


def formal_inputs(op_type: str, inputs: Sequence[Value | None], named: Mapping[str, Any]) -> list[Value]:
    """Return values with the types of the inputs of a body, in order."""
    if op_type == "Loop":
        number = Value(type=ir.TensorType(DataType.INT64), shape=ir.Shape([]))
        condition = Value(type=ir.TensorType(DataType.BOOL), shape=ir.Shape([]))
        return [number, condition, *(Value(type=_type(value)) for value in inputs[2:])]
    if op_type != "Scan":
        return []
    scan_count = int(named.get("num_scan_inputs", 0))
    state_count = len(inputs) - scan_count
    axes = named.get("scan_input_axes") or [0] * scan_count
    result = [Value(type=_type(value), shape=_shape(value)) for value in inputs[:state_count]]
    for value, axis in zip(inputs[state_count:], axes, strict=False):
        shape = _shape(value)
        if shape is not None:
            sizes = list(shape)
            del sizes[axis]
            shape = ir.Shape(sizes)
        result.append(Value(type=_type(value), shape=shape))
    return result


def set_result_types(
    op_type: str, outputs: Sequence[Value], inputs: Sequence[Value | None], named: Mapping[str, Any]
) -> None:
    """Set the types of a node's outputs from those of its body."""
    body = named.get("then_branch") if op_type == "If" else named.get("body")
    if not isinstance(body, ir.Graph) or op_type not in ("If", "Loop", "Scan"):
        return
    inner = list(body.outputs)[1 if op_type == "Loop" else 0 :]
    state_count = len(inner)
    if op_type == "Loop":
        state_count = len(inputs) - 2
    elif op_type == "Scan":
        state_count = len(inputs) - int(named.get("num_scan_inputs", 0))
    for position, (output, value) in enumerate(zip(outputs, inner, strict=False)):
        if output.type is None or output.dtype is None:
            output.type = value.type
        if output.shape is None and value.shape is not None and position >= state_count and op_type == "Loop":
            output.shape = ir.Shape(
                [None, *(size if isinstance(size, int) else None for size in value.shape)]
            )


def _type(value: Value | None) -> ir.TypeProtocol | None:
    return None if value is None else value.type


def _shape(value: Value | None) -> ir.Shape | None:
    return None if value is None else value.shape
