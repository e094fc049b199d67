"""Example inputs by the names that the forwards of transformers give them."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ....registration import UsageError
from ..folder import read_json
from ..graphs import (
    BATCH,
    EXAMPLE_BATCH,
    EXAMPLE_SOURCE,
    SEQUENCE,
    Axes,
    Inputs,
    TaskModel,
    random_tensor,
)
from ..images import naflex
from ..timm_models import timm_image_shape

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig, PreTrainedModel

CHOICES, TEXT_BATCH = "num_choices", "text_batch_size"
IMAGE_BATCH, AUDIO_BATCH = "image_batch_size", "audio_batch_size"
SOUND_INPUTS = ("input_values", "input_features")
SOUND_MASK = "input_features_mask"
HEIGHT, WIDTH, SAMPLES, POINTS = "height", "width", "audio_length", "num_points"
# All different: the capture would take equal sizes for one and the same dimension. The texts of a zero-shot
# detector are as many for each image.
_SIZES = {
    BATCH: EXAMPLE_BATCH,
    SEQUENCE: EXAMPLE_SOURCE,
    CHOICES: 4,
    TEXT_BATCH: 4,
    IMAGE_BATCH: EXAMPLE_BATCH,
    AUDIO_BATCH: EXAMPLE_BATCH,
    POINTS: 3,
}
_DEFAULT_IMAGE_SIZE = 224
_DEFAULT_STRIDE = 320
_FRAMES = 24
_CHARACTERS = 128
_MISSING_VALUES, _FREQUENCY = "past_values_padding", "freq"
SERIES_INPUTS = ("past_values", _MISSING_VALUES, _FREQUENCY)
MARKUP_INPUTS = ("xpath_tags_seq", "xpath_subs_seq")
"""The path to each token in the tree of a page of markup: tags, and their numbers among equal ones."""
LANGUAGES = "lang_ids"
"""The language of each text, for models with adapters of languages."""
_FRAME_COUNTS = ("num_frames", "frames_per_clip")
"""The names of the number of frames of a video in configurations."""

_CAUSAL_ENCODERS = ("voxtral_realtime_encoder",)
"""The types of encoders of sounds with causal convolutions, which have no positions of a fixed number."""
_STACKED_FRAMES = dict.fromkeys(("granite_speech5_ctc", "granite_speech5_encoder"), 4)
"""The types whose feature extractor joins frames and their differences, and how many times their bins."""

MakeInput = Callable[[TaskModel, Axes], "torch.Tensor | None"]
"""Makes an example of an input with its dynamic axes; None for an input that the model does without."""


def make_inputs(
    source: TaskModel, inputs: Mapping[str, Axes], replacements: Mapping[str, MakeInput] | None = None
) -> Inputs:
    """Make an example of each input, if the model has it.

    Args:
        source: the model.
        inputs: the dynamic axes of the inputs by name.
        replacements: other functions than those of `_MAKERS`.

    Raises:
        UsageError: the configuration has no size of an input, or an input can be anything.
    """
    makers = {**_MAKERS, **(replacements or {})}
    unknown = next((name for name in inputs if name not in makers), None)
    if unknown is not None:
        raise UsageError(
            f"models of type '{source.config.model_type}' have the input {unknown}, of which this task makes "
            "no example: export the model with opsetta.export"
        )
    try:
        examples = {name: makers[name](source, axes) for name, axes in inputs.items()}
    except AttributeError as error:
        raise UsageError(
            f"the configuration of models of type '{source.config.model_type}' has no {error.name}, from "
            "which an example input is made: export the model with opsetta.export"
        ) from error
    return {name: example for name, example in examples.items() if example is not None}


def _tokens(source: TaskModel, axes: Axes) -> torch.Tensor:
    import torch

    shape = _shape(axes)
    config = source.config.get_text_config(decoder=True)
    # CANINE reads characters, and has as many embeddings as buckets.
    size = _CHARACTERS if hasattr(config, "num_hash_buckets") else config.vocab_size
    tokens = torch.remainder(torch.arange(math.prod(shape)).reshape(shape) * 7 + 3, size)
    return with_separators(source.model, tokens)


def with_separators(model: PreTrainedModel, tokens: torch.Tensor) -> torch.Tensor:
    """Texts of a question, two separators, a page and a separator, if the model counts separators.

    Encoders with tokens that attend to the whole text choose those of the question, such as Longformer.

    Args:
        model: to read the texts.
        tokens: `[…, length]`, of which some become separators; texts of fewer than four stay as they are.
    """
    if "global_attention_mask" not in inspect.signature(type(model).forward).parameters:
        return tokens
    separator = getattr(model.config, "sep_token_id", None)
    if separator is None or model.config.is_encoder_decoder or tokens.shape[-1] < 4:
        return tokens
    separated = tokens.masked_fill(tokens == separator, separator + 1)
    separated[..., [1, 2, -1]] = separator
    return separated


def _mask(source: TaskModel, axes: Axes) -> torch.Tensor:
    """The end of the first text is padding."""
    import torch

    mask = torch.ones(_shape(axes), dtype=torch.int64)
    mask[0, ..., -2:] = 0
    return mask


def _token_types(source: TaskModel, axes: Axes) -> torch.Tensor | None:
    """Zeros, if the tokenizer gives this input."""
    import torch

    sizes = getattr(source.config, "type_vocab_sizes", None)
    if isinstance(sizes, list):
        # TAPAS numbers the columns and rows of a table, and what else it says of a cell.
        return torch.zeros(*_shape(axes), len(sizes), dtype=torch.int64)
    input_names = read_json(source.folder / "tokenizer_config.json").get("model_input_names")
    if input_names is None:
        uses_types = getattr(source.config, "type_vocab_size", 0) > 1
    else:
        uses_types = "token_type_ids" in input_names
    return torch.zeros(_shape(axes), dtype=torch.int64) if uses_types else None


def _boxes(source: TaskModel, axes: Axes) -> torch.Tensor:
    """Left, top, right and bottom of each token on its page."""
    import torch

    shape = _shape(axes)
    corners = torch.arange(2 * math.prod(shape)).reshape(*shape, 2)
    return torch.cat([corners, corners + torch.tensor([5, 3])], dim=-1)


def _markup_path(source: TaskModel, axes: Axes) -> torch.Tensor:
    """A number for each level of the tree above each token."""
    import torch

    shape = (*_shape(axes), source.config.max_depth)
    return torch.remainder(torch.arange(math.prod(shape)).reshape(shape), 5)


def _languages(source: TaskModel, axes: Axes) -> torch.Tensor | None:
    """The language of each text, unless the configuration names that of all."""
    import torch

    if getattr(source.config, "default_language", None) is not None:
        return None
    shape = _shape(axes)
    return torch.remainder(torch.arange(math.prod(shape)).reshape(shape), len(source.config.languages))


def image_size(source: TaskModel) -> tuple[int, int]:
    """The height and width of the model's or its processor's configuration."""
    timm_shape = timm_image_shape(source.config)
    if timm_shape is not None:
        return timm_shape[1:]
    config = vision_config(source)
    # LayoutLMv3 calls it so.
    size = getattr(config, "image_size", None) or getattr(config, "input_size", None)
    ratios = getattr(source.config, "scaled_images_ratios", None)
    if size is None and ratios:
        # Depth Pro cuts images of several sizes, of which the smallest has one patch.
        size = math.ceil(source.config.patch_size / min(ratios))
    if size is None:
        processor = read_json(source.folder / "preprocessor_config.json")
        size = processor.get("crop_size") or processor.get("size") or _DEFAULT_IMAGE_SIZE
        if isinstance(size, dict):
            edge = size.get("shortest_edge", _DEFAULT_IMAGE_SIZE)
            size = (size.get("height", edge), size.get("width", edge))
    height, width = map(int, (size, size) if isinstance(size, int) else size)
    return height, width


def vision_config(source: TaskModel) -> object:
    """The part of the configuration with the sizes of images.

    Models of images and text, such as SigLIP, keep them in a part of their configuration, and so do
    encoder-decoders; SAM 2 keeps them in a part of that part.
    """
    parts = [getattr(source.config, name, None) for name in ("vision_config", "encoder", "backbone_config")]
    for config in (*parts, *(getattr(part, "backbone_config", None) for part in parts)):
        if getattr(config, "image_size", None) is not None:
            return config
    return source.config


def _image(source: TaskModel, axes: Axes) -> torch.Tensor:
    """An image, its patches, or the frames of a video for models that have a number of frames."""
    if naflex.reads_shapes(source.model):
        return _patches("pixel_values")(source, axes)
    timm_shape = timm_image_shape(source.config)
    vision = vision_config(source)
    channels = getattr(vision, "num_channels", 3) if timm_shape is None else timm_shape[0]
    sizes = (getattr(part, name, None) for part in (source.config, vision) for name in _FRAME_COUNTS)
    frames = next((size for size in sizes if size), None)
    shape = [channels, *image_size(source)]
    if frames is not None:
        shape.insert(0, frames)
    return random_tensor(_SIZES[axes[0]], *shape, dtype=source.model.dtype)


def _patches(name: str) -> Callable[[TaskModel, Axes], torch.Tensor]:
    """An input of models that read images as patches and shapes."""

    def make(source: TaskModel, axes: Axes) -> torch.Tensor:
        config = getattr(source.config, "vision_config", source.config)
        return naflex.example_images(config, _SIZES[axes[0]], 2, source.model.dtype)[name]

    return make


def _pixel_mask(source: TaskModel, axes: Axes) -> torch.Tensor:
    """The last image is smaller than the others."""
    import torch

    height, width = image_size(source)
    mask = torch.ones(_SIZES[axes[0]], height, width, dtype=torch.int64)
    mask[-1, height // 2 :] = 0
    return mask


def _large_image(source: TaskModel, axes: Axes) -> torch.Tensor:
    """The images in the size that a second encoder, for high resolution, reads."""
    config = source.config.high_res_vision_config
    return random_tensor(
        _SIZES[axes[0]], config.num_channels, config.image_size, config.image_size, dtype=source.model.dtype
    )


def _instructions(source: TaskModel, axes: Axes) -> torch.Tensor:
    """Tokens for the Q-Former, the part of a model that reads images by a text, in its own vocabulary."""
    return _tokens(dataclasses.replace(source, config=source.config.qformer_config), axes)


def image_pair(source: TaskModel, axes: Axes) -> torch.Tensor:
    """Two images, whose points are matched."""
    return random_tensor(_SIZES[axes[0]], 2, 3, *image_size(source), dtype=source.model.dtype)


def _sound(source: TaskModel, axes: Axes) -> torch.Tensor:
    """Samples; or a spectrogram of fixed length for models that cut it into patches."""
    config = source.config
    if hasattr(config, "max_length") and hasattr(config, "num_mel_bins"):
        shape: tuple[int, ...] = (config.max_length, config.num_mel_bins)
    else:
        strides = getattr(config, "conv_stride", None)
        shape = (_FRAMES * (math.prod(strides) if strides else _DEFAULT_STRIDE),)
        if has_sound_channels(config):
            shape = (1, *shape)
    return random_tensor(_SIZES[axes[0]], *shape, dtype=source.model.dtype)


def has_sound_channels(config: PretrainedConfig) -> bool:
    """Whether samples have an axis of channels in front of them, as for encoders that begin with a codec."""
    return hasattr(config, "dac_config")


def _feature_extractor(source: TaskModel) -> dict[str, Any]:
    """The settings of the folder's feature extractor."""
    settings: dict[str, Any] = read_json(source.folder / "preprocessor_config.json") or read_json(
        source.folder / "processor_config.json"
    ).get("feature_extractor", {})
    return settings


