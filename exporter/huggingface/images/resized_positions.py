"""Position embeddings that are resized to each image, with sizes that are tensors of the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def interpolate(
    index: torch.Tensor, size: torch.Tensor, side: int | torch.Tensor, align_corners: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Two neighbours in a table of `side` entries, and their weights, for positions on an axis of a size.

    As `torch.nn.functional.interpolate` with the mode "bilinear" has them on each axis.

    Args:
        index: the positions.
        size: of the axis, for each position.
        side: the number of entries, or that for each position.
        align_corners: whether the first and the last entry are those of the first and the last position.
    """
    import torch

    positions = index.to(torch.float32)
    greatest = torch.as_tensor(side - 1, device=index.device)
    if align_corners:
        source = positions * greatest / (size - 1).clamp(min=1)
    else:
        source = torch.minimum(((positions + 0.5) * side / size - 0.5).clamp(min=0), greatest)
    first = source.floor()
    weight = source - first
    indices = first.long()[..., None] + torch.arange(2, device=index.device)
    return torch.minimum(indices, greatest[..., None]), torch.stack([1 - weight, weight], dim=-1)


def resize_table(
    table: torch.Tensor, row: torch.Tensor, height: torch.Tensor, column: torch.Tensor, width: torch.Tensor
) -> torch.Tensor:
    """The entries of a table of positions that is resized to images, for patches of these.

    As `torch.nn.functional.interpolate` with the mode "bilinear" and antialiasing has them.

    Args:
        table: `[rows, columns, features]`.
        row, column: of each patch in its image.
        height, width: the number of rows and of columns of that image.
    """
    import torch

    weights = []
    for index, size, side in ((row, height, table.shape[0]), (column, width, table.shape[1])):
        scale = side / size.to(torch.float32)
        center = (index.to(torch.float32) + 0.5) * scale
        distance = torch.arange(side, device=index.device) + 0.5 - center[..., None]
        # A smaller image takes as many more neighbours.
        weight = (1 - distance.abs() / scale.clamp(min=1)[..., None]).clamp(min=0)
        weights.append(weight / weight.sum(-1, keepdim=True))
    of_rows, of_columns = weights
    of_entries = (of_rows[..., :, None] * of_columns[..., None, :]).flatten(-2)
    return (of_entries @ table.flatten(0, 1).to(torch.float32)).to(table.dtype)
