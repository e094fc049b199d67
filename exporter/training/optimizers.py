"""Reads optimizers of torch.optim: their rules, hyper-parameters, parameters and state."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ...registration import UsageError
from ...registration.warning import warn
from .moment_rules import Adam, Adamax, NAdam, RAdam
from .square_rules import Adadelta, Adafactor, Adagrad, RmsProp
from .update_rules import Asgd, LionRule, Rprop, Sgd, UpdateRule

if TYPE_CHECKING:
    import torch

_WITHOUT_EFFECT = frozenset("foreach fused capturable initial_lr min_lr max_lr".split())
"""Options that do not change results: choices of an implementation, and notes of schedulers."""
_CYCLED = frozenset("base_momentum max_momentum".split())
"""What schedulers note that also change the momentum."""
_RULES: Mapping[str, type[UpdateRule]] = {
    "SGD": Sgd,
    "Adam": Adam,
    "AdamW": Adam,
    "Adamax": Adamax,
    "NAdam": NAdam,
    "RAdam": RAdam,
    "RMSprop": RmsProp,
    "Adagrad": Adagrad,
    "Adadelta": Adadelta,
    "Adafactor": Adafactor,
    "ASGD": Asgd,
    "Rprop": Rprop,
    "Lion": LionRule,
}
"""The rule of each class of torch.optim, and of `Lion`."""
OPTIMIZERS = tuple(name.lower() for name in _RULES)
"""The names of optimizers that `export_training` takes."""


@dataclasses.dataclass(frozen=True)
class Group:
    """Parameters with one rule and one learning rate.

    Attributes:
        learning_rate: its value when the optimizer was read.
        parameters: their names.
        maximize: whether it moves along the gradient instead of against it.
        optimizer_class: the class of the optimizer.
        options: the options of the optimizer's group.
    """

    rule: UpdateRule
    learning_rate: float
    parameters: tuple[str, ...]
    maximize: bool
    optimizer_class: Callable[..., torch.optim.Optimizer]
    options: Mapping[str, object]


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
        optimizer: a name of `OPTIMIZERS`, or an instance of one of these classes of torch.optim.
        hyperparameters: arguments of the class, if it is given by its name.
        model: the module whose parameters it trains.

    Raises:
        UsageError: another optimizer, an option that is not supported, or parameters of another model.
    """
    named: dict[torch.Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    if isinstance(optimizer, str):
        optimizer = _make_optimizer(optimizer, hyperparameters or {}, model)
    elif hyperparameters:
        raise UsageError(
            "hyperparameters are only for an optimizer that is passed by name; this instance has its own"
        )
    optimizer_class = type(optimizer)
    rule_class = _RULES.get(optimizer_class.__name__)
    # A class of the user may have the name of one of torch, and another update.
    if rule_class is None or optimizer_class is not _optimizer_class(optimizer_class.__name__):
        raise UsageError(
            f"the update of {optimizer_class.__name__} is not supported: use one of {', '.join(_RULES)}, or "
            "optimizer=None"
        )
    groups = []
    for group in optimizer.param_groups:
        unknown = [parameter for parameter in group["params"] if parameter not in named]
        if unknown:
            shape = list(unknown[0].shape)
            raise UsageError(f"the optimizer has a parameter of shape {shape} that is not the model's")
        names = tuple(named[parameter] for parameter in group["params"] if parameter.requires_grad)
        if names:
            rate, maximize = float(group["lr"]), bool(group.get("maximize", False))
            options = {key: item for key, item in group.items() if key not in ("params", "lr")}
            rule = _read_rule(rule_class, optimizer_class.__name__, options)
            groups.append(Group(rule, rate, names, maximize, optimizer_class, options))
    named_state = {named[parameter]: dict(state) for parameter, state in optimizer.state.items()}
    return Optimizer(tuple(groups), named_state, _steps(named_state))


def _make_optimizer(
    name: str, hyperparameters: Mapping[str, Any], model: torch.nn.Module
) -> torch.optim.Optimizer:
    """The optimizer of a name over the parameters that require gradients."""
    import torch

    class_name = next((item for item in _RULES if item.lower() == name.lower()), None)
    if class_name is None:
        names = ", ".join(map(repr, OPTIMIZERS))
        raise UsageError(f"optimizer must be one of {names}, or an instance of torch.optim, not {name!r}")
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not trained:
        raise UsageError("the model has no parameter to train: none requires gradients")
    optimizer_class = _optimizer_class(class_name)
    if optimizer_class is None:
        raise UsageError(f"torch {torch.__version__} has no optimizer {class_name}")
    try:
        return optimizer_class(trained, **dict(hyperparameters))
    except (TypeError, ValueError) as error:
        raise UsageError(f"{class_name} refuses its hyper-parameters: {error}") from error


def _optimizer_class(class_name: str) -> type[torch.optim.Optimizer] | None:
    """The class of an optimizer; None if this release of torch lacks it."""
    import torch

    if class_name == "Lion":
        from .lion import Lion

        return Lion
    return getattr(torch.optim, class_name, None)


def _read_rule(rule_class: type[UpdateRule], class_name: str, group: Mapping[str, object]) -> UpdateRule:
    """The rule of a group of an optimizer: its options are the fields of the rule.

    Raises:
        UsageError: an option is missing, or one that changes the update is not supported.
    """
    options = {key: item for key, item in group.items() if key not in _WITHOUT_EFFECT and key != "maximize"}
    if _CYCLED & set(options):
        warn("a scheduler cycles the momentum of this optimizer; the graph keeps its present value")
        options = {key: item for key, item in options.items() if key not in _CYCLED}
    # Newer releases of torch write AdamW as Adam with decoupled weight decay.
    if class_name == "AdamW":
        options["decoupled_weight_decay"] = True
    # `Rprop` has no decay, and releases of torch before this option have no decoupled one.
    optional: dict[str, object] = {"weight_decay": 0.0, "decoupled_weight_decay": False}
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(rule_class):
        if field.name not in options and field.name not in optional:
            raise UsageError(f"this {class_name} has no option '{field.name}'")
        fields[field.name] = _as_number(options.pop(field.name, optional.get(field.name)))
    # An option that is off has no effect, whatever its name; one that is on changes the update.
    refused = sorted(key for key, item in options.items() if item not in (None, False))
    if refused:
        raise UsageError(f"{class_name} with {', '.join(refused)} is not supported: leave it at its default")
    return rule_class(**fields)


def _as_number(option: object) -> object:
    """An option as a number of Python, or a tuple of numbers; torch accepts tensors, too."""
    if isinstance(option, (tuple, list)):
        return tuple(_as_number(item) for item in option)
    return option if option is None or isinstance(option, bool) else float(np.asarray(option))


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
