"""Encoder-decoder models: an encoder, a decoder for the first step, and one for the steps after it.

The first decoder computes the keys and values of cross-attention from the encoder's result; the other one
takes them as inputs.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...registration import UsageError
from .decoders import cache_of, pairs_of
from .graphs import (
    BATCH,
    EXAMPLE_BATCH,
    EXAMPLE_PAST,
    EXAMPLE_SEQUENCE,
    EXAMPLE_SOURCE,
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
from .image_text import encode_media
from .tasks.example_inputs import SAMPLES, SOUND_INPUTS, make_inputs, masks_sounds, sound_mask

if TYPE_CHECKING:
    import torch
    from transformers import EncoderDecoderCache, PreTrainedModel

_ENCODER_MASK, _DECODER_TOKENS = "encoder_attention_mask", "decoder_input_ids"
PATCHES = "flattened_patches"
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
    name = next((name for name in SOUND_INPUTS if name in names), None)
    if name is None:
        raise UsageError(
            "automatic-speech-recognition is for models with an encoder of sounds and a decoder, not for "
            f"{type(model).__name__}: export it with opsetta.export"
        )
    if not (hasattr(config, "max_source_positions") and hasattr(encoder, "conv1")):
        sounds = make_inputs(
            dataclasses.replace(source, config=encoder.config), {name: {0: BATCH, 1: SAMPLES}}
        )
        if masks_sounds(source):
            sounds["attention_mask"] = sound_mask(sounds[name])
        return _example_calls(source, sounds, source_axis=SAMPLES)
    # Each position of the encoder covers as many frames as both convolutions skip.
    frames_per_position = int(encoder.conv1.stride[0] * encoder.conv2.stride[0])
    length = config.max_source_positions * frames_per_position
    features = random_tensor(EXAMPLE_BATCH, config.num_mel_bins, length, dtype=model.dtype)
    return _example_calls(source, {"input_features": features})


def image_to_text(source: TaskModel) -> list[ExampleCall]:
    """The calls of a model from images to text, with an encoder and a decoder, such as TrOCR and Donut.

    Pix2Struct reads patches, of which images have different numbers. Florence-2 and BLIP-2 read a text in
    which the features of images take the places of tokens.

    Raises:
        UsageError: the model has no decoder beside an encoder.
    """
    model = source.model
    if type(model).__name__ in _CAPTIONS_IMAGES:
        return _example_calls(source, make_inputs(source, {"pixel_values": {0: BATCH}}), _CAPTION_PARTS)
    is_supported = getattr(source.config, "is_encoder_decoder", False)
    if is_supported and _reads_images_in_texts(model):
        return _example_calls(source, _example_image_texts(source), _IMAGE_TEXT_PARTS, source_axis=SOURCE)
    if is_supported and model.main_input_name == PATCHES:
        return _example_calls(source, _example_patches(source), source_axis=SOURCE)
    if not is_supported or model.main_input_name != "pixel_values":
        raise UsageError(
            f"image-to-text is for models with an encoder of images and a decoder, not for "
            f"{type(model).__name__}: export its parts with opsetta.huggingface and export_for_generation"
        )
    return _example_calls(source, make_inputs(source, {"pixel_values": {0: BATCH}}))


def _reads_images_in_texts(model: PreTrainedModel) -> bool:
    """Whether the encoder reads texts in which the features of images take the places of tokens."""
    parameters = inspect.signature(type(model.get_encoder()).forward).parameters
    has_features = hasattr(model, "get_image_features") or hasattr(model.base_model, "get_image_features")
    return has_features and "inputs_embeds" in parameters and hasattr(model.config, "image_token_id")


def image_question_to_text(source: TaskModel) -> list[ExampleCall]:
    """The calls of a model from an image and a question to the text of an answer: BLIP.

    Raises:
        UsageError: the model is another one.
    """
    if type(source.model).__name__ not in _ANSWERS_QUESTIONS:
        raise UsageError(
            f"visual-question-answering is not supported for {type(source.model).__name__}: export it with "
            "opsetta.export, or pass image-text-to-text"
        )
    images = make_inputs(source, {"pixel_values": {0: BATCH}})
    return _example_calls(source, {**example_text(source.config), **images}, _ANSWER_PARTS)


def _example_image_texts(source: TaskModel) -> Inputs:
    """Texts, each behind as many image tokens as an image has features, and a mask with padding."""
    import torch

    config: Any = source.config
    images = make_inputs(source, {"pixel_values": {0: BATCH}})
    features = trial_run(
        source.model, images, use_cache=False, call=lambda model, **inputs: encode_media(model, inputs, [])
    )
    count = features.shape[0] // EXAMPLE_BATCH
    text = example_text(config)
    token = config.image_token_id
    tokens = torch.where(text["input_ids"] == token, 0, text["input_ids"])
    image_tokens = torch.full((EXAMPLE_BATCH, count), token, device=tokens.device)
    mask = torch.nn.functional.pad(text["attention_mask"], (count, 0), value=1)
    return {"input_ids": torch.cat([image_tokens, tokens], dim=1), **images, "attention_mask": mask}


def _example_patches(source: TaskModel) -> Inputs:
    """Patches, whose pixels follow their row and column, and a mask without those that are padding."""
    import torch

    width = source.config.vision_config.patch_embed_hidden_size
    pixels = random_tensor(EXAMPLE_BATCH, EXAMPLE_SOURCE, width, dtype=source.model.dtype)
    # Rows and columns begin with 1; 0 is padding.
    numbers = torch.arange(1, EXAMPLE_SOURCE + 1).to(pixels.dtype)
    positions = torch.stack([numbers, numbers.flip(0)], dim=1).expand(EXAMPLE_BATCH, -1, -1)
    mask = example_text(source.config)["attention_mask"].to(pixels.dtype)
    return {PATCHES: torch.cat([positions, pixels], dim=2), "attention_mask": mask}


def _example_calls(
    source: TaskModel, inputs: Inputs, parts: _Parts | None = None, *, source_axis: str | None = None
) -> list[ExampleCall]:
    """The calls of the encoder and of both decoders.

    Args:
        source: the model.
        inputs: examples for the encoder.
        parts: how the model runs; by default with the arguments of encoder-decoders.
        source_axis: the name of the length of the encoder's input, if it is dynamic although the task
            declares a fixed one.
    """
    model = source.model
    tokens = example_tokens(source.config, EXAMPLE_SEQUENCE)
    # The trial only tells shapes, for which no mask is needed.
    unmasked = {name: item for name, item in inputs.items() if name != "attention_mask"}
    parts = parts or _Parts(_encode, _run_decoder)
    result, hidden = trial_run(model, {**unmasked, _DECODER_TOKENS: tokens}, use_cache=False, call=parts.run)
    self_pairs = pairs_of(result.past_key_values.self_attention_cache)
    cross_pairs = pairs_of(result.past_key_values.cross_attention_cache)
    past: Pairs = [
        (*pair, *cross_pair)
        for pair, cross_pair in zip(
            random_like(self_pairs, EXAMPLE_PAST, model.dtype),
            random_like(cross_pairs, hidden.shape[1], model.dtype),
            strict=True,
        )
    ]
    has_mask = parts.masks_source and "attention_mask" in inputs
    mask = {_ENCODER_MASK: inputs["attention_mask"]} if has_mask else {}
    states = random_tensor(*hidden.shape, dtype=model.dtype, seed=1)
    decode = functools.partial(_decode, parts=parts)
    decode_with_past = functools.partial(_decode_with_past, parts=parts, width=hidden.shape[-1])
    one_token = example_tokens(source.config, 1)
    calls = [
        ExampleCall(parts.encode, inputs),
        ExampleCall(
            decode,
            {"input_ids": tokens, **mask, "encoder_hidden_states": states},
            layers=len(past),
            # LED makes a mask for several tokens only.
            has_states=True,
        ),
        ExampleCall(decode_with_past, {"input_ids": one_token, **mask}, past, len(past)),
    ]
    if source_axis is None:
        return calls
    encoder_axes = {name: {0: BATCH, 1: source_axis} for name in inputs if name != "pixel_values"}
    axes: dict[str, Axes] = {name: {0: BATCH, 2: SOURCE} for name in CROSS_PAST}
    axes |= {"encoder_hidden_states": {0: BATCH, 1: SOURCE}, _ENCODER_MASK: {0: BATCH, 1: source_axis}}
    return [
        dataclasses.replace(calls[0], other_axes=encoder_axes),
        *(dataclasses.replace(call, other_axes=axes) for call in calls[1:]),
    ]


def _encode(model: PreTrainedModel, inputs: Inputs, past: Pairs) -> torch.Tensor:
    encoder: Any = model.get_encoder()
    result = encoder(**inputs)
    states: torch.Tensor = result.pooler_output if _ends_with_projector(encoder) else result.last_hidden_state
    return states


def _ends_with_projector(encoder: torch.nn.Module) -> bool:
    """Whether a decoder reads what the last module of an encoder of images makes of its states."""
    reads_texts = "inputs_embeds" in inspect.signature(type(encoder).forward).parameters
    return hasattr(encoder, "multi_modal_projector") and not reads_texts


def _decode(
    model: PreTrainedModel, inputs: Inputs, past: Pairs, *, parts: _Parts
) -> tuple[torch.Tensor, Pairs]:
    result = parts.decode(model, inputs, inputs["encoder_hidden_states"], None)
    cache = result.past_key_values
    pairs = zip(pairs_of(cache.self_attention_cache), pairs_of(cache.cross_attention_cache), strict=True)
    return result.logits, [(*self_pair, *cross_pair) for self_pair, cross_pair in pairs]


def _decode_with_past(
    model: PreTrainedModel, inputs: Inputs, past: Pairs, *, parts: _Parts, width: int
) -> tuple[torch.Tensor, Pairs]:
    """The results of a step after the first one.

    Args:
        parts: how the model runs.
        width: the size of the encoder's results.
    """
    from transformers import EncoderDecoderCache

    cache = EncoderDecoderCache(cache_of([pair[:2] for pair in past]), cache_of([pair[2:] for pair in past]))
    cross = past[0][2]
    # Only its shape is read, for the keys and values of cross-attention are in the cache.
    states = cross.new_zeros(cross.shape[0], cross.shape[2], 1).expand(-1, -1, width)
    result = parts.decode(model, inputs, states, cache)
    return result.logits, pairs_of(result.past_key_values.self_attention_cache)


def _run_decoder(
    model: PreTrainedModel, inputs: Inputs, states: torch.Tensor, cache: EncoderDecoderCache | None
) -> Any:
    from transformers.modeling_outputs import BaseModelOutput, BaseModelOutputWithPooling

    mask = {"attention_mask": inputs[_ENCODER_MASK]} if _ENCODER_MASK in inputs else {}
    encoded: Any = BaseModelOutput(last_hidden_state=states)
    if _ends_with_projector(model.get_encoder()):
        encoded = BaseModelOutputWithPooling(last_hidden_state=states, pooler_output=states)
    # The encoder of Moonshine returns the mask of its result: every so many samples become one state.
    # That of Switch Transformers returns what its routers computed, which the decoder passes on.
    encoded.attention_mask = encoded.router_logits = None
    convolutions = [getattr(model.get_encoder(), name, None) for name in ("conv1", "conv2", "conv3")]
    if mask and all(convolutions):
        stride = math.prod(convolution.stride[0] for convolution in convolutions if convolution is not None)
        encoded.attention_mask = mask["attention_mask"][:, ::stride][:, : states.shape[1]]
    return type(model).forward(
        model,
        encoder_outputs=encoded,
        decoder_input_ids=inputs["input_ids"],
        past_key_values=cache,
        use_cache=True,
        **mask,
    )


@dataclasses.dataclass(frozen=True)
class _Parts:
    """How an encoder-decoder runs.

    Attributes:
        encode: takes the model and the inputs of the encoder.
        decode: takes the model, the inputs of the decoder, the encoder's result and the cache.
        masks_source: whether the decoder reads the mask of the encoder's input.
    """

    encode: Callable[[PreTrainedModel, Inputs, Pairs], torch.Tensor]
    decode: Callable[[PreTrainedModel, Inputs, torch.Tensor, EncoderDecoderCache | None], Any]
    masks_source: bool = True

    def run(self, model: PreTrainedModel, **inputs: torch.Tensor) -> tuple[Any, torch.Tensor]:
        """The results of the decoder without a past, and of the encoder."""
        tokens = inputs.pop(_DECODER_TOKENS)
        states = self.encode(model, inputs, [])
        return self.decode(model, {"input_ids": tokens}, states, None), states


def _encode_image(model: PreTrainedModel, inputs: Inputs, past: Pairs) -> torch.Tensor:
    states: torch.Tensor = model.get_submodule("vision_model")(inputs["pixel_values"]).last_hidden_state
    return states


def _encode_question(model: PreTrainedModel, inputs: Inputs, past: Pairs) -> torch.Tensor:
    """The states of the question, whose tokens attend to the image."""
    states: torch.Tensor = model.get_submodule("text_encoder")(
        inputs["input_ids"],
        attention_mask=inputs.get("attention_mask"),
        encoder_hidden_states=_encode_image(model, inputs, past),
    ).last_hidden_state
    return states


def _run_text_decoder(
    model: PreTrainedModel, inputs: Inputs, states: torch.Tensor, cache: EncoderDecoderCache | None
) -> Any:
    decoder = model.get_submodule("text_decoder")
    return decoder(inputs["input_ids"], encoder_hidden_states=states, past_key_values=cache, use_cache=True)


def _encode_image_text(model: PreTrainedModel, inputs: Inputs, past: Pairs) -> torch.Tensor:
    """The states of texts, in which the features of images take the places of the image tokens."""
    tokens, config = inputs["input_ids"], model.config
    embeddings = model.get_input_embeddings()(tokens)
    features = encode_media(model, {"pixel_values": inputs["pixel_values"]}, past).to(embeddings.dtype)
    embeddings = embeddings.masked_scatter((tokens == config.image_token_id)[..., None], features)
    states: torch.Tensor = model.get_encoder()(
        inputs_embeds=embeddings, attention_mask=inputs.get("attention_mask")
    ).last_hidden_state
    return states


def _run_decoder_of_texts(
    model: PreTrainedModel, inputs: Inputs, states: torch.Tensor, cache: EncoderDecoderCache | None
) -> Any:
    """As `_run_decoder`, for models such as BLIP-2, too, of which an encoder-decoder of texts is a part."""
    is_whole = "encoder_outputs" in inspect.signature(type(model).forward).parameters
    decoder: Any = model if is_whole else model.get_submodule("language_model")
    return _run_decoder(decoder, inputs, states, cache)


_CAPTIONS_IMAGES, _ANSWERS_QUESTIONS = ("BlipForConditionalGeneration",), ("BlipForQuestionAnswering",)
"""Models whose decoder of text attends to images or to questions, which their configuration does not tell."""
_CAPTION_PARTS = _Parts(_encode_image, _run_text_decoder)
_IMAGE_TEXT_PARTS = _Parts(_encode_image_text, _run_decoder_of_texts)
# BLIP attends to the padding of questions, too.
_ANSWER_PARTS = _Parts(_encode_question, _run_text_decoder, masks_source=False)
