"""Exports the base model of every type of transformers with `opsetta.export`, and compares at other sizes."""

from __future__ import annotations

import functools
import inspect
import time
import warnings
from collections.abc import Mapping
from typing import Any

import torch
import transformers
from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

from . import small_models
from .model_types import FAILED, NOT_BUILT, REFUSED, RIGHT, WRONG, line_of

BATCH, LENGTH = 2, 6
"""The sizes of the example."""
OTHER_SIZES = ((3, 9), (1, 4), (3, 17))
"""The batches and lengths at which the file is compared."""
_SAMPLES = 160
"""The samples of a sound, or the frames of a spectrogram, for each unit of length."""
_GRID = (4, 4)
"""The rows and columns of the patches of an image, where the input is patches."""
_CHANNELS = ("num_channels", "in_channels", "in_chans")
_BINS = (
    "input_dim",
    "feature_projection_input_dim",
    "num_mel_bins",
    "input_feat_per_channel",
    "input_feat_size",
    "n_mels",
)
_TEXTS = ("input_ids", "decoder_input_ids", "attention_mask")


class NoExampleError(Exception):
    """An input whose values are not known."""


def names_of_types() -> list[str]:
    """The model types with a base model, in the order of `sweep_base_model`."""
    return sorted(MODEL_MAPPING_NAMES)


def base_class(model_type: str) -> str:
    """The name of the class of a type's base model."""
    names = MODEL_MAPPING_NAMES[model_type]
    return names if isinstance(names, str) else names[0]


def sweep_base_model(opsets: tuple[int, ...], index: int) -> list[dict[str, Any]]:
    """The outcomes of the base model of a type, one for each opset."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    model_type = names_of_types()[index]
    row = {"task": "opsetta.export", "architecture": base_class(model_type)}
    try:
        model, example = build(model_type)
    # What a class of transformers raises on sizes that do not fit together is its own.
    except Exception as error:
        return [row | {"outcome": NOT_BUILT, "detail": f"{type(error).__name__}: {line_of(error)}"}]
    return [row | _sweep_opset(model, example, opset) for opset in opsets]


def build(model_type: str) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """The base model of a type with an example that it takes, of the first small sizes that fit together.

    Raises:
        Exception: the last one of its class, which takes none of the sizes.
    """
    refused: Exception | None = None
    for config in small_models.small_configs(model_type):
        try:
            for seed in range(small_models.SEEDS):
                model = small_models.small_model(base_class(model_type), config, seed)
                example = example_inputs(model, BATCH, LENGTH)
                if not small_models.has_ties(functools.partial(run, model, example)):
                    break
            return model, example
        # Each class raises what it likes, for sizes that do not fit together.
        except Exception as error:
            # Models that are not small say nothing of why the smaller ones did not run.
            if refused is None or "parameters" not in str(error):
                refused = error
            if isinstance(error, NoExampleError) or isinstance(error.__cause__, ImportError):
                break
    raise refused or small_models.NotSmallError("no configuration")


def _sweep_opset(model: torch.nn.Module, example: dict[str, torch.Tensor], opset: int) -> dict[str, Any]:
    import opsetta

    begin = time.perf_counter()
    seconds = None
    try:
        program = opsetta.export(
            model, kwargs=example, dynamic_shapes=dynamic_axes(model, example), opset=opset
        )
        seconds = round(time.perf_counter() - begin, 1)
        outcome, detail = compare(model, program)
    except opsetta.OpsettaError as error:
        outcome, detail = REFUSED, f"{type(error).__name__}: {line_of(error)}"
    # Anything else is a fault, which the page shows.
    except Exception as error:
        outcome, detail = FAILED, f"{type(error).__name__}: {line_of(error)}"
    if seconds is None:
        seconds = round(time.perf_counter() - begin, 1)
    return {"opset": opset, "outcome": outcome, "detail": detail, "seconds": seconds}


def run(model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """The flat tensors that a model returns."""
    with torch.no_grad():
        leaves = torch.utils._pytree.tree_leaves(model(**inputs))
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def compare(model: torch.nn.Module, program: Any) -> tuple[str, str]:
    """Compare a program with the model at sizes other than the example's."""
    from opsetta import VerificationError

    compared = False
    for batch, length in OTHER_SIZES:
        inputs = example_inputs(model, batch, length)
        try:
            run(model, inputs)
        # A class of transformers refuses lengths with whatever error arises; the file may refuse them too.
        except Exception:
            continue
        try:
            program.verify(kwargs=inputs, rtol=1e-3, atol=1e-3)
        except VerificationError as error:
            return WRONG, f"batch {batch}, length {length}: {line_of(error)}"
        compared = True
    return (RIGHT, "") if compared else (FAILED, "eager PyTorch fails at the other sizes")


