"""`Runner`: runs a model with arguments that are bound, converted and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir

from .model_inputs import ModelInputs, inputs_of_model
from .session import Session


class Runner:
    """A model, its inputs, and its session, which is opened at the first run.

    Attributes:
        inputs: the inputs, and the sizes for which the model is valid.

    Args:
        inputs: by default all inputs that the model declares, with its own metadata.
        providers: execution providers of onnxruntime.
        threads: as for `session_options`.

    Raises:
        DimensionError: the metadata of the model does not have the documented form.
    """

    def __init__(
        self,
        model: ir.Model,
        inputs: ModelInputs | None = None,
        providers: Sequence[str] = ("CPUExecutionProvider",),
        *,
        threads: int | None = None,
    ):
        self.inputs = inputs_of_model(model) if inputs is None else inputs
        self._session = Session(model, providers, threads=threads)

    def run(self, values: Mapping[str, Any]) -> list[Any]:
        """Run the model on values by input name; return its outputs as `OpenSession.run` does.

        Raises:
            UsageError: an input is missing or unknown, or has another element type.
            DimensionError: the model is not valid for the sizes of an input.
            InferenceError: onnxruntime is not installed, or refuses the model or the inputs.
        """
        return self._session.run(self.inputs.feed(values))

    def run_unchecked(self, feed: Mapping[str, Any]) -> list[Any]:
        """Run the model on values that `inputs.feed` returned, without checking them again."""
        return self._session.run(feed)
