"""Small random models of every model type of transformers."""

from __future__ import annotations

import inspect
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES

_SIZES: dict[int, str] = {
    32: "hidden_size d_model dim n_embd embed_dim encoder_hidden_size decoder_hidden_size embedding_size "
    "hidden_dim conv_dim d_inner model_dim word_embed_proj_dim attention_hidden_size "
    "cross_attention_hidden_size image_size projection_dim classifier_proj_size lru_width "
    "hidden_size_per_layer_input",
    64: "intermediate_size ffn_dim encoder_ffn_dim decoder_ffn_dim d_ff n_inner ffn_hidden_size mlp_dim "
    "max_position_embeddings n_positions max_target_positions n_ctx max_seq_len seq_length dim_feedforward "
    "encoder_intermediate_size block_size mlp_hidden_size",
    99: "vocab_size encoder_vocab_size decoder_vocab_size bpe_vocab_size vocab_size_per_layer_input",
    2: "num_hidden_layers num_layers n_layer n_layers encoder_layers decoder_layers num_decoder_layers "
    "num_encoder_layers num_key_value_heads num_kv_heads n_kv_heads num_experts_per_tok moe_topk "
    "num_experts_per_token moe_top_k encoder_num_hidden_layers decoder_num_hidden_layers num_block "
    "index_topk_layers n_group topk_group",
    4: "num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads "
    "encoder_num_attention_heads decoder_num_attention_heads num_experts num_local_experts n_routed_experts "
    "moe_num_experts conv_kernel_size_small num_queries",
    8: "head_dim attention_head_size qk_nope_head_dim qk_rope_head_dim v_head_dim d_kv patch_size "
    "kv_lora_rank rotary_dim sliding_window mamba_d_state state_size ssm_state_size linear_key_head_dim "
    "linear_value_head_dim",
    16: "moe_intermediate_size q_lora_rank expert_intermediate_size shared_expert_intermediate_size "
    "mamba_d_head num_mel_bins max_source_positions time_step_rank",
}
_SMALL = {name: size for size, names in _SIZES.items() for name in names.split()}
_TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
LARGEST = 30_000_000
"""A model with more parameters was not made small."""


class NotSmallError(Exception):
    """The model of a type is not made by these sizes."""


def model_types(tables: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The model types of the installed transformers that have a task.

    Args:
        tables: as for `tasks_of`.
    """
    return [name for name in sorted(CONFIG_MAPPING_NAMES) if tasks_of(name, tables)]


def small_config(model_type: str) -> transformers.PretrainedConfig:
    """A configuration of small sizes.

    Raises:
        NotSmallError: its class refuses them.
    """
    try:
        config_class = CONFIG_MAPPING[model_type]
        config = config_class(**_settings(config_class))
        for part in (config, config.get_text_config(decoder=True)):
            for name, token in _TOKENS.items():
                starts = name == "decoder_start_token_id"
                if getattr(part, name, None) is None and (config.is_encoder_decoder or not starts):
                    setattr(part, name, token)
        return config
    # Each class raises what it likes.
    except Exception as error:
        raise NotSmallError(f"configuration: {type(error).__name__}: {error}") from error


def _settings(config_class: type[transformers.PretrainedConfig]) -> dict[str, Any]:
    """The small sizes for the settings that a class of configurations has."""
    defaults = config_class()
    values = vars(defaults)
    names = {*values, *getattr(config_class, "attribute_map", {})}
    settings: dict[str, Any] = {}
    for name in names:
        value = getattr(defaults, name, None)
        if name in _TOKENS and isinstance(value, int):
            settings[name] = _TOKENS[name]
        elif name in _SMALL and isinstance(value, int) and value > _SMALL[name]:
            settings[name] = _SMALL[name]
    for name, sub_class in getattr(config_class, "sub_configs", {}).items():
        if isinstance(getattr(defaults, name, None), transformers.PretrainedConfig):
            sub_class = type(getattr(defaults, name))
            settings[name] = _settings(sub_class)
    for attribute, name in getattr(config_class, "attribute_map", {}).items():
        # A setting with two names gets one value.
        if attribute in settings and name in values:
            settings.setdefault(name, settings.pop(attribute))
    return settings


def small_model(architecture: str, config: transformers.PretrainedConfig) -> torch.nn.Module:
    """A random model in eval mode.

    Raises:
        NotSmallError: the class refuses the configuration, or the model is large.
    """
    torch.manual_seed(0)
    model_class = getattr(transformers, architecture)
    try:
        with torch.device("meta"):
            count = sum(parameter.numel() for parameter in model_class(config).parameters())
        if count > LARGEST:
            raise NotSmallError(f"{count} parameters")
        model = model_class(config).eval()
    except NotSmallError:
        raise
    # Each class raises what it likes.
    except Exception as error:
        raise NotSmallError(f"model: {type(error).__name__}: {error}") from error
    _spread(model.parameters())
    return model


@torch.no_grad()
def _spread(parameters: Iterable[torch.nn.Parameter]) -> None:
    """Let results differ: of equal parameters routers tie, and with small ones one token is always chosen."""
    for parameter in parameters:
        if not parameter.is_floating_point() or parameter.numel() < 2:
            continue
        if parameter.ndim == 2:
            torch.nn.init.xavier_normal_(parameter)
        elif bool((parameter == parameter.flatten()[0]).all()):
            parameter.add_(0.05 * torch.randn_like(parameter))


def write_model(architecture: str, model_type: str, folder: pathlib.Path) -> torch.nn.Module:
    """Write the small model of a type, and return it.

    Raises:
        NotSmallError: it cannot be built, or transformers cannot write and read it.
    """
    model = small_model(architecture, small_config(model_type))
    try:
        model.save_pretrained(folder)
        loaded = type(model).from_pretrained(folder).eval()
        if loaded.main_input_name == "input_ids" and "MultipleChoice" not in architecture:
            _run_once(loaded)
        return loaded
    # Each class raises what it likes.
    except Exception as error:
        raise NotSmallError(f"as a folder: {type(error).__name__}: {error}") from error


def _run_once(model: torch.nn.Module) -> None:
    """Run a model of text: sizes that do not fit together show here."""
    tokens = torch.arange(3, 9).reshape(2, 3)
    # Classes of the whole text need the end of the text, and a mask without padding.
    tokens[:, -1] = _TOKENS["eos_token_id"]
    arguments = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
    # Some encoder-decoders make no input of their decoder from that of their encoder.
    if "decoder_input_ids" in inspect.signature(model.forward).parameters:
        arguments["decoder_input_ids"] = tokens
    with torch.no_grad():
        model(**arguments)


def tasks_of(model_type: str, tables: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """The architecture of a type for each task.

    Args:
        tables: for each task, the architectures by type.
    """
    architectures: dict[str, str] = {}
    for task, table in tables.items():
        names = table.get(model_type)
        if names:
            architectures[task] = names if isinstance(names, str) else next(iter(names))
    return architectures
