"""`torch.onnx.symbolic_registry` of torch up to 1.12, on top of opsetta's registry."""

from __future__ import annotations

from collections.abc import Callable

from ..registration import default_registry
from .symbolic_functions.custom_operators import register_custom_op_symbolic
from .symbolic_functions.opset_modules import function_of


def register_op(opname: str, op: Callable[..., object], domain: str, version: int) -> None:
    """Register a symbolic function; the domain "" is `aten`. See `register_custom_op_symbolic`."""
    register_custom_op_symbolic(f"{domain or 'aten'}::{opname}", op, version)


def is_registered_op(opname: str, domain: str, version: int) -> bool:
    """Whether an operator has a symbolic function at an opset."""
    return default_registry.lookup(f"{domain or 'aten'}::{opname}", "", version) is not None


def get_registered_op(opname: str, domain: str, version: int) -> Callable[..., object]:
    """Return opsetta's built-in function at the target opset."""
    return function_of(f"{domain or 'aten'}::{opname}")
