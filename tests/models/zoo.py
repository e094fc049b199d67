"""Real architectures from their transformers configs: random weights, small widths.

Stacks of equal layers have two of them in quick runs, and their real number in full runs. ResNet-50,
MobileNetV2, ConvNeXt and DistilBERT always have their real depth.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers

from ..opsets import HIGHEST, OPSETS, is_full_run
from ..trained_weights import spread_statistics

Inputs = dict[str, Any]
VOCABULARY = 100
EXPERT_OPSETS = (9, 11, 13, HIGHEST)


@dataclasses.dataclass(frozen=True)
class Architecture:
    """One model and the calls it takes.

    Attributes:
        build: makes the model, in eval mode.
        inputs: keyword arguments for a batch size and a sequence length.
        dynamic_shapes: which dimensions vary, for the dynamic test.
        opsets: where it is tested: all from 9 on, unless its graph changes at fewer.
        forms: whether its dynamic form is tested, and its static one.
        sizes: batch sizes and sequence lengths that the dynamic form is run with, beside the example's.
    """

    name: str
    build: Callable[[], torch.nn.Module]
    inputs: Callable[[int, int], Inputs]
    dynamic_shapes: dict[str, Any]
    opsets: tuple[int, ...] = tuple(range(9, HIGHEST + 1))
    forms: tuple[bool, ...] = (False, True)
    sizes: tuple[tuple[int, int], ...] = ((3, 5), (1, 1))


def _layers(count: int) -> int:
    """The number of equal layers in a stack that really has so many."""
    return count if is_full_run() else min(count, 2)


def _pixels(batch: int, length: int) -> Inputs:
    return {"pixel_values": torch.randn(batch, 3, 64, 64)}


def _tokens(batch: int, length: int) -> torch.Tensor:
    return torch.randint(3, VOCABULARY, (batch, length))


def _text(batch: int, length: int) -> Inputs:
    mask = torch.ones(batch, length, dtype=torch.int64)
    if batch > 1 and length > 2:
        mask[0, -2:] = 0
    return {"input_ids": _tokens(batch, length), "attention_mask": mask}


def _sequence_to_sequence(batch: int, length: int) -> Inputs:
    return {**_text(batch, length), "decoder_input_ids": _tokens(batch, length + 1)}


def _clip_inputs(batch: int, length: int) -> Inputs:
    return {**_text(batch, length), **_pixels(batch, length)}


def _audio(batch: int, length: int) -> Inputs:
    return {"input_features": torch.randn(batch, 20, 100), "decoder_input_ids": _tokens(batch, length)}


_IMAGE_SHAPES = {"pixel_values": {0: "batch"}}
_TEXT_SHAPES = {"input_ids": {0: "batch", 1: "sequence"}, "attention_mask": {0: "batch", 1: "sequence"}}
_TEXT = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64}
_DECODER = {**_TEXT, "num_key_value_heads": 2, "max_position_embeddings": 64, "pad_token_id": 0}
_VISION = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64, "image_size": 64}


def _make(model: str, config: Any) -> Callable[[], torch.nn.Module]:
    def build() -> torch.nn.Module:
        torch.manual_seed(0)
        return spread(getattr(transformers, model)(config()).eval())

    return build


@torch.no_grad()
def spread(model: torch.nn.Module) -> torch.nn.Module:
    """Random weights that keep activations near one: errors would drown in the configs' own tiny outputs."""
    for parameter in model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.xavier_normal_(parameter)
        else:
            parameter.add_(0.1 * torch.randn_like(parameter))
    spread_statistics(model)
    return model


def _clip_config() -> transformers.CLIPConfig:
    depth = {"num_hidden_layers": _layers(12)}
    text = {**_TEXT, **depth, "eos_token_id": 1, "bos_token_id": 2, "pad_token_id": 0}
    return transformers.CLIPConfig(text_config=text, vision_config={**_VISION, **depth}, projection_dim=16)


