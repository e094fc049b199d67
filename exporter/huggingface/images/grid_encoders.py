"""Encoders of patches in grids that compute with numbers in Python: LFM3-VL, and Inkling 2.

LFM3-VL convolves the patches of one image after the other, and Inkling 2 puts a class token before those of
each image. Here both are computed from the grids in the graph.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .patch_grids import PatchGrids, locate_patches, rows_and_columns

if TYPE_CHECKING:
    import torch

Forward = Callable[..., object]
"""The `forward` of an encoder."""


def _forward_of_lfm3(encoder: Any, patches: PatchGrids) -> Forward:
    """As `Lfm3VlVisionModel.forward`, with convolutions of patches that need no grid in Python."""

    def forward(pixel_values: torch.Tensor, grid_thw: torch.Tensor, **options: object) -> object:
        from transformers.modeling_outputs import BaseModelOutputWithPooling

        from ...torch_boundary.process.process_state import replace_attribute

        merge = encoder.spatial_merge_size
        positions = patches.get_vision_position_ids(grid_thw, merge)
        ends, longest = patches.get_vision_attention_seqlens(grid_thw, encoder.config)
        states = encoder.embedding_norm(encoder.patch_embed(pixel_values))
        rotary = encoder.rotary_pos_emb(states, positions)
        with contextlib.ExitStack() as stack:
            for module in encoder.modules():
                if hasattr(module, "spatial_conv"):
                    convolution = _convolution_of(module, grid_thw)
                    stack.enter_context(replace_attribute(module, "forward", convolution))
            for layer in encoder.layers:
                states = layer(
                    states, cu_seqlens=ends, grid_thw=None, max_seqlen=longest, position_embeddings=rotary
                )
        return BaseModelOutputWithPooling(last_hidden_state=states)

    return forward


def _convolution_of(module: Any, grids: torch.Tensor) -> Forward:
    """As `Lfm3VlVisionShortConv.forward`: each patch reads its neighbours in the same frame."""
    import torch

    def forward(hidden_states: torch.Tensor, **options: object) -> torch.Tensor:
        input_gate, output_gate, states = module.in_proj(hidden_states).chunk(3, dim=-1)
        gated = input_gate * states
        merge = module.spatial_merge_size
        height, width, _, offset = locate_patches(grids, gated.shape[0])
        row, column = rows_and_columns(offset, height, width, merge)
        first = torch.arange(gated.shape[0]) - offset % (height * width)
        weight = module.spatial_conv.weight[:, 0]
        convolved = torch.zeros_like(gated)
        for down in range(weight.shape[1]):
            for right in range(weight.shape[2]):
                other_row = row + down - weight.shape[1] // 2
                other_column = column + right - weight.shape[2] // 2
                exists = (
                    (other_row >= 0) & (other_row < height) & (other_column >= 0) & (other_column < width)
                )
                block = other_row // merge * (width // merge) + other_column // merge
                inner = other_row % merge * merge + other_column % merge
                neighbour = torch.where(exists, first + block * merge**2 + inner, 0)
                convolved = convolved + gated[neighbour] * exists[:, None] * weight[:, down, right]
        result: torch.Tensor = module.out_proj(output_gate * convolved)
        return result

    return forward


def _forward_of_inkling2(encoder: Any, patches: PatchGrids) -> Forward:
    """As `Inkling2VisionModel.forward`, whose grids count the features of images."""
    import torch

    def forward(pixel_values: torch.Tensor, image_grid_thw: torch.Tensor, **options: object) -> object:
        from transformers.modeling_outputs import BaseModelOutputWithPooling

        merge = encoder.config.spatial_merge_size
        grids = image_grid_thw * torch.tensor([1, merge, merge])
        count = pixel_values.shape[0] * merge**2
        _, _, image, _ = locate_patches(grids, count)
        # The class token of each image, then its patches.
        index = torch.arange(count) + image + 1
        ends = torch.nn.functional.pad((grids.prod(1) + 1).cumsum(0), (1, 0))
        states = encoder.pre_layernorm(encoder.embeddings(pixel_values, grids, index))
        positions = patches.get_vision_position_ids(grids, merge)
        positions = positions.new_zeros(states.shape[0], 2).index_copy(0, index, positions + 1)
        rotary = encoder.rotary_emb(states, positions)
        image_of_state = (torch.arange(states.shape[0])[:, None] >= ends[1:]).sum(1)
        patches.segments["image"] = image_of_state
        for layer in encoder.layers:
            states = layer(states, cu_seqlens=ends, position_embeddings=rotary)
        blocks = states[index].reshape(-1, merge**2 * states.shape[-1])
        return BaseModelOutputWithPooling(last_hidden_state=states, pooler_output=encoder.merger(blocks))

    return forward


FORWARDS: Mapping[str, Callable[[Any, PatchGrids], Forward]] = {
    "Lfm3VlVisionModel": _forward_of_lfm3,
    "Inkling2VisionModel": _forward_of_inkling2,
}
"""By the class of the encoder."""
