"""Models that generate text: one graph, for the prompt with an empty past and for each token after it."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from ...registration import UsageError
from .caches.cache_layers import CachePositions, masks_at_positions, masks_windows, written_masks
from .caches.cache_layout import CachedTensor, CacheLayout, tensors_in
from .caches.cache_settings import CacheSettings
from .caches.module_states import (
    States,
    continue_from,
    find_states,
    restore_attributes,
    select_batched,
    select_changed,
)
from .caches.selective_scans import continue_scans
from .caches.shared_buffers import attention_in_buffers, supports_shared_buffer
from .graphs import (
    BATCH,
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
    settings = _complete_settings(model, source.cache, example_tokens(source.config, 3))
    source = dataclasses.replace(source, cache=settings)
    parameters = inspect.signature(type(model).forward).parameters
    tokens, mask = _example_prompt(source)
    batch, length = tokens.shape
    inputs: Inputs = {"input_ids": tokens}
    if reads_embeddings:
        width = next(model.get_input_embeddings().parameters()).shape[1]
        inputs = {"inputs_embeds": random_tensor(batch, length, width, dtype=model.dtype)}
    if "attention_mask" in parameters:
        inputs["attention_mask"] = mask
    past_length = int(mask.sum(1).max()) - length if settings.is_static else EXAMPLE_PAST
    if "position_ids" in parameters:
        inputs["position_ids"] = (mask.cumsum(1) - 1)[:, past_length : past_length + length]
    kept = _find_kept_tensors(model, example_tokens(source.config, length), settings)
    layers = [list(tensors) for _, tensors in itertools.groupby(kept.tensors, lambda tensor: tensor.layer)]
    seeds = itertools.count()
    past: Pairs = [
        tuple(random_tensor(*tensor.shape, dtype=tensor.dtype, seed=next(seeds)) for tensor in tensors)
        for tensors in layers
    ]
    states = [{tensor.name: tensor.axes for tensor in tensors} for tensors in layers]
    call = functools.partial(_call, kept=kept, settings=settings)
    other_axes: dict[str, Axes] = {}
    if settings.is_static:
        _check_static(kept.tensors)
        inputs["cache_position"] = torch.arange(past_length, past_length + length)
        other_axes["attention_mask"] = {0: BATCH}
    elif "attention_mask" in inputs and not any(tensor.has_positions for tensor in kept.tensors):
        # Without cached positions the mask is one of the new tokens only.
        inputs["attention_mask"] = mask[:, :length]
        other_axes["attention_mask"] = {0: BATCH, 1: SEQUENCE}
    # Masks of recurrent layers have a form for one token also where all layers of the model are attention.
    return ExampleCall(
        call,
        inputs,
        past,
        states=states,
        has_states=True,
        other_axes=other_axes,
        fixed_axes=settings.fixed_axes,
        runs_one_text=settings.shares_buffer,
    )


def _complete_settings(
    model: PreTrainedModel, settings: CacheSettings, tokens: torch.Tensor
) -> CacheSettings:
    """The form of the cache of a model, whose masks may have no window, and which may support no buffer.

    Raises:
        UsageError: the cache is static, and limits alone what the model reads.
    """
    limits_reads = getattr(
        model.config.get_text_config(decoder=True), "sliding_window", None
    ) is not None and not masks_windows(model)
    if limits_reads and settings.is_static:
        raise UsageError(
            f"{type(model).__name__} forgets tokens where its cache drops them, and a static cache drops "
            "none: leave out cache_implementation"
        )
    shares_buffer = settings.shares_buffer and not limits_reads and supports_shared_buffer(model, tokens)
    return dataclasses.replace(settings, shares_buffer=shares_buffer, limits_reads=limits_reads)


def _example_prompt(source: TaskModel) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens, and the mask of the past and of them; the first text begins with padding."""
    import torch

    settings = source.cache
    length = settings.sequence_length or _example_length(source.model)
    tokens = example_tokens(source.config, length)
    if settings.batch_size is not None:
        tokens = tokens[:1].repeat(settings.batch_size, 1)
    total = EXAMPLE_PAST + length
    if settings.is_static:
        total = min(total, settings.length)
    mask = torch.ones(len(tokens), total, dtype=torch.int64)
    # GroupQueryAttention takes no padding on the left.
    mask[0, : 0 if settings.shares_buffer else min(2, total - length)] = 0
    if settings.is_static:
        mask = torch.nn.functional.pad(mask, (0, settings.length - total))
    return tokens, mask


def _check_static(tensors: Sequence[CachedTensor]) -> None:
    """Refuse a cache without positions.

    Raises:
        UsageError: the message names a tensor.
    """
    if not any(tensor.name.endswith(".key") for tensor in tensors):
        raise UsageError(
            "static caches are for models that keep keys and values, and this one keeps only states of a "
            f"fixed size, such as {tensors[0].name}: leave out cache_implementation"
        )


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


def _find_kept_tensors(model: PreTrainedModel, tokens: torch.Tensor, settings: CacheSettings) -> _KeptTensors:
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
    return _KeptTensors(name, CacheLayout(cache, other_cache, settings) if is_needed else None, layout)


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
    model: PreTrainedModel, inputs: Inputs, past: Pairs, *, kept: _KeptTensors, settings: CacheSettings
) -> tuple[torch.Tensor, Pairs]:
    """Run the model from a past, and return its logits and the next past."""
    inputs = dict(inputs)
    cache_position = inputs.pop("cache_position", None)
    mask = inputs.get("attention_mask")
    tokens = inputs.get("input_ids", inputs.get("inputs_embeds"))
    assert tokens is not None
    past_length = 0 if mask is None else mask.shape[1] - tokens.shape[1]
    positions = CachePositions(past_length, cache_position, mask)
    remaining = iter([tensor for tensors in past for tensor in tensors])
    cache = None if kept.cache is None else kept.cache.build(remaining, positions)
    states = {} if kept.states is None else cast("States", kept.states.build(remaining))
    arguments = {} if cache is None else {kept.argument: cache}
    if cache_position is not None and "cache_position" in inspect.signature(type(model).forward).parameters:
        inputs["cache_position"] = cache_position
    in_buffers: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if settings.shares_buffer:
        assert mask is not None
        in_buffers = attention_in_buffers(model, cache, mask)
    with (
        continue_scans(model, cache),
        continue_from(model, states) as read_states,
        written_masks(settings),
        masks_at_positions(model, cache_position),
        in_buffers,
    ):
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
