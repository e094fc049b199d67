"""Finds the states of a model: inputs that take the values of outputs in the next run."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from ....registration import TRAINING, PlanError, UsageError
from ....registration.json_text import parse_json
from .records import PlannedBuffer, PlannedState


def states_of(model: ir.Model, mode: str, states: Mapping[str, str] | None) -> dict[str, str]:
    """Return, for each input that is a state, the output that is its next value.

    Args:
        mode: `"inference"` or `"train"`.
        states: the caller's inputs by output; None for the states in the metadata of a training graph.

    Raises:
        UsageError: an input or output does not exist, or the two have different types or shapes.
        PlanError: the metadata of a training graph cannot be read.
    """
    if states is None:
        if mode != "train":
            return {}
        try:
            updates = dict(parse_json(model.metadata_props.get(TRAINING, '{"updates":{}}'))["updates"])
        except (ValueError, TypeError, LookupError) as error:
            raise PlanError(f"metadata {TRAINING} of the model cannot be read: {error}") from error
        states = {str(output): str(name) for output, name in updates.items()}
    inputs = {value.name or "": value for value in model.graph.inputs}
    outputs = {value.name or "": value for value in model.graph.outputs}
    for output, name in states.items():
        if output not in outputs or name not in inputs:
            raise UsageError(f"states: the model has no output '{output}' with an input '{name}'")
        new, old = outputs[output], inputs[name]
        if new.dtype != old.dtype or (None not in (new.shape, old.shape) and new.shape != old.shape):
            raise UsageError(
                f"states: output '{output}' ({new.type}, {new.shape}) is no next value of input '{name}' "
                f"({old.type}, {old.shape})"
            )
    by_input = {name: output for output, name in states.items()}
    if len(by_input) < len(states):
        raise UsageError("states: two outputs are the next value of one input")
    return by_input


def planned_states(states: Mapping[str, str], buffers: tuple[PlannedBuffer, ...]) -> tuple[PlannedState, ...]:
    """Return the record of each state, which tells whether its next value is in the same buffer."""
    buffer_of = {value: buffer.name for buffer in buffers for value in buffer.values}
    return tuple(
        PlannedState(name, output, name in buffer_of and buffer_of.get(output) == buffer_of[name])
        for name, output in states.items()
    )
