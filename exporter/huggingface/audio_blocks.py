"""Sounds whose frames attend to each other in blocks, and whose features a mask selects: Granite Speech.

transformers pads the last block by its length, a number in Python. Here blocks of a padded sound are cut in
the graph, so the length of sounds is dynamic.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from .graphs import EXAMPLE_BATCH, Axes, Inputs, Pairs, TaskModel, random_tensor
from .tasks.example_inputs import AUDIO_BATCH, SAMPLES, sound_mask

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

FEATURES, MASK = "input_features", "input_features_mask"


def block_inputs(source: TaskModel) -> tuple[Inputs, dict[str, Axes]]:
    """Sounds of two and a half windows and the mask of their features, with the dynamic axes of both."""
    config: Any = source.config
    frames = 2 * config.window_size + config.window_size // 2 + 1
    sounds = random_tensor(EXAMPLE_BATCH, frames, config.encoder_config.input_dim, dtype=source.model.dtype)
    features = 3 * (config.window_size // config.downsample_rate)
    axes: dict[str, Axes] = {
        FEATURES: {0: AUDIO_BATCH, 1: SAMPLES},
        MASK: {0: AUDIO_BATCH, 1: "num_features"},
    }
    return {FEATURES: sounds, MASK: sound_mask(sounds[:, :features])}, axes


def encode_in_blocks(model: PreTrainedModel, inputs: Inputs, past: Pairs) -> torch.Tensor:
    """The features of all sounds without padding: `[positions, width]`."""
    import torch

    from ..torch_boundary.process.process_state import replace_attribute

    owner: Any = getattr(model, "model")  # noqa: B009
    with contextlib.ExitStack() as stack:
        for module in owner.encoder.modules():
            if hasattr(module, "rel_pos_emb"):
                stack.enter_context(replace_attribute(module, "forward", _attention_of(module)))
        stack.enter_context(replace_attribute(owner.projector, "forward", _projection_of(owner.projector)))
        features: torch.Tensor = owner.get_audio_features(inputs[FEATURES]).pooler_output
    # The mask has as many columns as the longest sound has features.
    counts = inputs[MASK].sum(dim=1, keepdim=True)
    return features[torch.arange(features.shape[1], device=features.device) < counts]


def _cut(states: torch.Tensor, length: int) -> torch.Tensor:
    """The blocks of sequences, of which the last one is padded: `[batch, blocks, length, width]`."""
    import torch

    padded = torch.nn.functional.pad(states, (0, 0, 0, length - 1))
    return padded.unfold(1, length, length).transpose(2, 3)


def _attention_of(attention: Any) -> Any:
    """The `forward` of an attention in blocks, as `GraniteSpeechConformerAttention` has it."""
    import torch

    def forward(hidden_states: torch.Tensor, attention_dists: torch.Tensor) -> torch.Tensor:
        size = attention.context_size
        states = attention.pre_norm(hidden_states)
        blocks = _cut(states, size)
        # Zeros are padding.
        exists = _cut(states.new_ones(1, states.shape[1], 1), size)[0, :, :, 0] > 0
        query, key, value = (
            part.unflatten(-1, (attention.num_heads, -1)).transpose(2, 3)
            for part in (attention.to_q(blocks), *attention.to_kv(blocks).chunk(2, dim=-1))
        )
        distances = attention.rel_pos_emb(attention_dists)
        bias = torch.einsum("b n h c d, c r d -> b n h c r", query, distances) * attention.scale
        lowest = -torch.finfo(bias.dtype).max
        bias = torch.where(exists[:, None, None], bias, lowest)
        attended = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=bias, scale=attention.scale
        )
        joined = attended.transpose(2, 3).flatten(3).flatten(1, 2)
        result: torch.Tensor = attention.to_out(joined[:, : hidden_states.shape[1]])
        return result

    return forward


def _projection_of(projector: Any) -> Any:
    """The `forward` of a projector of windows, as `GraniteSpeechEncoderProjector` has it."""

    def forward(hidden_states: torch.Tensor) -> torch.Tensor:
        windows = _cut(hidden_states, projector.window_size)
        queried = projector.qformer(
            query_embeds=projector.query,
            encoder_hidden_states=windows.flatten(0, 1),
            encoder_attention_mask=None,
            return_dict=True,
        ).last_hidden_state
        by_sound = queried.unflatten(0, (windows.shape[0], -1)).flatten(1, 2)
        features: torch.Tensor = projector.linear(by_sound)
        return features

    return forward