def dynamic_axes(model: torch.nn.Module, example: dict[str, torch.Tensor]) -> dict[str, dict[int, str]]:
    """The batch, and the lengths of texts and sounds."""
    axes = {name: {0: "batch"} for name in example if not _is_packed(name, example)}
    for name in axes:
        if name == "input_features":
            if not _has_fixed_frames(model):
                axes[name][2 if _is_channels_first(model) else 1] = "length"
        elif name == "input_values":
            if not _is_fixed_spectrogram(model.config):
                axes[name][example[name].ndim - 1] = "length"
        elif name in (*_TEXTS, "bbox") or name.endswith("_embeds"):
            axes[name][1] = "decoder_length" if name.startswith("decoder_") else "length"
    return axes


def _is_packed(name: str, example: Mapping[str, torch.Tensor]) -> bool:
    """Whether an input holds the patches of all images one after the other, or their grids."""
    return name.endswith("grid_thw") or any(other.endswith("grid_thw") for other in example)


def _part(config: Any) -> Any:
    return getattr(config, "encoder_config", None) or getattr(config, "audio_config", None) or config


def _has_fixed_frames(model: torch.nn.Module) -> bool:
    config = _part(model.config)
    return hasattr(config, "max_source_positions") and hasattr(config, "num_mel_bins")


def _is_channels_first(model: torch.nn.Module) -> bool:
    """Whether the spectrogram is the input of a convolution as it is."""
    bins = getattr(_part(model.config), "num_mel_bins", None)
    first = next((module for module in model.modules() if isinstance(module, torch.nn.Conv1d)), None)
    return bins is not None and first is not None and first.in_channels == bins


def _is_fixed_spectrogram(config: Any) -> bool:
    return hasattr(config, "max_length") and hasattr(config, "num_mel_bins")


def example_inputs(model: torch.nn.Module, batch: int, length: int) -> dict[str, torch.Tensor]:
    """Inputs by the names of the forward's parameters.

    Raises:
        NoExampleError: a parameter without a default has an unknown name.
    """
    torch.manual_seed(batch * 100 + length)
    parameters = inspect.signature(model.forward).parameters
    names = _input_names(model, parameters)
    inputs: dict[str, torch.Tensor] = {}
    for name, parameter in parameters.items():
        if name in names:
            tensor = _example(model, name, batch, length, names)
            if tensor is not None:
                inputs[name] = tensor
            elif parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
                raise NoExampleError(f"no example of the input {name}")
    return inputs


def _input_names(model: torch.nn.Module, parameters: Mapping[str, inspect.Parameter]) -> set[str]:
    """Parameters that get an example: those without a default, texts, and what a text is compared with."""
    config = model.config
    names = {name for name, parameter in parameters.items() if parameter.default is parameter.empty}
    names |= {model.main_input_name} & set(parameters)
    if "input_ids" in parameters:
        names |= {"input_ids", "attention_mask", "bbox"}
    parts = set(getattr(config, "sub_configs", {}))
    # Models that compare an image or a sound with a text need both; those that write a text read it alone.
    if "past_key_values" not in parameters:
        if {"vision_config", "text_config"} <= parts or hasattr(config, "patch_size"):
            names.add("pixel_values")
        if {"audio_config", "text_config"} <= parts or hasattr(config, "speech_config"):
            names.add("input_features")
    if "decoder_input_ids" in parameters and getattr(config, "is_encoder_decoder", False):
        names.add("decoder_input_ids")
    if "pixel_values" in names:
        names |= {"image_grid_thw", "target_sizes"}
    if "input_features" in names:
        names.add("input_features_mask")
    return names & set(parameters)


