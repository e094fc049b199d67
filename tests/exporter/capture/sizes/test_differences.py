"""Models with loops over a dynamic size that write to a table, at sizes that torch.export assumes away."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

import opsetta
from opsetta.exporter.capture.sizes.differences import difference
from opsetta.exporter.capture.sizes.trials.operator_trace import Trace


def _align(emission: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """The table of a forced alignment, as in torchaudio's tutorial."""
    frames, labels = emission.size(0), len(tokens)
    table = torch.zeros((frames, labels))
    table[1:, 0] = torch.cumsum(emission[1:, 0], 0)
    table[0, 1:] = -float("inf")
    table[-labels + 1 :, 0] = float("inf")
    for frame in range(frames - 1):
        table[frame + 1, 1:] = torch.maximum(
            table[frame, 1:] + emission[frame, 0], table[frame, :-1] + emission[frame, tokens[1:]]
        )
    return table


def _distance(emission: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """The rows of a table of distances, of which only the part from the third column changes."""
    table = emission.new_zeros(emission.size(0), tokens.size(0) + 2)
    table[0, 2:] = 7.0
    for frame in range(emission.size(0) - 1):
        table[frame + 1, 2:] = table[frame, 2:] * 0.5 + emission[frame, tokens]
    return table


def _column(emission: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """A loop that writes columns, after an assignment from a computed start on."""
    table = torch.zeros(tokens.size(0), emission.size(0))
    table[0, 1 - tokens.size(0) :] = 3.0
    for frame in range(emission.size(0) - 1):
        table[1:, frame + 1] = table[:-1, frame] + emission[frame, tokens[1:]]
    return table


@pytest.mark.parametrize(("function", "fewest_labels"), [(_align, 1), (_distance, 1), (_column, 2)])
def test_table_of_a_loop_is_exported_for_all_sizes(
    function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], fewest_labels: int
) -> None:
    emission, tokens = torch.randn(7, 5), torch.tensor([1, 2, 4])
    program = opsetta.export(
        function, (emission, tokens), opset=13, dynamic_shapes=({0: "frames"}, {0: "labels"})
    )
    for frames, labels in ((7, 3), (12, 5), (9, 2), (6, 6), (5, 1), (2, 2), (3, 8), (2, 1)):
        emission, tokens = torch.randn(frames, 5), torch.randint(1, 5, (max(labels, fewest_labels),))
        expected = function(emission, tokens)
        np.testing.assert_allclose(program(emission, tokens), expected, rtol=1e-5, atol=1e-6)


def test_branch_in_the_loop_on_a_size_is_another_path() -> None:
    def run(emission: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        table = torch.zeros(emission.size(0), tokens.size(0))
        for frame in range(emission.size(0) - 1):
            table[frame + 1, 1:] = table[frame, 1:] + (
                emission[frame, 0] if tokens.size(0) < 20 else emission[frame, 1]
            )
        return table

    emission, tokens = torch.randn(7, 5), torch.arange(4)
    program = opsetta.export(
        run, (emission, tokens), opset=13, dynamic_shapes=({0: "frames"}, {0: "labels"}), narrow=True
    )
    many = torch.arange(25)
    try:
        result = program(emission, many)
    except opsetta.DimensionError:
        return
    np.testing.assert_allclose(result, run(emission, many), rtol=1e-5)


def _trace(*steps: tuple[object, ...]) -> Trace:
    trace = Trace()
    trace.steps = list(steps)
    return trace


def test_assignment_to_a_view_equals_its_scatter() -> None:
    view = ("aten.select.int", ("input", 0), 0, 1, ((torch.float32, 6),))
    model = _trace(view, ("aten.copy_.default", ("result", 0, 0), ("input", 1), ((torch.float32, 6),)))
    scatter = ("aten.select_scatter.default", ("input", 0), ("input", 1), 0, 1, ((torch.float32, 4, 6),))
    assert difference(model, _trace(view, scatter)) is None


def test_assignment_of_another_value_differs_from_the_scatter() -> None:
    view = ("aten.select.int", ("input", 0), 0, 1, ((torch.float32, 6),))
    model = _trace(view, ("aten.copy_.default", ("result", 0, 0), ("input", 2), ((torch.float32, 6),)))
    scatter = ("aten.select_scatter.default", ("input", 0), ("input", 1), 0, 1, ((torch.float32, 4, 6),))
    assert difference(model, _trace(view, scatter)) is not None
