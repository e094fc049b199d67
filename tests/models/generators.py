"""Small models that generate, with random weights, as folders of transformers."""

from __future__ import annotations

import pathlib
from typing import Any

import torch
import transformers

from .recurrences import FAMILIES
from .zoo import spread

VOCABULARY = 100
_SPECIAL: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
}
_DECODER: dict[str, Any] = {
    **_SIZES,
    **_SPECIAL,
    "intermediate_size": 64,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
_GEMMA = {**_DECODER, "head_dim": 8, "sliding_window": 6}
_SEQUENCES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    **_SPECIAL,
    "decoder_start_token_id": 1,
}


def whisper_config(**others: Any) -> transformers.WhisperConfig:
    """The configuration of a Whisper that reads 1 second."""
    given = {"suppress_tokens": [5, 7], "begin_suppress_tokens": [9], **others}
    return transformers.WhisperConfig(
        **_SEQUENCES, max_source_positions=50, max_target_positions=40, num_mel_bins=20, **given
    )


GENERATORS: dict[str, tuple[str, Any]] = {
    "llama": ("LlamaForCausalLM", lambda: transformers.LlamaConfig(**_DECODER)),
    "qwen2": ("Qwen2ForCausalLM", lambda: transformers.Qwen2Config(**_DECODER)),
    "qwen3": ("Qwen3ForCausalLM", lambda: transformers.Qwen3Config(**_DECODER, head_dim=8)),
    "mistral": ("MistralForCausalLM", lambda: transformers.MistralConfig(**_DECODER, sliding_window=6)),
    "gemma2": ("Gemma2ForCausalLM", lambda: transformers.Gemma2Config(**_GEMMA)),
    "gemma3": (
        "Gemma3ForCausalLM",
        lambda: transformers.Gemma3TextConfig(
            **_GEMMA, layer_types=["sliding_attention", "full_attention"], tie_word_embeddings=True
        ),
    ),
    "phi3": ("Phi3ForCausalLM", lambda: transformers.Phi3Config(**_DECODER)),
    "gpt2": (
        "GPT2LMHeadModel",
        lambda: transformers.GPT2Config(
            vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=64, **_SPECIAL
        ),
    ),
    "opt": (
        "OPTForCausalLM",
        lambda: transformers.OPTConfig(
            **_SIZES, **_SPECIAL, ffn_dim=64, max_position_embeddings=64, word_embed_proj_dim=32
        ),
    ),
    "falcon": ("FalconForCausalLM", lambda: transformers.FalconConfig(**_SIZES, **_SPECIAL)),
    "mixtral": ("MixtralForCausalLM", lambda: transformers.MixtralConfig(**_DECODER, num_local_experts=4)),
    "gpt-oss": (
        "GptOssForCausalLM",
        lambda: transformers.GptOssConfig(
            **_DECODER,
            num_local_experts=4,
            num_experts_per_tok=2,
            head_dim=8,
            sliding_window=6,
            layer_types=["sliding_attention", "full_attention"],
        ),
    ),
    "t5": (
        "T5ForConditionalGeneration",
        lambda: transformers.T5Config(
            vocab_size=VOCABULARY,
            d_model=32,
            d_kv=8,
            num_layers=2,
            num_heads=4,
            d_ff=64,
            decoder_start_token_id=0,
            pad_token_id=0,
            eos_token_id=1,
        ),
    ),
    "bart": (
        "BartForConditionalGeneration",
        lambda: transformers.BartConfig(**_SEQUENCES, max_position_embeddings=64, forced_eos_token_id=None),
    ),
    "whisper": ("WhisperForConditionalGeneration", whisper_config),
    # Caches with states: of convolutions, of linear attention, of state spaces, and of a model's own class.
    "lfm2": (
        "Lfm2ForCausalLM",
        lambda: transformers.Lfm2Config(
            **_DECODER, layer_types=["conv", "full_attention"], tie_word_embeddings=False
        ),
    ),
    "qwen3_5": ("Qwen3_5ForCausalLM", lambda: _recurrent("qwen3_5")),
    "mamba": ("MambaForCausalLM", lambda: _recurrent("mamba")),
    "mamba2": (
        "Mamba2ForCausalLM",
        lambda: transformers.Mamba2Config(
            vocab_size=VOCABULARY,
            hidden_size=32,
            num_hidden_layers=2,
            state_size=8,
            num_heads=4,
            head_dim=16,
            n_groups=1,
            chunk_size=16,
            tie_word_embeddings=False,
            **_SPECIAL,
        ),
    ),
    "jamba": ("JambaForCausalLM", lambda: _recurrent("jamba")),
    "minimax": ("MiniMaxForCausalLM", lambda: _recurrent("minimax")),
    # States that modules keep as attributes.
    "recurrent_gemma": (
        "RecurrentGemmaForCausalLM",
        lambda: transformers.RecurrentGemmaConfig(
            **{**_DECODER, "num_key_value_heads": 1},
            head_dim=8,
            lru_width=32,
            attention_window_size=6,
            block_types=["recurrent", "attention"],
        ),
    ),
    "xlstm": (
        "xLSTMForCausalLM",
        # The cache rounds the sizes of keys and values up to 64.
        lambda: transformers.xLSTMConfig(
            vocab_size=VOCABULARY, hidden_size=128, num_hidden_layers=2, num_heads=2, **_SPECIAL
        ),
    ),
}
"""Classes and configurations by name."""


def _recurrent(name: str) -> Any:
    """The configuration of a recurrent model with the vocabulary of the others."""
    config = FAMILIES[name][1]()
    config.update({"vocab_size": VOCABULARY, "tie_word_embeddings": False, **_SPECIAL})
    if name == "minimax":
        # transformers 5.23 reads the length of the cache from its first layer.
        config.layer_types = ["full_attention", "linear_attention"]
    return config


def write_folder(architecture: str, config: Any, folder: pathlib.Path, **options: Any) -> torch.nn.Module:
    """Write a model with random weights, and return it."""
    torch.manual_seed(0)
    model = spread(getattr(transformers, architecture)(config).eval())
    model.tie_weights()
    model.save_pretrained(folder, **options)
    return model


def write_generator(name: str, folder: pathlib.Path) -> torch.nn.Module:
    """Write one of `GENERATORS`, and return it."""
    architecture, config = GENERATORS[name]
    return write_folder(architecture, config(), folder)
