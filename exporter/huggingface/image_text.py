"""Models that generate text about images: the embeddings of tokens, the features of images, and the decoder.

The features take the places of the image tokens among the embeddings, before the decoder runs.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...registration import UsageError
from .decoders import decoder_call
from .graphs import BATCH, EXAMPLE_SEQUENCE, ExampleCall, Inputs, Pairs, TaskModel, example_tokens
from .images import grids, tiles
from .images.decoder_inputs import with_deepstack, with_grid_positions, with_joined_prompt, with_marked_images
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
PIXEL_MASK, IMAGES = "pixel_attention_mask", "num_images"
IMAGE_INPUTS = ("pixel_values", PIXEL_MASK, grids.GRIDS, tiles.SIZES)
"""The inputs of the files for images, as processors make them."""
_DECODER_ARGUMENTS = frozenset(
    {
        "input_ids",
        "inputs_embeds",
        "attention_mask",
        "position_ids",
        "past_key_values",
        "use_cache",
        "logits_to_keep",
        "labels",
        "kwargs",
        "output_attentions",
        "output_hidden_states",
        "return_dict",
    }
)
"""What a decoder reads that takes the features of images as embeddings, and as nothing else."""
_LISTS_IMAGES = ("LlavaModel",)
"""Models whose features of images are a list of the rows of what their projector returns."""
_HAS_TILES = ("LlavaNextModel",)
"""Models that cut images into tiles of one size; an image has as many as its size asks for."""
_MASKS_PIXELS = ("Idefics3Model", "SmolVLMModel")
"""Models with several images for each text, and a mask of their pixels."""
_JOINS_IMAGE_TOKENS = ("Gemma3Model",)
"""Models whose tokens of one image attend to each other, and which have them marked by `token_type_ids`."""
_JOINS_PROMPT = ("PaliGemmaModel",)
"""Models whose tokens of the prompt attend to each other, and have 0 as their `token_type_ids`."""
_IMAGE_ARGUMENTS = frozenset(
    {
        "pixel_values",
        "image_sizes",
        "vision_feature_layer",
        "vision_feature_select_strategy",
        "vision_aspect_ratio",
        "image_hidden_states",
        "mm_encoder_outputs",
    }
)
"""What the features of images are computed from, or these features."""


def image_text_to_text(source: TaskModel) -> list[ExampleCall]:
    """The calls of a model whose decoder reads the features of images as embeddings, such as LLaVA.

    Raises:
        UsageError: the decoder needs more than embeddings, or the features more than images of one size.
    """
    model = source.model
    encoder = grids.grid_encoder(model)
    _check_parts(model, reads_grids=encoder is not None)
    embed = ExampleCall(_embed_tokens, {"input_ids": example_tokens(source.config, EXAMPLE_SEQUENCE)})
    decode = decoder_call(source, reads_embeddings=True)
    if encoder is not None:
        encode, layers = grids.encode_call(source, encoder)
        decode = with_grid_positions(source, decode)
        return [embed, encode, with_deepstack(source, decode, layers) if layers else decode]
    owner = _owner_of(model)
    if owner in _JOINS_IMAGE_TOKENS:
        decode = with_marked_images(decode)
    if owner in _JOINS_PROMPT:
        decode = with_joined_prompt(decode)
    if owner in _HAS_TILES:
        return [embed, tiles.encode_call(source, image_size(source)[0]), decode]
    images = make_inputs(source, {"pixel_values": {0: IMAGE_BATCH}})
    if owner in _MASKS_PIXELS:
        return [embed, _masked_images_call(images["pixel_values"]), decode]
    one_image = {name: image[:1] for name, image in images.items()}
    return [
        embed,
        ExampleCall(_encode_images, images, fixed_inputs=one_image, outputs=grids.FEATURES),
        decode,
    ]


def _owner_of(model: PreTrainedModel) -> str:
    """The name of the class of the model without its head."""
    return type(getattr(model, "model", model)).__name__


def _masked_images_call(images: torch.Tensor) -> ExampleCall:
    """The call for the images of several texts, of which the last is smaller than the others."""
    import torch

    pixels = torch.stack([images, images.flip(0), images], dim=1)
    mask = torch.ones(*pixels.shape[:2], *pixels.shape[3:], dtype=torch.bool)
    mask[-1, -1, pixels.shape[3] // 2 :] = False
    axes = {0: BATCH, 1: IMAGES}
    return ExampleCall(
        _encode_masked_images,
        {"pixel_values": pixels, PIXEL_MASK: mask},
        other_axes={"pixel_values": axes, PIXEL_MASK: axes},
        outputs=grids.FEATURES,
    )


def _check_parts(model: PreTrainedModel, *, reads_grids: bool) -> None:
    """Refuse models whose images do more than to replace embeddings.

    Args:
        model: to check.
        reads_grids: whether images are patches in grids.

    Raises:
        UsageError: the message names an argument that tells so.
    """
    parameters = inspect.signature(type(model).forward).parameters
    arguments = {"self", *_DECODER_ARGUMENTS, *_IMAGE_ARGUMENTS}
    owner = _owner_of(model)
    if owner in _MASKS_PIXELS:
        arguments.add(PIXEL_MASK)
    if owner in (*_JOINS_IMAGE_TOKENS, *_JOINS_PROMPT):
        arguments.add("token_type_ids")
    if reads_grids:
        arguments |= grids.GRID_ARGUMENTS
    unsupported = [name for name in parameters if name not in arguments]
    encode = getattr(model, "get_image_features", None)
    needed = [] if encode is None else inspect.signature(encode).parameters.values()
    unsupported += [
        parameter.name
        for parameter in needed
        if parameter.default is parameter.empty
        and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        and parameter.name not in ("pixel_values", *([tiles.SIZES] if owner in _HAS_TILES else []))
    ]
    # Masks between the tokens of an image, positions in a grid and features for inner layers have arguments.
    if encode is None or "inputs_embeds" not in parameters or unsupported:
        reason = f"it has the argument {unsupported[0]}" if unsupported else "it has no get_image_features"
        raise UsageError(
            "image-text-to-text is for models whose decoder reads the features of images as embeddings only, "
            f"not for {type(model).__name__} ({reason}): export its parts with opsetta.huggingface and "
            "export_for_generation"
        )


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


def _encode_images(model: PreTrainedModel, inputs: Inputs, past: Pairs) -> torch.Tensor:
    """The features of all images, one after the other: `[positions, width]`."""
    import torch

    # The type of models in general does not declare it.
    encode: Callable[..., Any] = getattr(model, "get_image_features")  # noqa: B009
    with contextlib.ExitStack() as stack:
        projector = _projector_of(model)
        if projector is not None:
            stack.callback(projector.register_forward_hook(_join_images).remove)
        result = encode(**inputs)
    # Releases before 5 return the features themselves.
    features = getattr(result, "pooler_output", result)
    images = features if isinstance(features, (list, tuple)) else [features]
    return torch.cat([image.reshape(-1, image.shape[-1]) for image in images])


def _encode_masked_images(model: PreTrainedModel, inputs: Inputs, past: Pairs) -> torch.Tensor:
    """The features of all images of all texts: `[positions, width]`.

    As `get_image_features` of Idefics 3, which also makes a list of them by the text.
    """
    owner: Any = getattr(model, "model")  # noqa: B009
    images, mask = (inputs[name].flatten(0, 1) for name in ("pixel_values", PIXEL_MASK))
    # Texts have as many images each: the others of them are zeros.
    is_image = (images != 0).flatten(1).any(dim=1)
    images, mask = images[is_image], mask[is_image]
    size = model.config.vision_config.patch_size
    patches = mask.unfold(1, size, size).unfold(2, size, size)
    has_pixels = patches.flatten(3).any(dim=3)
    states = owner.vision_model(pixel_values=images, patch_attention_mask=has_pixels).last_hidden_state
    features: torch.Tensor = owner.connector(states)
    return features.flatten(0, 1)
