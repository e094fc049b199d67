"""The restrictions that the search finds for small models that are valid for some sizes only."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import opsetta
from opsetta.exporter.capture.capture_options import CaptureOptions
from opsetta.exporter.captured_graph import dimensions
from opsetta.exporter.export_model import capture_model


@dataclasses.dataclass(frozen=True)
class Limited:
    """A model and the conditions under which its program is valid.

    Attributes:
        shapes: the example's shape for each input; a name stands for a dynamic size.
        conditions: the restrictions.
        sizes: the example's size by name; 4 if it is not given.
        captures: those that find them; torch.export records more about layouts in memory.
    """

    model: Callable[..., Any]
    shapes: Sequence[Sequence[int | str]]
    conditions: frozenset[str]
    sizes: dict[str, int] = dataclasses.field(default_factory=dict)
    captures: Sequence[str] = ("direct", "torch.export")

    def arguments(self) -> tuple[torch.Tensor, ...]:
        sizes = [[self.sizes.get(n, 4) if isinstance(n, str) else n for n in shape] for shape in self.shapes]
        return tuple(torch.ones(shape) for shape in sizes)

    def dynamic_shapes(self) -> Any:
        return tuple(
            {axis: name for axis, name in enumerate(shape) if isinstance(name, str)} for shape in self.shapes
        )


def rest_of_each_image(x: torch.Tensor) -> torch.Tensor:
    """-1 cannot be computed for 0 images, as in SegFormer's reduction of the sequence."""
    return x.reshape(x.shape[0], -1, 8) * 2


