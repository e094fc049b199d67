"""Well-known models at their real widths and depths, with random weights, and the inputs of a call.

Llama, Qwen2 and Mistral have the widths of models with about 1 billion parameters, and 12 layers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
import transformers as hf

LENGTH = 32
"""Tokens of a text."""
BATCH = 2
_DECODER = {
    "num_hidden_layers": 12,
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_attention_heads": 16,
}


@dataclasses.dataclass(frozen=True)
class RealModel:
    """A model and the example call for an export.

    Attributes:
        build: makes the model, in eval mode.
        inputs: makes the keyword arguments of a call.
        dynamic_shapes: the batch, and the sequence where there is one.
    """

    name: str
    build: Callable[[], torch.nn.Module]
    inputs: Callable[[], dict[str, torch.Tensor]]
    dynamic_shapes: dict[str, dict[int, str]]


def _pixels() -> dict[str, torch.Tensor]:
    return {"pixel_values": torch.randn(BATCH, 3, 224, 224)}


def _text() -> dict[str, torch.Tensor]:
    tokens = torch.randint(3, 1000, (BATCH, LENGTH))
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}


def _two_texts() -> dict[str, torch.Tensor]:
    return {**_text(), "decoder_input_ids": torch.randint(3, 1000, (BATCH, 8))}


def _text_and_pixels() -> dict[str, torch.Tensor]:
    return {**_text(), **_pixels()}


def _audio() -> dict[str, torch.Tensor]:
    return {
        "input_features": torch.randn(BATCH, 80, 3000),
        "decoder_input_ids": torch.randint(3, 1000, (BATCH, 8)),
    }


_IMAGE = {"pixel_values": {0: "batch"}}
_TEXT = {name: {0: "batch", 1: "sequence"} for name in ("input_ids", "attention_mask")}
_TARGET = {"decoder_input_ids": {0: "batch", 1: "target"}}


def _whisper_config() -> hf.WhisperConfig:
    return hf.WhisperConfig(
        d_model=384,
        encoder_layers=4,
        decoder_layers=4,
        encoder_attention_heads=6,
        decoder_attention_heads=6,
        encoder_ffn_dim=1536,
        decoder_ffn_dim=1536,
    )


def _model(name: str, model: str, config: Callable[[], Any], inputs: Any, shapes: dict) -> RealModel:
    def build() -> torch.nn.Module:
        torch.manual_seed(0)
        made: torch.nn.Module = getattr(hf, model)(config())
        return made.eval()

    return RealModel(name, build, inputs, shapes)


def _image(name: str, model: str, config: Callable[[], Any]) -> RealModel:
    return _model(name, model, config, _pixels, _IMAGE)


def _words(name: str, model: str, config: Callable[[], Any]) -> RealModel:
    return _model(name, model, config, _text, _TEXT)


MODELS = (
    _image("ResNet-50", "ResNetForImageClassification", hf.ResNetConfig),
    _image("MobileNetV2", "MobileNetV2ForImageClassification", hf.MobileNetV2Config),
    _image("ConvNeXt-T", "ConvNextForImageClassification", hf.ConvNextConfig),
    _image("ViT-B/16", "ViTForImageClassification", hf.ViTConfig),
    _image("Swin-T", "SwinForImageClassification", hf.SwinConfig),
    _image("SegFormer-B0", "SegformerForSemanticSegmentation", hf.SegformerConfig),
    _words("BERT-base", "BertForSequenceClassification", hf.BertConfig),
    _words("DistilBERT", "DistilBertForSequenceClassification", hf.DistilBertConfig),
    _words("RoBERTa-base", "RobertaForSequenceClassification", hf.RobertaConfig),
    _words("GPT-2", "GPT2LMHeadModel", hf.GPT2Config),
    _words("Llama", "LlamaForCausalLM", lambda: hf.LlamaConfig(num_key_value_heads=4, **_DECODER)),
    _words("Qwen2", "Qwen2ForCausalLM", lambda: hf.Qwen2Config(num_key_value_heads=4, **_DECODER)),
    _words("Mistral", "MistralForCausalLM", lambda: hf.MistralConfig(num_key_value_heads=4, **_DECODER)),
    _model(
        "T5-small",
        "T5ForConditionalGeneration",
        lambda: hf.T5Config(decoder_start_token_id=0),
        _two_texts,
        {**_TEXT, **_TARGET},
    ),
    _model("CLIP-B/32", "CLIPModel", hf.CLIPConfig, _text_and_pixels, {**_TEXT, **_IMAGE}),
    _model(
        "Whisper-tiny",
        "WhisperForConditionalGeneration",
        _whisper_config,
        _audio,
        {"input_features": {0: "batch"}, **_TARGET},
    ),
)
BY_NAME = {model.name: model for model in MODELS}
