"""Images that are padded to the size of the largest one: Pixtral, in LLaVA, Mistral and LightOnOCR.

transformers joins the patches of all images to one sequence, with loops in Python over the images. Here each
image is a row of a batch whose padding attention leaves out, so the number and sizes of images are dynamic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....registration import UsageError
from ..graphs import ExampleCall, Inputs, Pairs, TaskModel, random_tensor
from .grids import FEATURES
from .tiles import IMAGES, SIZES

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

TOWER = "PixtralVisionModel"
"""The class that encodes such images."""
_OWNERS = ("LlavaModel", "Mistral3Model", "MistralLarge4Model", "LightOnOcrModel")
"""The classes of which it is a part, and whose projectors are known."""


def encode_call(source: TaskModel) -> ExampleCall:
    """The call that gives the features of images, from their pixels, their heights and their widths.

    Raises:
        UsageError: the model is another one than those that are known, or leaves out a feature of each image,
            which transformers cannot run either.
    """
    import torch

    config: Any = source.config
    owner = type(getattr(source.model, "model", source.model)).__name__
    if owner not in _OWNERS:
        raise UsageError(
            f"images for {TOWER} are supported in {', '.join(_OWNERS)}, not in {owner}: export its parts "
            "with opsetta.huggingface and export_for_generation"
        )
    if getattr(config, "vision_feature_select_strategy", "full") != "full":
        raise UsageError(
            f"{TOWER} has no class token, which vision_feature_select_strategy="
            f"'{config.vision_feature_select_strategy}' would leave out: set it to 'full' in config.json"
        )
    vision = config.vision_config
    side = vision.patch_size * getattr(config, "spatial_merge_size", 1)
    sizes = side * torch.tensor([[3, 2], [1, 4], [2, 1]])
    pixels = random_tensor(3, vision.num_channels, 3 * side, 4 * side, dtype=source.model.dtype)
    axes = {"pixel_values": {0: IMAGES, 2: "height", 3: "width"}, SIZES: {0: IMAGES}}
    return ExampleCall(_encode, {"pixel_values": pixels, SIZES: sizes}, other_axes=axes, outputs=FEATURES)


def _encode(model: PreTrainedModel, inputs: Inputs, past: Pairs) -> torch.Tensor:
    """The features of all images, one after the other: `[positions, width]`."""
    import torch

    config: Any = model.config
    tower: Any = next(module for module in model.modules() if type(module).__name__ == TOWER)
    patches = tower.patch_conv(inputs["pixel_values"].to(model.dtype))
    rows, columns = patches.shape[2:]
    sizes = inputs[SIZES] // config.vision_config.patch_size
    states = tower.ln_pre(patches.flatten(2).transpose(1, 2))
    positions = torch.stack(
        [torch.arange(rows)[:, None].expand(-1, columns), torch.arange(columns).expand(rows, -1)], dim=-1
    )
    rotary = tower.patch_positional_embedding(states, positions.flatten(0, 1))
    # As transformers masks, with the lowest number: rows that are padding must not become NaN.
    lowest = torch.finfo(states.dtype).min
    mask = torch.where(_exists(sizes, rows, columns).flatten(1), 0.0, lowest).to(states.dtype)[:, None, None]
    hidden = [states]
    for layer in tower.transformer.layers:
        hidden.append(layer(hidden[-1], mask, position_embeddings=rotary))
    layers = getattr(config, "vision_feature_layer", -1)
    layers = layers if isinstance(layers, (list, tuple)) else [layers]
    features = torch.cat([hidden[layer] for layer in layers], dim=-1)
    return _project(model, features, sizes, rows, columns)


def _project(
    model: PreTrainedModel, features: torch.Tensor, sizes: torch.Tensor, rows: int, columns: int
) -> torch.Tensor:
    """The embeddings of the features that exist, of which some models merge those of a block.

    Args:
        features: `[images, rows * columns, width]`.
        sizes: the rows and columns of each image.
        rows, columns: those of all images, with padding.
    """
    import torch

    from ...torch_boundary.process.process_state import replace_attribute

    owner: Any = getattr(model, "model")  # noqa: B009
    projector = getattr(owner, "multi_modal_projector", None) or owner.vision_projection
    merger = getattr(projector, "patch_merger", None)
    if merger is None:
        embeddings: torch.Tensor = projector(features)
        return embeddings[_exists(sizes, rows, columns).flatten(1)]
    side = merger.spatial_merge_size

    def merge(features: torch.Tensor, image_sizes: torch.Tensor) -> torch.Tensor:
        grid = features.transpose(1, 2).unflatten(2, (rows, columns))
        blocks = torch.nn.functional.unfold(grid, kernel_size=side, stride=side)
        result: torch.Tensor = merger.merging_layer(blocks.transpose(1, 2))
        return result

    with replace_attribute(merger, "forward", merge):
        merged: torch.Tensor = projector(features, sizes)
    return merged[_exists(sizes // side, rows // side, columns // side).flatten(1)]


def _exists(sizes: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """Whether each position of a grid belongs to an image, `[images, rows, columns]`."""
    import torch

    row, column = torch.arange(rows)[:, None], torch.arange(columns)
    return (row < sizes[:, :1, None]) & (column < sizes[:, 1:, None])
