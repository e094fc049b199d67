"""Small random models of every model type of transformers."""

from __future__ import annotations

import copy
import functools
import pathlib
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES

_SIZES: dict[int, str] = {
    32: "hidden_size d_model dim n_embd embed_dim encoder_hidden_size decoder_hidden_size embedding_size "
    "hidden_dim conv_dim d_inner model_dim word_embed_proj_dim attention_hidden_size "
    "cross_attention_hidden_size image_size projection_dim classifier_proj_size lru_width "
    "hidden_size_per_layer_input projector_hidden_size projection_hidden_size",
    64: "intermediate_size ffn_dim encoder_ffn_dim decoder_ffn_dim d_ff n_inner ffn_hidden_size mlp_dim "
    "max_position_embeddings n_positions max_target_positions n_ctx max_seq_len seq_length dim_feedforward "
    "encoder_intermediate_size block_size mlp_hidden_size",
    99: "vocab_size encoder_vocab_size decoder_vocab_size bpe_vocab_size vocab_size_per_layer_input",
    2: "num_hidden_layers num_layers n_layer n_layers encoder_layers decoder_layers num_decoder_layers "
    "num_encoder_layers num_key_value_heads num_kv_heads n_kv_heads num_experts_per_tok moe_topk "
    "num_experts_per_token moe_top_k encoder_num_hidden_layers decoder_num_hidden_layers num_block "
    "top_k_experts index_topk_layers n_group topk_group n_shared_experts",
    4: "num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads "
    "encoder_num_attention_heads decoder_num_attention_heads num_experts num_local_experts n_routed_experts "
    "moe_num_experts conv_kernel_size_small num_queries num_query_tokens mm_tokens_per_image frames_per_clip",
    8: "head_dim attention_head_size qk_nope_head_dim qk_rope_head_dim v_head_dim d_kv patch_size "
    "kv_lora_rank rotary_dim sliding_window mamba_d_state state_size ssm_state_size linear_key_head_dim "
    "linear_value_head_dim attention_window",
    16: "moe_intermediate_size q_lora_rank expert_intermediate_size shared_expert_intermediate_size "
    "mamba_d_head num_mel_bins max_source_positions time_step_rank",
}
_SMALL = {name: size for size, names in _SIZES.items() for name in names.split()}
_DEPTHS = {name for name in _SIZES[2].split() if re.search("layers?$", name)}
_COUNTS = {
    *_DEPTHS,
    *_SIZES[99].split(),
    "num_queries",
    "num_query_tokens",
    "mm_tokens_per_image",
    "frames_per_clip",
    *(name for name in _SMALL if re.search("expert|moe_top|_group$", name) and not name.endswith("_size")),
}
"""Settings that have one small value whatever the widths are."""
_REQUIRED: dict[str, Any] = {
    "mlp_layer_types": ["dense", "sparse"],
    "attn_layer_indices": [1],
    "class_order": [0, 1],
    "class_thresholds": [0.5, 0.4],
    "projector_scale_factors": [2.0, 1.0],
    "vocabulary_map": {
        "<image>": 98,
        "<|extra_200|>": 97,
        **{f"<|visual token {index:06}|>": 80 + index for index in range(8)},
        **{f"IMGIMG{letter}Z": 80 + index for index, letter in enumerate("ABCDEFGH")},
    },
}
"""Settings without which some classes build no model, although they have none by default."""
_LAYER_NUMBERS = (
    "vision_feature_layer",
    "global_attn_indexes",
    "intermediate_layers_indices",
    "deepstack_visual_indexes",
    "spatial_target_layers",
    "intermediate_hook_ids",
)
"""Settings with the numbers of layers that something is taken from; from the end, if they are negative."""
_QUERIES_OF_PATCHES = "projector_patch_to_query_dict"
_LAYER_TYPES = ("layer_types", "layers_block_type", "layers_block_types", "mlp_layer_types")
_DIVISORS = (8, 16, 4, 2, 1)
_WIDTHS = (
    "hidden|dim|embd|d_model|d_ff|d_kv|ffn|inner|intermediate"
    "|channel|filters|rank|width|planes|feats|section|_size"
)
_NO_WIDTHS = (
    "vocab|image|patch|pos_emb|kernel|window|stride|input_size|merge|pool|crop|chunk|block_size"
    "|group|layers|act|codebook_size|conv_size|batch|max_|position|grid|token|beam|queue|state_size"
)
_TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
_VISION_START = 5
_IMAGE_TOKENS = ("image_token_id", "image_token_index")
_OTHER_MEDIA_TOKENS = ("video_token_id", "audio_token_id", "video_token_index")
SEEDS = 4
"""The random weights that are tried until no values tie that the model chooses the greatest from."""
LARGEST = 30_000_000
"""A model with more parameters was not made small."""


