"""Registers the caches of transformers with torch's pytree, once that package is imported.

A cache of attention layers is flattened as in transformers: a list of keys and a list of values. Layers with
states of convolutions and recurrences (such as Mamba), which transformers does not flatten, add a list of
each.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from . import pytree

_ATTENTION = ("key_cache", "value_cache")
_LINEAR = ("conv_states", "recurrent_states")
_COUNTERS = ("conv_kernel_size", "has_previous_state")
_NAMES = [*_ATTENTION, *_LINEAR]


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


def _extend(cache_utils: Any) -> None:
    """Flatten caches with states too; the functions that transformers registered flatten all others."""
    kind = cache_utils.DynamicCache
    plain = pytree.SUPPORTED_NODES[kind]

    def has_states(cache: Any) -> bool:
        return any(isinstance(layer, cache_utils.LinearAttentionCacheLayerMixin) for layer in cache.layers)

    def flatten(cache: Any) -> tuple[list[Any], Any]:
        return _opened(cache) if has_states(cache) else plain.flatten_fn(cache)

    def flatten_with_keys(cache: Any) -> tuple[list[Any], Any]:
        if not has_states(cache):
            assert plain.flatten_with_keys_fn is not None
            return plain.flatten_with_keys_fn(cache)
        children, context = _opened(cache)
        return [(pytree.MappingKey(n), child) for n, child in zip(_NAMES, children, strict=True)], context

    def unflatten(children: Any, context: Any) -> Any:
        if list(context[0]) != _NAMES:
            return plain.unflatten_fn(children, context)
        cache = kind()
        cache.layers = [*_layers(cache_utils, children, context[1])]
        return cache

    pytree.SUPPORTED_NODES[kind] = plain._replace(
        flatten_fn=flatten, unflatten_fn=unflatten, flatten_with_keys_fn=flatten_with_keys
    )


def _states(layer: Any, name: str) -> dict[int, Any]:
    """The states of one kind that a layer has, by their number."""
    return {i: state for i, state in getattr(layer, name, {}).items() if state is not None}


def _opened(cache: Any) -> tuple[list[Any], Any]:
    """The four lists of a cache with states, and the class, window and states of each layer."""
    lists: list[list[Any]] = [[] for _ in _NAMES]
    layout = []
    for layer in cache.layers:
        if getattr(layer, "record_past", False):
            raise TypeError("a cache that records its past cannot be captured: call crop on it first")
        attention = [getattr(layer, name, None) for name in ("keys", "values")]
        for found, part in zip(lists, attention, strict=False):
            found.extend([] if part is None else [part])
        states = [_states(layer, name) for name in _LINEAR]
        for found, of_kind in zip(lists[len(_ATTENTION) :], states, strict=True):
            found.extend(of_kind.values())
        counters = [dict(getattr(layer, name, {})) for name in _COUNTERS]
        held = [attention[0] is not None, *map(list, states), *map(list, (c.items() for c in counters))]
        layout.append([type(layer).__name__, getattr(layer, "sliding_window", None), held])
    return lists, [_NAMES, layout]


def _layers(cache_utils: Any, children: Any, layout: Any) -> Iterator[Any]:
    """The layers of a cache. Their states are copies, because a model writes to them and returns them."""
    keys, values, *states = map(iter, children)
    linear = cache_utils.LinearAttentionCacheLayerMixin
    for name, window, (has_keys, *rest) in layout:
        kind = getattr(cache_utils, name, None)
        # The name may come from a file.
        if not isinstance(kind, type) or not issubclass(kind, (cache_utils.CacheLayerMixin, linear)):
            raise TypeError(f"transformers has no cache layer {name!r}")
        numbers, counters = rest[: len(_LINEAR)], rest[len(_LINEAR) :]
        options = {} if window is None else {"sliding_window": window}
        is_linear = issubclass(kind, linear)
        if is_linear:
            options["number_of_states"] = len(counters[0])
        layer = kind(**options)
        if has_keys:
            layer.update(next(keys), next(values))
        for states_name, held, found in zip(_LINEAR, numbers, states, strict=True):
            for number in held:
                state = next(found)
                getattr(layer, states_name)[number] = state.clone() if hasattr(state, "clone") else state
                getattr(layer, f"is_{states_name}_initialized")[number] = True
                layer.dtype, layer.device = getattr(state, "dtype", None), getattr(state, "device", None)
        if is_linear:
            for counter, items in zip(_COUNTERS, counters, strict=True):
                setattr(layer, counter, dict(items))
        yield layer
