"""Registers the caches of transformers with torch's pytree, once that package is imported.

A cache of attention layers is flattened as in transformers: a list of keys and a list of values. Layers that
transformers does not flatten add lists: those with states of convolutions and recurrences (such as Mamba),
and those with the keys of an indexer (sparse attention, such as DeepSeek-V3.2).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

from ....registration import CaptureError
from . import pytree

Cache = Any
Layer = Any
Context = Any
_ATTENTION = ("key_cache", "value_cache")
_LINEAR = ("conv_states", "recurrent_states")
_COUNTERS = ("conv_kernel_size", "has_previous_state")
_INDEXER = ("indexer_keys", "indexer_position_ids")


def register_caches() -> None:
    """Register the caches with pytree. A cache that is already registered is not changed."""
    cache_utils = sys.modules.get("transformers.cache_utils")
    if cache_utils is None:
        return
    if cache_utils.DynamicCache not in pytree.SUPPORTED_NODES:
        try:
            from transformers.integrations.executorch import register_dynamic_cache_export_support
        except ImportError:
            # This release lacks the functions; torch.export names the class that it cannot flatten.
            return
        register_dynamic_cache_export_support()
        if hasattr(cache_utils, "LinearAttentionCacheLayerMixin"):
            _extend(cache_utils)
    pair = getattr(cache_utils, "EncoderDecoderCache", None)
    if pair is not None and pair not in pytree.SUPPORTED_NODES:
        names = ["self_attention_cache", "cross_attention_cache"]
        pytree.register_pytree_node(
            pair,
            lambda cache: ([cache.self_attention_cache, cache.cross_attention_cache], names),
            lambda children, context: pair(*children),
            serialized_type_name=f"{pair.__module__}.{pair.__qualname__}",
            flatten_with_keys_fn=lambda cache: (
                [(pytree.GetAttrKey(name), getattr(cache, name)) for name in names],
                names,
            ),
        )


def _extend(cache_utils: ModuleType) -> None:
    """Also flatten caches with layers that the functions of transformers do not flatten."""
    cache_class = cache_utils.DynamicCache
    original = pytree.SUPPORTED_NODES[cache_class]
    extra_layers = _extra_layers(cache_utils)

    def has_extra_layers(cache: Cache) -> bool:
        return any(isinstance(layer, extra_layers) for layer in cache.layers)

    def flatten(cache: Cache) -> tuple[list[object], Context]:
        _check(cache, cache_utils)
        return _flatten_layers(cache, cache_utils) if has_extra_layers(cache) else original.flatten_fn(cache)

    def flatten_with_keys(cache: Cache) -> tuple[list[tuple[Any, Any]], Context]:
        _check(cache, cache_utils)
        if not has_extra_layers(cache):
            assert original.flatten_with_keys_fn is not None
            return original.flatten_with_keys_fn(cache)
        children, context = _flatten_layers(cache, cache_utils)
        return [(pytree.MappingKey(n), child) for n, child in zip(context[0], children, strict=True)], context

    def unflatten(children: Iterable[object], context: Context) -> Cache:
        if list(context[0]) == list(_ATTENTION):
            return original.unflatten_fn(children, context)
        cache = cache_class()
        cache.layers = [*_layers(cache_utils, dict(zip(context[0], children, strict=True)), context[1])]
        return cache

    pytree.SUPPORTED_NODES[cache_class] = original._replace(
        flatten_fn=flatten, unflatten_fn=unflatten, flatten_with_keys_fn=flatten_with_keys
    )


def _extra_layers(cache_utils: ModuleType) -> tuple[type, ...]:
    """The classes of layers that transformers does not flatten and this module does."""
    indexed = getattr(cache_utils, "DynamicIndexedLayer", None)
    linear = cache_utils.LinearAttentionCacheLayerMixin
    return (linear,) if indexed is None else (linear, indexed)


def _check(cache: Cache, cache_utils: ModuleType) -> None:
    """Refuse layers of models' own classes, whose state only the model's code can restore.

    Raises:
        CaptureError: the message names the class.
    """
    for layer in cache.layers:
        if getattr(cache_utils, type(layer).__name__, None) is not type(layer):
            raise CaptureError(
                f"a cache with layers of class {type(layer).__name__} cannot be an input or output: "
                "call the model with use_cache=False"
            )


def _states(layer: object, name: str) -> dict[int, object]:
    """Return the states in the attribute `name` of a layer that are set, by their number."""
    return {i: state for i, state in getattr(layer, name, {}).items() if state is not None}


def _flatten_layers(cache: Cache, cache_utils: ModuleType) -> tuple[list[object], Context]:
    """Flatten a cache with extra layers.

    Returns:
        The lists of tensors, and the context: the lists' names, and each layer's class, window and states.
    """
    extensions = zip((_LINEAR, _INDEXER), _extra_layers(cache_utils), strict=False)
    names = [*_ATTENTION]
    for state_names, layer_class in extensions:
        names += state_names if any(isinstance(layer, layer_class) for layer in cache.layers) else ()
    lists: dict[str, list[object]] = {name: [] for name in names}
    layout = []
    for layer in cache.layers:
        if getattr(layer, "record_past", False):
            raise CaptureError("a cache that records its past cannot be captured: call its crop method first")
        attention = [getattr(layer, name, None) for name in ("keys", "values")]
        for name, tensor in zip(_ATTENTION, attention, strict=True):
            lists[name].extend([] if tensor is None else [tensor])
        states = {name: _states(layer, name) for name in _LINEAR}
        for name in _LINEAR if _LINEAR[0] in lists else ():
            lists[name].extend(states[name].values())
        counters = [dict(getattr(layer, name, {})) for name in _COUNTERS]
        contents = [
            attention[0] is not None,
            *map(list, states.values()),
            *map(list, (c.items() for c in counters)),
        ]
        layout.append([type(layer).__name__, getattr(layer, "sliding_window", None), contents])
        if _INDEXER[0] in lists:
            indexer = {name: getattr(layer, name, None) for name in _INDEXER}
            indexer = {name: tensor for name, tensor in indexer.items() if tensor is not None}
            for name, tensor in indexer.items():
                lists[name].append(tensor)
            layout[-1].append(list(indexer))
    return list(lists.values()), [names, layout]


def _layers(cache_utils: ModuleType, children: dict[str, Any], layout: Any) -> Iterator[Layer]:
    """Yield a cache's layers. Their states are copies, because a model writes to them and returns them."""
    tensors = {name: iter(children.get(name, ())) for name in (*_ATTENTION, *_LINEAR, *_INDEXER)}
    linear = cache_utils.LinearAttentionCacheLayerMixin
    for name, window, (has_keys, *linear_contents), *indexer in layout:
        layer_class = getattr(cache_utils, name, None)
        # The name may come from an untrusted file, so only classes of cache layers are accepted.
        if not isinstance(layer_class, type) or not issubclass(
            layer_class, (cache_utils.CacheLayerMixin, linear)
        ):
            raise TypeError(f"transformers has no cache layer {name!r}")
        state_numbers, counters = linear_contents[: len(_LINEAR)], linear_contents[len(_LINEAR) :]
        options = {} if window is None else {"sliding_window": window}
        is_linear = issubclass(layer_class, linear)
        if is_linear:
            options["number_of_states"] = len(counters[0])
        layer = layer_class(**options)
        if has_keys:
            # `update` also initializes the layer, which setting its tensors would not.
            layer.update(*(next(tensors[attention_name]) for attention_name in _ATTENTION))
        for states_name, numbers in zip(_LINEAR, state_numbers, strict=True):
            for number in numbers:
                state = next(tensors[states_name])
                getattr(layer, states_name)[number] = state.clone() if hasattr(state, "clone") else state
                getattr(layer, f"is_{states_name}_initialized")[number] = True
                layer.dtype, layer.device = getattr(state, "dtype", None), getattr(state, "device", None)
        if is_linear:
            for counter, items in zip(_COUNTERS, counters, strict=True):
                setattr(layer, counter, dict(items))
        for indexer_names in indexer:
            _restore_indexer(layer, {name: next(tensors[name]) for name in indexer_names})
        yield layer


def _restore_indexer(layer: Layer, tensors: dict[str, Any]) -> None:
    """Set the keys and positions of a layer's indexer."""
    keys = tensors.get("indexer_keys")
    if keys is not None and hasattr(keys, "dtype"):
        layer.update_indexer(keys)
    elif keys is not None:
        layer.indexer_keys = keys
    if "indexer_position_ids" in tensors:
        layer.indexer_position_ids = tensors["indexer_position_ids"]
