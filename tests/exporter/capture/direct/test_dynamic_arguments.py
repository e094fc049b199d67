"""Functions of torch that take numbers, called with numbers that a model computes from sizes."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import opsetta

Case = tuple[Callable[..., Any], tuple[int, ...], tuple[tuple[int, ...], ...]]
"""A function of a tensor, the shape of the example, and others."""


class SqueezeAndExcitation(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = F.avg_pool2d(x, kernel_size=[x.size(2), x.size(3)])
        return x * torch.sigmoid(scale) + F.max_pool2d(x, x.size()[2:])


def lower_pairs(x: torch.Tensor) -> torch.Tensor:
    n = x.shape[2]
    rows, columns = torch.tril_indices(n, x.shape[3], offset=-1)
    return x[:, :, rows, columns].reshape(x.shape[0], -1)


def best_queries(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """RT-DETR: at most 5 queries, of a size that is read as a tensor."""
    sizes = torch._shape_as_tensor(x)
    return x.topk(sizes[-1].clamp(max=5), dim=-1).values * sizes[0], sizes


IMAGES = (1, 2, 8, 9), ((2, 2, 11, 7), (1, 2, 4, 12))


def fill_diagonals(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    matrix, wrapped, cube = x[0, 0].clone(), x[0, 0].clone(), x[0].sum() + torch.zeros((x.shape[3],) * 3)
    return matrix.fill_diagonal_(2.5), wrapped.fill_diagonal_(-1.0, wrap=True), cube.fill_diagonal_(0.0)


CASES: dict[str, Case] = {
    "sizes in a tensor": (best_queries, *IMAGES),
    "global pooling": (SqueezeAndExcitation().eval(), *IMAGES),
    "columns": (lambda x: F.avg_pool2d(x, (x.shape[2], 3), padding=(0, 1)), *IMAGES),
    "rows": (lambda x: F.max_pool2d(x, (2, x.shape[3]), ceil_mode=True), *IMAGES),
    "halves": (lambda x: F.avg_pool2d(x, (x.shape[2] // 2, 3), padding=1), *IMAGES),
    "dilated": (
        lambda x: F.max_pool2d(x, (x.shape[2] // 4, 2), stride=1, dilation=(3, 1), padding=(0, 1)),
        *IMAGES,
    ),
    "positions": (lambda x: F.max_pool2d(x, x.shape[2:], return_indices=True), *IMAGES),
    "powers": (lambda x: F.lp_pool2d(x.abs(), 2.0, (x.shape[2], 2)), *IMAGES),
    "volumes": (
        lambda x: F.max_pool3d(x, x.shape[2:]) + F.avg_pool3d(x, (x.shape[2], 2, x.shape[4])).sum(3, True),
        (1, 2, 3, 4, 5),
        ((2, 2, 4, 3, 6),),
    ),
    "signals": (
        lambda x: F.avg_pool1d(x, x.shape[2]) + F.max_pool1d(x, x.shape[2] // 2)[..., :1],
        (1, 2, 8),
        ((2, 2, 9), (2, 2, 5)),
    ),
    "columns of windows": (lambda x: F.unfold(x, (x.shape[2], 2), padding=(0, 1), stride=2), *IMAGES),
    "windows": (lambda x: x.unfold(-1, x.shape[-1] // 2, 2).sum(-2), *IMAGES),
    "pairs": (lower_pairs, *IMAGES),
    "pairs above": (lambda x: torch.triu_indices(x.shape[2], x.shape[3], offset=1), *IMAGES),
    "classes": (lambda x: F.one_hot(x.argmax(3), x.shape[3]), *IMAGES),
    "signal windows": (
        lambda x: (
            torch.hann_window(x.shape[3], periodic=False) * torch.hamming_window(x.shape[3])
            + torch.bartlett_window(x.shape[3]) * torch.blackman_window(x.shape[3])
            + torch.kaiser_window(x.shape[3], True, beta=8.0) * torch.kaiser_window(x.shape[3], False)
        ),
        (1, 2, 8, 9),
        ((1, 2, 8, 1), (1, 2, 8, 30)),
    ),
    "blocks and powers": (
        lambda x: (torch.kron(x[0, 0], x[:, 0, :2]), torch.kron(x[0, 0, 0], x), torch.vander(x[0, 0, 0], 3)),
        *IMAGES,
    ),
    "histograms": (
        lambda x: (
            *torch.histogram(x.flatten(), 4, range=(-1.0, 1.0)),
            *torch.histogram(x, torch.tensor([-1.0, 0.0, 2.0]), weight=x.abs()),
        ),
        *IMAGES,
    ),
    "combinations": (
        lambda x: [torch.combinations(x[0, 0, 0], r, replaces) for r, replaces in ((2, False), (3, True))],
        (1, 2, 4, 5),
        ((1, 2, 4, 2), (1, 2, 1, 7)),
    ),
    "filled diagonals": (fill_diagonals, (1, 2, 8, 3), ((1, 2, 9, 3), (1, 2, 2, 5), (1, 2, 7, 1))),
    "sizes as tensors": (lambda x: torch.as_tensor(3 * x.shape[3] / 5).ceil().long(), *IMAGES),
    "powers of ten": (lambda x: torch.logspace(-1, 1, x.shape[3]) * x, *IMAGES),
    "inexact factors": (
        lambda x: (x[..., : int(x.shape[3] * 0.7)], x[:, :, : int(x.shape[2] ** 0.5)]),
        (1, 2, 9, 10),
        ((1, 2, 16, 20), (1, 2, 24, 27), (1, 2, 25, 1)),
    ),
    "rounded": (
        lambda x: (x[..., : round(x.shape[3] * 0.3)], x[:, :, : math.ceil(x.shape[2] * 0.6)]),
        (1, 2, 9, 10),
        ((1, 2, 5, 15), (1, 2, 3, 5)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_numbers_of_sizes_are_computed(name: str) -> None:
    function, shape, other_shapes = CASES[name]
    axes = {axis: f"d{axis}" for axis in range(len(shape)) if axis != 1}
    with warnings.catch_warnings():
        # Without unnecessary restrictions of sizes, of which a warning would tell.
        warnings.simplefilter("error")
        program = opsetta.export(function, torch.randn(shape), opset=17, dynamic_shapes=(axes,))
    for lowered in (program.lower(opset=9), program):
        for other_shape in (shape, *other_shapes):
            lowered.verify((torch.randn(other_shape),))


def test_a_window_longer_than_its_axis_is_refused() -> None:
    def pool(x: torch.Tensor) -> torch.Tensor:
        return F.max_pool1d(x, x.shape[0] + 1)

    program = opsetta.export(pool, torch.randn(2, 2, 5), opset=17, dynamic_shapes=({0: "b", 2: "t"},))
    program.verify((torch.randn(4, 2, 9),))
    with pytest.raises(opsetta.DimensionError):
        program.verify((torch.randn(6, 2, 5),))


def beside_tensors(x: torch.Tensor, columns: torch.Tensor) -> tuple[torch.Tensor, ...]:
    last = x.shape[0] - 1
    volume = x.unsqueeze(1).expand(-1, 4, -1)
    return (
        x[last, columns],
        x.t()[columns, last],
        x[None, last // 2, [0, 2]],
        volume[last, :, columns],
        volume[last, ..., columns > 0],
    )


def of_iterations(x: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    return torch.stack([x[row, columns[1:]] for row in range(x.shape[0])])


def test_numbers_of_sizes_index_beside_tensors() -> None:
    """As in PyTorch, a number selects first; tensors, lists and masks index what remains."""
    x, columns = torch.randn(6, 5), torch.tensor([1, 0, 3, 2, 4])
    program = opsetta.export(beside_tensors, (x, columns), opset=13, dynamic_shapes=({0: "n"}, None))
    for rows in (6, 2, 9):
        program.verify((torch.randn(rows, 5), columns))


def test_indices_of_iterations_index_beside_tensors() -> None:
    shapes = ({0: "n"}, {0: "k"})
    example = torch.randn(6, 5), torch.tensor([1, 0, 3])
    program = opsetta.export(of_iterations, example, opset=13, dynamic_shapes=shapes)
    for rows in (6, 1, 9):
        program.verify((torch.randn(rows, 5), torch.tensor([1, 2])))
