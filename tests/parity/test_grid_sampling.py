"""grid_sample and affine_grid against eager PyTorch: composed below 16, and for volumes below 20."""

import torch
from torch.nn import functional

from .records import HIGHEST, Record, check, floats, parametrized

IMAGE, GRID = floats(2, 3, 4, 5), floats(2, 3, 4, 2, seed=1, scale=0.8)
VOLUME, PLACES = floats(2, 2, 3, 4, 5), floats(2, 2, 3, 2, 3, seed=2, scale=0.8)


def _record(input: torch.Tensor, grid: torch.Tensor, mode: str, padding: str, corners: bool) -> Record:
    dimensions = input.dim() - 2
    return Record(
        f"{dimensions}d {mode} {padding} align_corners {corners}",
        lambda x, at: functional.grid_sample(x, at, mode, padding, align_corners=corners),
        (input, grid),
        (9, HIGHEST) if mode == "bicubic" else (9, 16, HIGHEST),
    )


RECORDS = [
    _record(IMAGE, GRID, mode, padding, corners)
    for mode in ("bilinear", "nearest", "bicubic")
    for padding in ("zeros", "border", "reflection")
    for corners in ((False, True) if mode != "bicubic" else (padding == "reflection",))
]
RECORDS += [
    _record(VOLUME, PLACES, mode, padding, corners)
    for mode, padding, corners in (
        ("bilinear", "zeros", False),
        ("bilinear", "reflection", True),
        ("nearest", "border", True),
        ("nearest", "zeros", False),
    )
]
RECORDS += [
    Record(
        "dynamic",
        lambda x, at: functional.grid_sample(x, at, align_corners=False),
        (IMAGE, GRID),
        (9, HIGHEST),
        dynamic=({0: "n", 2: "h", 3: "w"}, {0: "n", 1: "a", 2: "b"}),
    ),
    Record(
        "bilinear",
        lambda x, at: functional.grid_sample(x, at, align_corners=False),
        (IMAGE, GRID),
        (7, 8),
    ),
    Record(
        "affine_grid",
        lambda theta: functional.affine_grid(theta, [2, 3, 4, 5], align_corners=False),
        (floats(2, 2, 3),),
        (7, 9, HIGHEST),
    ),
]


@parametrized(RECORDS)
def test_agrees_with_eager(record: Record) -> None:
    check(record)
