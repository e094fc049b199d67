"""`TrainingSession`: runs a training graph step by step on onnxruntime."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from ...registration import ModelFileError, UsageError
from ..loading import load
from ..onnx_model import OnnxModel
from ..running.session import Session, as_python
from ..running.verification import as_array
from .program import TrainingProgram
from .signature import Signature


class TrainingSession:
    """A model in training on onnxruntime. Neither torch nor the model's code is needed.

    Attributes:
        signature: what the inputs and outputs of the graph are.
        state: the current arrays of parameters, buffers and optimizer, by input name.
        outputs: the arrays of the last step besides the new state, by output name: loss, results, gradients.
    """

    def __init__(
        self,
        model: TrainingProgram | str | os.PathLike,
        state: Mapping[str, Any] | None = None,
        *,
        providers: Sequence[str] = ("CPUExecutionProvider",),
    ):
        """Begin at a state.

        Args:
            model: what `export_training` returned, or the path of a file that its `save` wrote.
            state: an array for each input of the state; a program has those of the export by default.
            providers: the execution providers of onnxruntime.

        Raises:
            ModelFileError: the file is no training graph.
            UsageError: an array is missing, or has another shape or element type.
        """
        if isinstance(model, TrainingProgram):
            found, given = model.model, {**model.state, **dict(state or {})}
        else:
            file = load(model)
            if not isinstance(file, OnnxModel):
                raise ModelFileError("this is a source file: lower it, and save the result")
            found, given = file.model, dict(state or {})
        self.signature = Signature.read(found.metadata_props)
        self._inputs = {value.name or "": value for value in found.graph.inputs}
        self._names = [value.name or "" for value in found.graph.outputs]
        self.state = {name: self._check_array(name, given) for name in self.signature.state}
        self.outputs: dict[str, np.ndarray] = {}
        self._session = Session(found, providers)

    def step(self, inputs: Any, targets: Any = None, *, learning_rate: Any = None) -> float:
        """Run one step; the state becomes the new one.

        Args:
            inputs: an array or a torch tensor for each input of the model: one, a tuple in order, or a dict.
            targets: likewise for the targets.
            learning_rate: instead of the optimizer's; one for all groups, or a dict by input name.

        Returns:
            The loss, before the update.

        Raises:
            UsageError: the inputs are not those of the graph.
            InferenceError: onnxruntime refuses the step; the state stays.
        """
        feed = self._named("inputs", self.signature.inputs, inputs)
        feed |= self._named("targets", self.signature.targets, targets)
        feed |= self._learning_rates(learning_rate)
        found = [as_python(value) for value in self._session.run({**feed, **self.state})]
        results = dict(zip(self._names, found, strict=True))
        for new, old in self.signature.updates.items():
            self.state[old] = results.pop(new)
        self.outputs = results
        return float(results[self.signature.loss])

    def parameters(self) -> dict[str, np.ndarray]:
        """The trained parameters and the buffers, by their names in the state dict."""
        return {name: self.state[name] for name in (*self.signature.parameters, *self.signature.buffers)}

    def load_into(self, module: Any) -> None:
        """Copy the trained parameters and the buffers into a torch module.

        Raises:
            UsageError: the module does not have one of them in this shape.
        """
        import torch

        own = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        arrays = self.parameters()
        for name, array in arrays.items():
            if name not in own or tuple(own[name].shape) != array.shape:
                raise UsageError(
                    f"the module has no parameter or buffer '{name}' of shape {list(array.shape)}"
                )
        with torch.no_grad():
            for name, array in arrays.items():
                own[name].copy_(torch.from_numpy(np.array(array)))

    def _named(self, what: str, names: Sequence[str], given: Any) -> dict[str, Any]:
        if given is None:
            given = ()
        if isinstance(given, Mapping):
            found = dict(given)
        else:
            values = list(given) if isinstance(given, (tuple, list)) else [given]
            if len(values) != len(names):
                raise UsageError(
                    f"the graph has {len(names)} {what}, {list(names)}, but {len(values)} are passed"
                )
            found = dict(zip(names, values, strict=True))
        if set(found) != set(names):
            raise UsageError(f"the {what} of the graph are {list(names)}, not {list(found)}")
        return {name: self._check_array(name, found) for name in names}

    def _learning_rates(self, given: Any) -> dict[str, Any]:
        rates: dict[str, Any] = dict(self.signature.learning_rates)
        if isinstance(given, Mapping):
            unknown = sorted(set(given) - set(rates))
            if unknown:
                raise UsageError(f"there is no learning rate '{unknown}': the graph has {list(rates)}")
            rates.update(given)
        elif given is not None:
            rates = dict.fromkeys(rates, given)
        return {name: np.asarray(rate, np.float32) for name, rate in rates.items()}

    def _check_array(self, name: str, given: Mapping[str, Any]) -> np.ndarray:
        if name not in given:
            raise UsageError(f"the array for input '{name}' is missing")
        item, value = given[name], self._inputs[name]
        array = as_array(item)
        assert value.dtype is not None
        due = value.dtype.numpy()
        if array.dtype != due:
            raise UsageError(f"'{name}' must be of type {due}, not {array.dtype}")
        fits = value.shape is None or (
            len(value.shape) == array.ndim
            and all(
                isinstance(dim, ir.SymbolicDim) or dim == size
                for dim, size in zip(value.shape, array.shape, strict=True)
            )
        )
        if not fits:
            raise UsageError(f"'{name}' must have the shape {value.shape}, not {list(array.shape)}")
        return array
