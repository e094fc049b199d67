"""Lists of the numbers of a range over a dynamic size: `list(range(n))`, its slices, and tensors of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import opsetta

from .....opsets import HIGHEST

FIRST = [0]


def reverse_positions(x: torch.Tensor) -> torch.Tensor:
    return x * torch.tensor(list(range(x.shape[1]))[::-1])


def tensor_of_range(x: torch.Tensor) -> torch.Tensor:
    return x + torch.as_tensor(range(1, x.shape[1] + 1), dtype=torch.float32)


def index_by_lists(x: torch.Tensor) -> torch.Tensor:
    positions = list(range(x.shape[1]))
    return (
        x[:, positions[2:]].sum(1)
        + x[:, FIRST + positions[-2:-1]].sum(1)
        + x[:, list(reversed(positions))].T[0]
    )


def pool_positions(x: torch.Tensor) -> torch.Tensor:
    # As in Funnel: the first position stays, and every second one of the others.
    pooled = FIRST + list(range(x.shape[1]))[1:-1][::2]
    assert isinstance(pooled, list)
    distances = torch.arange(pooled[0] - 2 * len(pooled), pooled[-1])
    return x.sum() + distances.sum() + torch.tensor(list(pooled)[::3]).sum() * (2 if pooled[1:] else 3)


def sum_of_list(x: torch.Tensor) -> torch.Tensor:
    return x * sum(list(range(x.shape[1]))) + sum(FIRST + list(range(3, x.shape[1] + 4))[::2])


def loop_over_list(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([x[:, t] * 2 for t in list(range(x.shape[1]))], 1)


def _export(model: Callable[[torch.Tensor], torch.Tensor], opset: int) -> opsetta.ONNXProgram:
    return opsetta.export(
        model, (torch.randn(2, 5),), opset=opset, dynamic_shapes=({0: "batch", 1: "n"},), capture="direct"
    )


@pytest.mark.parametrize(
    "model", [reverse_positions, tensor_of_range, index_by_lists, pool_positions, loop_over_list, sum_of_list]
)
def test_every_size_agrees(model: Callable[[torch.Tensor], torch.Tensor]) -> None:
    program = _export(model, 13)
    for size in (3, 4, 5, 8, 11):
        program.verify((torch.randn(3, size),))


@pytest.mark.parametrize("opset", [7, HIGHEST])
def test_every_opset(opset: int) -> None:
    _export(reverse_positions, opset).verify((torch.randn(2, 6),))


def test_a_missing_member_excludes_the_size() -> None:
    program = _export(lambda x: x + list(range(x.shape[1]))[2], 13)
    program.verify((torch.randn(2, 3),))
    with pytest.raises(opsetta.DimensionError, match="n"):
        program.verify((torch.randn(2, 2),))


def label_rows(x: torch.Tensor) -> torch.Tensor:
    counts = [int(rows.shape[0]) for rows in (x[x > 0.5], x[x > 1.5])]
    return torch.cat([torch.tensor([0.5] * counts[0]), torch.tensor(counts[1] * [2])])


def test_a_number_for_each_row() -> None:
    program = opsetta.export(label_rows, (torch.rand(7),), opset=13)
    for factor in (0.0, 1.0, 4.0):
        program.verify((torch.rand(7) * factor,))


def test_members_of_a_number_for_each_row_are_refused() -> None:
    with pytest.raises(opsetta.CaptureError, match=r"a member of a list of one number"):
        opsetta.export(lambda x: x + ([1] * x[x > 0.5].shape[0])[0], (torch.rand(7),), opset=13)


def compare_lists(x: torch.Tensor) -> torch.Tensor:
    return x if list(range(x.shape[1])) == [0, 1, 2] else -x


def mixed_loop(x: torch.Tensor) -> torch.Tensor:
    return sum((x[:, t] for t in FIRST + list(range(x.shape[1]))), torch.zeros(()))


def reverse_part(x: torch.Tensor) -> torch.Tensor:
    return x[:, list(range(x.shape[1]))[2::-1]]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (compare_lists, "a comparison of a list"),
        (mixed_loop, "a loop over a list of numbers before"),
        (reverse_part, "a slice in reverse of a part"),
    ],
)
def test_other_uses_are_refused(model: Callable[[torch.Tensor], torch.Tensor], message: str) -> None:
    with pytest.raises(opsetta.CaptureError, match=message):
        _export(model, 13)
