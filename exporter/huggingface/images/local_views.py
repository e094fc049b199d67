"""Images as a view of the whole and views of their parts: DeepSeek-OCR 2, Step 3.7, Unlimited-OCR.

transformers joins the views of an image with loops in Python over the images. Here the graph selects the
features in their order, so the numbers of images and of views are dynamic.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..folder import read_json
from ..graphs import ExampleCall, Inputs, Pairs, TaskModel, random_tensor
from .grids import FEATURES
from .tiles import IMAGES

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

VIEWS, COUNTS, VIEW_GRIDS = "pixel_values_local", "num_local_patches", "patches_grid"
"""The views of parts of all images, their number for each image, and their columns and rows."""
_EXAMPLE_GRIDS = ((2, 3), (1, 1), (2, 1))
"""The columns and rows of the images of the example, of which one has no views of parts."""
_SIDES = ("tile_size", "patch_size")
"""The names of the height and width of a view of a part in the settings of processors."""


def encode_call(source: TaskModel, size: tuple[int, int], has_grids: bool) -> ExampleCall:
    """The call that gives the features of images, from the view of the whole and those of parts.

    Args:
        source: the model.
        size: the height and width of the view of the whole, in pixels.
        has_grids: whether the model reads the columns and rows of the views, and not only their number.
    """
    import torch

    processor = read_json(source.folder / "preprocessor_config.json")
    side = next((processor[name] for name in _SIDES if name in processor), None)
    part_size = size if side is None else (side, side)
    grids = torch.tensor(_EXAMPLE_GRIDS)
    counts = torch.where(grids.prod(1) > 1, grids.prod(1), 0)
    dtype = source.model.dtype
    inputs = {
        "pixel_values": random_tensor(len(grids), 3, *size, dtype=dtype),
        VIEWS: random_tensor(int(counts.sum()), 3, *part_size, dtype=dtype, seed=1),
        COUNTS: counts,
        **({VIEW_GRIDS: grids} if has_grids else {}),
    }
    axes = {name: {0: IMAGES} for name in inputs} | {VIEWS: {0: "num_views"}}
    return ExampleCall(_encode, inputs, other_axes=axes, outputs=FEATURES)


def _encode(model: PreTrainedModel, inputs: Inputs, past: Pairs) -> torch.Tensor:
    """The features of all images, one after the other: `[positions, width]`."""
    import torch

    owner: Any = getattr(model, "model")  # noqa: B009
    encoder = getattr(owner, "vision_tower", None) or owner.vision_model
    whole, parts = (
        owner.multi_modal_projector(encoder(inputs[name]).last_hidden_state)
        for name in ("pixel_values", VIEWS)
    )
    newline, separator = (getattr(owner, name, None) for name in ("image_newline", "view_separator"))
    # The first two entries end a line and an image, if the model has such.
    ends = [torch.zeros_like(whole[0, 0]) if end is None else end for end in (newline, separator)]
    table = torch.cat([torch.stack(ends).to(whole.dtype), whole.flatten(0, 1), parts.flatten(0, 1)])
    counts = inputs[COUNTS][:, None]
    columns = inputs[VIEW_GRIDS][:, :1] if VIEW_GRIDS in inputs else torch.ones_like(counts)
    has_lines = newline is not None
    # The features of an image are numbered as if all views were its own; others are left out at the end.
    views = torch.arange(_positions_of(parts, has_lines) * parts.shape[0], device=counts.device)
    numbers = _numbers_in_views(views, parts.shape[1], columns, has_lines)
    first_view = (inputs[COUNTS].cumsum(0) - inputs[COUNTS])[:, None] * parts.shape[1]
    is_end = numbers < 0
    of_parts = torch.where(is_end, 0, 2 + whole.shape[0] * whole.shape[1] + first_view + numbers)
    exists = views < counts * _positions_of(parts, has_lines)
    if has_lines:
        # A line runs through all columns, and has one end.
        side = math.isqrt(parts.shape[1])
        exists = views < (counts // columns) * side * (columns * side + 1)
    positions = torch.arange(_positions_of(whole, has_lines), device=counts.device)
    numbers = _numbers_in_views(positions, whole.shape[1], torch.ones_like(counts), has_lines)
    images = torch.arange(whole.shape[0], device=counts.device)[:, None]
    of_whole = torch.where(numbers < 0, 0, 2 + images * whole.shape[1] + numbers)
    order, selected = [of_parts, of_whole], [exists, torch.ones_like(of_whole, dtype=torch.bool)]
    if separator is not None:
        order.append(torch.ones_like(counts))
        selected.append(torch.ones_like(counts, dtype=torch.bool))
    return table[torch.cat(order, dim=1)[torch.cat(selected, dim=1)]]


def _positions_of(features: torch.Tensor, has_lines: bool) -> int:
    """The most positions that the features of one view take."""
    count = features.shape[1]
    return count + math.isqrt(count) if has_lines else count


def _numbers_in_views(
    positions: torch.Tensor, count: int, columns: torch.Tensor, has_lines: bool
) -> torch.Tensor:
    """The numbers of the features at positions among views in a grid, `[images, positions]`; -1 ends a line.

    Args:
        positions: which are the numbers, if features have no lines.
        count: the number of features of a view.
        columns: the number of views beside each other, `[images, 1]`.
        has_lines: whether lines of features have an end.
    """
    import torch

    if not has_lines:
        return positions.expand(columns.shape[0], -1)
    side = math.isqrt(count)
    width = columns * side + 1
    row, column = positions // width, positions % width
    view = row // side * columns + column // side
    return torch.where(column == width - 1, -1, view * count + row % side * side + column % side)


def complete_views(
    images: Mapping[str, np.ndarray], shapes: Mapping[str, tuple[object, ...]]
) -> dict[str, np.ndarray]:
    """The inputs of images without views of parts: one view, which belongs to no image.

    Args:
        images: the inputs as the processor makes them.
        shapes: of the inputs of the file, with the names of their dynamic sizes.
    """
    sizes = [size if isinstance(size, int) else 1 for size in shapes[VIEWS]]
    count = len(images["pixel_values"])
    defaults = {
        VIEWS: np.zeros(sizes),
        COUNTS: np.zeros(count, np.int64),
        VIEW_GRIDS: np.ones((count, 2), np.int64),
    }
    return {**{name: array for name, array in defaults.items() if name in shapes}, **images}
