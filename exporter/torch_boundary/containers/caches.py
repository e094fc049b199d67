"""Registers the caches of transformers with torch's pytree, once that package is imported.

A cache of attention layers is flattened as in transformers: a list of keys and a list of values. Layers that
transformers does not flatten add lists: those with states of convolutions and recurrences (such as Mamba),
and those with the keys of an indexer (sparse attention, such as DeepSeek-V3.2).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from ....registration import CaptureError
from . import pytree

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


def _extend(cache_utils: Any) -> None:
    """Flatten caches with further layers, too; what transformers registered flattens all others."""
    kind = cache_utils.DynamicCache
    plain = pytree.SUPPORTED_NODES[kind]
    further = _further_layers(cache_utils)

    def has_further(cache: Any) -> bool:
        return any(isinstance(layer, further) for layer in cache.layers)

    def flatten(cache: Any) -> tuple[list[Any], Any]:
        _check(cache, cache_utils)
        return _opened(cache, cache_utils) if has_further(cache) else plain.flatten_fn(cache)

    def flatten_with_keys(cache: Any) -> tuple[list[Any], Any]:
        _check(cache, cache_utils)
        if not has_further(cache):
            assert plain.flatten_with_keys_fn is not None
            return plain.flatten_with_keys_fn(cache)
        children, context = _opened(cache, cache_utils)
        return [(pytree.MappingKey(n), child) for n, child in zip(context[0], children, strict=True)], context

    def unflatten(children: Any, context: Any) -> Any:
        if list(context[0]) == list(_ATTENTION):
            return plain.unflatten_fn(children, context)
        cache = kind()
        cache.layers = [*_layers(cache_utils, dict(zip(context[0], children, strict=True)), context[1])]
        return cache

    pytree.SUPPORTED_NODES[kind] = plain._replace(
        flatten_fn=flatten, unflatten_fn=unflatten, flatten_with_keys_fn=flatten_with_keys
    )


def _further_layers(cache_utils: Any) -> tuple[type, ...]:
    """The classes of layers that transformers does not flatten and this module does."""
    indexed = getattr(cache_utils, "DynamicIndexedLayer", None)
    linear = cache_utils.LinearAttentionCacheLayerMixin
    return (linear,) if indexed is None else (linear, indexed)


def _check(cache: Any, cache_utils: Any) -> None:
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


def _states(layer: Any, name: str) -> dict[int, Any]:
    """The states of one kind that a layer has, by their number."""
    return {i: state for i, state in getattr(layer, name, {}).items() if state is not None}


def _opened(cache: Any, cache_utils: Any) -> tuple[list[Any], Any]:
    """The lists of a cache with further layers, and the class, window and states of each layer."""
    kinds = zip((_LINEAR, _INDEXER), _further_layers(cache_utils), strict=False)
    names = [*_ATTENTION]
    for added, kind in kinds:
        names += added if any(isinstance(layer, kind) for layer in cache.layers) else ()
    lists: dict[str, list[Any]] = {name: [] for name in names}
    layout = []
    for layer in cache.layers:
        if getattr(layer, "record_past", False):
            raise CaptureError("a cache that records its past cannot be captured: call its crop method first")
        attention = [getattr(layer, name, None) for name in ("keys", "values")]
        for name, part in zip(_ATTENTION, attention, strict=True):
            lists[name].extend([] if part is None else [part])
        states = {name: _states(layer, name) for name in _LINEAR}
        for name in _LINEAR if _LINEAR[0] in lists else ():
            lists[name].extend(states[name].values())
        counters = [dict(getattr(layer, name, {})) for name in _COUNTERS]
        held = [
            attention[0] is not None,
            *map(list, states.values()),
            *map(list, (c.items() for c in counters)),
        ]
        layout.append([type(layer).__name__, getattr(layer, "sliding_window", None), held])
        if _INDEXER[0] in lists:
            indexer = {name: getattr(layer, name, None) for name in _INDEXER}
            indexer = {name: part for name, part in indexer.items() if part is not None}
            for name, part in indexer.items():
                lists[name].append(part)
            layout[-1].append(list(indexer))
    return list(lists.values()), [names, layout]


def _layers(cache_utils: Any, children: dict[str, Any], layout: Any) -> Iterator[Any]:
    """The layers of a cache. Their states are copies, because a model writes to them and returns them."""
    parts = {name: iter(children.get(name, ())) for name in (*_ATTENTION, *_LINEAR, *_INDEXER)}
    linear = cache_utils.LinearAttentionCacheLayerMixin
    for name, window, (has_keys, *rest), *indexer in layout:
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
            layer.update(*(next(parts[part]) for part in _ATTENTION))
        for states_name, held in zip(_LINEAR, numbers, strict=True):
            for number in held:
                state = next(parts[states_name])
                getattr(layer, states_name)[number] = state.clone() if hasattr(state, "clone") else state
                getattr(layer, f"is_{states_name}_initialized")[number] = True
                layer.dtype, layer.device = getattr(state, "dtype", None), getattr(state, "device", None)
        if is_linear:
            for counter, items in zip(_COUNTERS, counters, strict=True):
                setattr(layer, counter, dict(items))
        for held in indexer:
            _restore_indexer(layer, {name: next(parts[name]) for name in held})
        yield layer


def _restore_indexer(layer: Any, held: dict[str, Any]) -> None:
    """Give a layer the keys and positions of its indexer."""
    keys = held.get("indexer_keys")
    if keys is not None and hasattr(keys, "dtype"):
        layer.update_indexer(keys)
    elif keys is not None:
        layer.indexer_keys = keys
    if "indexer_position_ids" in held:
        layer.indexer_position_ids = held["indexer_position_ids"]
