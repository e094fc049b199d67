"""Finds torch's operators by the names on source nodes, and converts arguments for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from onnx_ir import DataType, tensor_adapters
from torch._ops import HigherOrderOperator, OpOverload

from ....registration import Device, Layout, MemoryFormat
from .fake_calls import Run, kernel_run


def operator_of(name: str, overload: str) -> OpOverload | None:
    """The torch operator with a qualified name, `aten::add`, and an overload; None if there is none."""
    namespace, _, op_type = name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), op_type, None)
    return getattr(packet, overload or "default", None)


def schema_of(operator: OpOverload) -> Any:
    """The schema of an operator: `name`, `overload_name`, `arguments`, `returns`, `is_mutable`."""
    return operator._schema


def computation_dtype(tensors: Sequence[torch.Tensor]) -> torch.dtype:
    """The element type in which torch's kernels compute with tensors together."""
    from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes

    kind = ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT
    return elementwise_dtypes(*tensors, type_promotion_kind=kind)[0]


def torch_argument(item: Any) -> Any:
    """Convert a constant argument from its form on source nodes to torch's. Everything is on the CPU."""
    if isinstance(item, DataType):
        return tensor_adapters.to_torch_dtype(item)
    if isinstance(item, Device):
        return torch.device("cpu")
    return getattr(torch, item) if isinstance(item, (Layout, MemoryFormat)) else item


def bound(operator: OpOverload, arguments: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Split arguments by name into positional and keyword arguments, by the schema."""
    named = {name: torch_argument(item) for name, item in arguments.items()}
    positional = []
    for formal in operator._schema.arguments:
        if formal.kwarg_only or formal.name not in named:
            break
        positional.append(named.pop(formal.name))
    return positional, named


def by_name(operator: OpOverload, run: Run = kernel_run) -> Callable[..., Any]:
    """The operator over arguments by name, as source nodes keep them.

    Args:
        run: calls the operator.
    """

    def call(**arguments: Any) -> Any:
        positional, named = bound(operator, arguments)
        return run(operator, tuple(positional), named)

    return call
