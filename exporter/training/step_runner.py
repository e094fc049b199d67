"""`StepRunner`: runs steps of a training graph with checked data, learning rates and state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import onnx_ir as ir

from ...registration import UsageError
from ..running.model_inputs import Feed, inputs_of_model
from ..running.runner import Runner
from ..running.sessions.session import CPU, Providers, as_python
from .signature import Signature

LearningRates: TypeAlias = "float | Mapping[str, float] | None"
"""One for all groups, some by input name, or those of the export."""


class StepRunner:
    """A training graph and its session.

    Attributes:
        signature: what the inputs and outputs of the graph are.
        state: parameters, buffers and what the optimizer keeps.
    """

    def __init__(self, model: ir.Model, signature: Signature, providers: Providers = CPU):
        self.signature = signature
        by_name = {value.name or "": value for value in model.graph.inputs}
        data = [by_name[name] for name in (*signature.inputs, *signature.targets)]
        self._runner = Runner.of_model(model, data, providers=providers)
        # The metadata of the model restricts the sizes of the data only.
        self.state = inputs_of_model(model, [by_name[name] for name in signature.state], metadata={})
        self._scalars = inputs_of_model(model, [by_name[name] for name in self._choices], metadata={})

    @property
    def _choices(self) -> tuple[str, ...]:
        """The inputs that the caller chooses for each step besides the data."""
        apply_update = self.signature.apply_update
        return *self.signature.learning_rates, *(() if apply_update is None else (apply_update,))

    def make_feed(
        self, data: Mapping[str, object], learning_rates: LearningRates = None, apply_update: bool = True
    ) -> Feed:
        """The data of a step and its learning rates, as onnxruntime values by input name.

        Args:
            learning_rates: one for all groups, or some by input name; others have the values of the export.
            apply_update: whether the step applies the gradients, or only adds them up.

        Raises:
            UsageError: an input is missing or unknown, or has another element type; or the graph applies the
                gradients of each step.
            DimensionError: the graph is not valid for a size.
        """
        choices: dict[str, object] = dict(self._learning_rates(learning_rates))
        if self.signature.apply_update is not None:
            choices[self.signature.apply_update] = np.asarray(bool(apply_update))
        elif not apply_update:
            raise UsageError("the graph applies the gradients of each step: export it with accumulate=True")
        return {**self._runner.inputs.feed(data), **self._scalars.feed(choices)}

    def run(self, feed: Feed, state: Mapping[str, object]) -> dict[str, np.ndarray]:
        """Run a step from a state; return the outputs by name.

        Raises:
            UsageError: an array of the state has another element type.
            DimensionError: it has another shape.
            InferenceError: onnxruntime refuses the step.
        """
        results = self._runner.run_unchecked({**feed, **self.state.feed(state)})
        names = self._runner.output_names
        return {name: as_python(result) for name, result in zip(names, results, strict=True)}

    def _learning_rates(self, learning_rates: LearningRates) -> dict[str, float]:
        rates = dict(self.signature.learning_rates)
        if isinstance(learning_rates, Mapping):
            unknown = sorted(set(learning_rates) - set(rates))
            if unknown:
                raise UsageError(f"there is no learning rate '{unknown}': the graph has {list(rates)}")
            rates.update(learning_rates)
        elif learning_rates is not None:
            rates = dict.fromkeys(rates, learning_rates)
        try:
            return {name: float(rate) for name, rate in rates.items()}
        except (TypeError, ValueError) as error:
            raise UsageError(f"a learning rate is no number: {error}") from error
