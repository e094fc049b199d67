"""The tensors of caches: names, dynamic axes, and caches made of other tensors."""

import pytest
import torch
from transformers import DynamicCache, cache_utils

import opsetta
from opsetta.exporter.huggingface.caches.cache_layers import CachePositions
from opsetta.exporter.huggingface.caches.cache_layout import CacheLayout, tensors_in
from opsetta.exporter.huggingface.caches.cache_settings import CacheSettings
from opsetta.exporter.huggingface.lowered_graphs import _check_states

ATTENTION = (torch.ones(1, 2, 3, 4), torch.ones(1, 2, 3, 4))


def cache_of(layers, batch):
    """A cache whose layers have processed three tokens of each text."""
    cache = DynamicCache()
    cache.layers = layers
    for layer in layers:
        if isinstance(layer, cache_utils.CacheLayerMixin):
            layer.update(*(tensor.repeat(batch, 1, 1, 1) for tensor in ATTENTION))
        for number in getattr(layer, "conv_states", ()):
            layer.update_conv_state(torch.ones(batch, 6, 3), number, conv_kernel_size=4)
            layer.update_recurrent_state(torch.ones(batch, 5, 2), number)
    return cache


def layout_of(*makers, settings=None):
    return CacheLayout(*(cache_of([make() for make in makers], batch) for batch in (2, 3)), settings)


def test_layers_tell_their_tensors():
    layout = layout_of(
        cache_utils.DynamicLayer,
        cache_utils.DummyLayer,
        lambda: cache_utils.LinearAttentionLayer(number_of_states=2),
        cache_utils.LinearAttentionAndFullAttentionLayer,
    )
    attention, state = {0: "batch_size", 2: "past_sequence_length"}, {0: "batch_size"}
    assert {tensor.name: tensor.axes for tensor in layout.tensors} == {
        "0.key": attention,
        "0.value": attention,
        "2.conv_state": state,
        "2.conv_state.1": state,
        "2.recurrent_state": state,
        "2.recurrent_state.1": state,
        "3.key": attention,
        "3.value": attention,
        "3.conv_state": state,
        "3.recurrent_state": state,
    }


def test_states_continue_without_writes():
    layout = layout_of(cache_utils.LinearAttentionLayer)
    tensors = [torch.rand(2, 6, 4), torch.rand(2, 5, 2)]
    originals = [tensor.clone() for tensor in tensors]
    cache = layout.build(iter(tensors))
    update = torch.rand(2, 6, 2)
    assert torch.equal(cache.update_conv_state(update, 0), torch.cat([originals[0], update], -1))
    cache.update_recurrent_state(torch.zeros(2, 5, 2), 0)
    conv_state, recurrent_state = (tensor for _, tensor in tensors_in(cache))
    assert torch.equal(conv_state, torch.cat([originals[0], update], -1)[..., -4:])
    assert not recurrent_state.any()
    assert all(map(torch.equal, tensors, originals))


def test_sliding_layers_keep_all_positions():
    layout = layout_of(lambda: cache_utils.DynamicSlidingWindowLayer(sliding_window=4))
    cache = layout.build(iter([torch.rand(2, 2, 9, 4), torch.rand(2, 2, 9, 4)]))
    keys, _ = cache.update(torch.rand(2, 2, 1, 4), torch.rand(2, 2, 1, 4), 0)
    assert keys.shape[2] == next(tensors_in(cache))[1].shape[2] == 10
    assert cache.get_mask_sizes(1, 0) == (11, 0)


def test_sliding_layers_keep_the_window():
    layout = layout_of(
        lambda: cache_utils.DynamicSlidingWindowLayer(sliding_window=5),
        cache_utils.DynamicLayer,
        settings=CacheSettings("dynamic"),
    )
    assert [tensor.axes[2] for tensor in layout.tensors] == 2 * ["past_window_length"] + 2 * [
        "past_sequence_length"
    ]
    window, full = torch.rand(2, 2, 4, 4), torch.rand(2, 2, 9, 4)
    cache = layout.build(iter([window, window, full, full]), CachePositions(9))
    assert cache.get_mask_sizes(2, 0) == (6, 5)
    assert cache.get_mask_sizes(2, 1) == (11, 0)
    new = torch.rand(2, 2, 2, 4)
    keys, _ = cache.update(new, new, 0)
    assert torch.equal(keys, torch.cat([window, new], 2))
    assert torch.equal(next(tensors_in(cache))[1], keys[:, :, -4:])


def test_static_layers_are_written_at_positions():
    layout = layout_of(cache_utils.DynamicLayer, settings=CacheSettings("static", 9, batch_size=2))
    assert [tensor.shape for tensor in layout.tensors] == 2 * [(2, 2, 9, 4)]
    past, new = torch.rand(2, 2, 9, 4), torch.rand(2, 2, 2, 4)
    original = past.clone()
    cache = layout.build(iter([past, past]), CachePositions(cache_position=torch.tensor([3, 4])))
    assert torch.equal(cache.get_seq_length(0) + torch.arange(2), torch.tensor([3, 4]))
    keys, _ = cache.update(new, new, 0)
    assert torch.equal(keys, torch.cat([past[:, :, :3], new, past[:, :, 5:]], 2))
    assert torch.equal(past, original)


class OwnLayer(cache_utils.DynamicLayer):
    """A layer of a model's own class."""


def test_layers_of_other_classes_are_refused():
    with pytest.raises(opsetta.UsageError, match="layers of class OwnLayer, which"):
        layout_of(OwnLayer)


def test_an_empty_cache_is_refused():
    with pytest.raises(opsetta.UsageError, match="returns no cache"):
        CacheLayout(None, None)


class Forgetting(torch.nn.Module):
    """Uses its state for one token only, as a model's code for several tokens does."""

    def forward(self, tokens, state):
        return (tokens + state[:, :1] if tokens.shape[1] == 1 else tokens), tokens[:, -1:]


def test_states_that_are_not_continued_are_refused():
    program = opsetta.export(
        Forgetting(),
        (torch.rand(2, 3), torch.rand(2, 4)),
        input_names=["input_ids", "past_key_values.0.conv_state"],
    )
    with pytest.raises(opsetta.UsageError, match=r"from its state \(past_key_values.0.conv_state\)"):
        _check_states(program)
