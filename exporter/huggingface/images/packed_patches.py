"""Images as patches of one row, whose numbers of rows and columns are `target_sizes`: MiniCPM-V 4.6.

transformers merges the patches of each window and of each image with loops in Python over the images. Here
all of it is computed from the sizes in the graph, so the number and sizes of images are dynamic.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

from ..caches.shared_buffers import attention_replaced
from ..graphs import ExampleCall, Inputs, Pairs, TaskModel, random_tensor
from .grids import FEATURES, PATCHES, SEGMENTS
from .patch_grids import PatchGrids, locate_patches
from .tiles import IMAGES

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

TARGET_SIZES = "target_sizes"
"""The rows and columns of the patches of each image."""
_BLOCKS = ((2, 3), (4, 1), (1, 2))
"""The rows and columns of the images of the example, in blocks of patches that become one feature."""
_WINDOW = 2
"""The rows and columns of the windows in which the encoder merges patches."""


def encode_call(source: TaskModel) -> ExampleCall:
    """The call that gives the features of images, from their patches and the rows and columns of these."""
    import torch

    config: Any = source.config.vision_config
    block = _WINDOW ** (_merges_in_encoder(source.config) + source.config.merger_times)
    sizes = block * torch.tensor(_BLOCKS)
    side = config.patch_size
    count = int(sizes.prod(1).sum())
    pixels = random_tensor(1, config.num_channels, side, count * side, dtype=source.model.dtype)
    axes = {"pixel_values": {3: f"{side * block**2}*{PATCHES}"}, TARGET_SIZES: {0: IMAGES}}
    inputs = {"pixel_values": pixels, TARGET_SIZES: sizes}
    return ExampleCall(_encode, inputs, other_axes=axes, outputs=FEATURES)


def _merges_in_encoder(config: Any) -> bool:
    """Whether the encoder merges patches, too, and not only the module behind it."""
    return bool(config.downsample_mode != "4x")


def _encode(model: PreTrainedModel, inputs: Inputs, past: Pairs) -> torch.Tensor:
    """The features of all images, one after the other: `[positions, width]`."""
    import torch

    from ...torch_boundary.process.process_state import replace_attribute

    owner: Any = getattr(model, "model")  # noqa: B009
    encoder = owner.vision_tower
    pixels = inputs["pixel_values"]
    count = pixels.shape[3] // encoder.config.patch_size

    def window_order(sizes: torch.Tensor, patches: int) -> torch.Tensor:
        grids = torch.nn.functional.pad(sizes, (1, 0), value=1)
        return PatchGrids(grids, patches).get_vision_pixel_shuffle_index(grids, _WINDOW)

    def get_vision_nearest_position_ids(
        target_sizes: torch.Tensor, num_patches_per_side: int, **options: object
    ) -> torch.Tensor:
        grids = torch.nn.functional.pad(target_sizes, (1, 0), value=1)
        height, width, _, offset = locate_patches(grids, count)
        # As transformers has them, in float32.
        bounds = torch.arange(1 / num_patches_per_side, 1.0, 1 / num_patches_per_side)
        row, column = (
            (position[:, None] >= bounds).sum(1)
            for position in (offset // width / height, offset % width / width)
        )
        return row * num_patches_per_side + column

    def get_vision_window_index(
        grid_thw: torch.Tensor, **options: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return window_order(grid_thw[:, 1:], count), torch.arange(count // _WINDOW**2 + 1) * _WINDOW**2

    # Only kernels of flash attention need it.
    def get_max_seqlen(*arguments: object, **options: object) -> int:
        return 0

    module = sys.modules[type(encoder).__module__]
    helpers = (get_vision_nearest_position_ids, get_vision_window_index, get_max_seqlen)
    with contextlib.ExitStack() as stack:
        for helper in helpers:
            stack.enter_context(replace_attribute(module, helper.__name__, helper))
        stack.enter_context(attention_replaced(encoder.config, attend_between_ends, SEGMENTS))
        merges = _merges_in_encoder(model.config)
        result = encoder(pixels, target_sizes=inputs[TARGET_SIZES], use_vit_merger=merges)
    states: torch.Tensor = result.last_hidden_state[0]
    sizes = inputs[TARGET_SIZES]
    if merges:
        sizes, count = sizes // _WINDOW, count // _WINDOW**2
    for merge in owner.merger.mlp:
        blocks = states[window_order(sizes, count)].unflatten(0, (-1, _WINDOW**2))
        states = merge(blocks.flatten(1))
        sizes, count = sizes // _WINDOW, count // _WINDOW**2
    return states


def attend_between_ends(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float,
    cu_seq_lens_q: torch.Tensor,
    **options: object,
) -> tuple[torch.Tensor, None]:
    """Attention of transformers in which each state attends to those between the same ends.

    Args:
        module, query, key, value, attention_mask, scaling, options: as transformers passes them.
        cu_seq_lens_q: the ends, with 0 before them.
    """
    import torch

    states = torch.arange(query.shape[2], device=query.device)
    segment = (states[:, None] >= cu_seq_lens_q[1:]).sum(1)
    mask = segment[:, None] == segment
    output = torch.nn.functional.scaled_dot_product_attention(query, key, value, mask, scale=scaling)
    return output.transpose(1, 2), None
