"""The models that consumers run, of timm, transformers and our own, by name."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import torch

from ..trained_weights import spread_weights
from .library_models import BUILDERS, TIMM, TRANSFORMERS
from .own_models import OWN, Case

GROUPS: dict[str, tuple[str, ...]] = {
    "timm": tuple(TIMM), "transformers": tuple(TRANSFORMERS), "own": tuple(OWN),
}  # fmt: skip
"""The names of the models by the package that has them; our own count apart."""
MODELS: dict[str, Callable[[str], Case]] = {
    **BUILDERS,
    **{name: lambda name: OWN[name]() for name in OWN},
}


def missing_groups() -> list[str]:
    """The packages of models that are not installed."""
    return [name for name in GROUPS if name != "own" and importlib.util.find_spec(name) is None]


def build(name: str) -> Case:
    """A model in evaluation mode, with weights and statistics like those of a trained one.

    Raises:
        ImportError: the package that has the model is not installed.
    """
    torch.manual_seed(0)
    model, inputs = MODELS[name](name)
    # Noise adds up over the many channels of timm's models.
    spread_weights(model, 0.01 if name in TIMM else 0.05)
    return model.eval(), inputs
