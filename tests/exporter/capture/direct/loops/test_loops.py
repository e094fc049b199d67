"""Python loops over a dynamic size become one operator, right at every size, or are refused by name."""

from __future__ import annotations

import sys

import onnx_ir as ir
import pytest
import torch

import opsetta

from .....opsets import HIGHEST
from . import nested_models
from .loop_models import (
    EXPORTED,
    REFUSED,
    WITH_CONDITIONS,
    Bidirectional,
    Cells,
    FirstStepDiffers,
    InPlace,
    NumberedRows,
    Recurrent,
)

SIZES = (1, 2, 3, 12)


def _export(model: type[Cells], opset: int, **options: object) -> opsetta.ONNXProgram:
    dynamic = ({0: "batch", 1: "time"},)
    return opsetta.export(
        model().eval(), (torch.randn(2, 7, 4),), opset=opset, dynamic_shapes=dynamic, **options
    )


@pytest.mark.filterwarnings("ignore:the export is valid for")
@pytest.mark.parametrize("model", [*EXPORTED, *WITH_CONDITIONS])
def test_every_size_agrees(model: type[Cells]) -> None:
    program = _export(model, 13, capture="direct")
    assert [node.op_type for node in program.model.graph].count("Loop") == (
        1 + (model in (Bidirectional, NumberedRows))
    )
    for time in SIZES:
        program.verify((torch.randn(3, time, 4),))


@pytest.mark.parametrize("opset", [7, 9, 11, HIGHEST])
@pytest.mark.parametrize("model", [Recurrent, FirstStepDiffers, InPlace])
def test_every_opset(model: type[Cells], opset: int) -> None:
    program = _export(model, opset)
    for time in (1, 6):
        program.verify((torch.randn(2, time, 4),))


@pytest.mark.filterwarnings("ignore:the export is valid for")
@pytest.mark.parametrize("model", nested_models.NESTED)
def test_loops_inside_of_loops(model: type[Cells]) -> None:
    program = _export(model, 13)
    assert {"Loop"} == {node.op_type for node in program.model.graph} & {"Loop", "Scan", "If"}
    for time in (1, 4, 9):
        program.verify((torch.randn(3, time, 4),))
    program.lower(28).verify((torch.randn(1, 5, 4),))


@pytest.mark.parametrize(("model", "message"), [*REFUSED.items(), *nested_models.REFUSED.items()])
def test_other_loops_are_refused(model: type[Cells], message: str) -> None:
    with pytest.raises(opsetta.CaptureError, match=message) as refusal:
        _export(model, 13, capture="direct")
    assert "_models.py" in str(refusal.value)


def test_sizes_without_iterations() -> None:
    class Differences(Cells):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            total = 0
            for t in range(x.shape[1] - 1, 0, -1):
                total = total + x[:, t] * x[:, t - 1]
            return total

    with pytest.warns(UserWarning, match="valid for time >= 2"):
        program = _export(Differences, 13)
    program.verify((torch.randn(2, 2, 4),))
    with pytest.raises(opsetta.DimensionError, match="time"):
        program(torch.randn(2, 1, 4))


def test_bounds_of_blocks_that_the_trip_count_decides() -> None:
    """Each block has one token, as `t` is below the length in all iterations; so one Slice is constant."""

    class Blocks(Cells):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            outputs = []
            for t in range(x.shape[1]):
                end = max(min(t + 1, x.shape[1]), t - 1)
                outputs.append(x[:, t:end] * self.transitions[: end - t])
            return torch.cat(outputs, 1)

    program = _export(Blocks, 13)
    operators = [node.op_type for node in ir.traversal.RecursiveGraphIterator(program.model.graph)]
    assert (operators.count("Loop"), operators.count("Slice")) == (1, 1)
    for time in (1, 9):
        program.verify((torch.randn(3, time, 4),))


def test_nothing_stays_in_the_module_of_the_model() -> None:
    space = vars(sys.modules[Recurrent.__module__])
    before = dict(space)
    _export(Recurrent, 13)
    assert space == before


def test_a_buffer_that_a_loop_writes_to() -> None:
    class State(Cells):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            rows = []
            for t in range(x.shape[1]):
                self.state.mul_(0.5).add_(x[0, t])
                rows.append(self.state.clone())
            return torch.stack(rows)

    program = _export(State, 13, mutations="outputs")
    program.verify((torch.randn(2, 9, 4),))
    with pytest.raises(opsetta.MutationError, match="state"):
        _export(State, 13)


def test_a_written_row_is_a_result_of_the_iteration() -> None:
    """The loop does not carry the whole tensor, nor copy it in each iteration."""

    class Rows(Cells):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            rows, total = torch.zeros_like(x), x.new_zeros(x.shape[0], 4)
            for t in range(x.shape[1]):
                total = total * 0.5 + x[:, t]
                rows[:, t, :] = total
            return rows

    program = _export(Rows, 13)
    [loop] = [node for node in program.model.graph if node.op_type == "Loop"]
    body = [node.op_type for node in loop.attributes["body"].as_graph()]
    assert sorted(set(body) - {"Identity"}) == ["Add", "Gather", "Mul"]
    program.verify((torch.randn(3, 5, 4),))
