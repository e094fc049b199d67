"""Torch's own operators by the names that source nodes have, and their arguments as torch takes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from onnx_ir import DataType, tensor_adapters

from ...registration import Device, Layout, MemoryFormat


def operator_of(name: str, overload: str) -> torch._ops.OpOverload | None:
    """Torch's operator of a qualified name, `aten::add`, and an overload; None where it has none."""
    namespace, _, op_type = name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), op_type, None)
    return getattr(packet, overload or "default", None)


def torch_argument(item: Any) -> Any:
    """A constant argument as torch takes it, of one as source nodes keep it. Everything is on the CPU."""
    if isinstance(item, DataType):
        return tensor_adapters.to_torch_dtype(item)
    if isinstance(item, Device):
        return torch.device("cpu")
    return getattr(torch, item) if isinstance(item, (Layout, MemoryFormat)) else item


def bound(operator: torch._ops.OpOverload, arguments: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments by name as torch takes them: those that the schema has positional by position."""
    named = {name: torch_argument(item) for name, item in arguments.items()}
    positional = []
    for formal in operator._schema.arguments:
        if formal.kwarg_only or formal.name not in named:
            break
        positional.append(named.pop(formal.name))
    return positional, named


def by_name(operator: torch._ops.OpOverload) -> Callable[..., Any]:
    """The operator over arguments by name, as source nodes keep them."""

    def call(**arguments: Any) -> Any:
        positional, named = bound(operator, arguments)
        return operator(*positional, **named)

    return call
