"""Assignments by an index to tensors of which a size is 0 when the program runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import opsetta


def _write_rows(y: torch.Tensor, x: torch.Tensor, rows: torch.Tensor) -> None:
    y[rows] = 1.0


def _write_columns(y: torch.Tensor, x: torch.Tensor, rows: torch.Tensor) -> None:
    y[:, rows] = 1.0


def _write_channels(y: torch.Tensor, x: torch.Tensor, rows: torch.Tensor) -> None:
    y[..., rows] = x[..., None]


@pytest.mark.parametrize("opset", [9, 13, 18])
@pytest.mark.parametrize("write", [_write_rows, _write_columns, _write_channels])
def test_assignment_by_an_index_to_a_tensor_without_elements(
    write: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None], opset: int
) -> None:
    """Reshape infers no size beside one of 0; the values at positions of one dimension need no Reshape."""

    def assign(x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        y = x.new_zeros(x.shape[0], x.shape[1], 3)
        write(y, x, rows)
        return y

    example = (torch.randn(3, 4), torch.tensor([0, 2]))
    program = opsetta.export(assign, example, opset=opset, dynamic_shapes=({0: "b", 1: "n"}, {0: "k"}))
    for batch, count, positions in ((3, 4, [0, 2]), (3, 2, [1]), (3, 4, []), (3, 0, []), (0, 2, [])):
        args = torch.randn(batch, count), torch.tensor(positions, dtype=torch.long)
        assert torch.equal(torch.as_tensor(program(*args)), assign(*args))
