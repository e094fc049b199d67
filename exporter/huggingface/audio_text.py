"""Models that generate text about sounds: the embeddings of tokens, the features of sounds, and the decoder.

The features take the places of the sound tokens among the embeddings, before the decoder runs.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .audio_blocks import block_inputs, encode_in_blocks
from .caches.shared_buffers import attention_replaced
from .graphs import EXAMPLE_BATCH, Axes, ExampleCall, Inputs, Pairs, TaskModel, random_tensor
from .image_text import (
    check_parts,
    embed_call,
    embeddings_decoder_call,
    encode_media,
    refuse_model,
)
from .images.grids import SEGMENTS, attend_in_segments
from .tasks.example_inputs import AUDIO_BATCH, SAMPLES, make_inputs, sound_mask

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

AUDIO_FILE = "audio_encoder.onnx"
"""The file, as transformers.js calls it."""
_FEATURES, _MASKS = "input_features", ("input_features_mask", "feature_attention_mask")
AUDIO_INPUTS = (_FEATURES, *_MASKS)
"""The inputs of the file, as processors make them."""
_UNITS: Mapping[str, Callable[[Any], int]] = {
    # A convolution joins two frames, and four of its results become one feature.
    "GlmAsrModel": lambda config: 8,
    # Convolutions run over pieces of so many frames.
    "Qwen3ASRModel": lambda config: 2 * int(config.n_window),
}
"""By the class of the model without its head: the frames of which dynamic lengths are multiples."""
_FRAMES_FIRST = {"FunAsrNanoModel": "input_size"}
"""By the class: the name of the number of values of a frame, where spectrograms have their frames first."""
_EXAMPLE_FRAMES = 24


def audio_text_to_text(source: TaskModel) -> list[ExampleCall]:
    """The calls of a model whose decoder reads the features of sounds as embeddings, such as Voxtral.

    Raises:
        UsageError: the decoder needs more than embeddings, or the features more than spectrograms and a mask.
    """
    model: Any = source.model
    owner = getattr(model, "model", model)
    name = type(owner).__name__
    masks = [mask for mask in _MASKS if mask in inspect.signature(type(model).forward).parameters]
    encode = _ENCODERS.get(name)
    if encode is None:
        own_arguments = (_FEATURES, "audio_hidden_states")
        check_parts(model, _MASKS, medium="audio", encoded=_FEATURES, medium_arguments=own_arguments)
        parameters = inspect.signature(owner.get_audio_features).parameters
        ignored = [mask for mask in masks if mask not in parameters]
        if ignored:
            raise refuse_model(model, f"its features are selected by {ignored[0]}", "audio")
        encode = functools.partial(encode_media, medium="audio")
    if encode is encode_in_blocks:
        # These models embed another token in the place of a sound token.
        return _calls(source, encode, *block_inputs(source), replaces_media=True)
    config: Any = getattr(source.config, "audio_config", None)
    axes: dict[str, Axes] = {_FEATURES: {0: AUDIO_BATCH}}
    if hasattr(config, "max_source_positions"):
        features = make_inputs(dataclasses.replace(source, config=config), axes)[_FEATURES]
    elif name in _UNITS:
        frames = _UNITS[name](config)
        features = random_tensor(EXAMPLE_BATCH, config.num_mel_bins, 3 * frames, dtype=model.dtype)
        length = f"{frames}*{SAMPLES}"
        axes = {
            _FEATURES: {0: AUDIO_BATCH, 2: length},
            **{mask: {0: AUDIO_BATCH, 1: length} for mask in masks},
        }
    elif name in _FRAMES_FIRST:
        width = getattr(config, _FRAMES_FIRST[name])
        features = random_tensor(EXAMPLE_BATCH, _EXAMPLE_FRAMES, width, dtype=model.dtype)
        axes = {item: {0: AUDIO_BATCH, 1: SAMPLES} for item in (_FEATURES, *masks)}
    else:
        raise refuse_model(model, "the length of its sounds is not known", "audio")
    frames_first = features if name in _FRAMES_FIRST else features.transpose(1, 2)
    inputs = {_FEATURES: features, **dict.fromkeys(masks, sound_mask(frames_first))}
    return _calls(source, encode, inputs, axes)


def _calls(
    source: TaskModel,
    encode: Callable[[PreTrainedModel, Inputs, Pairs], torch.Tensor],
    inputs: Inputs,
    axes: Mapping[str, Axes],
    *,
    replaces_media: bool = False,
) -> list[ExampleCall]:
    """The calls of the files: embeddings of tokens, features of sounds, and the decoder."""
    return [
        embed_call(source, replaces_media=replaces_media),
        ExampleCall(encode, inputs, other_axes=axes),
        embeddings_decoder_call(source),
    ]


def _encode_padded(model: PreTrainedModel, inputs: Inputs, past: Pairs) -> torch.Tensor:
    """The features of all sounds without padding: `[positions, width]`.

    As `Qwen2AudioModel.forward`, of which they are a part.
    """
    import torch

    owner: Any = getattr(model, "model")  # noqa: B009
    # Two frames become one state, and two states one feature.
    states = (inputs[_MASKS[1]].sum(dim=1, keepdim=True) - 1) // 2 + 1
    frames = inputs[_FEATURES].shape[2]
    exists = torch.arange((frames - 2) // 2 + 1, device=states.device) < states
    mask = torch.where(exists, 0.0, torch.finfo(model.dtype).min).to(model.dtype)[:, None, None]
    encoded = owner.audio_tower(inputs[_FEATURES], attention_mask=mask).last_hidden_state
    features: torch.Tensor = owner.multi_modal_projector(encoded)
    return features[torch.arange(features.shape[1], device=states.device) < (states - 2) // 2 + 1]


def _encode_in_windows(model: PreTrainedModel, inputs: Inputs, past: Pairs) -> torch.Tensor:
    """The features of all sounds, of which those of a window attend to each other: `[positions, width]`.

    transformers splits sounds into windows by loops in Python, in the encoder of Qwen3-ASR.
    """
    import torch

    from ..torch_boundary.process.process_state import replace_attribute

    tower: Any = getattr(model, "model").audio_tower  # noqa: B009
    length = 2 * tower.n_window
    sounds, mask = inputs[_FEATURES], inputs[_MASKS[0]]
    # The tower cuts sounds into pieces. It reads one piece of each, for its own cut excludes sounds of one.
    pieces = sounds.unflatten(2, (-1, length)).transpose(1, 2).reshape(-1)
    arguments = {
        _FEATURES: pieces.view(-1, sounds.shape[1], length),
        _MASKS[0]: mask.reshape(-1).view(-1, length),
    }
    # The features of each piece, which three convolutions reduce.
    counts = mask.unflatten(1, (-1, length)).sum(dim=2)
    for _ in range(3):
        counts = torch.where(counts > 0, (counts - 1) // 2 + 1, 0)
    window = counts.amax() * (tower.n_window_infer // length)
    ends: torch.Tensor = counts.sum(dim=1).cumsum(0)

    def attend(module: torch.nn.Module, query: torch.Tensor, *tensors: Any, **options: Any) -> Any:
        numbers = torch.arange(query.shape[2], device=query.device)
        sound = (numbers[:, None] >= ends).sum(dim=1)
        starts = torch.nn.functional.pad(ends, (1, 0))[sound]
        segments = {"image": sound * 2**20 + (numbers - starts) // window}
        return attend_in_segments(segments, module, query, *tensors, **options)

    def get_audio_cu_seqlens(*lengths: object, **options: object) -> torch.Tensor:
        return ends

    # Only kernels of flash attention need it.
    def get_max_seqlen(*lengths: object, **options: object) -> int:
        return 0

    module = sys.modules[type(tower).__module__]
    with (
        replace_attribute(module, "get_audio_cu_seqlens", get_audio_cu_seqlens),
        replace_attribute(module, "get_max_seqlen", get_max_seqlen),
        attention_replaced(tower.config, attend, SEGMENTS),
    ):
        return encode_media(model, arguments, past, medium="audio")


_ENCODERS: Mapping[str, Callable[[PreTrainedModel, Inputs, Pairs], torch.Tensor]] = {
    "Qwen2AudioModel": _encode_padded,
    "Qwen3ASRModel": _encode_in_windows,
    "GraniteSpeechModel": encode_in_blocks,
    "GraniteSpeechPlusModel": encode_in_blocks,
}
"""By the class of the model without its head, where it has no `get_audio_features`, or one with loops."""
