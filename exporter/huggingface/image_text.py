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
from .graphs import EXAMPLE_SEQUENCE, ExampleCall, Inputs, Pairs, TaskModel, example_tokens
from .tasks.example_inputs import IMAGE_BATCH, make_inputs

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

EMBEDDING_FILE, VISION_FILE, DECODER_FILE = (
    "embed_tokens.onnx",
    "vision_encoder.onnx",
    "decoder_model_merged.onnx",
)
"""The files, as transformers.js calls them."""
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
    _check_parts(model)
    images = make_inputs(source, {"pixel_values": {0: IMAGE_BATCH}})
    one_image = {name: image[:1] for name, image in images.items()}
    return [
        ExampleCall(_embed_tokens, {"input_ids": example_tokens(source.config, EXAMPLE_SEQUENCE)}),
        ExampleCall(_encode_images, images, fixed_inputs=one_image),
        decoder_call(source, reads_embeddings=True),
    ]


def _check_parts(model: PreTrainedModel) -> None:
    """Refuse models whose images do more than to replace embeddings.

    Raises:
        UsageError: the message names an argument that tells so.
    """
    parameters = inspect.signature(type(model).forward).parameters
    unsupported = [
        name for name in parameters if name not in {"self", *_DECODER_ARGUMENTS, *_IMAGE_ARGUMENTS}
    ]
    encode = getattr(model, "get_image_features", None)
    needed = [] if encode is None else inspect.signature(encode).parameters.values()
    unsupported += [
        parameter.name
        for parameter in needed
        if parameter.default is parameter.empty
        and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        and parameter.name != "pixel_values"
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
