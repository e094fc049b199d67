"""The architectures of `tests/models` as a zoo: `opsetta sweep tests/zoo.py --opsets 9,11,13,17,21,28`."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Callable
from typing import Any

ROOT = str(pathlib.Path(__file__).resolve().parents[1])
if ROOT not in sys.path:
    # A zoo runs on its own, and the modules of the tests are found by their full names.
    sys.path.append(ROOT)

from tests.models.zoo import ARCHITECTURES, DECODERS, Architecture, Decoder  # noqa: E402


def _architecture(architecture: Architecture) -> Callable[..., dict[str, Any]]:
    def factory(batch: int = 2, sequence: int = 7) -> dict[str, Any]:
        model = architecture.build()
        kwargs = architecture.inputs(batch, sequence)
        return {"model": model, "kwargs": kwargs, "dynamic_shapes": architecture.dynamic_shapes}

    return factory


def _generation(decoder: Decoder) -> Callable[..., dict[str, Any]]:
    def factory(batch: int = 2, past: int = 3) -> dict[str, Any]:
        model = decoder.build()
        kwargs = decoder.inputs(model, batch, past)
        shapes = decoder.dynamic_shapes(kwargs)
        return {"model": model, "kwargs": kwargs, "dynamic_shapes": shapes, "narrow": ["total"]}

    return factory


MODELS = {architecture.name: _architecture(architecture) for architecture in ARCHITECTURES}
MODELS |= {f"{decoder.name}-with-cache": _generation(decoder) for decoder in DECODERS}
