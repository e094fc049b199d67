"""Chooses the forms of operators that a target names."""

from __future__ import annotations

import inspect
from typing import Any

from ....registration import MAXIMUM_OPSET, Registry, UnsupportedError
from ....registration.functions.dispatch import SymbolicFunction
from .target import Target


def with_forms(registry: Registry, target: Target | None) -> Registry:
    """A registry with which emission writes the forms that a target names; without forms, the same."""
    if target is None or not target.forms:
        return registry
    overlay = registry.fork()
    for op_type, name in target.forms:
        form = overlay.lookup(f"form::{op_type}", name, MAXIMUM_OPSET)
        if form is not None:
            overlay.stand_in(op_type, MAXIMUM_OPSET + 1, _form_or_operator(op_type, form))
    return overlay


def _form_or_operator(op_type: str, form: SymbolicFunction) -> Any:
    """A function that emits a form, or the operator itself where the form cannot express the arguments."""

    def emit(g, *positional, **named):  # type: ignore[no-untyped-def]  # The form checks its arguments.
        try:
            return form.call(g, positional, named)
        except UnsupportedError:
            return g.op(op_type, *positional, **named)

    emit.__signature__ = inspect.signature(form.function)  # type: ignore[attr-defined]
    return emit
