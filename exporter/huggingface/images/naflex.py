"""Images as rows of patches, which are padded to one number: SigLIP 2 in its form "NaFlex", and LFM2-VL.

transformers resizes the positions of patches, and joins these, with loops in Python over the images. Here
all of it is computed from the shapes in the graph, so the number and sizes of images are dynamic.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..graphs import ExampleCall, Inputs, Pairs, TaskModel, random_tensor
from .grids import FEATURES, PATCHES
from .resized_positions import resize_table
from .tiles import IMAGES

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

PATCH_MASK, SHAPES = "pixel_attention_mask", "spatial_shapes"
"""The patches of each image that are no padding, and its rows and columns of them."""
_BLOCKS = ((2, 3), (4, 1), (1, 2))
"""The rows and columns of the images of the example, in blocks of patches that become one feature."""
_RESIZE = "resize_positional_embeddings"


def reads_shapes(module: torch.nn.Module) -> bool:
    """Whether the `forward` of a module has the shapes of images as an argument."""
    return SHAPES in inspect.signature(type(module).forward).parameters


def example_images(config: Any, count: int, block: int, dtype: torch.dtype) -> Inputs:
    """The patches of images of different shapes, their mask, and the shapes.

    Args:
        config: of the encoder of images.
        count: the number of images.
        block: the rows and columns of the blocks of patches that become one feature.
        dtype: of the patches.
    """
    import torch

    shapes = block * torch.tensor(_BLOCKS[:count])
    sizes = shapes.prod(1)
    # The longest row has padding, too.
    length = int(sizes.max()) + 1
    pixels = random_tensor(count, length, config.num_channels * config.patch_size**2, dtype=dtype)
    mask = (torch.arange(length) < sizes[:, None]).long()
    return {"pixel_values": pixels, PATCH_MASK: mask, SHAPES: shapes}


@contextlib.contextmanager
def positions_in_graph(model: torch.nn.Module) -> Iterator[None]:
    """Within the context, a model that reads the shapes of images resizes its positions with tensors."""
    import torch

    from ...torch_boundary.process.process_state import replace_attribute

    def resize(
        positional_embeddings: torch.Tensor, spatial_shapes: torch.Tensor, max_length: int
    ) -> torch.Tensor:
        height, width = spatial_shapes[:, :1], spatial_shapes[:, 1:]
        patch = torch.arange(max_length, device=spatial_shapes.device)
        # Patches that are padding have the position of the first one.
        patch = torch.where(patch < height * width, patch, 0)
        return resize_table(positional_embeddings, patch // width, height, patch % width, width)

    with contextlib.ExitStack() as stack:
        for module in model.modules():
            parameters = inspect.signature(getattr(type(module), _RESIZE, resize_table)).parameters
            if SHAPES in parameters:
                stack.enter_context(replace_attribute(module, _RESIZE, resize))
        yield


def encode_call(source: TaskModel) -> ExampleCall:
    """The call that gives the features of images, from their patches, the mask of these, and their shapes."""
    config: Any = source.config
    images = example_images(config.vision_config, len(_BLOCKS), config.downsample_factor, source.model.dtype)
    axes = {name: {0: IMAGES, 1: PATCHES} for name in ("pixel_values", PATCH_MASK)} | {SHAPES: {0: IMAGES}}
    return ExampleCall(_encode, images, other_axes=axes, outputs=FEATURES)


def _encode(model: PreTrainedModel, inputs: Inputs, past: Pairs) -> torch.Tensor:
    """The features of all images, one after the other: `[positions, width]`."""
    import torch

    owner: Any = getattr(model, "model")  # noqa: B009
    with positions_in_graph(model):
        states = owner.vision_tower(**inputs).last_hidden_state
    # `pixel_unshuffle` of the projector joins the patches of a block, of one image at a time.
    projector = owner.multi_modal_projector
    block = projector.factor
    height, width = inputs[SHAPES][:, :1] // block, inputs[SHAPES][:, 1:] // block
    feature = torch.arange(states.shape[1] // block**2, device=states.device)
    exists = feature < height * width
    row, column = feature // width, feature % width
    side = torch.arange(block, device=states.device)
    rows = row[..., None, None] * block + side[:, None]
    columns = column[..., None, None] * block + side
    patches = (rows * (width * block)[..., None, None] + columns).flatten(2)
    images = torch.arange(states.shape[0], device=states.device)[:, None, None]
    # Features that do not exist are left out below.
    blocks = states[images, torch.where(exists[..., None], patches, 0)].flatten(2)[exists]
    if projector.use_layer_norm:
        blocks = projector.layer_norm(blocks)
    features: torch.Tensor = projector.linear_2(projector.act(projector.linear_1(blocks)))
    return features
