"""Images that are cut into tiles of one size, large images into more tiles: LLaVA-NeXT, LLaVA-OneVision.

transformers joins the tiles of an image with loops in Python over the images. Here `image_sizes` is an input,
and the graph selects the features in their order, so the number and sizes of images are dynamic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..graphs import ExampleCall, Inputs, Pairs, TaskModel, random_tensor
from .grids import FEATURES
from .resized_positions import interpolate

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

SIZES, COUNTS = "image_sizes", "batch_num_images"
"""The heights and widths of images, and the number of images of each text."""
IMAGES = "num_images"
_TILES, _TEXTS = "num_tiles", "num_texts"
_TOLERATED = 1.1
"""LLaVA-OneVision resizes grids whose height and width exceed the most by this factor."""
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
    inputs = {
        "pixel_values": random_tensor(len(sizes), tiles, 3, side, side, dtype=source.model.dtype),
        SIZES: sizes,
    }
    axes = {"pixel_values": {0: IMAGES, 1: _TILES}, SIZES: {0: IMAGES}, COUNTS: {0: _TEXTS}}
    if _most_tiles(config) is not None:
        inputs[COUNTS] = torch.tensor([1, len(sizes) - 1])
    return ExampleCall(_encode, inputs, other_axes=axes, outputs=FEATURES)


def _most_tiles(config: Any) -> int | None:
    """The number of tiles whose features are the most that an image has; None for no limit."""
    # As "anyres_max_9" of LLaVA-OneVision.
    ratio = getattr(config, "vision_aspect_ratio", None)
    return None if ratio is None else int(ratio.removeprefix("anyres_max_"))


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
    order, weights = _order_features(
        inputs[SIZES],
        tiles.shape[1],
        config.image_grid_pinpoints,
        config.vision_config.image_size,
        side,
        most_tiles=_most_tiles(config),
        counts=inputs.get(COUNTS),
    )
    if weights is None:
        return table[order[:, 0]]
    return (table[order] * weights[..., None].to(table.dtype)).sum(1)


def _order_features(
    sizes: torch.Tensor,
    tiles: int,
    pinpoints: list[list[int]],
    tile_size: int,
    side: int,
    *,
    most_tiles: int | None = None,
    counts: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The numbers of the features of all images in their order, `[positions, 1]`; 0 is the end of a line.

    An image has the features of its small form, and behind them the lines of its grid of tiles without their
    padding, as `pack_image_features` of LLaVA-NeXT has them. A grid with more features than `most_tiles`
    tiles is resized: each of its features is that of four neighbours, `[positions, 4]`, by their weights.

    Args:
        sizes: the original heights and widths.
        tiles: the number of tiles of an image, with those that it does not have.
        pinpoints: the heights and widths of the possible grids, in pixels.
        tile_size: the height and width of a tile, in pixels.
        side: the number of features in a row and in a column of a tile.
        most_tiles: None if grids are not resized.
        counts: the number of images of each text, which are not cut if there are several.
    """
    import torch

    grids = torch.tensor(pinpoints, device=sizes.device)[_best_grid(sizes, pinpoints)] // tile_size
    first, last = _without_padding(sizes, grids * side)
    most_rows, most_columns = (max(axis) // tile_size * side for axis in zip(*pinpoints, strict=True))
    # All lines of the greatest grid are numbered; those that an image does not have are left out at the end.
    rows = torch.arange(most_rows, device=sizes.device)[:, None]
    columns = torch.arange(most_columns + 1, device=sizes.device)
    is_end = columns == most_columns
    size = last - first
    weights: torch.Tensor | None = None
    # With axes for the image, the line, the column and the neighbour.
    first_row, first_column = first[:, 0, None, None, None], first[:, 1, None, None, None]
    row, column = first_row + rows[..., None], first_column + columns[:, None]
    if most_tiles is not None:
        resized = _resize_grid(size, most_tiles * side**2)
        axes = [
            interpolate(index, resized[:, axis, None], size[:, axis, None], align_corners=False)
            for axis, index in enumerate((rows[:, 0], columns))
        ]
        (near_row, row_weight), (near_column, column_weight) = axes
        row = first_row + near_row.repeat_interleave(2, dim=2)[:, :, None]
        column = first_column + near_column.repeat(1, 1, 2)[:, None]
        weights = row_weight.repeat_interleave(2, dim=2)[:, :, None] * column_weight.repeat(1, 1, 2)[:, None]
        # Ends of lines are no neighbours of anything, and an image without columns has none to compute with.
        weights = torch.where(is_end[:, None], 0.25, weights)
        size = resized
    # The number of the first feature of each image, and of each tile in it: the first tile is the small form.
    start = 1 + torch.arange(sizes.shape[0], device=sizes.device) * tiles * side**2
    tile = 1 + row // side * grids[:, 1, None, None, None] + column // side
    numbers = start[:, None, None, None] + tile * side**2 + row % side * side + column % side
    numbers = torch.where(is_end[:, None], 0, numbers)
    exists = (rows < size[:, 0, None, None]) & ((columns < size[:, 1, None, None]) | is_end)
    if counts is not None:
        # Each image of a text with several is not cut: it has one end of a line behind its small form.
        text = (torch.arange(sizes.shape[0], device=sizes.device)[:, None] >= counts.cumsum(0)).sum(1)
        is_cut = counts[text] == 1
        exists = torch.where(is_cut[:, None, None], exists, is_end & (rows == 0))
    small = (start[:, None] + torch.arange(side**2, device=sizes.device))[..., None]
    small = small.expand(-1, -1, numbers.shape[-1])
    selected = torch.cat([torch.ones_like(small[..., 0], dtype=torch.bool), exists.flatten(1)], dim=1)
    numbers = torch.cat([small, numbers.flatten(1, 2)], dim=1)
    if weights is None:
        return numbers[selected], None
    # The features of the small form are four times the same neighbour.
    equal = torch.full_like(small, 0.25, dtype=weights.dtype)
    return numbers[selected], torch.cat([equal, weights.flatten(1, 2)], dim=1)[selected]


def _resize_grid(size: torch.Tensor, most: int) -> torch.Tensor:
    """The rows and columns of grids; LLaVA-OneVision resizes those with many more features than the most."""
    import torch

    exact = size.double()
    ratio = (exact.prod(1, keepdim=True) / most).sqrt()
    quotient = (exact / ratio).floor()
    # Python's integer quotient is that of the exact numbers; this one may have been rounded up to the next
    # integer. The product with the divisor is exact if that is split.
    high = ratio.float().double()
    exceeds = exact - quotient * high < quotient * (ratio - high)
    quotient = (quotient - exceeds.double()).long()
    return torch.where(ratio > _TOLERATED, quotient, size)


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
