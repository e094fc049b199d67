"""`StepRunner`: runs steps of a training graph with checked data, learning rates and state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from ...registration import UsageError
from ..running.model_inputs import inputs_of_model
from ..running.session import Session, as_python
from .signature import Signature


class StepRunner:
    """A training graph and its session.

    Attributes:
        signature: what the inputs and outputs of the graph are.
        data: the inputs of the model and of the loss.
        state: parameters, buffers and what the optimizer keeps.
    """

    def __init__(
        self, model: ir.Model, signature: Signature, providers: Sequence[str] = ("CPUExecutionProvider",)
    ):
        self.signature = signature
        by_name = {value.name or "": value for value in model.graph.inputs}
        self.data = inputs_of_model(
            model, [by_name[name] for name in (*signature.inputs, *signature.targets)]
        )
        self.state = inputs_of_model(model, [by_name[name] for name in signature.state], metadata={})
        self._rates = inputs_of_model(
            model, [by_name[name] for name in signature.learning_rates], metadata={}
        )
        self._output_names = [value.name or "" for value in model.graph.outputs]
        self._session = Session(model, providers)

    def make_feed(self, data: Mapping[str, Any], learning_rates: Any = None) -> dict[str, Any]:
        """The data of a step and its learning rates, as onnxruntime values by input name.

        Args:
            learning_rates: one for all groups, or some by input name; others have the values of the export.

        Raises:
            UsageError: an input is missing or unknown, or has another element type.
            DimensionError: the graph is not valid for a size.
        """
        return {**self.data.feed(data), **self._rates.feed(self._learning_rates(learning_rates))}

    def run(self, feed: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Run a step from a state; return the outputs by name.

        Raises:
            UsageError: an array of the state has another element type.
            DimensionError: it has another shape.
            InferenceError: onnxruntime refuses the step.
        """
        results = self._session.run({**feed, **self.state.feed(state)})
        return dict(zip(self._output_names, map(as_python, results), strict=True))

    def _learning_rates(self, learning_rates: Any) -> dict[str, float]:
        rates: dict[str, Any] = dict(self.signature.learning_rates)
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
