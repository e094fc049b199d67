"""Images as tiles of one size, of which a mask says which exist: Granite Docling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..graphs import BATCH, EXAMPLE_BATCH, ExampleCall, Inputs, Pairs, TaskModel, random_tensor
from .decoder_inputs import with_deepstack
from .grids import DEEPSTACK_FEATURES, FEATURES
from .naflex import PATCH_MASK

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

_EXAMPLE_TILES = 3


def encode_call(source: TaskModel) -> ExampleCall:
    """The call that gives the features of images and those for inner layers, from their tiles."""
    import torch

    config: Any = source.config.vision_config
    shape = (EXAMPLE_BATCH, _EXAMPLE_TILES)
    pixels = random_tensor(
        *shape, config.num_channels, config.image_size, config.image_size, dtype=source.model.dtype
    )
    mask = torch.ones(shape, dtype=torch.bool)
    mask[-1, 1:] = False
    axes = {name: {0: BATCH, 1: "num_tiles"} for name in ("pixel_values", PATCH_MASK)}
    inputs = {"pixel_values": pixels, PATCH_MASK: mask}
    return ExampleCall(_encode, inputs, other_axes=axes, outputs=(*FEATURES, DEEPSTACK_FEATURES))


def _encode(model: PreTrainedModel, inputs: Inputs, past: Pairs) -> tuple[torch.Tensor, torch.Tensor]:
    """The features of all images, one after the other: `[positions, width]`; then those of inner layers.

    They are those of the coarse path, which a processor makes prompts for unless it is told otherwise.
    """
    import torch

    owner: Any = getattr(model, "model")  # noqa: B009
    tiles = inputs["pixel_values"][inputs[PATCH_MASK]]
    result = owner.vision_model(pixel_values=tiles, fine=False, return_dict=True)
    return result.pooler_output, torch.stack(list(result.deepstack_features))


def with_inner_features(source: TaskModel, call: ExampleCall) -> ExampleCall:
    """The call of a decoder that adds features of images to the results of its first layers."""
    config: Any = source.config.vision_config
    # The encoder returns the state behind each of its layers that is named, once.
    layers = set(config.deepstack_visual_indexes).intersection(range(config.num_hidden_layers))
    return with_deepstack(source, call, len(layers))
