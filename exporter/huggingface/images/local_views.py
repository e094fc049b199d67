"""Images as a view of the whole and views of their parts: DeepSeek-OCR 2, and Step 3.7.

transformers joins the views of an image with loops in Python over the images. Here the graph selects the
features in their order, so the numbers of images and of views are dynamic.
"""

from __future__ import annotations

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

VIEWS, COUNTS = "pixel_values_local", "num_local_patches"
"""The views of parts of all images, and their number for each image."""
_EXAMPLE_COUNTS = (6, 0, 2)
_SIDES = ("tile_size", "patch_size")
"""The names of the height and width of a view of a part in the settings of processors."""


def encode_call(source: TaskModel, size: tuple[int, int]) -> ExampleCall:
    """The call that gives the features of images, from the view of the whole and those of parts.

    Args:
        source: the model.
        size: the height and width of the view of the whole, in pixels.
    """
    import torch

    processor = read_json(source.folder / "preprocessor_config.json")
    side = next((processor[name] for name in _SIDES if name in processor), None)
    part_size = size if side is None else (side, side)
    counts = torch.tensor(_EXAMPLE_COUNTS)
    dtype = source.model.dtype
    inputs = {
        "pixel_values": random_tensor(len(counts), 3, *size, dtype=dtype),
        VIEWS: random_tensor(int(counts.sum()), 3, *part_size, dtype=dtype, seed=1),
        COUNTS: counts,
    }
    axes = {"pixel_values": {0: IMAGES}, VIEWS: {0: "num_views"}, COUNTS: {0: IMAGES}}
    return ExampleCall(_encode, inputs, other_axes=axes, outputs=FEATURES)


def _encode(model: PreTrainedModel, inputs: Inputs, past: Pairs) -> torch.Tensor:
    """The features of all images, one after the other: `[positions, width]`.

    Those of an image are the features of its parts, and of the whole; behind them there may be an end.
    """
    import torch

    owner: Any = getattr(model, "model")  # noqa: B009
    encoder = getattr(owner, "vision_tower", None) or owner.vision_model
    whole, parts = (
        owner.multi_modal_projector(encoder(inputs[name]).last_hidden_state)
        for name in ("pixel_values", VIEWS)
    )
    counts = inputs[COUNTS][:, None]
    separator = getattr(owner, "view_separator", None)
    end = torch.zeros_like(whole[:1, 0]) if separator is None else separator[None].to(whole.dtype)
    table = torch.cat([end, whole.flatten(0, 1), parts.flatten(0, 1)])
    # The features of parts are numbered as if all were those of an image; others are left out at the end.
    numbers = torch.arange(parts.shape[0] * parts.shape[1], device=counts.device)
    first = 1 + whole.shape[0] * whole.shape[1] + (counts.cumsum(0) - counts) * parts.shape[1]
    images = torch.arange(whole.shape[0], device=counts.device)[:, None]
    of_whole = 1 + images * whole.shape[1] + torch.arange(whole.shape[1], device=counts.device)
    order = [first + numbers, of_whole, torch.zeros_like(counts)]
    selected = [
        numbers < counts * parts.shape[1],
        torch.ones_like(of_whole, dtype=torch.bool),
        torch.full_like(counts, separator is not None, dtype=torch.bool),
    ]
    return table[torch.cat(order, dim=1)[torch.cat(selected, dim=1)]]


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
    return {VIEWS: np.zeros(sizes), COUNTS: np.zeros(count, np.int64), **images}
