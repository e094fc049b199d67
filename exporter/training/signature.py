"""The roles of the inputs and outputs of a training graph, stored as metadata of the model."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import onnx_ir as ir

from ...registration import TRAINING, ModelFileError
from ...registration.json_text import parse_json

_FORMAT = 1


@dataclasses.dataclass(frozen=True)
class Signature:
    """The names of the inputs and outputs of a training graph.

    Attributes:
        inputs: inputs of the model.
        targets: inputs of the loss besides the model's result.
        learning_rates: inputs for learning rates, each with the value to use by default.
        parameters: inputs for trained parameters.
        buffers: inputs for buffers that the model writes to.
        optimizer_state: inputs for what the optimizer keeps.
        loss: the output with the loss.
        results: outputs of the model.
        gradients: per parameter, the output with its gradient.
        updates: per output with a new value, the input that takes it in the next step.
        apply_update: the input that says whether the step applies the gradients or only adds them up; None if
            each step applies them.
    """

    inputs: tuple[str, ...]
    targets: tuple[str, ...]
    learning_rates: Mapping[str, float]
    parameters: tuple[str, ...]
    buffers: tuple[str, ...]
    optimizer_state: tuple[str, ...]
    loss: str
    results: tuple[str, ...]
    gradients: Mapping[str, str]
    updates: Mapping[str, str]
    apply_update: str | None = None

    @property
    def state(self) -> tuple[str, ...]:
        """The inputs whose values come from the previous step."""
        return *self.parameters, *self.buffers, *self.optimizer_state

    @property
    def forward(self) -> tuple[str, ...]:
        """The outputs that the forward pass computes."""
        buffers = set(self.buffers)
        return self.loss, *self.results, *(new for new, old in self.updates.items() if old in buffers)

    def write(self, model: ir.Model) -> None:
        """Store it in a model's metadata."""
        facts = {"format": _FORMAT, **dataclasses.asdict(self)}
        model.metadata_props[TRAINING] = json.dumps(facts, separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, str]) -> Signature:
        """The signature in a model's metadata.

        Raises:
            ModelFileError: the model is no training graph, or one that this release cannot read.
        """
        text = metadata.get(TRAINING)
        if text is None:
            raise ModelFileError("the model is not a training graph: export it with opsetta.export_training")
        try:
            facts: dict[str, Any] = parse_json(text)
            if facts.pop("format") != _FORMAT:
                raise ValueError("it has another format")
            fields: dict[str, Any] = {
                key: tuple(item) if isinstance(item, list) else item for key, item in facts.items()
            }
            return cls(**fields)
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise ModelFileError(f"metadata {TRAINING} of the model cannot be read: {error}") from error
