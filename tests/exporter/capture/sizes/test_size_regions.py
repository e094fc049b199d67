"""Branches on sizes whose sides differ: both are in the file, with an If on the sizes."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Collection, Mapping
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import opsetta
from opsetta.exporter.capture.sizes.size_limits import SizeLimits
from opsetta.exporter.capture.sizes.size_regions import MOST_REGIONS, SizeRegion, find_regions
from opsetta.exporter.captured_graph.dimensions import SizeRestriction


def trim_to_pairs(x: Tensor) -> Tensor:
    x = x.relu() + 1
    if x.shape[1] % 2:
        x = x[:, :-1]
    return x.reshape(x.shape[0], -1, 2).mean(-1) * 2


def fit_length(x: Tensor) -> Tensor:
    if x.shape[1] < 6:
        x = F.pad(x, (0, 6 - x.shape[1]))
    elif x.shape[1] > 6:
        x = x[:, :6]
    return x @ torch.ones(6, 2)


def median(x: Tensor) -> Tensor:
    length = x.shape[1]
    ordered = x.sort(1)[0]
    if length % 2:
        return ordered[:, length // 2]
    return (ordered[:, length // 2 - 1] + ordered[:, length // 2]) / 2


def depend_on_floats(x: Tensor) -> Tensor:
    if x.shape[0] * 0.5 + x.shape[1] * 0.25 > 3.2:
        return x + 1
    return x - 1


def scale_long_texts(x: Tensor) -> Tensor:
    scale = math.log(x.shape[1], 8) if x.shape[1] > 8 else 1.0
    return x * scale


def write_on_each_side(x: Tensor) -> Tensor:
    y = x.clone()
    if x.shape[1] % 2:
        y[:, 0] += 1
    else:
        y[:, -1].mul_(2)
    return y.add_(1)


def share_memory_on_one_side(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x * 2
    z = y if x.shape[1] % 2 else y.clone()
    z.add_(1)
    return y, z


def take_other_constants(x: Tensor) -> tuple[Tensor, int]:
    factors = torch.tensor([[1.0], [2.0]]) if x.shape[1] % 2 else torch.tensor([[3.0], [4.0]])
    return x[:2] * factors, x.shape[1] // 2 if x.shape[1] % 2 else x.shape[1]


def return_other_ranks(x: Tensor) -> Tensor:
    return x.sum(1) if x.shape[1] > 4 else x


def take_three_ways(x: Tensor) -> Tensor:
    if x.shape[1] % 3 == 0:
        return x.sum(1)
    return x.amax(1) if x.shape[1] % 3 == 1 else x.mean(1)


class OtherWeights(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.short, self.long = nn.Linear(1, 4), nn.Linear(1, 4)
        self.last = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.long(x.unsqueeze(-1)) if x.shape[1] > 5 else self.short(x.unsqueeze(-1))
        return self.last(x).softmax(-1)


CASES: dict[str, Callable[..., object]] = {
    function.__name__: function
    for function in (
        trim_to_pairs,
        fit_length,
        median,
        depend_on_floats,
        scale_long_texts,
        write_on_each_side,
        share_memory_on_one_side,
        take_other_constants,
        return_other_ranks,
        take_three_ways,
    )
}
CASES["other_weights"] = OtherWeights().eval()


def export(function: Callable[..., object], length: int, **options: object) -> opsetta.Program:
    with warnings.catch_warnings():
        # No size of at least 2 is refused.
        warnings.filterwarnings("error", message=r"(?!.*>= \d)")
        return opsetta.export(
            function, torch.randn(2, length), opset=13, dynamic_shapes=({0: "b", 1: "n"},), **options
        )


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("length", [6, 9])
def test_both_sides_of_a_branch_on_sizes_are_exported(name: str, length: int) -> None:
    program = export(CASES[name], length)
    for opset in (13, 9 if length == 6 else 18):
        lowered = program.lower(opset)
        for size in (length, 4, 5, 10, 15):
            lowered.verify((torch.randn(3, size),))


def test_what_the_sides_have_in_common_is_written_once() -> None:
    model = export(trim_to_pairs, 8).model_proto
    assert [node.op_type for node in model.graph.node if node.op_type in ("Relu", "ReduceMean")] == [
        "Relu",
        "ReduceMean",
    ]


@pytest.mark.parametrize("function", [median, fit_length, write_on_each_side, take_three_ways])
@pytest.mark.parametrize("length", [1, 2])
def test_the_example_may_have_one_row(function: Callable[..., object], length: int) -> None:
    program = export(function, length)
    for size in (1, 2, 7, 12):
        program.verify((torch.randn(2, size),))


class Positions(nn.Module):
    """The example has the one size at which the table needs no interpolation."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(1, 4))

    def forward(self, x: Tensor) -> Tensor:
        table = self.table
        if x.shape[1] != 4:
            table = F.interpolate(table[None], size=x.shape[1], mode="linear")[0]
        return x + table


