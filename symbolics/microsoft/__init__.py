"""The operators of onnxruntime's own domain, `com.microsoft`, written as operators of ONNX.

Conversion uses these functions if the target of the file lacks the domain, or on request; otherwise it copies
the nodes. The semantics are those of onnxruntime's schemas (docs/ContribOperators.md) and of its kernels for
CPUs. Parameters are named as in these schemas, inputs first.
"""

from collections.abc import Callable
from typing import TypeVar

from ...registration import GraphContext, Registry, Value, onnx_symbolic

microsoft_registry = Registry()
"""The functions of this package, which are not in the default registry."""

scanless_registry = Registry()
"""What replaces functions of `microsoft_registry` that write a Scan, for targets without Scan."""

Function = TypeVar("Function", bound=Callable[..., object])


def microsoft_symbolic(
    *names: str, registry: Registry = microsoft_registry
) -> Callable[[Function], Function]:
    """Register the function of operators of `com.microsoft` that have the same meaning."""
    return onnx_symbolic([f"com.microsoft::{name}" for name in names], registry=registry)


def refuse_arguments(g: GraphContext, **arguments: Value | float | None) -> None:
    """Refuse inputs and attributes that have no form in ONNX.

    Raises:
        UnsupportedError: one of them is used; 0 and -1 are the values of attributes that are off.
    """
    for name, argument in arguments.items():
        if isinstance(argument, Value) or argument not in (None, 0, -1):
            raise g.refuse(f"argument '{name}' is not supported")
