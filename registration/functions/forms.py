"""The equivalent forms of ONNX operators in a registry: `form::Neg.mul` is the form `mul` of Neg."""

from __future__ import annotations

from .dispatch import SymbolicFunction
from .registry import Registry


def form_names(registry: Registry, operator: str) -> list[str]:
    """The names of all forms of an operator, sorted."""
    prefix = f"form::{operator}."
    return [name.removeprefix(prefix) for name in registry.names(prefix)]


def find_form(registry: Registry, operator: str, form: str, opset: int) -> SymbolicFunction | None:
    """The function that writes an operator in a form, or None if there is none."""
    return registry.lookup(f"form::{operator}", form, opset)