def _example(
    model: torch.nn.Module, name: str, batch: int, length: int, names: set[str]
) -> torch.Tensor | None:
    """The value of an input; None where its shape is not known."""
    config = model.config
    text = config.get_text_config(decoder=True)
    if name.endswith("input_ids"):
        vocabulary = min(getattr(text, "vocab_size", 99) or 99, 90)
        return torch.randint(3, vocabulary, (batch, length + name.startswith("decoder_")))
    if name.endswith("grid_thw"):
        return torch.tensor([[1, *_GRID]] * batch)
    if name in ("spatial_shapes", "target_sizes"):
        return torch.tensor([_GRID] * batch)
    if name in ("attention_mask", "qformer_attention_mask"):
        if "input_ids" not in names:
            return None
        mask = torch.ones(batch, length, dtype=torch.int64)
        mask[0, -2:] = 0
        return mask
    if name == "bbox":
        corner = torch.randint(0, 30, (batch, length, 2))
        boxes = torch.cat([corner, corner + 7], dim=-1)
        # Encoder-decoders, and models without a table of positions, read coordinates between 0 and 1.
        has_table = hasattr(config, "max_2d_position_embeddings") and not config.is_encoder_decoder
        return boxes if has_table else boxes / 40
    if name in ("pixel_values", "hidden_states", "pixel_attention_mask", "pixel_position_ids") and names & {
        "grid_thw",
        "image_grid_thw",
        "spatial_shapes",
    }:
        vision = getattr(config, "vision_config", config)
        return _patches(vision, name, batch, "spatial_shapes" in names)
    if name in ("pixel_values", "pixel_values_videos", "images"):
        return torch.randn(batch, *_image_shape(model))
    if name == "input_values":
        return torch.randn(batch, *_sound_shape(config, length))
    if name in ("input_features", "input_features_mask"):
        shape = _spectrogram_shape(model, length)
        if name == "input_features":
            return None if shape is None else torch.randn(batch, *shape)
        frames = 8 * length if shape is None else shape[-1 if _is_channels_first(model) else 0]
        return torch.ones(batch, frames, dtype=torch.int64)
    if name == "past_values":
        context = config.context_length
        channels = getattr(config, "num_input_channels", None)
        return torch.randn(batch, context, channels) if channels else torch.randn(batch, context)
    if name.endswith("_embeds"):
        return torch.randn(batch, length, text.hidden_size)
    return None


def _patches(config: Any, name: str, batch: int, has_batch: bool) -> torch.Tensor:
    """The flat patches of images of one grid, or the mask of them."""
    count = _GRID[0] * _GRID[1]
    if name == "pixel_attention_mask":
        return torch.ones(batch, count, dtype=torch.int64)
    channels = next((getattr(config, key) for key in _CHANNELS if hasattr(config, key)), 3)
    features = channels * getattr(config, "temporal_patch_size", 1) * config.patch_size**2
    return torch.randn(batch, count, features) if has_batch else torch.randn(batch * count, features)


def _sound_shape(config: Any, length: int) -> tuple[int, ...]:
    if _is_fixed_spectrogram(config):
        return config.max_length, config.num_mel_bins
    samples = _SAMPLES * 4 + length * _SAMPLES
    names = ("audio_channels", "codebook_size", "codebook_dim", "downsampling_ratios")
    # Codecs have an axis of channels.
    if any(hasattr(part, name) for part in (config, getattr(config, "dac_config", config)) for name in names):
        return getattr(config, "audio_channels", None) or 1, samples
    return (samples,)


def _spectrogram_shape(model: torch.nn.Module, length: int) -> tuple[int, ...] | None:
    config = _part(model.config)
    bins = next((getattr(config, name) for name in _BINS if getattr(config, name, None)), None)
    if bins is None:
        return None
    if _has_fixed_frames(model):
        return bins, 2 * config.max_source_positions
    return (bins, 8 * length) if _is_channels_first(model) else (8 * length, bins)


def _image_shape(model: torch.nn.Module) -> tuple[int, ...]:
    config = model.config
    for part in ("vision_config", "encoder", "backbone_config"):
        if getattr(getattr(config, part, None), "image_size", None) is not None:
            config = getattr(config, part)
            break
    size = getattr(config, "image_size", None) or getattr(config, "input_size", None) or 64
    height, width = (size, size) if isinstance(size, int) else size[-2:]
    shape = [next((getattr(config, name) for name in _CHANNELS if hasattr(config, name)), 3), height, width]
    frames = getattr(config, "num_frames", None) or getattr(config, "frames_per_clip", None)
    if frames is not None:
        shape.insert(0, frames)
    return tuple(shape)
