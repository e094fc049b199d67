"""A model and its loss as one module, so that one capture has both."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import torch

MODEL = "model"
"""The name of the user's model inside the module."""


class LossModule(torch.nn.Module):
    """Calls a model, then its loss; returns a dict of `loss` and, if there is a loss function, `output`.

    Args:
        loss: a function of the model's result and, if given, the targets; None if the model returns its loss.
        targets: the name of the keyword argument that has the targets, or None.
    """

    def __init__(self, model: torch.nn.Module, loss: Callable[..., object] | None, targets: str | None):
        super().__init__()
        self.model = model
        self.loss = loss
        self.targets = targets

        def forward(*args: object, **kwargs: object) -> dict[str, object]:
            loss_targets = () if targets is None else (kwargs.pop(targets),)
            result = self.model(*args, **kwargs)
            if self.loss is None:
                return {"loss": result}
            return {"loss": self.loss(result, *loss_targets), "output": result}

        forward.__signature__ = _signature(model, targets)  # type: ignore[attr-defined]
        self.forward = forward


def targets_name(model: torch.nn.Module) -> str:
    """A name for the targets that no parameter of the model's forward has."""
    name = "targets"
    while name in inspect.signature(model.forward).parameters:
        name = f"loss_{name}"
    return name


def _signature(model: torch.nn.Module, targets: str | None) -> inspect.Signature:
    signature = inspect.signature(model.forward)
    parameters = list(signature.parameters.values())
    if targets is not None:
        keywords = bool(parameters) and parameters[-1].kind is inspect.Parameter.VAR_KEYWORD
        position = len(parameters) - keywords
        parameters.insert(position, inspect.Parameter(targets, inspect.Parameter.KEYWORD_ONLY))
    return signature.replace(parameters=parameters)
