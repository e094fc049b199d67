"""Models that generate text: one graph, for the prompt with an empty past and for each token after it."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from ...registration import UsageError
from .graphs import (
    EXAMPLE_BATCH,
    EXAMPLE_PAST,
    EXAMPLE_SEQUENCE,
    ExampleCall,
    Inputs,
    Pairs,
    TaskModel,
    example_tokens,
    random_like,
    trial_run,
)

if TYPE_CHECKING:
    import torch
    from transformers import Cache, DynamicCache, PreTrainedModel


def text_generation(source: TaskModel) -> list[ExampleCall]:
    """The call of a decoder.

    Raises:
        UsageError: its cache has more than keys and values.
    """
    import torch

    model = source.model
    mask = torch.ones(EXAMPLE_BATCH, EXAMPLE_PAST + EXAMPLE_SEQUENCE, dtype=torch.int64)
    mask[0, :2] = 0
    tokens = example_tokens(source.config, EXAMPLE_SEQUENCE)
    inputs: Inputs = {"input_ids": tokens, "attention_mask": mask}
    if "position_ids" in inspect.signature(type(model).forward).parameters:
        inputs["position_ids"] = (mask.cumsum(1) - 1)[:, EXAMPLE_PAST:]
    # Models without a cache, such as the first GPT, have no such result.
    pairs = pairs_of(getattr(trial_run(model, {"input_ids": tokens}), "past_key_values", None))
    return [ExampleCall(_call, inputs, random_like(pairs, EXAMPLE_PAST, model.dtype), len(pairs))]


def _call(model: PreTrainedModel, inputs: Inputs, past: Pairs) -> tuple[torch.Tensor, Pairs]:
    result = type(model).forward(model, **inputs, past_key_values=cache_of(past), use_cache=True)
    return result.logits, pairs_of(result.past_key_values)


def cache_of(pairs: Pairs) -> DynamicCache:
    """A cache that keeps all positions, also for layers with a sliding window, which mask old positions."""
    from transformers import DynamicCache

    cache = DynamicCache()
    for layer, (keys, values) in enumerate(pairs):
        cache.update(keys, values, layer)
    return cache


def pairs_of(cache: Cache | None) -> Pairs:
    """The keys and values of a cache.

    Raises:
        UsageError: there is no cache, or a layer has other states.
    """
    if cache is None:
        raise UsageError(
            "the model returns no cache of keys and values, without which text-generation would compute "
            "every token again: export the model with opsetta.export"
        )
    layers = getattr(cache, "layers", None) or []
    pairs: Pairs = [
        (layer.keys, layer.values)
        for layer in layers
        if getattr(layer, "keys", None) is not None and getattr(layer, "values", None) is not None
    ]
    if not pairs or len(pairs) < len(layers):
        raise UsageError(
            "the cache of the model has other states than keys and values, such as those of recurrent "
            "layers, which text-generation does not support: export the model with opsetta.export"
        )
    return pairs
