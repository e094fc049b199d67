"""Reads optimizers of torch.optim: their rules, hyper-parameters, parameters and state."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...registration import UsageError

if TYPE_CHECKING:
    import torch

_WITHOUT_EFFECT = frozenset(
    "foreach fused capturable initial_lr min_lr max_lr base_momentum max_momentum".split()
)
"""Options of implementations, and what schedulers note: no result depends on them."""
_NAMES = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW"}


@dataclasses.dataclass(frozen=True)
class Sgd:
    """The rule of `torch.optim.SGD`."""

    momentum: float
    dampening: float
    weight_decay: float
    nesterov: bool

    @property
    def state(self) -> tuple[str, ...]:
        """Torch's names of the state tensors of a parameter."""
        return ("momentum_buffer",) if self.momentum else ()

    @property
    def counts(self) -> bool:
        """Whether it needs the number of earlier steps."""
        return bool(self.momentum and self.dampening)


@dataclasses.dataclass(frozen=True)
class Adam:
    """The rule of `torch.optim.Adam`, and of `torch.optim.AdamW` if the weight decay is decoupled."""

    betas: tuple[float, float]
    eps: float
    weight_decay: float
    decoupled: bool

    @property
    def state(self) -> tuple[str, ...]:
        """Torch's names of the state tensors of a parameter."""
        return "exp_avg", "exp_avg_sq"

    @property
    def counts(self) -> bool:
        """Whether it needs the number of earlier steps."""
        return True


@dataclasses.dataclass(frozen=True)
class Group:
    """Parameters with one rule and one learning rate.

    Attributes:
        learning_rate: its value when the optimizer was read.
        parameters: their names.
    """

    rule: Sgd | Adam
    learning_rate: float
    parameters: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """The rules, parameters and state of an optimizer.

    Attributes:
        groups: a group for each one of the optimizer that has parameters of the model.
        state: its state tensors, by parameter and torch's name; empty before the first step.
        steps: the number of steps so far.
    """

    groups: tuple[Group, ...]
    state: Mapping[str, Mapping[str, torch.Tensor | float | None]]
    steps: float

    @property
    def parameters(self) -> list[str]:
        """The names of all parameters that it trains."""
        return [name for group in self.groups for name in group.parameters]


def read_optimizer(
    optimizer: str | torch.optim.Optimizer,
    hyperparameters: Mapping[str, object] | None,
    model: torch.nn.Module,
) -> Optimizer:
    """The groups and the state of an optimizer.

    Args:
        optimizer: `"sgd"`, `"adam"`, `"adamw"`, or an instance of one of these classes of torch.optim.
        hyperparameters: arguments of the class, if it is given by its name.
        model: the module whose parameters it trains.

    Raises:
        UsageError: another optimizer, an option that is not supported, or parameters of another model.
    """
    import torch

    named: dict[torch.Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    if isinstance(optimizer, str):
        optimizer = _make_optimizer(optimizer, hyperparameters or {}, model)
    elif hyperparameters:
        raise UsageError(
            "hyperparameters are only for an optimizer that is passed by name; this instance has its own"
        )
    if type(optimizer) not in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW):
        type_name = type(optimizer).__name__
        raise UsageError(
            f"the update of {type_name} is not supported: use SGD, Adam or AdamW, or optimizer=None"
        )
    groups = []
    for group in optimizer.param_groups:
        unknown = [parameter for parameter in group["params"] if parameter not in named]
        if unknown:
            shape = list(unknown[0].shape)
            raise UsageError(f"the optimizer has a parameter of shape {shape} that is not the model's")
        names = tuple(named[parameter] for parameter in group["params"] if parameter.requires_grad)
        if names:
            groups.append(Group(_rule(optimizer, group), float(group["lr"]), names))
    named_state = {named[parameter]: dict(state) for parameter, state in optimizer.state.items()}
    return Optimizer(tuple(groups), named_state, _steps(named_state))


def _make_optimizer(
    name: str, hyperparameters: Mapping[str, Any], model: torch.nn.Module
) -> torch.optim.Optimizer:
    """Torch's optimizer of a name over the parameters that require gradients."""
    import torch

    class_name = _NAMES.get(name.lower())
    if class_name is None:
        raise UsageError(
            f"optimizer must be 'sgd', 'adam' or 'adamw', or an instance of torch.optim, not {name!r}"
        )
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not trained:
        raise UsageError("the model has no parameter to train: none requires gradients")
    optimizer_class: type[torch.optim.Optimizer] = getattr(torch.optim, class_name)
    try:
        return optimizer_class(trained, **dict(hyperparameters))
    except (TypeError, ValueError) as error:
        raise UsageError(f"torch.optim.{class_name} refuses its hyper-parameters: {error}") from error


def _rule(optimizer: torch.optim.Optimizer, group: Mapping[str, Any]) -> Sgd | Adam:
    options = {key: item for key, item in group.items() if key not in ("params", "lr")}
    for key in _WITHOUT_EFFECT:
        options.pop(key, None)
    class_name = type(optimizer).__name__
    try:
        if class_name == "SGD":
            rule: Sgd | Adam = Sgd(
                float(options.pop("momentum")),
                float(options.pop("dampening")),
                float(options.pop("weight_decay")),
                bool(options.pop("nesterov")),
            )
        else:
            first, second = options.pop("betas")
            rule = Adam(
                (float(first), float(second)),
                float(options.pop("eps")),
                float(options.pop("weight_decay")),
                # Newer releases of torch write AdamW as Adam with decoupled weight decay.
                bool(options.pop("decoupled_weight_decay", False)) or class_name == "AdamW",
            )
    except KeyError as error:
        raise UsageError(f"this {class_name} has no option {error}") from error
    # An option that is off has no effect, whatever its name; one that is on changes the update.
    refused = sorted(key for key, item in options.items() if item not in (None, False))
    if refused:
        raise UsageError(f"{class_name} with {', '.join(refused)} is not supported: leave it at its default")
    return rule


def _steps(state: Mapping[str, Mapping[str, torch.Tensor | float | None]]) -> float:
    counts = {
        float(count)
        for parameter_state in state.values()
        if (count := parameter_state.get("step")) is not None
    }
    if len(counts) > 1:
        raise UsageError("the optimizer has made different numbers of steps for different parameters")
    if not counts and any(
        parameter_state.get("momentum_buffer") is not None for parameter_state in state.values()
    ):
        return 1.0  # SGD does not count; its first step differs from the others.
    return counts.pop() if counts else 0.0
