"""`TrainingSession`: runs a training graph step by step on onnxruntime."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...registration import ModelFileError, UsageError
from ..load_model import load
from ..onnx_model import OnnxModel
from ..running.comparisons.verification import as_array
from .program import TrainingProgram
from .signature import Signature
from .step_runner import LearningRates, StepRunner

if TYPE_CHECKING:
    import torch
    from numpy.typing import ArrayLike


class TrainingSession:
    """A model in training on onnxruntime. Neither torch nor the model's code is needed.

    Attributes:
        signature: what the inputs and outputs of the graph are.
        state: the current arrays of parameters, buffers and optimizer, by input name.
        outputs: the arrays of the last step besides the new state, by output name: loss, results, gradients.
    """

    def __init__(
        self,
        model: TrainingProgram | str | os.PathLike[str],
        state: Mapping[str, ArrayLike | torch.Tensor] | None = None,
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
            UsageError: an array is missing, or has another element type.
            DimensionError: an array has another shape.
        """
        if isinstance(model, TrainingProgram):
            onnx_model, arrays = model.model, {**model.state, **dict(state or {})}
        else:
            file = load(model)
            if not isinstance(file, OnnxModel):
                raise ModelFileError("this is a source file: lower it, and save the result")
            onnx_model, arrays = file.model, dict(state or {})
        self.signature = Signature.from_metadata(onnx_model.metadata_props)
        self._runner = StepRunner(onnx_model, self.signature, providers)
        missing = [name for name in self.signature.state if name not in arrays]
        if missing:
            raise UsageError(f"the array for input '{missing[0]}' is missing")
        self.state = {name: as_array(arrays[name]) for name in self.signature.state}
        # Check the state now: a wrong array should not fail in the middle of training.
        self._runner.state.feed(self.state)
        self.outputs: dict[str, np.ndarray] = {}

    def step(
        self,
        inputs: object,
        targets: object = None,
        *,
        learning_rate: LearningRates = None,
        apply_update: bool = True,
    ) -> float:
        """Run one step; the state becomes the new one.

        Args:
            inputs: an array or a torch tensor for each input of the model: one, a tuple in order, or a dict.
            targets: likewise for the targets.
            learning_rate: instead of the optimizer's; one for all groups, or a dict by input name.
            apply_update: False only adds the gradients to those of the steps since the last update. The graph
                must have been exported with `accumulate=True`.

        Returns:
            The loss, before the update.

        Raises:
            UsageError: the inputs are not those of the graph, or it applies the gradients of each step.
            DimensionError: the graph is not valid for a size.
            InferenceError: onnxruntime refuses the step; the state stays.
        """
        data = _values_by_name("inputs", self.signature.inputs, inputs)
        data |= _values_by_name("targets", self.signature.targets, targets)
        results = self._runner.run(self._runner.make_feed(data, learning_rate, apply_update), self.state)
        # The state changes only after the whole step has succeeded.
        for new, old in self.signature.updates.items():
            self.state[old] = results.pop(new)
        self.outputs = results
        return float(results[self.signature.loss])

    def parameters(self) -> dict[str, np.ndarray]:
        """The trained parameters and the buffers, by their names in the state dict."""
        return {name: self.state[name] for name in (*self.signature.parameters, *self.signature.buffers)}

    def load_into(self, module: torch.nn.Module) -> None:
        """Copy the trained parameters and the buffers into a torch module.

        Raises:
            UsageError: the module does not have one of them in this shape.
        """
        import torch

        module_tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        arrays = self.parameters()
        for name, array in arrays.items():
            if name not in module_tensors or tuple(module_tensors[name].shape) != array.shape:
                raise UsageError(
                    f"the module has no parameter or buffer '{name}' of shape {list(array.shape)}"
                )
        with torch.no_grad():
            for name, array in arrays.items():
                module_tensors[name].copy_(torch.from_numpy(np.array(array)))


def _values_by_name(role: str, names: Sequence[str], values: object) -> dict[str, object]:
    """What a caller passes as inputs or targets, by name.

    Raises:
        UsageError: there are other names, or more or fewer values.
    """
    if isinstance(values, Mapping):
        by_name = dict(values)
    else:
        listed = () if values is None else values
        items = list(listed) if isinstance(listed, (tuple, list)) else [listed]
        if len(items) != len(names):
            raise UsageError(f"the graph has {len(names)} {role}, {list(names)}, but {len(items)} are passed")
        by_name = dict(zip(names, items, strict=True))
    if set(by_name) != set(names):
        raise UsageError(f"the {role} of the graph are {list(names)}, not {list(by_name)}")
    return by_name
