"""Images as crops, of whose patches those of a block become one feature: Molmo 2.

transformers splits the features by image, by numbers in Python. Here those of all images stay together, so
the numbers of crops and of features are dynamic.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from ..graphs import ExampleCall, Inputs, Pairs, TaskModel, random_tensor
from .decoder_inputs import TYPES, replace_decoder_masks
from .grids import FEATURES

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

POOLED, TOKEN_TYPES = "image_token_pooling", "mm_token_type_ids"
SPLITS = ("image_grids", "image_num_crops")
"""What the processor says of each image, by which transformers splits the features."""


def encode_call(source: TaskModel) -> ExampleCall:
    """The call that gives the features of images, from their crops and the patches of each feature."""
    import torch

    config: Any = source.config.vision_config
    crops, patches = 3, config.num_position_embeddings
    pixels = random_tensor(crops, patches, 3 * config.patch_size**2, dtype=source.model.dtype)
    # Blocks of four patches, of which the last one of the image has fewer.
    pooled = torch.arange(crops * patches // 4 * 4).reshape(-1, 4)
    pooled[-1, 2:] = -1
    axes = {"pixel_values": {0: "num_crops"}, POOLED: {0: "num_features", 1: "block_size"}}
    inputs = {"pixel_values": pixels, POOLED: pooled}
    return ExampleCall(_encode, inputs, other_axes=axes, outputs=FEATURES)


def _encode(model: PreTrainedModel, inputs: Inputs, past: Pairs) -> torch.Tensor:
    """The features of all images, one after the other: `[positions, width]`.

    They are added to the embedding of the image token, which has one value.
    """
    import torch

    owner: Any = getattr(model, "model")  # noqa: B009
    states = owner.vision_tower(inputs["pixel_values"], output_hidden_states=True).hidden_states
    layers = model.config.adapter_config.vision_feature_layer
    chosen = torch.cat([states[layer + 1 if layer >= 0 else layer] for layer in layers], dim=-1)
    features: torch.Tensor = owner.multi_modal_projector(chosen, inputs[POOLED]).last_hidden_state
    embedded: torch.Tensor = model.get_input_embeddings()(torch.tensor([model.config.image_token_id]))
    return features + embedded


def with_attending_images(call: ExampleCall) -> ExampleCall:
    """The call of a decoder whose tokens of images attend to each other, also to those of other images.

    transformers reads the types of tokens in the first call only, and the graph reads them in all calls.
    """
    import torch

    types = torch.zeros_like(call.inputs["attention_mask"])
    past = types.shape[1] - call.inputs["inputs_embeds"].shape[1]
    types[:, past - 1 : past + 2] = 1

    def run(model: PreTrainedModel, inputs: Inputs, past: Pairs) -> Any:
        from transformers.masking_utils import create_masks_for_generate

        blocks = torch.where(inputs[TYPES] == 1, 0, -1)

        def make_masks(**arguments: Any) -> object:
            return create_masks_for_generate(
                config=model.config.get_text_config(), block_sequence_ids=blocks, **arguments
            )

        with replace_decoder_masks(model, inputs["attention_mask"], make_masks):
            call_inputs = {name: tensor for name, tensor in inputs.items() if name != TYPES}
            return call.call(model, call_inputs, past)

    return dataclasses.replace(call, call=run, inputs={**call.inputs, TYPES: types})
