"""Inputs of exported files at other sizes than the example's."""

import math

import torch

_GRIDS = [[1, 4, 12], [1, 16, 4]]
_SHAPES = [[4, 12], [16, 7], [2, 3]]
"""The rows and columns of the patches of images, at most as many as there are in `_GRIDS`."""
SIZES = {
    "batch_size": 3,
    "sequence_length": 9,
    "num_choices": 5,
    "text_batch_size": 6,
    "image_batch_size": 3,
    "height": 96,
    "width": 64,
    "audio_length": 331,
    "num_points": 5,
    "num_images": len(_GRIDS),
    "num_patches": sum(math.prod(grid) for grid in _GRIDS),
}
"""Sizes that differ from those of the examples."""


def other_inputs(program, sizes=None):
    """Inputs of a file at other sizes; the end of the first text is padding."""
    sizes = SIZES if sizes is None else sizes
    generator = torch.Generator().manual_seed(5)
    inputs = {}
    for value in program.model.graph.inputs:
        shape = [size if isinstance(size, int) else sizes[str(size)] for size in value.shape]
        if value.name in ("attention_mask", "input_features_mask"):
            inputs[value.name] = torch.ones(shape, dtype=torch.int64)
            inputs[value.name][0, ..., -3:] = 0
        elif value.name == "bbox":
            corner = torch.randint(0, 500, (*shape[:-1], 2), generator=generator)
            inputs[value.name] = torch.cat([corner, corner + 7], dim=-1)
        elif value.name in ("grid_thw", "image_grid_thw"):
            inputs[value.name] = torch.tensor(_GRIDS)
        elif value.name == "merge_sizes":
            inputs[value.name] = torch.tensor([1, 4][: shape[0]])
        elif value.name == "spatial_shapes":
            inputs[value.name] = torch.tensor(_SHAPES[: shape[0]])
        elif value.name == "pixel_attention_mask":
            counts = torch.tensor(_SHAPES[: shape[0]]).prod(1, keepdim=True)
            inputs[value.name] = (torch.arange(shape[1]) < counts).long()
        elif value.dtype.is_floating_point():
            inputs[value.name] = torch.randn(shape, generator=generator)
        else:
            largest = {"token_type_ids": 2, "input_labels": 2, "past_values_padding": 2, "freq": 3}.get(
                value.name, 20
            )
            inputs[value.name] = torch.randint(0, largest, shape, generator=generator)
    return inputs
