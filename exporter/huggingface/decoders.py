"""Models that generate text: one graph, for the prompt with an empty past and for each token after it."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import sys
from typing import TYPE_CHECKING, cast

from ...registration import UsageError
from .cache_layout import CachedTensor, CacheLayout, tensors_in
from .graphs import (
    BATCH,
    EXAMPLE_BATCH,
    EXAMPLE_PAST,
    EXAMPLE_SEQUENCE,
    PAST,
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
from .module_states import (
    States,
    continue_from,
    find_states,
    restore_attributes,
    select_batched,
    select_changed,
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
    if getattr(model.config, "max_inference_chunksize", 0):
        # xLSTM runs parts of a long text one after the other, which saves memory and changes no result.
        model.config.max_inference_chunksize = sys.maxsize
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
    kept = _find_kept_tensors(model, tokens)
    layers = [list(tensors) for _, tensors in itertools.groupby(kept.tensors, lambda tensor: tensor.layer)]
    seeds = itertools.count()
    past: Pairs = [
        tuple(random_tensor(*tensor.shape, dtype=tensor.dtype, seed=next(seeds)) for tensor in tensors)
        for tensors in layers
    ]
    states = [{tensor.name: tensor.axes for tensor in tensors} for tensors in layers]
    call = functools.partial(_call, kept=kept)
    other_axes: dict[str, Axes] = {}
    has_positions = any(PAST in tensor.axes.values() for tensor in kept.tensors)
    if not has_positions and "attention_mask" in inputs:
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


@dataclasses.dataclass(frozen=True)
class _KeptTensors:
    """What a decoder keeps between two calls.

    Attributes:
        argument: the name of the cache in the arguments of the model.
        cache: its tensors; None for a model without a cache.
        states: the tensors that modules keep as attributes; None for a model without such.
    """

    argument: str
    cache: CacheLayout | None
    states: CacheLayout | None

    @property
    def tensors(self) -> list[CachedTensor]:
        """All tensors, those of modules last."""
        layouts = [layout for layout in (self.cache, self.states) if layout is not None]
        return [tensor for layout in layouts for tensor in layout.tensors]


def _find_kept_tensors(model: PreTrainedModel, tokens: torch.Tensor) -> _KeptTensors:
    """Find what a decoder keeps between two calls, by trial runs.

    Raises:
        UsageError: nothing, or a cache of a class that is not supported.
    """
    # The batch is the axis whose size is another one for another batch.
    other_tokens = tokens[:1].repeat(3, 1)
    (name, cache, states), (_, other_cache, _) = (
        trial_run(model, {"input_ids": batch}, call=_run) for batch in (tokens, other_tokens)
    )
    layout = None
    if states:
        _, _, other_states = trial_run(model, {"input_ids": other_tokens.repeat(1, 2)}, call=_run)
        batches = (len(tokens), len(other_tokens))
        selected = select_batched(states, other_states, batches)
        other_selected = select_batched(other_states, states, batches[::-1])
        layout = CacheLayout(selected, other_selected) if selected else None
    is_needed = layout is None or any(True for _ in tensors_in(cache))
    return _KeptTensors(name, CacheLayout(cache, other_cache) if is_needed else None, layout)


def _run(model: PreTrainedModel, **inputs: object) -> tuple[str, object, States]:
    """Run a model; return the name of its cache, the cache, and the states of modules that it replaced."""
    from transformers import DynamicCache

    parameters = inspect.signature(type(model).forward).parameters
    with restore_attributes(model):
        earlier = find_states(model)
        result = type(model).forward(model, **inputs)
        name = next((name for name in result if name in parameters and name not in inputs), "")
        cache = result.get(name)
        if not name and "past_key_values" in parameters:
            # The model returns no cache, but writes to the cache of a caller such as `generate`.
            name, cache = "past_key_values", DynamicCache(config=model.config)
            type(model).forward(model, **inputs, past_key_values=cache)
        return name, cache, select_changed(find_states(model), earlier)


def _call(
    model: PreTrainedModel, inputs: Inputs, past: Pairs, *, kept: _KeptTensors
) -> tuple[torch.Tensor, Pairs]:
    """Run the model from a past, and return its logits and the next past."""
    remaining = iter([tensor for tensors in past for tensor in tensors])
    cache = None if kept.cache is None else kept.cache.build(remaining)
    states = {} if kept.states is None else cast("States", kept.states.build(remaining))
    arguments = {} if cache is None else {kept.argument: cache}
    with continue_scans(model, cache), continue_from(model, states) as read_states:
        result = type(model).forward(model, **inputs, **arguments, use_cache=True)
        next_states = read_states()
    caches = [] if cache is None else [result.get(kept.argument, cache)]
    return result.logits, [tuple(tensor for part in (*caches, next_states) for _, tensor in tensors_in(part))]


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
