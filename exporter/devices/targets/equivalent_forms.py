"""Replaces operators by equivalent forms that a target needs, while nodes are emitted."""

from __future__ import annotations

import inspect
from typing import Any

from ....registration import MAXIMUM_OPSET, Registry, UnsupportedError
from ....registration.emission.ladder import compose
from ....registration.functions.dispatch import SymbolicFunction
from ....registration.functions.forms import find_form
from .target import Target


def with_forms(registry: Registry, target: Target | None) -> Registry:
    """Return a registry that emits the forms of a target's rules with `at_emission`.

    Returns the same registry if there are no such rules. The first such rule of an operator applies.
    """
    rules = [rule for rule in target.forms if rule.at_emission] if target is not None else []
    if not rules:
        return registry
    overlay = registry.fork()
    for rule in reversed(rules):
        form = find_form(registry, rule.operator, rule.form, MAXIMUM_OPSET)
        if form is not None:
            emit = _form_or_operator(registry, rule.operator, form)
            overlay.stand_in(rule.operator, MAXIMUM_OPSET + 1, emit)
    return overlay


def _form_or_operator(registry: Registry, op_type: str, form: SymbolicFunction) -> Any:
    """Make a function that emits a form, or the operator itself if the form refuses the arguments."""

    def emit(g, *positional, **named):  # type: ignore[no-untyped-def]  # The form checks its arguments.
        try:
            return form.call(g, positional, named)
        except UnsupportedError:
            outputs = named.pop("outputs", 1)
            rung = registry.rung(op_type, g.opset)
            if rung is None or rung.any_data:
                return g.op(op_type, *positional, **named, outputs=outputs)
            return compose(g, rung.symbolic, op_type, positional, named, outputs)

    emit.__signature__ = inspect.signature(form.function)  # type: ignore[attr-defined]
    return emit