def _whisper_config() -> transformers.WhisperConfig:
    return transformers.WhisperConfig(
        vocab_size=VOCABULARY,
        d_model=32,
        encoder_layers=_layers(4),
        decoder_layers=_layers(4),
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_source_positions=50,
        max_target_positions=40,
        num_mel_bins=20,
        decoder_start_token_id=1,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )


def gpt2_config() -> transformers.GPT2Config:
    return transformers.GPT2Config(
        vocab_size=VOCABULARY,
        n_embd=32,
        n_layer=_layers(12),
        n_head=4,
        n_positions=64,
        bos_token_id=1,
        eos_token_id=2,
    )


def llama_config() -> transformers.LlamaConfig:
    return transformers.LlamaConfig(num_hidden_layers=_layers(16), **_DECODER)


def qwen2_config() -> transformers.Qwen2Config:
    return transformers.Qwen2Config(num_hidden_layers=_layers(24), **_DECODER)


def mistral_config() -> transformers.MistralConfig:
    return transformers.MistralConfig(num_hidden_layers=_layers(32), **_DECODER)


def mixtral_config() -> transformers.MixtralConfig:
    return transformers.MixtralConfig(num_hidden_layers=1, num_local_experts=4, **_DECODER)


def qwen3_moe_config() -> transformers.Qwen3MoeConfig:
    return transformers.Qwen3MoeConfig(
        num_hidden_layers=1,
        num_experts=12,
        num_experts_per_tok=3,
        moe_intermediate_size=16,
        head_dim=8,
        **_DECODER,
    )


def deepseek_v3_config() -> transformers.DeepseekV3Config:
    return transformers.DeepseekV3Config(
        num_hidden_layers=2,
        first_k_dense_replace=1,
        n_routed_experts=12,
        n_group=4,
        topk_group=2,
        num_experts_per_tok=3,
        moe_intermediate_size=16,
        q_lora_rank=16,
        kv_lora_rank=16,
        qk_rope_head_dim=4,
        qk_nope_head_dim=8,
        v_head_dim=8,
        **{**_DECODER, "num_key_value_heads": 4},
    )


def jamba_config() -> transformers.JambaConfig:
    """A Mamba layer, and one of attention and experts."""
    return transformers.JambaConfig(
        num_hidden_layers=2,
        num_experts=4,
        attn_layer_period=2,
        attn_layer_offset=1,
        mamba_d_state=4,
        mamba_dt_rank=4,
        **_DECODER,
    )


def gpt_oss_config() -> transformers.GptOssConfig:
    return transformers.GptOssConfig(
        num_hidden_layers=2,
        num_local_experts=4,
        num_experts_per_tok=2,
        head_dim=8,
        sliding_window=16,
        layer_types=["sliding_attention", "full_attention"],
        **_DECODER,
    )


def t5_config() -> transformers.T5Config:
    return transformers.T5Config(
        vocab_size=VOCABULARY,
        d_model=32,
        d_kv=8,
        num_layers=_layers(6),
        num_heads=4,
        d_ff=64,
        decoder_start_token_id=0,
    )


def _cnn(name: str, model: str, config: Callable[[], Any]) -> Architecture:
    return Architecture(name, _make(model, config), _pixels, _IMAGE_SHAPES, opsets=tuple(OPSETS))


def _experts(name: str, model: str, config: Callable[[], Any], is_sequence_free: bool = True) -> Architecture:
    """A mixture of experts, at the opsets where its graph changes."""
    shapes = _TEXT_SHAPES if is_sequence_free else {name: {0: "batch"} for name in _TEXT_SHAPES}
    sizes = ((3, 5), (1, 1)) if is_sequence_free else ((3, 7), (1, 7))
    return Architecture(name, _make(model, config), _text, shapes, EXPERT_OPSETS, (True,), sizes)


def _image(name: str, model: str, config: Callable[[], Any]) -> Architecture:
    return Architecture(name, _make(model, config), _pixels, _IMAGE_SHAPES)


