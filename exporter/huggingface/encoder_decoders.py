"""Encoder-decoder models: an encoder, a decoder for the first step, and one for the steps after it.

The first decoder computes the keys and values of cross-attention from the encoder's result; the other one
takes them as inputs.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

from ...registration import UsageError
from .decoders import cache_of, pairs_of
from .graphs import (
    BATCH,
    EXAMPLE_BATCH,
    EXAMPLE_PAST,
    EXAMPLE_SEQUENCE,
    SOURCE,
    Axes,
    ExampleCall,
    Inputs,
    Pairs,
    TaskModel,
    example_text,
    example_tokens,
    random_like,
    random_tensor,
    trial_run,
)
from .tasks.example_inputs import SAMPLES, make_inputs

if TYPE_CHECKING:
    import torch
    from transformers import EncoderDecoderCache, PreTrainedModel

_ENCODER_MASK = "encoder_attention_mask"
_SOUNDS = ("input_features", "input_values")
CROSS_PAST = ("past_key_values.{layer}.encoder.key", "past_key_values.{layer}.encoder.value")
"""The names of the keys and values of cross-attention in a declaration."""


def text_to_text(source: TaskModel) -> list[ExampleCall]:
    """The calls of a model from text to text."""
    return _example_calls(source, example_text(source.config))


def speech_recognition(source: TaskModel) -> list[ExampleCall]:
    """The calls of a model from sounds to text.

    The length of a spectrogram is fixed for models such as Whisper, which have a position for each of its
    frames behind two convolutions. It is dynamic for other models, and so is the number of samples.

    Raises:
        UsageError: the model is no encoder-decoder, or does not read sounds.
    """
    model, config = source.model, source.config
    names: set[str] = set()
    if getattr(config, "is_encoder_decoder", False):
        encoder = model.get_encoder()
        names = {model.main_input_name, encoder.main_input_name}
    name = next((name for name in _SOUNDS if name in names), None)
    if name is None:
        raise UsageError(
            "automatic-speech-recognition is for models with an encoder of sounds and a decoder, not for "
            f"{type(model).__name__}: export it with opsetta.export"
        )
    if not (hasattr(config, "max_source_positions") and hasattr(encoder, "conv1")):
        sounds = make_inputs(
            dataclasses.replace(source, config=encoder.config), {name: {0: BATCH, 1: SAMPLES}}
        )
        return _example_calls(source, sounds, has_dynamic_source=True)
    # Each position of the encoder covers as many frames as both convolutions skip.
    frames_per_position = int(encoder.conv1.stride[0] * encoder.conv2.stride[0])
    length = config.max_source_positions * frames_per_position
    features = random_tensor(EXAMPLE_BATCH, config.num_mel_bins, length, dtype=model.dtype)
    return _example_calls(source, {"input_features": features})


def image_to_text(source: TaskModel) -> list[ExampleCall]:
    """The calls of a model from images to text, with an encoder and a decoder, such as TrOCR and Donut.

    Raises:
        UsageError: the model has no decoder beside an encoder.
    """
    model = source.model
    if not getattr(source.config, "is_encoder_decoder", False) or model.main_input_name != "pixel_values":
        raise UsageError(
            f"image-to-text is for models with an encoder of images and a decoder, not for "
            f"{type(model).__name__}: export its parts with opsetta.huggingface and export_for_generation"
        )
    return _example_calls(source, make_inputs(source, {"pixel_values": {0: BATCH}}))


def _example_calls(
    source: TaskModel, inputs: Inputs, *, has_dynamic_source: bool = False
) -> list[ExampleCall]:
    """The calls of the encoder and of both decoders.

    Args:
        source: the model.
        inputs: examples for the encoder.
        has_dynamic_source: whether the length of the encoder's input is dynamic although the task declares
            a fixed one.
    """
    model = source.model
    tokens = example_tokens(source.config, EXAMPLE_SEQUENCE)
    # The trial only tells shapes, for which no mask is needed.
    unmasked = {name: item for name, item in inputs.items() if name != "attention_mask"}
    result = trial_run(model, {**unmasked, "decoder_input_ids": tokens})
    self_pairs = pairs_of(result.past_key_values.self_attention_cache)
    cross_pairs = pairs_of(result.past_key_values.cross_attention_cache)
    hidden = result.encoder_last_hidden_state
    past: Pairs = [
        (*pair, *cross_pair)
        for pair, cross_pair in zip(
            random_like(self_pairs, EXAMPLE_PAST, model.dtype),
            random_like(cross_pairs, hidden.shape[1], model.dtype),
            strict=True,
        )
    ]
    mask = {_ENCODER_MASK: inputs["attention_mask"]} if "attention_mask" in inputs else {}
    states = random_tensor(*hidden.shape, dtype=model.dtype, seed=1)
    decode_with_past = functools.partial(_decode_with_past, width=hidden.shape[-1])
    one_token = example_tokens(source.config, 1)
    calls = [
        ExampleCall(_encode, inputs),
        ExampleCall(
            _decode, {"input_ids": tokens, **mask, "encoder_hidden_states": states}, layers=len(past)
        ),
        ExampleCall(decode_with_past, {"input_ids": one_token, **mask}, past, len(past)),
    ]
    if not has_dynamic_source:
        return calls
    axes: dict[str, Axes] = {name: {0: BATCH, 1: SAMPLES} for name in inputs}
    axes |= {name: {0: BATCH, 2: SOURCE} for name in CROSS_PAST}
    axes["encoder_hidden_states"] = {0: BATCH, 1: SOURCE}
    return [dataclasses.replace(call, other_axes=axes) for call in calls]


def _encode(model: PreTrainedModel, inputs: Inputs, past: Pairs) -> torch.Tensor:
    states: torch.Tensor = model.get_encoder()(**inputs).last_hidden_state
    return states


def _decode(model: PreTrainedModel, inputs: Inputs, past: Pairs) -> tuple[torch.Tensor, Pairs]:
    result = _run_decoder(model, inputs, inputs["encoder_hidden_states"], None)
    cache = result.past_key_values
    pairs = zip(pairs_of(cache.self_attention_cache), pairs_of(cache.cross_attention_cache), strict=True)
    return result.logits, [(*self_pair, *cross_pair) for self_pair, cross_pair in pairs]


def _decode_with_past(
    model: PreTrainedModel, inputs: Inputs, past: Pairs, *, width: int
) -> tuple[torch.Tensor, Pairs]:
    """The results of a step after the first one.

    Args:
        width: the size of the encoder's results.
    """
    from transformers import EncoderDecoderCache

    cache = EncoderDecoderCache(cache_of([pair[:2] for pair in past]), cache_of([pair[2:] for pair in past]))
    cross = past[0][2]
    # Only its shape is read, for the keys and values of cross-attention are in the cache.
    states = cross.new_zeros(cross.shape[0], cross.shape[2], 1).expand(-1, -1, width)
    result = _run_decoder(model, inputs, states, cache)
    return result.logits, pairs_of(result.past_key_values.self_attention_cache)


def _run_decoder(
    model: PreTrainedModel, inputs: Inputs, states: torch.Tensor, cache: EncoderDecoderCache | None
) -> Any:
    from transformers.modeling_outputs import BaseModelOutput

    mask = {"attention_mask": inputs[_ENCODER_MASK]} if _ENCODER_MASK in inputs else {}
    encoded = BaseModelOutput(last_hidden_state=states)
    # Moonshine has the mask of sounds in a class of its own; here sounds have one length.
    encoded.attention_mask = None
    return type(model).forward(
        model,
        encoder_outputs=encoded,
        decoder_input_ids=inputs["input_ids"],
        past_key_values=cache,
        use_cache=True,
        **mask,
    )
