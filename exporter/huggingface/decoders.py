"""Models that generate text: one graph, for the prompt with an empty past and for each token after it."""

from __future__ import annotations

import inspect
from typing import Any

from ...registration import UsageError
from .graphs import (
    BATCH,
    EXAMPLE_BATCH,
    EXAMPLE_PAST,
    EXAMPLE_SEQUENCE,
    PAST,
    SEQUENCE,
    TOTAL,
    Graph,
    Pairs,
    cache_names,
    example_tokens,
    random_like,
    trial_run,
)


def text_generation(model: Any, config: Any) -> list[Graph]:
    """The graph of a decoder, with the names that optimum gives.

    Raises:
        UsageError: its cache has more than keys and values.
    """
    import torch

    mask = torch.ones(EXAMPLE_BATCH, EXAMPLE_PAST + EXAMPLE_SEQUENCE, dtype=torch.int64)
    mask[0, :2] = 0
    inputs = {"input_ids": example_tokens(config, EXAMPLE_SEQUENCE), "attention_mask": mask}
    shapes: dict[str, Any] = {"input_ids": {0: BATCH, 1: SEQUENCE}, "attention_mask": {0: BATCH, 1: TOTAL}}
    if "position_ids" in inspect.signature(type(model).forward).parameters:
        inputs["position_ids"] = (mask.cumsum(1) - 1)[:, EXAMPLE_PAST:]
        shapes["position_ids"] = {0: BATCH, 1: SEQUENCE}
    pairs = pairs_of(trial_run(model, {"input_ids": inputs["input_ids"]}).past_key_values)
    past = {0: BATCH, 2: PAST}
    names = cache_names("past_key_values", len(pairs))
    return [
        Graph(
            "model.onnx",
            _call,
            {**inputs, "past_key_values": random_like(pairs, EXAMPLE_PAST, model.dtype)},
            {**shapes, "past_key_values": [(past, past)] * len(pairs)},
            [*inputs, *names],
            ["logits", *cache_names("present", len(pairs))],
        )
    ]


def _call(model: Any, inputs: dict[str, Any]) -> Any:
    arguments = {**inputs, "past_key_values": cache_of(inputs["past_key_values"])}
    result = type(model).forward(model, **arguments, use_cache=True)
    return result.logits, pairs_of(result.past_key_values)


def cache_of(pairs: Pairs) -> Any:
    """A cache that keeps all positions, also for layers with a sliding window, which mask old positions."""
    from transformers import DynamicCache

    cache = DynamicCache()
    for layer, (keys, values) in enumerate(pairs):
        cache.update(keys, values, layer)
    return cache


def pairs_of(cache: Any) -> Pairs:
    """The keys and values of a cache.

    Raises:
        UsageError: a layer has other states.
    """
    layers = getattr(cache, "layers", None) or []
    pairs = [(getattr(layer, "keys", None), getattr(layer, "values", None)) for layer in layers]
    if not pairs or any(part is None for pair in pairs for part in pair):
        raise UsageError(
            "the cache of the model has other states than keys and values, such as those of recurrent "
            "layers, which text-generation does not support: export the model with opsetta.export"
        )
    return pairs