def _encoder(name: str, model: str, config: Callable[[], Any]) -> Architecture:
    return Architecture(name, _make(model, config), _text, _TEXT_SHAPES)


ARCHITECTURES = (
    _cnn(
        "resnet50",
        "ResNetForImageClassification",
        lambda: transformers.ResNetConfig(embedding_size=16, hidden_sizes=[16, 24, 32, 40]),
    ),
    _cnn(
        "mobilenetv2",
        "MobileNetV2ForImageClassification",
        lambda: transformers.MobileNetV2Config(image_size=64),
    ),
    _cnn(
        "convnext",
        "ConvNextForImageClassification",
        lambda: transformers.ConvNextConfig(hidden_sizes=[16, 24, 32, 40]),
    ),
    _image(
        "vit",
        "ViTForImageClassification",
        lambda: transformers.ViTConfig(num_hidden_layers=_layers(12), **_VISION),
    ),
    _image(
        "swin",
        "SwinForImageClassification",
        lambda: transformers.SwinConfig(
            embed_dim=16,
            depths=[2, 2, _layers(6), 2],
            num_heads=[1, 2, 4, 8],
            image_size=64,
            window_size=4,
            patch_size=2,
        ),
    ),
    _image(
        "segformer",
        "SegformerForSemanticSegmentation",
        lambda: transformers.SegformerConfig(hidden_sizes=[16, 32, 40, 48], decoder_hidden_size=32),
    ),
    _encoder(
        "bert",
        "BertForSequenceClassification",
        lambda: transformers.BertConfig(num_hidden_layers=_layers(12), **_TEXT),
    ),
    _encoder(
        "distilbert",
        "DistilBertForSequenceClassification",
        lambda: transformers.DistilBertConfig(vocab_size=VOCABULARY, dim=32, n_heads=4, hidden_dim=64),
    ),
    _encoder(
        "roberta",
        "RobertaForSequenceClassification",
        lambda: transformers.RobertaConfig(num_hidden_layers=_layers(12), **_TEXT),
    ),
    _encoder("gpt2", "GPT2LMHeadModel", gpt2_config),
    _encoder("llama", "LlamaForCausalLM", llama_config),
    _encoder("qwen2", "Qwen2ForCausalLM", qwen2_config),
    _encoder("mistral", "MistralForCausalLM", mistral_config),
    _experts("mixtral", "MixtralForCausalLM", mixtral_config),
    _experts("qwen3-moe", "Qwen3MoeForCausalLM", qwen3_moe_config),
    _experts("deepseek-v3", "DeepseekV3ForCausalLM", deepseek_v3_config),
    # Its Mamba layers go over the sequence step by step in Python.
    _experts("jamba", "JambaForCausalLM", jamba_config, is_sequence_free=False),
    _experts("gpt-oss", "GptOssForCausalLM", gpt_oss_config),
    Architecture(
        "t5",
        _make("T5ForConditionalGeneration", t5_config),
        _sequence_to_sequence,
        {**_TEXT_SHAPES, "decoder_input_ids": {0: "batch", 1: "target"}},
    ),
    Architecture("clip", _make("CLIPModel", _clip_config), _clip_inputs, {**_TEXT_SHAPES, **_IMAGE_SHAPES}),
    Architecture(
        "whisper",
        _make("WhisperForConditionalGeneration", _whisper_config),
        _audio,
        {"input_features": {0: "batch"}, "decoder_input_ids": {0: "batch", 1: "target"}},
    ),
)
BY_NAME = {architecture.name: architecture for architecture in ARCHITECTURES}


def cases(is_quick: Callable[[str, bool], bool]) -> list:
    """Every architecture as a test case, with dynamic sizes and static ones.

    Args:
        is_quick: whether quick runs have a case, by its name and whether its sizes are dynamic.
    """
    return [
        pytest.param(
            architecture.name,
            dynamic,
            id=f"{architecture.name}-{'dynamic' if dynamic else 'static'}",
            marks=[] if is_quick(architecture.name, dynamic) else [pytest.mark.sweep],
        )
        for architecture in ARCHITECTURES
        for dynamic in architecture.forms
    ]


