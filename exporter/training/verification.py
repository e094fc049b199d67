"""Runs training steps in onnxruntime and in PyTorch."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping

import numpy as np
import torch

from ..capture.training_graph.loss_module import LossModule
from ..running.comparisons.verification import VerificationReport, as_array, check
from ..running.model_inputs import Feed
from ..torch_boundary.boundary import boundary
from ..torch_boundary.containers import pytree
from .gradient_changes import GradientOptions
from .optimizers import Group, Optimizer
from .signature import Signature
from .step_runner import StepRunner
from .update_rules import LionRule, Sgd

_NOISE = 1e-5
"""Gradients below this share of the largest one may be nothing but rounding."""

Arrays = dict[str, np.ndarray]


@dataclasses.dataclass
class Trial:
    """Steps on the same arguments.

    Attributes:
        module: the user's model and loss.
        call: the arguments of the module.
        feed: the same as onnxruntime values by input name, with the learning rates.
        state: the arrays to begin with.
    """

    module: LossModule
    optimizer: Optimizer | None
    gradient_options: GradientOptions
    signature: Signature
    call: tuple[tuple[object, ...], Mapping[str, object]]
    feed: Feed
    state: Mapping[str, np.ndarray]


def verify_steps(
    runner: StepRunner, trial: Trial, steps: int, rtol: float | None, atol: float | None
) -> VerificationReport:
    """Compare each of some steps with PyTorch, which begins at the same state.

    Returns:
        The errors of the last step.

    Raises:
        VerificationError: an output is outside tolerance.
    """
    eager, state = _Eager(trial), dict(trial.state)
    report = VerificationReport(())
    for _ in range(steps):
        results = runner.run(trial.feed, state)
        expected = eager.step(state, results)
        names = [name for name in results if name in expected]
        expected_arrays = [expected[name] for name in names]
        report = check(names, [results[name] for name in names], expected_arrays, rtol, atol)
        state.update({old: results[new] for new, old in trial.signature.updates.items()})
    return report


class _Eager:
    """A copy of the model, with torch's optimizers of its parameter groups."""

    def __init__(self, trial: Trial):
        module = trial.module
        self._signature, self._call = trial.signature, trial.call
        # Copied, because training would change the user's model.
        self._module = LossModule(*copy.deepcopy((module.model, module.loss)), module.targets)
        self._tensors = _tensors_of(self._module.model)
        inner = self._module.loss
        if isinstance(inner, torch.nn.Module):
            self._tensors |= {f"loss.{name}": item for name, item in _tensors_of(inner).items()}
        self._gradient_options = trial.gradient_options
        self._groups = () if trial.optimizer is None else trial.optimizer.groups

    def step(self, state: Mapping[str, np.ndarray], results: Arrays) -> Arrays:
        """Run a step in PyTorch; return the expected outputs of the graph.

        Adam and others divide a gradient by its own size: where it is nothing but rounding, as of a bias
        before a batch norm, the parameter moves in any direction. There onnxruntime's result is accepted if
        it is near.
        """
        with boundary(torch.enable_grad()):
            with torch.no_grad():
                for name in (*self._signature.parameters, *self._signature.buffers):
                    self._tensors[name].copy_(torch.from_numpy(np.array(state[name])))
            # Gradients would otherwise add up over the steps.
            for parameter in self._module.parameters():
                parameter.grad = None
            trainers = [_trainer(group, self._tensors, state) for group in self._groups]
            result = self._module(*self._call[0], **self._call[1])
            result["loss"].backward()
            gradients = {name: self._tensors[name].grad for name in self._signature.gradients}
            # Outputs are the gradients before clipping, which works in place.
            gradients = {name: None if item is None else item.clone() for name, item in gradients.items()}
            self._clip_gradients()
            for trainer in trainers:
                trainer.step()
        return self._expected_outputs(result, gradients, trainers, results)

    def _clip_gradients(self) -> None:
        options = self._gradient_options
        trained = [self._tensors[name] for group in self._groups for name in group.parameters]
        if options.clip_value is not None:
            torch.nn.utils.clip_grad_value_(trained, options.clip_value)
        if options.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(trained, options.clip_norm, options.norm_type)

    def _expected_outputs(
        self,
        result: object,
        gradients: Mapping[str, torch.Tensor | None],
        trainers: list[torch.optim.Optimizer],
        results: Arrays,
    ) -> Arrays:
        leaves = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        names_of_results = [self._signature.loss, *self._signature.results]
        expected: dict[str, object] = dict(zip(names_of_results, leaves, strict=False))
        expected |= {new: gradients[name] for name, new in self._signature.gradients.items()}
        names = {parameter: name for name, parameter in self._tensors.items()}
        new_tensors = dict(self._tensors)
        for trainer in trainers:
            for parameter, parameter_state in trainer.state.items():
                new_tensors |= {f"{names[parameter]}.{key}": item for key, item in parameter_state.items()}
                new_tensors["step"] = parameter_state.get("step")
        updates = self._signature.updates
        expected |= {
            new: new_tensors[old] for new, old in updates.items() if new_tensors.get(old) is not None
        }
        arrays = {name: as_array(item) for name, item in expected.items()}
        for new, old in updates.items():
            group = next((group for group in self._groups if old in group.parameters), None)
            if group is not None and group.rule.noise_steps:
                arrays[new] = self._without_noise(old, group, arrays[new], results[new])
        return arrays

    def _without_noise(self, name: str, group: Group, expected: np.ndarray, result: np.ndarray) -> np.ndarray:
        sizes = [
            item.grad.abs().max() for item in self._tensors.values() if item.grad is not None and item.numel()
        ]
        gradient = as_array(self._tensors[name].grad)
        # The signs of both sides may differ, so the distance is bounded, not the relative error.
        near = np.abs(result - expected) <= group.rule.noise_steps * group.learning_rate
        return np.where((np.abs(gradient) <= _NOISE * float(max(sizes))) & near, result, expected)


def _tensors_of(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _trainer(
    group: Group, tensors: Mapping[str, torch.Tensor], state: Mapping[str, np.ndarray]
) -> torch.optim.Optimizer:
    """The optimizer of a group at a state."""
    parameters = [tensors[name] for name in group.parameters]
    optimizer = group.optimizer_class(parameters, lr=group.learning_rate)
    # Not arguments of the class: it refuses options that it writes into the group itself.
    optimizer.param_groups[0].update(group.options)
    # Before the first step SGD has no state, and treats that step differently.
    if isinstance(group.rule, Sgd) and not float(state.get("step", 1.0)) > 0:
        return optimizer
    for name, parameter in zip(group.parameters, parameters, strict=True):
        initial = group.rule.initial_state(np.array(as_array(parameter)), group.learning_rate)
        if not initial or not all(f"{name}.{key}" in state for key in initial):
            continue
        stored = {key: torch.from_numpy(np.array(state[f"{name}.{key}"])) for key in initial}
        optimizer.state[parameter].update(stored)
        if not isinstance(group.rule, (Sgd, LionRule)):
            optimizer.state[parameter]["step"] = torch.tensor(float(state.get("step", 1.0)))
    return optimizer
