"""Encoder-decoder models: an encoder, a decoder for the first step, and one for the steps after it.

The first decoder computes the keys and values of cross-attention from the encoder's result; the other one
takes them as inputs.
"""

from __future__ import annotations

import functools
from typing import Any

from ...registration import UsageError
from .decoders import cache_of, pairs_of
from .graphs import (
    BATCH,
    EXAMPLE_BATCH,
    EXAMPLE_PAST,
    EXAMPLE_SEQUENCE,
    EXAMPLE_SOURCE,
    PAST,
    SEQUENCE,
    SOURCE,
    Graph,
    cache_names,
    example_tokens,
    random_like,
    trial_run,
)

_KINDS = ("decoder.", "encoder.")


def text_to_text(model: Any, config: Any) -> list[Graph]:
    """The graphs of a model from text to text."""
    import torch

    mask = torch.ones(EXAMPLE_BATCH, EXAMPLE_SOURCE, dtype=torch.int64)
    mask[0, -2:] = 0
    inputs = {"input_ids": example_tokens(config, EXAMPLE_SOURCE), "attention_mask": mask}
    by_token = {0: BATCH, 1: SOURCE}
    return _graphs(model, config, inputs, dict.fromkeys(inputs, by_token))


def speech_recognition(model: Any, config: Any) -> list[Graph]:
    """The graphs of a model from spectrograms to text, such as Whisper.

    The length of a spectrogram is fixed, as the model has one position for each of its frames.

    Raises:
        UsageError: the model reads samples, or has other layers before its encoder.
    """
    import torch

    encoder = model.get_encoder()
    reads_spectrograms = model.main_input_name == "input_features" and hasattr(config, "max_source_positions")
    if not (reads_spectrograms and hasattr(encoder, "conv1") and hasattr(encoder, "conv2")):
        raise UsageError(
            "automatic-speech-recognition is for models with two convolutions before the encoder, such as "
            f"Whisper, not for {type(model).__name__}: export it with opsetta.export"
        )
    length = config.max_source_positions * _steps(model)
    features = torch.randn(
        EXAMPLE_BATCH, config.num_mel_bins, length, generator=torch.Generator().manual_seed(0)
    ).to(model.dtype)
    return _graphs(model, config, {"input_features": features}, {"input_features": {0: BATCH}})


def _steps(model: Any) -> int:
    """The frames of a spectrogram for each position of the encoder."""
    encoder = model.get_encoder()
    return int(encoder.conv1.stride[0] * encoder.conv2.stride[0])


def _graphs(model: Any, config: Any, inputs: dict[str, Any], shapes: dict[str, Any]) -> list[Graph]:
    import torch

    tokens = example_tokens(config, EXAMPLE_SEQUENCE)
    first = {name: item for name, item in inputs.items() if name != "attention_mask"}
    result = trial_run(model, {**first, "decoder_input_ids": tokens})
    self_pairs = pairs_of(result.past_key_values.self_attention_cache)
    cross = pairs_of(result.past_key_values.cross_attention_cache)
    hidden = result.encoder_last_hidden_state
    generator = torch.Generator().manual_seed(1)
    states = torch.randn(*hidden.shape, generator=generator).to(model.dtype)
    mask = {"encoder_attention_mask": inputs["attention_mask"]} if "attention_mask" in inputs else {}
    of_source = {0: BATCH, 1: SOURCE} if mask else {0: BATCH}
    of_cross = {0: BATCH, 2: SOURCE} if mask else {0: BATCH}
    mask_shape = dict.fromkeys(mask, of_source)
    present = cache_names("present", len(self_pairs), _KINDS)
    past = [
        (*pair, *cross_pair)
        for pair, cross_pair in zip(
            random_like(self_pairs, EXAMPLE_PAST, model.dtype),
            random_like(cross, hidden.shape[1], model.dtype),
            strict=True,
        )
    ]
    of_self = {0: BATCH, 2: PAST}
    return [
        Graph("encoder_model.onnx", _encode, inputs, shapes, [*inputs], ["last_hidden_state"]),
        Graph(
            "decoder_model.onnx",
            _decode,
            {"input_ids": tokens, **mask, "encoder_hidden_states": states},
            {"input_ids": {0: BATCH, 1: SEQUENCE}, **mask_shape, "encoder_hidden_states": of_source},
            ["input_ids", *mask, "encoder_hidden_states"],
            ["logits", *present],
        ),
        Graph(
            "decoder_with_past_model.onnx",
            functools.partial(_decode_with_past, width=hidden.shape[-1]),
            {"input_ids": example_tokens(config, 1), **mask, "past_key_values": past},
            {
                "input_ids": {0: BATCH},
                **mask_shape,
                "past_key_values": [(of_self, of_self, of_cross, of_cross)] * len(self_pairs),
            },
            ["input_ids", *mask, *cache_names("past_key_values", len(self_pairs), _KINDS)],
            ["logits", *cache_names("present", len(self_pairs), _KINDS[:1])],
        ),
    ]


def _encode(model: Any, inputs: dict[str, Any]) -> Any:
    return model.get_encoder()(**inputs).last_hidden_state


def _decode(model: Any, inputs: dict[str, Any]) -> Any:
    result = _run_decoder(model, inputs, inputs["encoder_hidden_states"], None)
    cache = result.past_key_values
    pairs = zip(pairs_of(cache.self_attention_cache), pairs_of(cache.cross_attention_cache), strict=True)
    return result.logits, [(*self_pair, *cross) for self_pair, cross in pairs]


def _decode_with_past(model: Any, inputs: dict[str, Any], *, width: int) -> Any:
    """The results of a step after the first one.

    Args:
        width: the size of the encoder's results.
    """
    from transformers import EncoderDecoderCache

    past = inputs["past_key_values"]
    cache = EncoderDecoderCache(cache_of([pair[:2] for pair in past]), cache_of([pair[2:] for pair in past]))
    cross = past[0][2]
    # Only its shape is read, for the keys and values of cross-attention are in the cache.
    states = cross.new_zeros(cross.shape[0], cross.shape[2], 1).expand(-1, -1, width)
    result = _run_decoder(model, inputs, states, cache)
    return result.logits, pairs_of(result.past_key_values.self_attention_cache)


def _run_decoder(model: Any, inputs: dict[str, Any], states: Any, cache: Any) -> Any:
    mask = {"attention_mask": inputs["encoder_attention_mask"]} if "encoder_attention_mask" in inputs else {}
    return type(model).forward(
        model,
        encoder_outputs=(states,),
        decoder_input_ids=inputs["input_ids"],
        past_key_values=cache,
        use_cache=True,
        **mask,
    )
