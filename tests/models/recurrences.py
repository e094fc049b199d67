"""Small language models of transformers with linear attention, state spaces or other recurrences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import Tensor, nn

_SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
}
_LINEAR_HEADS: dict[str, Any] = {
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_num_value_heads": 4,
    "layer_types": ["linear_attention", "full_attention"],
}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
_STATE_SPACE = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "state_size": 4,
    "time_step_rank": 4,
}
_MAMBA2: dict[str, Any] = {
    "mamba_n_heads": 8,
    "mamba_n_groups": 2,
    "mamba_d_state": 8,
    "mamba_d_head": 8,
    "mamba_chunk_size": 16,
}
FAMILIES: dict[str, tuple[str, Callable[[], Any]]] = {
    "qwen3_next": (
        "Qwen3NextForCausalLM",
        lambda: transformers.Qwen3NextConfig(
            **_SIZES,
            **_LINEAR_HEADS,
            **_EXPERTS,
            head_dim=8,
            linear_num_key_heads=2,
            shared_expert_intermediate_size=16,
        ),
    ),
    "qwen3_5": (
        "Qwen3_5ForCausalLM",
        lambda: transformers.Qwen3_5TextConfig(**_SIZES, **_LINEAR_HEADS, head_dim=8, linear_num_key_heads=2),
    ),
    "olmo_hybrid": (
        "OlmoHybridForCausalLM",
        lambda: transformers.OlmoHybridConfig(
            **_SIZES, **_LINEAR_HEADS, linear_num_key_heads=4, pad_token_id=0
        ),
    ),
    "kimi_linear": (
        "KimiLinearForCausalLM",
        lambda: transformers.KimiLinearConfig(
            **{**_SIZES, "num_key_value_heads": 4},
            layer_types=["linear_attention", "full_attention"],
            linear_head_dim=8,
            linear_num_heads=4,
            kv_lora_rank=16,
            qk_rope_head_dim=8,
            qk_nope_head_dim=8,
            v_head_dim=8,
            num_experts=4,
            num_experts_per_token=2,
            moe_intermediate_size=16,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
        ),
    ),
    "minimax": (
        "MiniMaxForCausalLM",
        lambda: transformers.MiniMaxConfig(
            **_SIZES,
            head_dim=8,
            num_local_experts=2,
            num_experts_per_tok=1,
            block_size=16,
            layer_types=["linear_attention", "full_attention"],
        ),
    ),
    "mamba": ("MambaForCausalLM", lambda: transformers.MambaConfig(**_STATE_SPACE)),
    "falcon_mamba": ("FalconMambaForCausalLM", lambda: transformers.FalconMambaConfig(**_STATE_SPACE)),
    "jamba": (
        "JambaForCausalLM",
        lambda: transformers.JambaConfig(
            **_SIZES,
            num_experts=4,
            mamba_d_state=4,
            mamba_dt_rank=4,
            attn_layer_period=2,
            attn_layer_offset=1,
            expert_layer_period=2,
            expert_layer_offset=1,
            use_mamba_kernels=False,
        ),
    ),
    "recurrent_gemma": (
        "RecurrentGemmaForCausalLM",
        lambda: transformers.RecurrentGemmaConfig(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            block_types=["recurrent", "attention"],
            num_attention_heads=4,
            num_key_value_heads=1,
            head_dim=8,
            lru_width=32,
            attention_window_size=64,
        ),
    ),
    "rwkv": (
        "RwkvForCausalLM",
        lambda: transformers.RwkvConfig(
            vocab_size=64, hidden_size=32, num_hidden_layers=2, context_length=2048
        ),
    ),
    "xlstm": (
        "xLSTMForCausalLM",
        lambda: transformers.xLSTMConfig(
            vocab_size=64, hidden_size=32, num_hidden_layers=2, num_heads=2, embedding_dim=32
        ),
    ),
    "qwen3_5_moe": (
        "Qwen3_5MoeForCausalLM",
        lambda: transformers.Qwen3_5MoeTextConfig(
            **_SIZES,
            **_LINEAR_HEADS,
            **_EXPERTS,
            head_dim=8,
            linear_num_key_heads=2,
            shared_expert_intermediate_size=16,
        ),
    ),
    "mamba2": (
        "Mamba2ForCausalLM",
        lambda: transformers.Mamba2Config(
            vocab_size=64,
            hidden_size=32,
            num_hidden_layers=2,
            num_heads=8,
            head_dim=8,
            state_size=8,
            n_groups=2,
            chunk_size=16,
        ),
    ),
    "bamba": (
        "BambaForCausalLM",
        lambda: transformers.BambaConfig(**_SIZES, **_MAMBA2, attn_layer_indices=[1]),
    ),
    "granite_hybrid": (
        "GraniteMoeHybridForCausalLM",
        lambda: transformers.GraniteMoeHybridConfig(
            **_SIZES,
            **_MAMBA2,
            num_local_experts=4,
            shared_intermediate_size=16,
            layer_types=["mamba", "attention"],
        ),
    ),
    "falcon_h1": (
        "FalconH1ForCausalLM",
        lambda: transformers.FalconH1Config(**_SIZES, **_MAMBA2, mamba_d_ssm=64),
    ),
    "zamba2": (
        "Zamba2ForCausalLM",
        lambda: transformers.Zamba2Config(
            **_SIZES,
            mamba_d_state=8,
            n_mamba_heads=8,
            chunk_size=16,
            use_mamba_kernels=False,
            adapter_rank=4,
            layers_block_type=["mamba", "hybrid"],
        ),
    ),
    "nemotron_h": (
        "NemotronHForCausalLM",
        lambda: transformers.NemotronHConfig(
            **{name: size for name, size in _SIZES.items() if name != "num_hidden_layers"},
            head_dim=8,
            ssm_state_size=8,
            mamba_num_heads=8,
            mamba_head_dim=8,
            n_groups=2,
            chunk_size=16,
            use_mamba_kernels=False,
            layers_block_type=["mamba", "attention"],
        ),
    ),
    "lfm2": (
        "Lfm2ForCausalLM",
        lambda: transformers.Lfm2Config(**_SIZES, layer_types=["conv", "full_attention"]),
    ),
}
"""By name, the class of a model and its configuration."""


class Logits(nn.Module):
    """The logits of a language model for all tokens."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor) -> Tensor:
        return self.model(input_ids=input_ids, use_cache=False).logits


def make_family(name: str) -> Logits:
    """A model with random weights."""
    model_class, configuration = FAMILIES[name]
    torch.manual_seed(0)
    model = Logits(getattr(transformers, model_class)(configuration())).eval()
    # RWKV divides its weights by powers of two in the first call of a model for inference.
    model(torch.zeros(1, 8, dtype=torch.int64))
    return model
