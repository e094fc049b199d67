"""Images as rows of patches, each with its column and row: Gemma 4.

transformers splits the features by image, by numbers in Python. Here those of all images stay together, so
the number of images is dynamic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....registration import UsageError
from ..graphs import ExampleCall, Inputs, Pairs, TaskModel, random_tensor
from .decoder_inputs import with_marked_images
from .grids import FEATURES, PATCHES
from .tiles import IMAGES

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

LOCATIONS = "image_position_ids"
"""The column and row of each patch in its image; -1 for patches that are padding."""
TOKEN_TYPES = "mm_token_type_ids"
_BLOCKS = ((2, 3), (4, 1))
"""The columns and rows of the images of the example, in blocks of patches that become one feature."""


def encode_call(source: TaskModel) -> ExampleCall:
    """The call that gives the features of images, from the patches of each, padded to one number.

    Raises:
        UsageError: the model of the folder reads no images.
    """
    import torch

    config: Any = source.config.vision_config
    if config is None:
        raise UsageError(
            f"the {type(source.model).__name__} of the folder reads no images: export it with the task "
            "text-generation"
        )
    # A model without an encoder of images reads patches of as many pixels as become one feature.
    side = config.pooling_kernel_size if hasattr(source.model.base_model, "vision_tower") else 1
    width = 3 * (config.patch_size * config.pooling_kernel_size // side) ** 2
    # No image has as many patches as the padded ones.
    count = 1 + max(rows * columns for rows, columns in _BLOCKS)
    locations = torch.full((len(_BLOCKS), count * side**2, 2), -1)
    for image, (columns, rows) in zip(locations, _BLOCKS, strict=True):
        patches = torch.cartesian_prod(torch.arange(rows * side), torch.arange(columns * side)).flip(1)
        image[: len(patches)] = patches
    pixels = random_tensor(*locations.shape[:2], width, dtype=source.model.dtype)
    inputs = {"pixel_values": pixels, LOCATIONS: locations}
    patches_axis = f"{side**2}*{PATCHES}" if side > 1 else PATCHES
    axes = {name: {0: IMAGES, 1: patches_axis} for name in inputs}
    return ExampleCall(_encode, inputs, other_axes=axes, outputs=FEATURES)


def _encode(model: PreTrainedModel, inputs: Inputs, past: Pairs) -> torch.Tensor:
    """The features of all images, one after the other: `[positions, width]`."""
    owner: Any = getattr(model, "model")  # noqa: B009
    pixels, locations = inputs["pixel_values"], inputs[LOCATIONS]
    features: torch.Tensor
    if hasattr(owner, "vision_tower"):
        states = owner.vision_tower(pixel_values=pixels, pixel_position_ids=locations).last_hidden_state
        features = owner.embed_vision(inputs_embeds=states)
        return features
    features = owner.embed_vision(pixels, locations, return_dict=True).pooler_output
    return features[(locations != -1).all(dim=-1)]


def with_image_attention(source: TaskModel, call: ExampleCall) -> ExampleCall:
    """The call of a decoder in which the tokens of an image may attend to each other."""
    if source.config.get_text_config().use_bidirectional_attention != "vision":
        return call
    return with_marked_images(call, TOKEN_TYPES)
