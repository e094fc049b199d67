"""ViLT, which classifies the answers to questions about images of any size."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ....registration import UsageError
from ..graphs import Axes, ExampleCall, Inputs, Pairs, TaskModel
from ..images.resized_positions import interpolate
from .single_run import example_calls

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel


def image_questions(source: TaskModel, inputs: Mapping[str, Axes]) -> list[ExampleCall]:
    """The call of ViLT, which classifies the answers to a question about an image with a mask of pixels.

    transformers draws as many patches of each image as the largest one has, in a random order that changes
    nothing. Here all patches stay, and attention leaves out those that are padding.

    Args:
        source: the model.
        inputs: the dynamic axes of the inputs of the task.

    Raises:
        UsageError: the model leaves out patches at random.
    """
    if source.config.max_image_length > 0:
        raise UsageError(
            f"the model draws {source.config.max_image_length} patches of an image at random "
            "(max_image_length): set it to -1 in config.json to keep all"
        )
    [example] = example_calls(source, inputs, ("logits",), combines=True)

    def run(model: PreTrainedModel, inputs: Inputs, past: Pairs) -> Any:
        from ...torch_boundary.process.process_state import replace_attribute

        embeddings: Any = model.base_model.get_submodule("embeddings")

        def visual_embed(
            pixel_values: torch.Tensor, pixel_mask: torch.Tensor, max_image_length: int
        ) -> tuple[torch.Tensor, torch.Tensor, None]:
            return (*_embed_patches(embeddings, pixel_values, pixel_mask), None)

        with replace_attribute(embeddings, "visual_embed", visual_embed):
            return example.call(model, inputs, past)

    return [dataclasses.replace(example, call=run, has_fixed_sizes=False)]


def _embed_patches(
    embeddings: Any, pixel_values: torch.Tensor, pixel_mask: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The embeddings of the patches of images with their positions, behind that of the class; their mask."""
    import torch

    patches = embeddings.patch_embeddings(pixel_values)
    batch, _, rows, columns = patches.shape
    mask = torch.nn.functional.interpolate(pixel_mask[:, None].float(), size=(rows, columns)).long()[:, 0]
    # Padding is below an image and to its right, so the first column and row tell its size.
    heights, widths = mask.sum(1)[:, :1], mask.sum(2)[:, :1]
    # The first position is that of the class.
    table = embeddings.position_embeddings[0]
    side = embeddings.config.image_size // embeddings.config.patch_size
    row, row_weight = interpolate(torch.arange(rows).expand(batch, -1), heights, side, align_corners=True)
    column, column_weight = interpolate(
        torch.arange(columns).expand(batch, -1), widths, side, align_corners=True
    )
    index = row[:, :, None, :, None] * side + column[:, None, :, None]
    weight = row_weight[:, :, None, :, None] * column_weight[:, None, :, None]
    positions = (table[1:][index.flatten(3)] * weight.flatten(3)[..., None]).sum(3)
    embedded = patches.flatten(2).transpose(1, 2) + positions.flatten(1, 2)
    first = (embeddings.cls_token[0] + table[:1]).expand(batch, -1, -1)
    mask = mask.flatten(1)
    return torch.cat([first, embedded], dim=1), torch.cat([torch.ones_like(mask[:, :1]), mask], dim=1)
