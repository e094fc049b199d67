"""Caches of transformers that hold more than keys and values: states, and the keys of indexers."""

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
        if isinstance(layer, cache_utils.DynamicIndexedLayer):
            layer.update_indexer(torch.full((2, 6, 3), number + 0.75))
            layer.indexer_position_ids = torch.full((1, 2, 6), number) if number else None
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
        pytest.param(
            [
                cache_utils.DynamicIndexedLayer(),
                cache_utils.DynamicLayer(),
                cache_utils.DynamicIndexedLayer(),
            ],
            9,
            id="indexers",
        ),
        pytest.param(
            [cache_utils.DynamicIndexedLayer(), cache_utils.LinearAttentionLayer()],
            5,
            id="indexer-and-states",
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


class _OwnLayer(cache_utils.DynamicLayer):
    """A layer of a model's own class, such as those of DeepSeek-V4."""


class _OwnCache(torch.nn.Module):
    def forward(self, x: torch.Tensor, use_cache: bool = True) -> object:
        cache = transformers.DynamicCache()
        cache.layers = [_OwnLayer()]
        cache.update(x, x, 0)
        return (x + 1, cache) if use_cache else x + 1


def test_layers_of_own_classes_are_refused_by_name() -> None:
    x = torch.ones(1, 1, 2, 3)
    with pytest.raises(opsetta.CaptureError, match="class _OwnLayer cannot be .*use_cache=False"):
        opsetta.export(_OwnCache().eval(), (x,), opset=17)
    opsetta.export(_OwnCache().eval(), (x,), {"use_cache": False}, opset=17).verify()


class _Indexer(torch.nn.Module):
    """Attention to the positions that an indexer prefers, after DeepSeek-V3.2."""

    def forward(self, x: torch.Tensor, past_key_values: transformers.DynamicCache) -> tuple:
        layer = past_key_values.layers[0]
        keys, values = past_key_values.update(x[:, None], x[:, None] * 2, 0)
        found = layer.update_indexer(x)
        best = (x @ found.transpose(1, 2)).topk(2, dim=-1).indices
        mask = torch.full((x.shape[0], x.shape[1], keys.shape[2]), -1e9).scatter(-1, best, 0.0)
        return ((x[:, None] @ keys.transpose(2, 3) + mask[:, None]).softmax(-1) @ values), past_key_values


@pytest.mark.parametrize("opset", [11, 18])
def test_step_with_an_indexer_agrees_with_eager(opset: int) -> None:
    def inputs(batch: int, past: int) -> dict:
        cache, known = transformers.DynamicCache(), torch.randn(batch, past, 3)
        cache.layers = [cache_utils.DynamicIndexedLayer()]
        _Indexer()(known, cache)
        return {"x": torch.randn(batch, 1, 3), "past_key_values": cache}

    past = {0: "batch", 1: "past"}
    shapes = {
        "x": {0: "batch"},
        "past_key_values": [[{0: "batch", 2: "past"}], [{0: "batch", 2: "past"}], [past], []],
    }
    program = opsetta.export(_Indexer().eval(), (), inputs(2, 5), opset=opset, dynamic_shapes=shapes)
    program.verify()
    program.verify((), inputs(3, 7))
