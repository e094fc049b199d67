"""Caches of transformers that hold states of convolutions and recurrences beside keys and values."""

import pytest
import torch
import torch.utils._pytree as pytree
import transformers
from transformers import cache_utils

import opsetta
from opsetta.exporter.torch_boundary.containers.structures import leaf_names, register_structures

from ...models.zoo import BY_NAME, DECODERS

JAMBA = next(decoder for decoder in DECODERS if decoder.name == "jamba")


def _cache(*layers: object) -> transformers.DynamicCache:
    cache = transformers.DynamicCache()
    cache.layers = list(layers)
    for number, layer in enumerate(layers):
        if isinstance(layer, cache_utils.LinearAttentionCacheLayerMixin):
            layer.update_conv_state(torch.full((2, 3, 4), number + 0.25))
            layer.update_recurrent_state(torch.full((2, 5), number + 0.5))
        if hasattr(layer, "keys"):
            layer.update(torch.full((2, 1, 6, 3), float(number)), torch.full((2, 1, 6, 3), -float(number)))
    return cache


def _kinds() -> list:
    return [
        pytest.param(
            [cache_utils.DynamicLayer(), cache_utils.DynamicSlidingWindowLayer(4)], 4, id="attention"
        ),
        pytest.param([cache_utils.LinearAttentionLayer(), cache_utils.DynamicLayer()], 4, id="mixed"),
        pytest.param(
            [cache_utils.LinearAttentionLayer(), cache_utils.LinearAttentionLayer()], 4, id="states"
        ),
        pytest.param([cache_utils.LinearAttentionAndFullAttentionLayer()], 4, id="both-in-one"),
        pytest.param(
            [cache_utils.LinearAttentionAndSlidingWindowAttentionLayer(4)], 4, id="both-with-a-window"
        ),
    ]


@pytest.mark.parametrize(("layers", "count"), _kinds())
def test_cache_is_opened_and_closed(layers: list, count: int) -> None:
    register_structures()
    cache = _cache(*layers)
    leaves, structure = pytree.tree_flatten(cache)
    assert len(leaves) == count
    assert len(set(leaf_names(structure, "cache"))) == count
    again, same = pytree.tree_flatten(pytree.tree_unflatten(leaves, structure))
    assert same == structure
    assert all(torch.equal(a, b) for a, b in zip(leaves, again, strict=True))
    with_keys, _ = pytree.tree_flatten_with_path(cache)
    assert [value.shape for _, value in with_keys] == [leaf.shape for leaf in leaves]


def test_attention_alone_is_opened_as_transformers_does() -> None:
    register_structures()
    _, structure = pytree.tree_flatten(_cache(cache_utils.DynamicLayer()))
    assert leaf_names(structure, "cache") == ["key_cache_0", "value_cache_0"]


def test_layers_know_what_went_before() -> None:
    register_structures()
    held = pytree.tree_map(lambda leaf: leaf, _cache(cache_utils.LinearAttentionLayer()))
    assert held.has_previous_state(0)
    assert held.layers[0].conv_kernel_size == {0: 4}
    assert held.update_conv_state(torch.ones(2, 3, 1), 0).shape == (2, 3, 5)


def test_cache_that_is_given_stays_as_it_was() -> None:
    model = BY_NAME["jamba"].build()
    inputs = JAMBA.inputs(model, 1, 2)
    layers = inputs["past_key_values"].layers
    state = next(layer.conv_states[0] for layer in layers if hasattr(layer, "conv_states"))
    before = state.clone()
    program = opsetta.export(model, (), inputs, opset=11)
    result = program(**inputs)
    assert torch.equal(state, before)
    assert type(result.past_key_values) is transformers.DynamicCache
    assert [type(a) for a in result.past_key_values.layers] == [type(layer) for layer in layers]
