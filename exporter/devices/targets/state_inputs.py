"""Leaves the defaults of state inputs out of files for targets that read them as constants.

The model in memory keeps them: they are the values of the first call, and `verify` and `run` pass them.
"""

from __future__ import annotations

import onnx_ir as ir

from ....registration.warning import warn
from .target import Target


def find_state_inputs(model: ir.Model) -> list[str]:
    """Return the names of the inputs `h` with a default beside which the model has an output `h_mutated`."""
    outputs = {value.name for value in model.graph.outputs}
    return [
        str(value.name)
        for value in model.graph.inputs
        if value.const_value is not None and f"{value.name}_mutated" in outputs
    ]


def warn_of_state_inputs(model: ir.Model, target: Target) -> None:
    """Warn that each call has to pass the state, if the target requires that."""
    names = find_state_inputs(model) if target.conventions.state_inputs == "required" else []
    if names:
        warn(
            f"target '{target.name}' reads defaults of inputs as constants, so the file has none: pass "
            f"{', '.join(map(repr, names))} at each call, at the first one the values that "
            "`program.model.graph.initializers` has by these names"
        )


def without_state_defaults(model: ir.Model, target: Target | None) -> ir.Model:
    """Return a model for a file of a target, without the defaults that the target reads as constants.

    Returns:
        The same model if there are none, or else a copy that shares the weights.
    """
    names = find_state_inputs(model) if target is not None else []
    if target is None or target.conventions.state_inputs != "required" or not names:
        return model
    copy = model.clone()
    for name in names:
        copy.graph.initializers.pop(name).const_value = None
    return copy