def rest_of_all_images(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(-1, 6) * 2


def pairs(x: torch.Tensor) -> torch.Tensor:
    return x.view(2, -1) * 2


def pooled(x: torch.Tensor) -> torch.Tensor:
    return F.max_pool2d(x, 3)


def pooled_often(x: torch.Tensor) -> torch.Tensor:
    """The limit is that of the last pooling, at which the first begins to fail only far below."""
    return F.max_pool2d(F.max_pool2d(F.max_pool2d(x, 2), 2), 2)


def pooled_after_padding(x: torch.Tensor) -> torch.Tensor:
    return F.avg_pool2d(F.pad(x, (1, 1, 1, 1)), 3, stride=2)


def rest_of_both(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    both = torch.cat([x, y])
    return both.reshape(both.shape[0], -1, 3) * 2


def with_first(x: torch.Tensor) -> torch.Tensor:
    return x + x[:1]


def without_axis_of_one(x: torch.Tensor) -> torch.Tensor:
    return x.squeeze(0) * 2


def without_last(x: torch.Tensor) -> torch.Tensor:
    return x[:-1] + x[1:]


def mean_or_not(x: torch.Tensor) -> torch.Tensor:
    return x.mean(dim=0, keepdim=True) if x.shape[0] > 1 else x * 3


def normalized(x: torch.Tensor) -> torch.Tensor:
    return F.instance_norm(x)


def copied_unless_contiguous(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The transpose of a row is contiguous, so that the sum is written to the row too."""
    doubled = x * 2
    transposed = doubled.t().contiguous()
    transposed.add_(1)
    return doubled, transposed


def flattened_unless_contiguous(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    doubled = x * 2
    elements = doubled.t().reshape(-1)
    elements += 1
    return doubled, elements


def kept_or_copied(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    doubled = x * 2
    changed = doubled.clone() if doubled.shape[0] == 1 else doubled
    changed[:, :2].add_(1)
    return doubled, changed


def written_apart(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Nothing is written to the tensor that is copied unless it has one row."""
    positions = torch.arange(x.shape[0])
    positions += 2
    return positions, x.t().contiguous() * 2


def restored_and_joined(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x, F.avg_pool1d(x, 16).repeat_interleave(16, -1)], 1)


def padded_where_odd(x: torch.Tensor) -> torch.Tensor:
    """The upper half of the range up to the next multiple of 16 needs padding."""
    fine = F.avg_pool1d(x, 8)
    coarse = F.avg_pool1d(fine, 2).repeat_interleave(2, -1)
    if coarse.shape[-1] != fine.shape[-1]:
        coarse = F.pad(coarse, (0, 1))
    return fine + coarse


def with_positions_in_blocks(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The first size beyond the table of 100 positions that the blocks allow is 102."""
    return x.reshape(-1, 6).sum(-1), x + torch.arange(100.0)[: x.shape[0]]


def sliced_to_other(x: torch.Tensor) -> torch.Tensor:
    """The slice is all of x if x has at least as many columns as rows."""
    return x[: x.shape[1]] * 2


def counted_to_other(x: torch.Tensor) -> torch.Tensor:
    return x * x[: x.shape[1]].shape[0]


def squeezed_at_steps(x: torch.Tensor) -> torch.Tensor:
    """The capture replaces `linspace` by other operators, so that model and graph cannot be compared."""
    return x.squeeze(0) * torch.linspace(-1, 1, x.shape[1])


def two_parts(x: torch.Tensor) -> torch.Tensor:
    """Two parts at the example's sizes, where m is 2 * (n - 1)."""
    first, second = x.split(x.shape[0] - 1, -1)
    return first + second


def pairs_of_a_part(x: torch.Tensor) -> torch.Tensor:
    """The rows of the part are not contiguous, so that the reshape copies."""
    return x[:, 3:].reshape(-1, 2) * 2


def blocks_of_a_part(x: torch.Tensor) -> torch.Tensor:
    return x[:, 3:].reshape(x.shape[0], -1, 8) * 2


def blocks_without_padding(x: torch.Tensor) -> torch.Tensor:
    """Padding by 0 changes nothing, so the side with padding is captured."""
    missing = -x.shape[1] % 4
    padded = F.pad(x, (0, missing)) if missing > 0 else x
    return padded.reshape(x.shape[0], -1, 4) * 2


MODELS = [
    Limited(rest_of_each_image, [("batch", 4, 4)], frozenset({"batch >= 1"})),
    Limited(rest_of_all_images, [("batch", 2, 3)], frozenset()),
    Limited(pairs, [("n",)], frozenset({"n % 2 == 0"})),
    Limited(pooled, [("batch", 2, "height", 6)], frozenset({"height >= 3"}), {"height": 9}),
    Limited(pooled_often, [(1, 2, "height", 64)], frozenset({"height >= 8"}), {"height": 61}, ("direct",)),
    Limited(pooled_after_padding, [("batch", 2, "height", 6)], frozenset({"height >= 1"}), {"height": 9}),
    Limited(rest_of_both, [("n", 3), ("m", 3)], frozenset({"n > 0 or m > 0"}), {"m": 5}),
    Limited(with_first, [("n", 3)], frozenset()),
    Limited(without_axis_of_one, [("n", 3)], frozenset({"n >= 2"})),
    Limited(without_last, [("n", 3)], frozenset()),
    Limited(mean_or_not, [("n", 3)], frozenset({"n >= 2"})),
    Limited(copied_unless_contiguous, [("n", 3)], frozenset({"n >= 2"})),
    Limited(flattened_unless_contiguous, [("n", 3)], frozenset({"n >= 2"})),
    Limited(kept_or_copied, [("n", 3)], frozenset({"n >= 2"})),
    Limited(written_apart, [("n", 3)], frozenset()),
    Limited(normalized, [("batch", 2, "length")], frozenset({"length >= 2"}), {"length": 7}),
    Limited(restored_and_joined, [(2, 3, "n")], frozenset({"16 * (n // 16) == n", "n >= 1"}), {"n": 32}),
    Limited(padded_where_odd, [(2, 3, "n")], frozenset({"2 * (n // 16) == n // 8", "n >= 8"}), {"n": 32}),
    Limited(with_positions_in_blocks, [("n",)], frozenset({"n % 6 == 0", "n <= 100"}), {"n": 12}),
    Limited(sliced_to_other, [("n", "m")], frozenset(), {"m": 5}),
    Limited(two_parts, [("n", "m")], frozenset({"n >= 2"}), {"m": 6}),
    Limited(pairs_of_a_part, [("n", "m")], frozenset({"n * (m - 3) % 2 == 0"}), {"n": 3, "m": 9}, ["direct"]),
    Limited(
        blocks_of_a_part,
        [("n", "m", 4)],
        frozenset({"4 * n * (m - 3) % (8 * n) == 0", "n >= 1"}),
        {"n": 3, "m": 9},
        ["direct"],
    ),
    Limited(
        blocks_without_padding,
        [("n", "m")],
        frozenset({"n >= 1"}),
        {"n": 3, "m": 8},
        ["direct"],
    ),
    Limited(counted_to_other, [("n", "m")], frozenset({"m >= n"}), {"m": 5}),
]


@pytest.mark.parametrize(
    ("limited", "capture"),
    [
        pytest.param(limited, capture, id=f"{limited.model.__name__}-{capture}")
        for limited in MODELS
        for capture in limited.captures
    ],
)
def test_restrictions(limited: Limited, capture: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = capture_model(
            limited.model,
            limited.arguments(),
            {},
            CaptureOptions(capture=capture, dynamic_shapes=limited.dynamic_shapes(), narrow=True),
        )
    restrictions = dimensions.read_restrictions(found.source.metadata_props)
    assert {restriction.condition for restriction in restrictions} == limited.conditions


@pytest.mark.parametrize("capture", ["direct", "torch.export"])
def test_a_slice_to_another_size_has_an_unknown_size(capture: str) -> None:
    program = opsetta.export(
        sliced_to_other, (torch.ones(4, 5),), dynamic_shapes=({0: "n", 1: "m"},), capture=capture
    )
    for shape in ((5, 3), (4, 4), (2, 6)):
        program.verify((torch.randn(shape),))
    assert program.source.graph.outputs[0].shape[0].value is None


def test_a_rank_limits_sizes_where_model_and_graph_cannot_be_compared() -> None:
    program = opsetta.export(
        squeezed_at_steps, (torch.ones(4, 5),), dynamic_shapes=({0: "n", 1: "m"},), capture="direct"
    )
    assert program.dimensions["n"].minimum == 2
    program.verify((torch.randn(3, 1),))


def test_a_remainder_of_a_negative_size_is_no_error() -> None:
    program = opsetta.export(
        lambda x: x[:-1].tensor_split(2), (torch.ones(4, 5),), dynamic_shapes=({0: "n"},), capture="direct"
    )
    for rows in (1, 2, 3, 6):
        program.verify((torch.randn(rows, 5),))


class CollectsResults(torch.nn.Module):
    """Adds hooks in its first call, as models of transformers that return hidden states do."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: list[torch.Tensor] = []
        self.found = found
        if not hasattr(self, "has_hooks"):
            self.has_hooks = True
            for layer in self.layers:
                layer.register_forward_hook(lambda module, args, result: self.found.append(result))
        for layer in self.layers:
            x = layer(x)
        return torch.stack(found).sum(0)


@pytest.mark.parametrize("capture", ["direct", "torch.export"])
def test_hooks_that_a_run_adds_are_gone_in_the_next_run(capture: str) -> None:
    model = CollectsResults().eval()
    options = CaptureOptions(capture=capture, dynamic_shapes=({0: "batch", 1: "length"},))
    found = capture_model(model, (torch.ones(2, 3, 4),), {}, options)
    assert not dimensions.read_restrictions(found.source.metadata_props)
    assert not any(layer._forward_hooks for layer in model.layers)


def halved(x: torch.Tensor) -> torch.Tensor:
    return F.avg_pool1d(F.avg_pool1d(x, 2, 1), 3, 2, 1)


def pyramid(x: torch.Tensor) -> torch.Tensor:
    """Levels of sizes that are nested quotients, as in YOLOv9: sympy cannot solve that they are equal."""
    fine = F.avg_pool1d(F.avg_pool1d(x, 3, 2, 1), 3, 2, 1)
    middle = halved(fine)
    middle = middle + halved(middle).repeat_interleave(2, -1)
    return fine + middle.repeat_interleave(2, -1)


def test_equal_sizes_that_sympy_cannot_solve_are_restrictions() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = opsetta.export(
            pyramid,
            (torch.randn(2, 3, 64),),
            opset=17,
            dynamic_shapes=({0: "batch", 2: "n"},),
            capture="direct",
        )
    for size in (64, 96, 128):
        program.verify((torch.randn(3, 3, size),))
    with pytest.raises(opsetta.DimensionError, match="the model refuses other sizes"):
        program(torch.randn(2, 3, 72))
