"""Models that generate text: one graph, for the prompt with an empty past and for each token after it."""

from __future__ import annotations

import functools
import inspect
import itertools
from typing import TYPE_CHECKING

from ...registration import UsageError
from .cache_layout import CacheLayout
from .graphs import (
    BATCH,
    EXAMPLE_BATCH,
    EXAMPLE_PAST,
    EXAMPLE_SEQUENCE,
    SEQUENCE,
    Axes,
    ExampleCall,
    Inputs,
    Pairs,
    TaskModel,
    example_tokens,
    random_tensor,
    trial_run,
)
from .selective_scans import continue_scans

if TYPE_CHECKING:
    import torch
    from transformers import Cache, DynamicCache, PreTrainedModel


def text_generation(source: TaskModel) -> list[ExampleCall]:
    """The call of a model that generates text.

    Raises:
        UsageError: it returns no cache, or one of a class that is not supported.
    """
    return [decoder_call(source)]


def decoder_call(source: TaskModel, *, reads_embeddings: bool = False) -> ExampleCall:
    """The call of a decoder.

    Args:
        source: the model.
        reads_embeddings: whether it reads the embeddings of tokens, instead of tokens.

    Raises:
        UsageError: it returns no cache, or one of a class that is not supported.
    """
    import torch

    model = source.model
    if getattr(model.config, "rescale_every", 0):
        # RWKV divides weights and hidden states by powers of two, which changes no result but overflows, and
        # writes to its weights for it.
        model.config.rescale_every = 0
    parameters = inspect.signature(type(model).forward).parameters
    length = _example_length(model)
    mask = torch.ones(EXAMPLE_BATCH, EXAMPLE_PAST + length, dtype=torch.int64)
    mask[0, :2] = 0
    tokens = example_tokens(source.config, length)
    inputs: Inputs = {"input_ids": tokens}
    if reads_embeddings:
        width = next(model.get_input_embeddings().parameters()).shape[1]
        inputs = {"inputs_embeds": random_tensor(*tokens.shape, width, dtype=model.dtype)}
    if "attention_mask" in parameters:
        inputs["attention_mask"] = mask
    if "position_ids" in parameters:
        inputs["position_ids"] = (mask.cumsum(1) - 1)[:, EXAMPLE_PAST:]
    # The batch is the axis whose size is another one for another batch.
    results = [trial_run(model, {"input_ids": batch}) for batch in (tokens, tokens[:1].repeat(3, 1))]
    argument = next((name for name in results[0] if name in parameters and name not in inputs), "")
    layout = CacheLayout(*(result.get(argument) for result in results))
    layers = [list(tensors) for _, tensors in itertools.groupby(layout.tensors, lambda tensor: tensor.layer)]
    seeds = itertools.count()
    past: Pairs = [
        tuple(random_tensor(*tensor.shape, dtype=tensor.dtype, seed=next(seeds)) for tensor in tensors)
        for tensors in layers
    ]
    states = [{tensor.name: tensor.axes for tensor in tensors} for tensors in layers]
    call = functools.partial(_call, layout=layout, argument=argument)
    other_axes: dict[str, Axes] = {}
    if not layout.has_positions and "attention_mask" in inputs:
        # Without cached positions the mask is one of the new tokens only.
        inputs["attention_mask"] = mask[:, :length]
        other_axes["attention_mask"] = {0: BATCH, 1: SEQUENCE}
    # Masks of recurrent layers have a form for one token also where all layers of the model are attention.
    return ExampleCall(call, inputs, past, states=states, has_states=True, other_axes=other_axes)


def _example_length(model: PreTrainedModel) -> int:
    """The number of tokens of an example: more than two chunks of models that compute in chunks.

    With a single chunk the number of chunks would be taken for a constant.
    """
    chunks = [getattr(module, "chunk_size", None) for module in model.modules()]
    return EXAMPLE_SEQUENCE + 2 * max((size for size in chunks if isinstance(size, int)), default=0)


def _call(
    model: PreTrainedModel, inputs: Inputs, past: Pairs, *, layout: CacheLayout, argument: str
) -> tuple[torch.Tensor, Pairs]:
    """Run the model.

    Args:
        argument: the name of the cache in the arguments and results of the model.
    """
    cache = layout.build([tensor for tensors in past for tensor in tensors])
    with continue_scans(model, cache):
        result = type(model).forward(model, **inputs, **{argument: cache}, use_cache=True)
    return result.logits, [tuple(layout.tensors_of(result[argument]))]


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
            "layers, which this task does not support: export the model with opsetta.export"
        )
    return pairs