@dataclasses.dataclass(frozen=True)
class Decoder:
    """A model that generates one token from a key/value cache.

    Attributes:
        inputs: keyword arguments for a batch size and the number of positions in the cache.
    """

    name: str
    build: Callable[[], torch.nn.Module]
    inputs: Callable[[torch.nn.Module, int, int], Inputs]
    dynamic_shapes: Callable[[Inputs], dict[str, Any]]
    opsets: tuple[int, ...] = (11, 13, 17, 21)


def _decoder_inputs(model: torch.nn.Module, batch: int, past: int) -> Inputs:
    with torch.no_grad():
        prompt = model(input_ids=_tokens(batch, past), use_cache=True)
    return {
        "input_ids": _tokens(batch, 1),
        "attention_mask": torch.ones(batch, past + 1, dtype=torch.int64),
        "past_key_values": prompt.past_key_values,
    }


def _cache_shapes(cache: Any, past: str) -> Any:
    """Keys and values; and the states of layers that have such in their place."""
    states = sum(hasattr(layer, "conv_states") for layer in cache.layers)
    attention = [{0: "batch", 2: past}] * (len(cache.layers) - states)
    return [attention, attention] + ([[{0: "batch"}] * states] * 2 if states else [])


def _decoder_shapes(inputs: Inputs) -> dict[str, Any]:
    return {
        "input_ids": {0: "batch"},
        "attention_mask": {0: "batch", 1: "total"},
        "past_key_values": _cache_shapes(inputs["past_key_values"], "past"),
    }


def _seq2seq_inputs(model: torch.nn.Module, batch: int, past: int) -> Inputs:
    source = 6
    with torch.no_grad():
        if isinstance(model, transformers.WhisperForConditionalGeneration):
            first = {"input_features": torch.randn(batch, 20, 100)}
        else:
            first = {"input_ids": _tokens(batch, source)}
        prompt = model(**first, decoder_input_ids=_tokens(batch, past), use_cache=True)
    return {
        "encoder_outputs": (prompt.encoder_last_hidden_state,),
        "decoder_input_ids": _tokens(batch, 1),
        "past_key_values": prompt.past_key_values,
    }


def _seq2seq_shapes(inputs: Inputs) -> dict[str, Any]:
    cache = inputs["past_key_values"]
    source = {0: "batch"} if inputs["encoder_outputs"][0].shape[1] == 50 else {0: "batch", 1: "source"}
    cross = {0: "batch"} if 1 not in source else {0: "batch", 2: "source"}
    layers = len(cache.self_attention_cache.layers)
    return {
        "encoder_outputs": (source,),
        "decoder_input_ids": {0: "batch"},
        "past_key_values": [
            _cache_shapes(cache.self_attention_cache, "past"),
            [[cross] * layers, [cross] * layers],
        ],
    }


DECODERS = (
    Decoder("gpt2", BY_NAME["gpt2"].build, _decoder_inputs, _decoder_shapes),
    Decoder("llama", BY_NAME["llama"].build, _decoder_inputs, _decoder_shapes),
    Decoder("qwen2", BY_NAME["qwen2"].build, _decoder_inputs, _decoder_shapes),
    Decoder("mistral", BY_NAME["mistral"].build, _decoder_inputs, _decoder_shapes),
    *(
        Decoder(name, BY_NAME[name].build, _decoder_inputs, _decoder_shapes, EXPERT_OPSETS)
        for name in ("mixtral", "qwen3-moe", "deepseek-v3", "jamba", "gpt-oss")
    ),
    Decoder("t5", BY_NAME["t5"].build, _seq2seq_inputs, _seq2seq_shapes),
    Decoder("whisper", BY_NAME["whisper"].build, _seq2seq_inputs, _seq2seq_shapes),
)
