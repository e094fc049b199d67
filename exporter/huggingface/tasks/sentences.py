"""Embeddings of sentences: a model of sentence-transformers, with its pooling and normalization."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ....registration import UsageError
from ..folder import module_settings
from ..graphs import Axes, ExampleCall, Inputs, Pairs, TaskModel
from . import single_run

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    Pool = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    """From tokens `[batch, length, width]` and their mask `[batch, length, 1]` to `[batch, width]`."""

_PLAIN_MODULES = [("Pooling", {"pooling_mode": "mean"})]
"""What sentence-transformers does with a model of transformers that is not one of its own."""


def embeddings(source: TaskModel, inputs: Mapping[str, Axes]) -> list[ExampleCall]:
    """The call that gives the vectors of tokens and of texts.

    Args:
        source: the model.
        inputs: as for `single_run.example_calls`.

    Raises:
        UsageError: the folder has modules besides pooling and normalization.
    """
    [features] = single_run.features(source, inputs)
    modules = module_settings(source.folder)
    steps = [_step(name, settings) for name, settings in (_PLAIN_MODULES if modules is None else modules)]

    def call(model: PreTrainedModel, inputs: Inputs, past: Pairs) -> tuple[torch.Tensor, ...]:
        tokens = features.call(model, inputs, past)[0]
        mask = inputs["attention_mask"].unsqueeze(-1).to(tokens.dtype)
        vectors = tokens
        for step in steps:
            vectors = step(vectors, mask)
        return tokens, vectors

    return [dataclasses.replace(features, call=call, outputs=None)]


def _step(name: str, settings: Mapping[str, object]) -> Pool:
    """The function of a module.

    Raises:
        UsageError: it is not supported.
    """
    if name == "Normalize":
        return lambda vectors, mask: _normalize(vectors)
    if name != "Pooling":
        raise UsageError(
            f"sentence-similarity does not support the module {name}: export feature-extraction, and apply "
            "the modules with sentence-transformers"
        )
    # Old configurations have an entry for each mode, new ones the name of one.
    entries = [key.removeprefix("pooling_mode_") for key, value in settings.items() if value is True]
    modes = [mode for mode in [*entries, settings.get("pooling_mode")] if mode in _POOLS]
    has_unknown = any(f"pooling_mode_{entry}" in settings and entry not in _POOLS for entry in entries)
    if len(modes) != 1 or has_unknown:
        raise UsageError(
            f"sentence-similarity supports one mode of pooling of {', '.join(_POOLS)}, not {settings}: "
            "export feature-extraction, and apply the modules with sentence-transformers"
        )
    return _POOLS[str(modes[0])]


def _normalize(vectors: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.nn.functional.normalize(vectors, p=2.0, dim=1)


def _first(tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The first token that is not padding, which may be on the left."""
    return single_run.token_at(tokens, mask.squeeze(-1).argmax(dim=1))


def _last(tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The last token that is not padding."""
    import torch

    positions = torch.arange(tokens.shape[1], device=tokens.device)
    return single_run.token_at(tokens, (mask.squeeze(-1) * positions).argmax(dim=1))


def _maximum(tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    import torch

    return tokens.masked_fill(mask == 0, torch.finfo(tokens.dtype).min).amax(dim=1)


def _mean(tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return (tokens * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1e-9)


def _mean_of_square_root(tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The sum, divided by the square root of the length."""
    return (tokens * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1e-9).sqrt()


def _weighted_mean(tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Later tokens count more: each by its position."""
    import torch

    weights = mask * torch.arange(1, tokens.shape[1] + 1, device=tokens.device)[:, None]
    return _mean(tokens, weights)


_POOLS: dict[str, Pool] = {
    "cls_token": _first,
    "cls": _first,
    "lasttoken": _last,
    "max_tokens": _maximum,
    "max": _maximum,
    "mean_tokens": _mean,
    "mean": _mean,
    "mean_sqrt_len_tokens": _mean_of_square_root,
    "mean_sqrt_len": _mean_of_square_root,
    "weightedmean_tokens": _weighted_mean,
    "weightedmean": _weighted_mean,
}
"""The modes of pooling by their names in configurations, old ones and new ones."""
