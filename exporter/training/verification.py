"""Runs training steps in onnxruntime and in PyTorch."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from ..capture.training_graph.loss_module import LossModule
from ..running.model_inputs import Feed
from ..running.verification import VerificationReport, as_array, check
from ..torch_boundary.boundary import boundary
from ..torch_boundary.containers import pytree
from .optimizers import Adam, Group, Optimizer
from .signature import Signature
from .step_runner import StepRunner

_NOISE = 1e-5
"""Gradients below this share of the largest one may be nothing but rounding."""
_FARTHEST = 4.0
"""The learning rates that two runs may be apart after a step of Adam, which moves by 3.2 at most."""

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
    """A copy of the model, and torch's optimizers of its groups."""

    def __init__(self, trial: Trial):
        module = trial.module
        self._signature, self._call = trial.signature, trial.call
        # Training changes the model: the user's own stays as it is.
        self._module = LossModule(*copy.deepcopy((module.model, module.loss)), module.targets)
        self._tensors = _tensors_of(self._module.model)
        inner = self._module.loss
        if isinstance(inner, torch.nn.Module):
            self._tensors |= {f"loss.{name}": item for name, item in _tensors_of(inner).items()}
        self._groups = () if trial.optimizer is None else trial.optimizer.groups

    def step(self, state: Mapping[str, np.ndarray], results: Arrays) -> Arrays:
        """Run a step in PyTorch; return the expected outputs of the graph.

        Adam divides a gradient by its own size: where it is nothing but rounding, as of a bias before a batch
        norm, the parameter moves in any direction. There onnxruntime's result is accepted if it is near.
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
            for trainer in trainers:
                trainer.step()
        return self._expected_outputs(result, trainers, results)

    def _expected_outputs(
        self, result: object, trainers: list[torch.optim.Optimizer], results: Arrays
    ) -> Arrays:
        leaves = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        names_of_results = [self._signature.loss, *self._signature.results]
        expected: dict[str, object] = dict(zip(names_of_results, leaves, strict=False))
        expected |= {new: self._tensors[name].grad for name, new in self._signature.gradients.items()}
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
            if group is not None and isinstance(group.rule, Adam):
                arrays[new] = self._without_noise(old, group, arrays[new], results[new])
        return arrays

    def _without_noise(self, name: str, group: Group, expected: np.ndarray, result: np.ndarray) -> np.ndarray:
        sizes = [
            item.grad.abs().max() for item in self._tensors.values() if item.grad is not None and item.numel()
        ]
        gradient = as_array(self._tensors[name].grad)
        # The signs of both sides may differ, so the distance is bounded, not the relative error.
        near = np.abs(result - expected) <= _FARTHEST * group.learning_rate
        return np.where((np.abs(gradient) <= _NOISE * float(max(sizes))) & near, result, expected)


def _tensors_of(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _trainer(
    group: Group, tensors: Mapping[str, torch.Tensor], state: Mapping[str, np.ndarray]
) -> torch.optim.Optimizer:
    """Torch's optimizer of a group at a state."""
    rule = group.rule
    parameters = [tensors[name] for name in group.parameters]
    options: dict[str, Any] = {"lr": group.learning_rate, "weight_decay": rule.weight_decay}
    if isinstance(rule, Adam):
        optimizer_class = torch.optim.AdamW if rule.decoupled else torch.optim.Adam
        optimizer: torch.optim.Optimizer = optimizer_class(
            parameters, betas=rule.betas, eps=rule.eps, **options
        )
    else:
        options |= {"dampening": rule.dampening, "nesterov": rule.nesterov}
        optimizer = torch.optim.SGD(parameters, momentum=rule.momentum, **options)
    # Before the first step torch's optimizers have no state, and treat that step differently.
    begun = float(state.get("step", 1.0)) > 0
    for name, parameter in zip(group.parameters, parameters, strict=True):
        arrays = {key: state.get(f"{name}.{key}") for key in rule.state if begun}
        initial_state = {
            key: torch.from_numpy(np.array(array)) for key, array in arrays.items() if array is not None
        }
        if initial_state:
            optimizer.state[parameter].update(initial_state)
            if isinstance(rule, Adam):
                optimizer.state[parameter]["step"] = torch.tensor(float(state["step"]))
    return optimizer
