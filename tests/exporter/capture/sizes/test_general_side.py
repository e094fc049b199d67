"""Conditions on sizes of which one side computes what both compute."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import opsetta


def pad_to_multiple(x: torch.Tensor) -> torch.Tensor:
    missing = -x.shape[2] % 4
    if missing:
        x = F.pad(x, (0, missing))
    return x.reshape(x.shape[0], -1, 4).amax(-1)


def repeat_edges(x: torch.Tensor) -> torch.Tensor:
    length = x.shape[2]
    if length % 2 == 1:
        x = F.pad(x, (length % 2, 0), mode="replicate")
    return x[..., ::2] - x[..., 1::2]


def resize(x: torch.Tensor) -> torch.Tensor:
    length = (x.shape[2] + 1) // 2 * 2
    if length != x.shape[2]:
        x = F.interpolate(x, size=length, mode="linear")
    return x.reshape(x.shape[0], 2, -1)


CASES: dict[str, Callable[..., Any]] = {"zeros": pad_to_multiple, "edges": repeat_edges, "resized": resize}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("size", [8, 11])
def test_the_side_that_computes_both_is_captured(name: str, size: int) -> None:
    dims = ({0: "b", 2: declare_range(size)},)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = opsetta.export(CASES[name], torch.randn(2, 1, size), opset=13, dynamic_shapes=dims)
    for other_size in (size, 12, 9, 6):
        program.verify((torch.randn(3, 1, other_size),))


def declare_range(size: int) -> Any:
    """A `Dim`, which every size of its range must support."""
    return torch.export.Dim("n", min=2, max=4 * size)


def test_sides_that_return_other_types_stay_a_restriction() -> None:
    def pad_as_double(x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] % 2:
            x = F.pad(x, (0, 1)).double()
        return x.reshape(x.shape[0], 2, -1)

    with pytest.warns(UserWarning, match="even n"):
        program = opsetta.export(
            pad_as_double, torch.randn(2, 8), opset=13, dynamic_shapes=({0: "b", 1: "n"},)
        )
    program.verify((torch.randn(2, 6),))
    with pytest.raises(opsetta.DimensionError):
        program.verify((torch.randn(2, 7),))


def test_padding_that_is_written_to_is_a_copy() -> None:
    def write_to_padding(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        doubled = x * 2
        padded = F.pad(doubled, (0, 1)) if x.shape[1] % 2 else doubled
        padded.add_(1)
        return padded.reshape(x.shape[0], 2, -1), doubled

    for size, other_sizes in ((8, (6, 12)), (7, (9, 3))):
        program = opsetta.export(
            write_to_padding, torch.randn(2, size), opset=13, dynamic_shapes=({0: "b", 1: "n"},)
        )
        for other_size in (size, *other_sizes, size + 1):
            program.verify((torch.randn(2, other_size),))