class NotSmallError(Exception):
    """The model of a type is not made by these sizes."""


class TooLargeError(NotSmallError):
    """The model has more parameters than `LARGEST`."""


def model_types(tables: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The model types of the installed transformers that have a task.

    Args:
        tables: as for `tasks_of`.
    """
    return [name for name in sorted(CONFIG_MAPPING_NAMES) if tasks_of(name, tables)]


def small_config(model_type: str) -> transformers.PretrainedConfig:
    """A configuration whose sizes are small by their names.

    Raises:
        NotSmallError: its class refuses them.
    """
    return _config(model_type, None, False)


def small_configs(model_type: str) -> Iterator[transformers.PretrainedConfig]:
    """Small configurations to try: first with sizes by their names, then with the default widths divided.

    Sizes of fixed value may not fit those that the class derives from its defaults, as the stages of a
    backbone are. Widths that are divided by the same number keep their ratios.

    Raises:
        NotSmallError: the class refuses all of them.
    """
    refusals = []
    recipes = [(None, False), (None, True), *((divisor, True) for divisor in _DIVISORS)]
    for divisor, fill in recipes:
        try:
            yield _config(model_type, divisor, fill)
        except NotSmallError as error:
            refusals.append(error)
    if len(refusals) == len(recipes):
        raise refusals[0]


def _config(model_type: str, divisor: int | None, fill: bool) -> transformers.PretrainedConfig:
    try:
        config_class = CONFIG_MAPPING[model_type]
        config = config_class(**_settings(config_class(), divisor, fill))
        for part in (config, config.get_text_config(decoder=True)):
            for name, token in _TOKENS.items():
                starts = name == "decoder_start_token_id"
                if getattr(part, name, None) is None and (config.is_encoder_decoder or not starts):
                    setattr(part, name, token)
        if hasattr(config, "vision_config") and not hasattr(config, "vision_start_token_id"):
            # Released models have it, by which their positions count images.
            config.vision_start_token_id = _VISION_START
        for name in _IMAGE_TOKENS:
            if hasattr(config, name):
                setattr(config, name, _SMALL["vocab_size"] - 1)
        reads_images = any(getattr(config, name, None) is not None for name in _IMAGE_TOKENS)
        for index, name in enumerate(_OTHER_MEDIA_TOKENS):
            # Models may embed them before they replace them. Models of videos alone always have one.
            is_missing = hasattr(config, name) and getattr(config, name) is None and not reads_images
            if is_missing or (getattr(config, name, None) or 0) >= _SMALL["vocab_size"]:
                setattr(config, name, _SMALL["vocab_size"] - 2 - index)
        for part in (config, config.get_text_config(decoder=True)):
            if "mrope_section" in getattr(part, "ignore_keys_at_rope_validation", ()):
                _set_rotary_sections(part)
        return config
    # Each class raises what it likes.
    except Exception as error:
        raise NotSmallError(f"configuration: {type(error).__name__}: {error}") from error


def _set_rotary_sections(config: transformers.PretrainedConfig) -> None:
    """Divide the rotary frequencies among time, height and width, as two, three and three eighths."""
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    parameters = config.rope_parameters
    if "mrope_section" in parameters and head * parameters.get("partial_rotary_factor", 1) == 2 * sum(
        parameters["mrope_section"]
    ):
        return
    frequencies = int(head * parameters.get("partial_rotary_factor", 1)) // 2
    side = max(frequencies * 3 // 8, 1)
    parameters["mrope_section"] = [frequencies - 2 * side, side, side]


def _settings(defaults: transformers.PretrainedConfig, divisor: int | None, fill: bool) -> dict[str, Any]:
    """The small sizes for the settings of a configuration of default values.

    Args:
        defaults: the configuration.
        divisor: of the widths; None takes sizes by their names.
        fill: give values to sizes that are None, and take as many key and value heads as heads if the
            defaults are equal.
    """
    config_class = type(defaults)
    values = vars(defaults)
    aliases = getattr(config_class, "attribute_map", {})
    if defaults.model_type == "timm_backbone":
        # The library timm has backbones of fixed sizes; those of transformers have the same interface.
        stages = [f"stage{index + 1}" for index in range(4)][-len(values.get("out_indices") or [0]) :]
        resnet = CONFIG_MAPPING["resnet"]()
        return {
            "model_type": "resnet",
            "out_features": stages,
            **_settings(resnet, divisor or _DIVISORS[0], fill),
        }
    settings: dict[str, Any] = {}
    for name in {*values, *aliases}:
        if name == "num_hidden_layers" and "depths" in values:
            # It is the number of stages, each of which has a depth.
            continue
        value = values.get(aliases.get(name, name))
        size = _small_size(name, value, divisor)
        if name in _TOKENS and isinstance(value, int):
            settings[name] = _TOKENS[name]
        elif not isinstance(value, transformers.PretrainedConfig) and size != value:
            settings[name] = size
        elif value is None and fill and name in (_SMALL if divisor is None else _COUNTS):
            settings[name] = _SMALL[name]
        elif value in (None, (), []) and fill and name in _REQUIRED:
            settings[name] = _REQUIRED[name]
    if fill and values.get("num_key_value_heads") == values.get("num_attention_heads", 0):
        settings["num_key_value_heads"] = settings.get("num_attention_heads", values["num_attention_heads"])
    layer_types = next((value for name in _LAYER_TYPES if (value := getattr(defaults, name, None))), None)
    if isinstance(layer_types, (list, tuple)):
        # The first layers that contain one of each type.
        depth = 1 + max(list(layer_types).index(layer_type) for layer_type in set(layer_types))
        for name in _DEPTHS.intersection(settings):
            settings[name] = max(settings[name], depth)
    _keep_stages(settings, values)
    depth = settings.get("num_hidden_layers", _SMALL["num_hidden_layers"])
    for name in _LAYER_NUMBERS:
        layers = values.get(name)
        if isinstance(layers, (list, tuple)):
            settings[name] = [layer % depth if layer >= 0 else -1 - ~layer % depth for layer in layers]
    if "downsample_channels" in values and divisor is None:
        # They end with the width of the next encoder.
        settings["downsample_channels"] = [_SMALL["hidden_size"]] * len(values["downsample_channels"])
    if "width_coefficient" in values and divisor is not None:
        # It multiplies all widths, also those that have no setting.
        settings["width_coefficient"] = values["width_coefficient"] / divisor
        for name in ("in_channels", "out_channels"):
            settings.pop(name, None)
    if "projector_input_dim" in values and divisor is None:
        # Blocks of patches are joined in front of the projector.
        width = settings["hidden_size"]
        settings["intermediate_size"] = int(width / values["pixel_shuffle_ratio"] ** 2)
        settings |= dict.fromkeys(("projector_input_dim", "projector_output_dim", "vision_output_dim"), width)
    if "insert_layer_id" in values:
        settings["insert_layer_id"] = 0
    if "cross_attention_layers" in values:
        settings["cross_attention_layers"] = [depth - 1]
    if "backbone_feature_sizes" in values and divisor is not None:
        # The images are smaller.
        settings["backbone_feature_sizes"] = [
            [side // 4 for side in sides] for sides in values["backbone_feature_sizes"]
        ]
    if _QUERIES_OF_PATCHES in values:
        patches = (_SMALL["image_size"] // _SMALL["patch_size"]) ** 2
        settings[_QUERIES_OF_PATCHES] = {patches: _SMALL["num_queries"]}
    specifications = getattr(config_class, "sub_configs_defaults", {})
    sub_configs = getattr(config_class, "sub_configs", {})
    for name in {*sub_configs, *specifications}:
        part = values.get(name)
        if part is None and name == "vision_config" and "image_token_id" in values:
            part = sub_configs[name]()
        if isinstance(part, transformers.PretrainedConfig):
            initial = getattr(specifications.get(name), "init_kwargs", None) or {}
            settings[name] = {"model_type": part.model_type, **initial, **_settings(part, divisor, fill)}
    for attribute, name in aliases.items():
        # A setting with two names gets one value.
        if attribute in settings and name in values:
            settings.setdefault(name, settings.pop(attribute))
    return settings


def _keep_stages(settings: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Let a small backbone return the states of as many layers as the one of default values.

    Args:
        settings: the small sizes, which are completed.
        values: the default ones.
    """
    depth = values.get("num_hidden_layers")
    for name in ("out_indices", "_out_indices", "backbone_out_indices"):
        indices = values.get(name)
        if isinstance(indices, (list, tuple)) and len(indices) > 1 and depth and "depths" not in values:
            # Some count the embeddings, too.
            end = len(indices) + 2 - (depth - max(indices))
            settings[name.removeprefix("_")] = list(range(end - len(indices), end))
            settings["num_hidden_layers"] = len(indices) + 1


def _small_size(name: str, value: Any, divisor: int | None) -> Any:
    """The small value of a setting; the value itself where it is no size."""
    if isinstance(value, bool):
        return value
    if isinstance(value, dict) and divisor:
        return {key: _small_size(key, entry, divisor) for key, entry in value.items()}
    if isinstance(value, (list, tuple)) and value and divisor and all(type(entry) is int for entry in value):
        if re.fullmatch("depths|.*(blocks|layers)", name):
            return [min(entry, 2) for entry in value]
        return [_small_size(name, entry, divisor) for entry in value]
    if not isinstance(value, int):
        return value
    if divisor is None or name in _COUNTS:
        return min(value, _SMALL[name]) if name in _SMALL else value
    if name in ("image_size", "input_size") and value >= 512:
        return value // 4
    # A depthwise convolution has as many groups as channels, so the two are divided together.
    has_groups = name.endswith("groups") and value >= 64
    is_width = has_groups or (re.search(_WIDTHS, name) and not re.search(_NO_WIDTHS, name))
    return value // divisor if is_width and value >= divisor and value % divisor == 0 else value


def small_model(architecture: str, config: transformers.PretrainedConfig, seed: int = 0) -> torch.nn.Module:
    """A random model in eval mode.

    Raises:
        NotSmallError: the class refuses the configuration, or the model is large.
    """
    torch.manual_seed(seed)
    model_class = getattr(transformers, architecture)
    try:
        with torch.device("meta"):
            count = sum(parameter.numel() for parameter in model_class(config).parameters())
        if count > LARGEST:
            raise TooLargeError(f"{count} parameters")
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
        # Matrices, and convolutions of images, of which many small ones let no signal through.
        if parameter.ndim == 2 or parameter.ndim >= 4:
            torch.nn.init.xavier_normal_(parameter)
        elif bool((parameter == parameter.flatten()[0]).all()):
            parameter.add_(0.05 * torch.randn_like(parameter))


def has_ties(run: Callable[[], object]) -> bool:
    """Whether a run of a model takes the greatest of values that are equal: then any of them is right."""

    class TieFinder(TorchDispatchMode):
        has_tie = False

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            results = func(*args, **(kwargs or {}))
            if func is torch.ops.aten.topk.default and args[0].is_floating_point():
                axis = args[2] if len(args) > 2 else -1
                chosen = results[0].amin(axis, keepdim=True)
                # As many values as are chosen may reach the least of them.
                margin = 1e-5 * chosen.abs().clamp(min=1e-5)
                self.has_tie |= bool(((args[0] >= chosen - margin).sum(axis) > args[1]).any())
                ordered = results[0].sort(dim=axis).values.diff(dim=axis)
                self.has_tie |= bool((ordered < 1e-6).any())
            return results

    with TieFinder() as finder:
        run()
    return finder.has_tie


def write_model(
    architecture: str,
    model_type: str,
    folder: pathlib.Path,
    run: Callable[[torch.nn.Module, pathlib.Path], None],
) -> torch.nn.Module:
    """Write the small model of a type, and return it.

    If a model chooses the greatest of values that are equal, other random weights are tried. If all models
    that are small fail in `run`, the first of them is written: then not the sizes, but the arguments that it
    runs with may be wrong.

    Args:
        architecture: the name of its class.
        model_type: of its configuration.
        folder: to write.
        run: runs the model in a folder, and raises an error for sizes that do not fit together.

    Raises:
        NotSmallError: it cannot be built, or transformers cannot write and read it.
    """
    problem: Exception | None = None
    failing: transformers.PretrainedConfig | None = None
    for config in small_configs(model_type):
        try:
            model = _write_small(architecture, config, folder)
        # Each class raises what it likes, for sizes that do not fit together.
        except Exception as error:
            # That a model is not small does not say why the smaller ones could not be built.
            if problem is None or isinstance(problem, TooLargeError):
                problem = error
            continue
        try:
            for seed in range(SEEDS):
                if seed > 0:
                    model = _write_small(architecture, config, folder, seed)
                if not has_ties(functools.partial(run, model, folder)):
                    break
            return model
        except Exception:
            failing = failing or config
    if failing is not None:
        return _write_small(architecture, failing, folder)
    raise NotSmallError(f"{type(problem).__name__}: {problem}") from problem


def _write_small(
    architecture: str, config: transformers.PretrainedConfig, folder: pathlib.Path, seed: int = 0
) -> torch.nn.Module:
    """Write a small model, and return it as transformers reads it."""
    model = small_model(architecture, copy.deepcopy(config), seed)
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    return type(model).from_pretrained(folder).eval()


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