@pytest.mark.parametrize("length", [4, 7])
def test_an_example_at_an_equality(length: int) -> None:
    program = export(Positions().eval(), length)
    for size in (4, 2, 8, 13):
        program.verify((torch.randn(3, size),))


def test_the_checks_of_the_file_hold_for_both_sides() -> None:
    program = export(trim_to_pairs, 8, guard=True)
    for size in (6, 7):
        program.verify((torch.randn(2, size),))


def take_many_ways(x: Tensor) -> Tensor:
    return x + x.shape[1] % (MOST_REGIONS + 2) if x.shape[1] % (MOST_REGIONS + 2) < 2 else many(x)


def many(x: Tensor) -> Tensor:
    for step in range(2, MOST_REGIONS + 2):
        if x.shape[1] % (MOST_REGIONS + 2) == step:
            for _ in range(step):
                x = x.sin()
    return x


def test_more_sides_than_are_recorded_are_refused() -> None:
    with pytest.raises(opsetta.NarrowedError, match="n % 8"):
        export(take_many_ways, 10)


class Cut(nn.Module):
    """Cuts two inputs at lengths far from those of the example."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        x = x[:, -50:] if x.shape[1] > 50 else x
        y = y[:, :70] * 2 if y.shape[1] > 70 else y
        return x.sum(1) + y.amax(1)


def halve_until_short(x: Tensor) -> Tensor:
    while x.shape[1] > 4:
        x = F.max_pool1d(x, 2)
    return x


def test_a_loop_until_a_size_is_small_needs_a_largest_size() -> None:
    with pytest.raises(opsetta.NarrowedError, match=f"max=22.*up to {MOST_REGIONS} become an If"):
        export(halve_until_short, 11)
    example = (torch.randn(2, 11),)
    program = opsetta.export(halve_until_short, example, opset=13, dynamic_shapes=({1: "n <= 22"},))
    for length in (1, 4, 5, 9, 10, 19, 20, 22):
        program.verify((torch.randn(2, length),))


def test_branches_on_two_dimensions_far_from_the_example() -> None:
    example = (torch.randn(2, 5, 3), torch.randn(2, 6, 3))
    program = opsetta.export(Cut(), example, opset=9, dynamic_shapes=({1: "n"}, {1: "m"}))
    for n, m in ((60, 80), (60, 4), (3, 80), (50, 70), (51, 71)):
        program.verify((torch.randn(2, n, 3), torch.randn(2, m, 3)))


def make_region(length: int, *conditions: str) -> SizeRegion:
    """A region whose capture has 900 nodes, so that an export has room for two of them."""
    restrictions = [
        SizeRestriction(condition, "the model computes something else", "") for condition in conditions
    ]
    program = SimpleNamespace(graph=SimpleNamespace(nodes=range(900)))
    limits = SizeLimits(restrictions, list(restrictions), captured_sizes={"n": length})
    return SizeRegion(program, limits)  # type: ignore[arg-type]


def test_a_region_that_another_one_includes_is_left_out() -> None:
    """A short text has one window only, and a multiple of the window is not padded."""

    def capture_at(point: Mapping[str, int], fixed_names: Collection[str]) -> SizeRegion:
        length = point["n"]
        return make_region(
            length,
            "n % 8 == 0" if length % 8 == 0 else "n % 8 != 0",
            *(["n <= 8"] if length <= 8 else []),
        )

    regions = find_regions(capture_at({"n": 6}, ()), {"n": 6}, {}, capture_at)
    assert [[entry.condition for entry in region.conditions] for region in regions] == [
        ["n % 8 != 0"],
        ["n % 8 == 0"],
    ]
    assert not regions[0].limits.has_more_sides


class CachedGrid(nn.Module):
    """neuralop's positions, which the model keeps for the sizes of its last call."""

    def __init__(self) -> None:
        super().__init__()
        self.grid: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.grid is None or self.grid.shape != x.shape[1:]:
            height, width = x.shape[1:]
            self.grid = torch.arange(height)[:, None] / height + torch.arange(width) / width
        return x + self.grid


def test_one_pair_of_sizes_far_from_the_example() -> None:
    model = CachedGrid().eval()
    model(torch.zeros(3, 20, 10))
    shapes = ({0: "batch", 1: "height", 2: "width"},)
    program = opsetta.export(model, (torch.zeros(2, 16, 24),), opset=13, dynamic_shapes=shapes)
    assert not any(dimension.restrictions for dimension in program.dimensions.values())
    for sizes in ((2, 16, 24), (3, 20, 10), (1, 20, 7), (20, 20, 20)):
        x = torch.randn(sizes)
        assert torch.equal(program(x), CachedGrid()(x))
