"""Position embeddings that are resized to each image, with sizes that are tensors of the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....registration import UsageError

if TYPE_CHECKING:
    import torch

_KEYS = -0.75


def interpolate(
    index: torch.Tensor,
    size: torch.Tensor,
    side: int | torch.Tensor,
    align_corners: bool,
    mode: str = "bilinear",
    padding: str = "border",
) -> tuple[torch.Tensor, torch.Tensor]:
    """The neighbours in a table of `side` entries, and their weights, for positions on an axis of a size.

    As `torch.nn.functional.interpolate` has them on each axis: two for "bilinear", and four for "bicubic".

    Args:
        index: the positions.
        size: of the axis, for each position.
        side: the number of entries, or that for each position.
        align_corners: whether the first and the last entry are those of the first and the last position.
        mode: "bilinear" or "bicubic".
        padding: "border" to repeat the first and last entries outside of the table, "zeros" for zeros there.

    Raises:
        UsageError: another mode or padding.
    """
    import torch

    if mode not in ("bilinear", "bicubic") or padding not in ("border", "zeros"):
        raise UsageError(f"positions by {mode} interpolation with {padding} are not supported")
    positions = index.to(torch.float32)
    greatest = torch.as_tensor(side - 1, device=index.device)[..., None]
    if align_corners:
        source = positions * greatest[..., 0] / (size - 1).clamp(min=1)
    else:
        source = (positions + 0.5) * side / size - 0.5
    first = source.floor()
    steps = torch.arange(0, 2, device=index.device)
    if mode == "bicubic":
        steps = torch.arange(-1, 3, device=index.device)
    distance = ((source - first)[..., None] - steps).abs()
    if mode == "bilinear":
        weights = 1 - distance
    else:
        # The convolution kernel of Keys, of which torch has this coefficient.
        near = ((_KEYS + 2) * distance - (_KEYS + 3)) * distance**2 + 1
        far = ((_KEYS * distance - 5 * _KEYS) * distance + 8 * _KEYS) * distance - 4 * _KEYS
        weights = torch.where(distance <= 1, near, far)
    neighbours = first.long()[..., None] + steps
    if padding == "zeros":
        weights = weights * ((neighbours >= 0) & (neighbours <= greatest))
    return torch.minimum(neighbours.clamp(min=0), greatest), weights


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
