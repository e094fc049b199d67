"""Images that are cut into tiles of one size, large images into more tiles: LLaVA-NeXT.

transformers joins the tiles of an image with loops in Python over the images. Here `image_sizes` is an input,
and the graph selects the features in their order, so the number and sizes of images are dynamic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..graphs import ExampleCall, Inputs, Pairs, TaskModel, random_tensor
from .grids import FEATURES

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

SIZES = "image_sizes"
_IMAGES, _TILES = "num_images", "num_tiles"
_ROUNDING = 5e-8
"""transformers rounds sizes to seven decimals before it takes their integer part."""


def encode_call(source: TaskModel, side: int) -> ExampleCall:
    """The call that gives the features of images, from their tiles and their original heights and widths.

    Args:
        source: the model.
        side: the height and width of a tile, in pixels.
    """
    import torch

    config: Any = source.config
    pinpoints = [tuple(size) for size in config.image_grid_pinpoints]
    chosen = (pinpoints[0], pinpoints[-1], pinpoints[len(pinpoints) // 2])
    sizes = torch.tensor([[height, 1 + width // 2] for height, width in chosen])
    tiles = 1 + max(height * width for height, width in pinpoints) // side**2
    pixels = random_tensor(len(sizes), tiles, 3, side, side, dtype=source.model.dtype)
    axes = {"pixel_values": {0: _IMAGES, 1: _TILES}, SIZES: {0: _IMAGES}}
    return ExampleCall(_encode, {"pixel_values": pixels, SIZES: sizes}, other_axes=axes, outputs=FEATURES)


def _encode(model: PreTrainedModel, inputs: Inputs, past: Pairs) -> torch.Tensor:
    """The features of all images, one after the other: `[positions, width]`."""
    import torch

    config: Any = model.config
    owner: Any = getattr(model, "model")  # noqa: B009
    tiles = inputs["pixel_values"]
    states = owner.vision_tower(tiles.flatten(0, 1), output_hidden_states=True).hidden_states
    layers = config.vision_feature_layer
    chosen = [states[layer] for layer in (layers if isinstance(layers, (list, tuple)) else [layers])]
    features = torch.cat(chosen, dim=-1)
    if config.vision_feature_select_strategy == "default":
        features = features[:, 1:]  # The first is that of the class token.
    features = owner.multi_modal_projector(features)
    table = torch.cat([owner.image_newline[None].to(features.dtype), features.flatten(0, 1)])
    side = config.vision_config.image_size // config.vision_config.patch_size
    order = _order_features(
        inputs[SIZES], tiles.shape[1], config.image_grid_pinpoints, config.vision_config.image_size, side
    )
    return table[order]


def _order_features(
    sizes: torch.Tensor, tiles: int, pinpoints: list[list[int]], tile_size: int, side: int
) -> torch.Tensor:
    """The numbers of the features of all images in their order; 0 is the end of a line.

    An image has the features of its small form, and behind them the lines of its grid of tiles without their
    padding, as `pack_image_features` of LLaVA-NeXT has them.

    Args:
        sizes: the original heights and widths.
        tiles: the number of tiles of an image, with those that it does not have.
        pinpoints: the heights and widths of the possible grids, in pixels.
        tile_size: the height and width of a tile, in pixels.
        side: the number of features in a row and in a column of a tile.
    """
    import torch

    grids = torch.tensor(pinpoints, device=sizes.device)[_best_grid(sizes, pinpoints)] // tile_size
    first, last = _without_padding(sizes, grids * side)
    most_rows, most_columns = (max(axis) // tile_size * side for axis in zip(*pinpoints, strict=True))
    rows = torch.arange(most_rows, device=sizes.device)[:, None]
    columns = torch.arange(most_columns + 1, device=sizes.device)
    # All lines of the greatest grid are numbered; those that an image does not have are left out at the end.
    # The number of the first feature of each image, and of each tile in it: the first tile is the small form.
    start = 1 + torch.arange(sizes.shape[0], device=sizes.device) * tiles * side**2
    tile = 1 + (rows // side) * grids[:, 1, None, None] + columns // side
    numbers = start[:, None, None] + tile * side**2 + rows % side * side + columns % side
    in_rows = (rows >= first[:, 0, None, None]) & (rows < last[:, 0, None, None])
    in_columns = (columns >= first[:, 1, None, None]) & (columns < last[:, 1, None, None])
    is_end = columns == most_columns
    numbers = torch.where(is_end, 0, numbers)
    small = start[:, None] + torch.arange(side**2, device=sizes.device)
    numbers = torch.cat([small, numbers.flatten(1)], dim=1)
    exists = (in_rows & (in_columns | is_end)).flatten(1)
    return numbers[torch.cat([torch.ones_like(small, dtype=torch.bool), exists], dim=1)]


def _best_grid(sizes: torch.Tensor, pinpoints: list[list[int]]) -> torch.Tensor:
    """The number of the grid of each image, as `select_best_resolution` chooses it.

    It keeps the most pixels of the image and wastes the fewest of its own; of equal ones it is the first.
    """
    import torch

    grids = torch.tensor(pinpoints, device=sizes.device)
    # In float64, as Python computes it: the integer part of a product depends on its last bit.
    scale = (grids.double() / sizes[:, None].double()).amin(-1)
    scaled = (sizes[:, None].double() * scale[..., None]).long()
    preserved = torch.minimum(scaled.prod(-1), sizes.prod(-1)[:, None])
    wasted = grids.prod(-1) - preserved
    # One number to compare: more pixels count before less waste, and that before the order.
    order = torch.arange(len(pinpoints), device=sizes.device)
    return ((preserved * 2**24 - wasted) * len(pinpoints) - order).argmax(-1)


def _without_padding(sizes: torch.Tensor, grid: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The first row and column of each image in its grid of features, and those behind the last ones.

    As `unpad_image` of LLaVA-NeXT: an image keeps its proportions, and fills the grid in one direction.
    """
    import torch

    size, available = sizes.double(), grid.double()
    fills_columns = size[:, 1] / size[:, 0] > available[:, 1] / available[:, 0]
    scale = torch.where(fills_columns, available[:, 1] / size[:, 1], available[:, 0] / size[:, 0])
    scaled = (size * scale[:, None] + _ROUNDING).floor().long()
    padding = (grid - scaled) // 2
    is_padded = torch.stack([fills_columns, ~fills_columns], dim=1)
    padding = torch.where(is_padded, padding, 0)
    return padding, grid - padding
