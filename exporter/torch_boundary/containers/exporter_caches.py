"""Registers the caches of transformers as its exporters do: flattened layer by layer.

Exports of this package register `DynamicCache` and `EncoderDecoderCache` themselves, with all keys before all
values, and pytree keeps the first registration. The names of inputs and outputs that transformers' exporters
give, and the structure of results that they save, belong to their own order.
"""

from __future__ import annotations

from collections.abc import Callable

from .. import probe
from . import pytree


def register_as_exporters_do(register: Callable[[], None]) -> None:
    """Register caches as transformers' exporters do; replaces other registrations of the same classes.

    Args:
        register: registers all caches that are not registered yet, by `transformers.exporters`.
    """
    from transformers import DynamicCache, EncoderDecoderCache, StaticCache

    register()
    # Only transformers' exporters register this class, with the functions that serve all caches.
    flatten = pytree.SUPPORTED_NODES[StaticCache].flatten_fn
    earlier_classes = [
        cache_class
        for cache_class in (DynamicCache, EncoderDecoderCache)
        if pytree.SUPPORTED_NODES[cache_class].flatten_fn is not flatten
    ]
    if earlier_classes:
        probe.require(probe.CACHE_ORDER)
    for cache_class in earlier_classes:
        pytree.deregister(cache_class)
    if earlier_classes:
        register()