def masks_sounds(source: TaskModel) -> bool:
    """Whether the feature extractor of the folder makes a mask of sounds that are padded to one length."""
    return bool(_feature_extractor(source).get("return_attention_mask"))


def sound_mask(sounds: torch.Tensor) -> torch.Tensor:
    """A mask of sounds `[batch, length, …]`; the end of the first one is padding."""
    import torch

    mask = torch.ones(sounds.shape[:2], dtype=torch.int64)
    mask[0, -(sounds.shape[1] // 3) :] = 0
    return mask


def has_dynamic_frames(config: PretrainedConfig) -> bool:
    """Whether spectrograms have their bins first, as for Whisper, and any length."""
    return config.model_type in _CAUSAL_ENCODERS


def has_bins_first(config: PretrainedConfig) -> bool:
    """Whether spectrograms have a fixed length, and their bins first, as for models such as Whisper."""
    # Wav2Vec2-BERT has positions too, but no number of bins.
    return hasattr(config, "max_source_positions") and hasattr(config, "num_mel_bins")


def _spectrogram(source: TaskModel, axes: Axes) -> torch.Tensor:
    """A spectrogram, with its bins last unless `has_bins_first`."""
    config = getattr(source.config, "encoder_config", source.config)
    if has_bins_first(config):
        shape = (config.num_mel_bins, 2 * config.max_source_positions)
    else:
        names = ("feature_projection_input_dim", "input_feat_per_channel", "num_mel_bins")
        bins = next((getattr(config, name) for name in names if hasattr(config, name)), None)
        if bins is not None and config.model_type in _STACKED_FRAMES:
            bins *= _STACKED_FRAMES[config.model_type]
        # The configuration of Gemma 4 does not say it.
        bins = bins or _feature_extractor(source).get("feature_size")
        if bins is None:
            raise UsageError(
                f"the configuration of models of type '{config.model_type}' has no num_mel_bins, and the "
                "folder no preprocessor_config.json with a feature_size: add that file of the model"
            )
        shape = (bins, _FRAMES) if has_dynamic_frames(config) else (_FRAMES, bins)
    return random_tensor(_SIZES[axes[0]], *shape, dtype=source.model.dtype)


def _prompt_points(source: TaskModel, axes: Axes) -> torch.Tensor:
    """Points in the image, `[batch, objects, points, 2]`."""
    batch, points = _shape(axes)
    return 8 * random_tensor(batch, 1, points, 2, dtype=source.model.dtype).abs()


def _prompt_labels(source: TaskModel, axes: Axes) -> torch.Tensor:
    """Whether each point belongs to the object or to the background."""
    import torch

    batch, points = _shape(axes)
    return torch.arange(batch * points).reshape(batch, 1, points) % 2


def _past_values(source: TaskModel, axes: Axes) -> torch.Tensor:
    """A time series, `[batch, length, channels]`; without channels for models of one value per step."""
    config = source.config
    shape = [_SIZES[axes[0]], config.context_length]
    if _MISSING_VALUES not in inspect.signature(type(source.model).forward).parameters:
        shape.append(config.num_input_channels)
    return random_tensor(*shape, dtype=source.model.dtype)


def _missing_values(source: TaskModel, axes: Axes) -> torch.Tensor:
    """Which steps of a time series are padding: the first ones of the first series."""
    import torch

    missing = torch.zeros(_SIZES[axes[0]], source.config.context_length, dtype=torch.int64)
    missing[0, : source.config.context_length // 3] = 1
    return missing


def _frequency(source: TaskModel, axes: Axes) -> torch.Tensor:
    """The frequency of each time series as the number of its category, `[batch, 1]`."""
    import torch

    return torch.remainder(torch.arange(_SIZES[axes[0]])[:, None], source.config.freq_size)


def _trajectory(size_name: str) -> MakeInput:
    """Values of the size of an entry of the configuration, for each step."""

    def make(source: TaskModel, axes: Axes) -> torch.Tensor:
        return random_tensor(*_shape(axes), getattr(source.config, size_name, 1), dtype=source.model.dtype)

    return make


def _time_steps(source: TaskModel, axes: Axes) -> torch.Tensor:
    import torch

    batch, length = _shape(axes)
    return torch.arange(length).expand(batch, length).contiguous()


def _shape(axes: Axes) -> tuple[int, ...]:
    return tuple(_SIZES[axes[axis]] for axis in sorted(axes))


_MAKERS: dict[str, MakeInput] = {
    "input_ids": _tokens,
    "attention_mask": _mask,
    "token_type_ids": _token_types,
    "bbox": _boxes,
    **dict.fromkeys(MARKUP_INPUTS, _markup_path),
    LANGUAGES: _languages,
    "pixel_values": _image,
    "pixel_mask": _pixel_mask,
    naflex.PATCH_MASK: _patches(naflex.PATCH_MASK),
    naflex.SHAPES: _patches(naflex.SHAPES),
    "high_res_pixel_values": _large_image,
    "qformer_input_ids": _instructions,
    "qformer_attention_mask": _mask,
    "pixel_values_videos": _image,
    "input_values": _sound,
    "input_features": _spectrogram,
    "input_points": _prompt_points,
    "input_labels": _prompt_labels,
    "past_values": _past_values,
    _MISSING_VALUES: _missing_values,
    _FREQUENCY: _frequency,
    "states": _trajectory("state_dim"),
    "actions": _trajectory("act_dim"),
    "rewards": _trajectory(""),
    "returns_to_go": _trajectory(""),
    "timesteps": _time_steps,
}
