"""Models that generate text about images: the embeddings of tokens, the features of images, and the decoder.

The features take the places of the image tokens among the embeddings, before the decoder runs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from ...registration import UsageError
from .decoders import decoder_call
from .graphs import (
    BATCH,
    EXAMPLE_BATCH,
    EXAMPLE_SEQUENCE,
    EXAMPLE_SOURCE,
    SEQUENCE,
    Axes,
    ExampleCall,
    Inputs,
    Pairs,
    TaskModel,
    example_tokens,
    random_tensor,
)
from .images import (
    cross_attention,
    grids,
    local_views,
    located_patches,
    marked_positions,
    masked_tiles,
    naflex,
    packed_patches,
    padded_images,
    pooled_crops,
    tiles,
)
from .images.decoder_inputs import (
    DECODER_ARGUMENTS,
    EMBEDDINGS,
    LAYER_EMBEDS,
    embed_by_model,
    with_deepstack,
    with_grid_positions,
    with_joined_prompt,
    with_layer_embeddings,
    with_marked_images,
)
from .tasks.example_inputs import IMAGE_BATCH, image_size, make_inputs

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

EMBEDDING_FILE, VISION_FILE, DECODER_FILE = (
    "embed_tokens.onnx",
    "vision_encoder.onnx",
    "decoder_model_merged.onnx",
)
"""The files, as transformers.js calls them."""
PIXEL_MASK = "pixel_attention_mask"
IMAGE_INPUTS = (
    "pixel_values",
    PIXEL_MASK,
    grids.GRIDS,
    grids.MERGES,
    tiles.SIZES,
    tiles.COUNTS,
    cross_attention.RATIOS,
    cross_attention.TILE_MASK,
    naflex.SHAPES,
    local_views.VIEWS,
    local_views.COUNTS,
    located_patches.LOCATIONS,
    packed_patches.TARGET_SIZES,
    pooled_crops.POOLED,
    "pixel_mask",
    "high_res_pixel_values",
    "qformer_input_ids",
    "qformer_attention_mask",
)
"""The inputs of the files for images, as processors make them."""
PROMPT_IMAGES = (
    *IMAGE_INPUTS,
    cross_attention.MASK,
    marked_positions.POSITION_MASK,
    *pooled_crops.SPLITS,
)
"""What processors make of images, for the decoder and for transformers alone, too."""
_VIDEO_FEATURES, _FRAMES = "get_video_features", 4
"""The method that encodes videos, and the number of frames, which is fixed for models of videos alone."""
_OTHER_MEDIA: Mapping[str, str] = {
    "image": "video|audio|^input_(features|values)|^feature_attention_mask$",
    "audio": "video|image|^pixel_",
}
"""What the names of arguments for other media than images, or than sounds, have: files do without these."""
_LISTS_IMAGES = ("LlavaModel",)
"""Models whose features of images are a list of the rows of what their projector returns."""
_IMAGES_OF_ONE_SIZE: Mapping[str, Axes] = {"pixel_values": {0: IMAGE_BATCH}}
_FEATURE_ARGUMENTS: Mapping[str, Axes] = {
    **_IMAGES_OF_ONE_SIZE,
    "pixel_mask": {0: IMAGE_BATCH},
    "high_res_pixel_values": {0: IMAGE_BATCH},
    "qformer_input_ids": {0: IMAGE_BATCH, 1: SEQUENCE},
    "qformer_attention_mask": {0: IMAGE_BATCH, 1: SEQUENCE},
}
"""The arguments of `get_image_features` for images of one size, and their dynamic axes."""
_IMAGE_ARGUMENTS = frozenset(
    {
        "pixel_values",
        "image_sizes",
        "vision_feature_layer",
        "vision_feature_select_strategy",
        "vision_aspect_ratio",
        "interpolate_pos_encoding",
        "image_hidden_states",
        "mm_encoder_outputs",
        # The former name of `pixel_values` in Video-LLaVA.
        "pixel_values_images",
    }
)
"""What the features of images and videos are computed from, or these features."""


@dataclasses.dataclass(frozen=True)
class _ImageForm:
    """How models read images, where it is not as embeddings of images of one size and nothing else.

    Attributes:
        arguments: of the model, besides those of other models.
        encode: makes the call that gives the features of images; None for images of one size.
        decode: changes the call of the decoder.
        replaces_tokens: whether the features take the places of tokens.
        replaces_media: whether the model replaces the tokens of media before it embeds them.
    """

    arguments: tuple[str, ...] = ()
    encode: Callable[[TaskModel], ExampleCall] | None = None
    decode: Callable[[TaskModel, ExampleCall], ExampleCall] = lambda source, call: call
    replaces_tokens: bool = True
    replaces_media: bool = False


def image_text_to_text(source: TaskModel) -> list[ExampleCall]:
    """The calls of a model whose decoder reads the features of images as embeddings, such as LLaVA.

    Raises:
        UsageError: the decoder needs more than embeddings, or the features more than images of one size.
    """
    model = source.model
    encoder = grids.grid_encoder(model)
    # By the class of the model without its head, or by a class of its encoder.
    owners = [getattr(model, "model", model), *model.modules()]
    names = (type(owner).__name__ for owner in owners)
    form = next((_FORMS[name] for name in names if name in _FORMS), _ImageForm())
    if form.replaces_tokens:
        check_parts(
            model, grids.GRID_ARGUMENTS if encoder is not None else {*form.arguments, *_FEATURE_ARGUMENTS}
        )
    embed = embed_call(source, replaces_media=form.replaces_media)
    decode = embeddings_decoder_call(source)
    if encoder is not None:
        encode, layers = grids.encode_call(source, encoder)
        decode = with_grid_positions(source, decode)
        return [embed, encode, with_deepstack(source, decode, layers) if layers else decode]
    return [embed, (form.encode or _images_call)(source), form.decode(source, decode)]


def embeddings_decoder_call(source: TaskModel) -> ExampleCall:
    """The call of the decoder, which BLIP-2 and Kosmos 2 have as a model of their own."""
    model = source.model
    parameters = inspect.signature(type(model).forward).parameters
    if "past_key_values" in parameters and marked_positions.POSITION_MASK not in parameters:
        call = decoder_call(source, reads_embeddings=True)
        return with_layer_embeddings(source, call) if _has_layer_embeddings(source) else call
    name = next((name for name in ("language_model", "text_model") if hasattr(model, name)), None)
    if name is None:
        raise refuse_model(model, "it has no language_model")
    decoder: Any = getattr(model, name)
    call = decoder_call(
        dataclasses.replace(source, model=decoder, config=decoder.config), reads_embeddings=True
    )
    return dataclasses.replace(
        call,
        call=lambda model, inputs, past: call.call(getattr(model, name), inputs, past),
    )


def _images_call(source: TaskModel) -> ExampleCall:
    """The call for images of one size, of which some models take one at a time."""
    encode = _features_method(source.model, "image")
    assert encode is not None  # As `check_parts` says.
    parameters = inspect.signature(encode).parameters
    axes = {name: axes for name, axes in _FEATURE_ARGUMENTS.items() if name in parameters}
    images = make_inputs(source, axes)
    if encode.__name__ == _VIDEO_FEATURES:
        images["pixel_values"] = images["pixel_values"][:, None].repeat(1, _FRAMES, 1, 1, 1)
    one_image = {name: image[:1] for name, image in images.items()}
    return ExampleCall(encode_media, images, fixed_inputs=one_image, other_axes=axes, outputs=grids.FEATURES)


def _masked_images_call(source: TaskModel, *, has_sizes: bool = False) -> ExampleCall:
    """The call for the images of several texts, of which the last is smaller than the others.

    Args:
        source: the model.
        has_sizes: whether the largest image has any size, and whether patches with padding are left out.
    """
    import torch

    images = make_inputs(source, _IMAGES_OF_ONE_SIZE)["pixel_values"]
    pixels = torch.stack([images, images.flip(0), images], dim=1)
    axes = {"pixel_values": {0: BATCH, 1: tiles.IMAGES}, PIXEL_MASK: {0: BATCH, 1: tiles.IMAGES}}
    if has_sizes:
        side = source.config.vision_config.patch_size
        # The width differs from the height, or the capture would take both for one dimension.
        pixels = torch.cat([pixels, pixels[..., :side]], dim=-1)
        # The capture takes a size of one patch for a constant.
        height, width = f"{2 * side} <= height", f"{2 * side} <= width"
        axes["pixel_values"] |= {3: height, 4: width}
        axes[PIXEL_MASK] |= {2: height, 3: width}
    mask = torch.ones(*pixels.shape[:2], *pixels.shape[3:], dtype=torch.bool)
    mask[-1, -1, pixels.shape[3] // 2 :] = False
    return ExampleCall(
        functools.partial(_encode_masked_images, needs_whole_patches=has_sizes),
        {"pixel_values": pixels, PIXEL_MASK: mask},
        other_axes=axes,
        outputs=grids.FEATURES,
    )


def _patches_call(source: TaskModel) -> ExampleCall:
    """The call for images as rows of patches, which one matrix embeds: Fuyu."""
    width = source.config.num_channels * source.config.patch_size**2
    images = {"pixel_values": random_tensor(EXAMPLE_BATCH, EXAMPLE_SOURCE, width, dtype=source.model.dtype)}
    axes = {"pixel_values": {0: IMAGE_BATCH, 1: grids.PATCHES}}
    return ExampleCall(_embed_patches, images, other_axes=axes, outputs=grids.FEATURES)


def _embed_patches(model: PreTrainedModel, inputs: Inputs, past: Pairs) -> torch.Tensor:
    """The features of the patches of all images: `[positions, width]`."""
    owner: Any = getattr(model, "model")  # noqa: B009
    features: torch.Tensor = owner.get_image_features(inputs["pixel_values"]).last_hidden_state
    return features.flatten(0, 1)


def check_parts(
    model: PreTrainedModel,
    form_arguments: Collection[str],
    *,
    medium: str = "image",
    encoded: str = "pixel_values",
    medium_arguments: Collection[str] = _IMAGE_ARGUMENTS,
) -> None:
    """Refuse models whose images or sounds do more than to replace embeddings.

    Args:
        model: to check.
        form_arguments: that the form of its images has.
        medium: "image" or "audio".
        encoded: the argument that is encoded.
        medium_arguments: that models of the medium have.

    Raises:
        UsageError: the message names an argument that tells so.
    """
    parameters = inspect.signature(type(model).forward).parameters
    arguments = {"self", *DECODER_ARGUMENTS, *medium_arguments, *form_arguments}
    unsupported = [
        name for name in parameters if name not in arguments and not re.search(_OTHER_MEDIA[medium], name)
    ]
    encode = _features_method(model, medium)
    needed = [] if encode is None else inspect.signature(encode).parameters.values()
    unsupported += [
        parameter.name
        for parameter in needed
        if parameter.default is parameter.empty
        and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        and parameter.name not in (encoded, *form_arguments)
    ]
    # Masks between the tokens of an image, positions in a grid and features for inner layers have arguments.
    if encode is None or "inputs_embeds" not in parameters or unsupported:
        raise refuse_model(
            model,
            f"it has the argument {unsupported[0]}" if unsupported else f"it has no get_{medium}_features",
            medium,
        )


def refuse_model(model: PreTrainedModel, reason: str, medium: str = "image") -> UsageError:
    """The error for a model whose decoder does not read images or sounds as embeddings only."""
    media = {"image": "images", "audio": "sounds"}[medium]
    return UsageError(
        f"{medium}-text-to-text is for models whose decoder reads the features of {media} as embeddings "
        f"only, not for {type(model).__name__} ({reason}): export its parts with opsetta.huggingface and "
        "export_for_generation"
    )


def embed_call(source: TaskModel, *, replaces_media: bool = False) -> ExampleCall:
    """The call that gives the embeddings of tokens.

    Args:
        source: the model.
        replaces_media: whether the model replaces the tokens of media before it embeds them.

    Raises:
        UsageError: each layer of the decoder reads embeddings of tokens that the model does not take.
    """
    tokens = {"input_ids": example_tokens(source.config, EXAMPLE_SEQUENCE)}
    if not _has_layer_embeddings(source):
        call = embed_by_model if replaces_media else _embed_tokens
        return ExampleCall(call, tokens, outputs=EMBEDDINGS[:1])
    if LAYER_EMBEDS not in inspect.signature(type(source.model).forward).parameters:
        raise UsageError(
            f"the decoder of {type(source.model).__name__} reads embeddings of the tokens in each layer "
            "(hidden_size_per_layer_input), which the model does not take: export it for texts alone with "
            "the task text-generation"
        )
    return ExampleCall(embed_by_model, tokens, outputs=EMBEDDINGS)


def _has_layer_embeddings(source: TaskModel) -> bool:
    """Whether each layer of the decoder reads embeddings of the tokens."""
    config = source.config.get_text_config(decoder=True)
    return bool(getattr(config, "hidden_size_per_layer_input", None))


def _embed_tokens(model: PreTrainedModel, inputs: Inputs, past: Pairs) -> torch.Tensor:
    embeddings: torch.Tensor = model.get_input_embeddings()(inputs["input_ids"])
    return embeddings


def _projector_of(model: PreTrainedModel) -> torch.nn.Module | None:
    """The last module of models that make a list of the features of images, such as LLaVA.

    A list has as many items as the example has images, so their number could not be dynamic.
    """
    owner = getattr(model, "model", model)
    if type(owner).__name__ not in _LISTS_IMAGES:
        return None
    projector = getattr(owner, "multi_modal_projector", None)
    return projector if hasattr(projector, "register_forward_hook") else None


def _join_images(module: torch.nn.Module, arguments: object, features: torch.Tensor) -> torch.Tensor:
    """The features of all images, `[images, positions, width]`, as those of one image."""
    return features.flatten(0, 1).unsqueeze(0)


def encode_media(
    model: PreTrainedModel, inputs: Inputs, past: Pairs, *, medium: str = "image"
) -> torch.Tensor:
    """The features of all images or sounds, one after the other: `[positions, width]`."""
    import torch

    encode = _features_method(model, medium)
    assert encode is not None  # As `check_parts` says.
    with contextlib.ExitStack() as stack:
        projector = _projector_of(model)
        if projector is not None:
            stack.callback(projector.register_forward_hook(_join_images).remove)
        result = encode(**inputs)
    # Releases before 5 return the features themselves.
    features = getattr(result, "pooler_output", result)
    if features is None:
        # Llama 4 projects the states of its encoder outside of this method.
        features = model.get_submodule("multi_modal_projector")(result.last_hidden_state)
    items = features if isinstance(features, (list, tuple)) else [features]
    return torch.cat([item.reshape(-1, item.shape[-1]) for item in items])


def _features_method(model: PreTrainedModel, medium: str) -> Callable[..., Any] | None:
    """The method that encodes images or sounds, which some classes have only without their head.

    Models of videos alone, such as InstructBLIP-Video, read them as images.
    """
    names = [f"get_{medium}_features", *([_VIDEO_FEATURES] if medium == "image" else [])]
    owners = (model, getattr(model, "model", None))
    methods = (getattr(owner, name, None) for name in names for owner in owners)
    return next((method for method in methods if method is not None), None)


def _encode_masked_images(
    model: PreTrainedModel, inputs: Inputs, past: Pairs, *, needs_whole_patches: bool
) -> torch.Tensor:
    """The features of all images of all texts: `[positions, width]`.

    As `get_image_features` of Idefics 2 and 3, which also make a list of them by the text.

    Args:
        model, inputs, past: as for `ExampleCall.call`.
        needs_whole_patches: whether patches with padding are left out, as those that are padding.
    """
    owner: Any = getattr(model, "model")  # noqa: B009
    images, mask = (inputs[name].flatten(0, 1) for name in ("pixel_values", PIXEL_MASK))
    # Texts have as many images each: the others of them are zeros.
    is_image = (images != 0).flatten(1).any(dim=1)
    images, mask = images[is_image], mask[is_image]
    size = model.config.vision_config.patch_size
    patches = mask.unfold(1, size, size).unfold(2, size, size).flatten(3)
    exists = patches.all(dim=3) if needs_whole_patches else patches.any(dim=3)
    states = owner.vision_model(pixel_values=images, patch_attention_mask=exists).last_hidden_state
    takes_mask = "attention_mask" in inspect.signature(type(owner.connector).forward).parameters
    masks = {"attention_mask": exists.flatten(1)} if takes_mask else {}
    features: torch.Tensor = owner.connector(states, **masks)
    return features.flatten(0, 1)


_TILED = _ImageForm(
    (tiles.SIZES, tiles.COUNTS), lambda source: tiles.encode_call(source, image_size(source)[0])
)
_VIEWS = _ImageForm(
    (local_views.VIEWS, local_views.COUNTS),
    lambda source: local_views.encode_call(source, image_size(source)),
)
_MASKED = _ImageForm((PIXEL_MASK,), _masked_images_call)
_FORMS: Mapping[str, _ImageForm] = {
    "LlavaNextModel": _TILED,
    # Videos have another method.
    "LlavaNextVideoModel": _TILED,
    "LlavaOnevisionModel": _TILED,
    padded_images.TOWER: _ImageForm((tiles.SIZES,), padded_images.encode_call),
    "Lfm2VlModel": _ImageForm((naflex.PATCH_MASK, naflex.SHAPES), naflex.encode_call),
    **dict.fromkeys(
        ("MiniCPMV4_6Model", "MiniCPMOcrModel"),
        _ImageForm(
            (packed_patches.TARGET_SIZES, "downsample_mode"),
            packed_patches.encode_call,
        ),
    ),
    "Molmo2Model": _ImageForm(
        (pooled_crops.POOLED, *pooled_crops.SPLITS, pooled_crops.TOKEN_TYPES),
        pooled_crops.encode_call,
        lambda source, call: pooled_crops.with_attending_images(call),
    ),
    "GraniteDoclingModel": _ImageForm(
        (PIXEL_MASK, "tile_fine_mask", "router_labels"),
        masked_tiles.encode_call,
        masked_tiles.with_inner_features,
    ),
    "FuyuModel": _ImageForm(("image_patches",), _patches_call),
    "DeepseekOcr2Model": _VIEWS,
    "Step3p7Model": _VIEWS,
    "SmolVLMModel": _MASKED,
    "Idefics3Model": _MASKED,
    "Idefics2Model": _ImageForm((PIXEL_MASK,), functools.partial(_masked_images_call, has_sizes=True)),
    **dict.fromkeys(
        ("Gemma4Model", "Gemma4UnifiedModel"),
        _ImageForm(
            (located_patches.LOCATIONS, located_patches.TOKEN_TYPES, LAYER_EMBEDS),
            located_patches.encode_call,
            located_patches.with_image_attention,
            replaces_media=True,
        ),
    ),
    # The tokens of one image attend to each other, and `token_type_ids` marks them.
    "Gemma3Model": _ImageForm(("token_type_ids",), decode=lambda source, call: with_marked_images(call)),
    # The tokens of the prompt attend to each other, and have 0 as their `token_type_ids`.
    "PaliGemmaModel": _ImageForm(("token_type_ids",), decode=lambda source, call: with_joined_prompt(call)),
    "MllamaModel": _ImageForm(
        encode=cross_attention.encode_call,
        decode=cross_attention.with_cross_attention,
        replaces_tokens=False,
    ),
    "Kosmos2ForConditionalGeneration": _ImageForm(
        encode=lambda source: ExampleCall(
            marked_positions.encode_images,
            make_inputs(source, _IMAGES_OF_ONE_SIZE),
            other_axes=_IMAGES_OF_ONE_SIZE,
            outputs=grids.FEATURES,
        ),
        decode=lambda source, call: marked_positions.with_counted_positions(call),
        replaces_tokens=False,
    ),
    # These generate with their language model.
    "Blip2ForConditionalGeneration": _ImageForm(("decoder_input_ids", "decoder_attention_mask")),
    "InstructBlipForConditionalGeneration": _ImageForm(("decoder_input_ids", "decoder_attention_mask")),
    "InstructBlipVideoForConditionalGeneration": _ImageForm(("decoder_input_ids", "decoder_attention_mask")),
}
"""By the class of the model without its head, or of a part of it."""
