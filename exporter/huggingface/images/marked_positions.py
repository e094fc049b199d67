"""Images whose features take the places that a mask of the prompt marks: Kosmos 2."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from ..graphs import ExampleCall, Inputs, Pairs

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

POSITION_MASK = "image_embeds_position_mask"
"""Which tokens of the prompt are places of features, `[batch, length]`."""


def encode_images(model: PreTrainedModel, inputs: Inputs, past: Pairs) -> torch.Tensor:
    """The features of all images, one after the other: `[positions, width]`."""
    from transformers import Kosmos2Model

    # The class with the head has the same parts, and not this method.
    without_head: Any = Kosmos2Model
    features: torch.Tensor = without_head.get_image_features(model, inputs["pixel_values"]).pooler_output
    return features.flatten(0, 1)


def with_counted_positions(call: ExampleCall) -> ExampleCall:
    """The call of a decoder whose positions begin behind the number of the padding token.

    Padding in front of the prompt has no positions in the first call. In the next ones, transformers counts
    the positions of the cache, with those of padding.
    """

    def run(model: PreTrainedModel, inputs: Inputs, past: Pairs) -> Any:
        import torch

        embedding: Any = model.get_submodule("text_model.model.embed_positions")
        positions, length = inputs["position_ids"], inputs["position_ids"].shape[1]
        columns = torch.arange(inputs["attention_mask"].shape[1], device=positions.device)[-length:]
        counted = torch.where(columns >= length, columns, positions) + embedding.padding_idx + 1
        return call.call(model, {**inputs, "position_ids": counted}, past)

    return dataclasses.replace(call, call=run)
