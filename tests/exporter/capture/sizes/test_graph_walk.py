"""A graph that calls what the model calls at other sizes does not run; every difference makes it run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sympy
import torch
import torch.utils._pytree as pytree
from torch.export import Dim
from torch.utils.flop_counter import FlopCounterMode

import opsetta
from opsetta.exporter.capture.sizes.trials.operator_trace import Trace
from opsetta.exporter.capture.sizes.trials.size_trials import Tracer

ATEN = torch.ops.aten


class Blocks(torch.nn.Module):
    """Composite operators, views that are whole for some sizes, constants, created and split tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))
        self.norm = torch.nn.LayerNorm(4)

    def forward(self, x: torch.Tensor) -> Any:
        for layer in self.layers:
            x = x + self.norm(torch.relu(layer(x[:, :]))).transpose(0, 1).contiguous().transpose(0, 1)
        positions = torch.arange(x.shape[0])[:, None] + torch.zeros_like(x, dtype=torch.int64)
        first, second = x.split(2, 1)
        return {"sum": first * second + torch.tensor(2.0), "at": positions}, x.reshape(x.shape[0], 4), x


class Written(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y[:, :2].add_(1)
        y.mul_(y)
        return y + y.contiguous()


class WrittenApart(torch.nn.Module):
    """A tensor that is not written to is copied unless it has one row."""

    def forward(self, x: torch.Tensor) -> Any:
        positions = torch.arange(x.shape[0])
        positions += 2
        return positions, x.t().contiguous() + 1


class OfSizes(torch.nn.Module):
    """Tensors of sizes are constants in a run at given sizes, and operators in the graph."""

    def forward(self, x: torch.Tensor) -> Any:
        ratio = torch.tensor(x.shape[0], dtype=torch.float32) / torch.tensor(7.0)
        return x * ratio, torch.tensor(x.shape[0] + 1)


class Expanded(torch.nn.Module):
    """At one row the sum is not broadcast; the graph's sizes hold for others only."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum(0, keepdim=True).expand(x.shape[0], 4) @ torch.ones(4, 2)


def captured(model: torch.nn.Module) -> torch.export.ExportedProgram:
    return torch.export.export(model.eval(), (torch.ones(5, 4),), dynamic_shapes=({0: Dim.AUTO},))


def traces_at(
    model: torch.nn.Module, rows: int, program: torch.export.ExportedProgram | None = None
) -> tuple[Trace, Trace]:
    """What a model and its graph call at a number of rows."""
    return run_at(tracer_of(model, program or captured(model)), rows)


def tracer_of(model: torch.nn.Module, program: torch.export.ExportedProgram) -> Tracer:
    leaves = pytree.tree_flatten(((torch.ones(5, 4),), {}))[1]
    return Tracer(model, program, leaves)


def run_at(tracer: Tracer, rows: int) -> tuple[Trace, Trace]:

    def size_of(size: Any) -> int | None:
        if isinstance(size, int):
            return size
        value = size.node.expr.xreplace(dict.fromkeys(size.node.expr.free_symbols, sympy.Integer(rows)))
        return int(value) if value.is_Integer else None

    return tracer.run(lambda: [torch.empty(rows, 4)], size_of)


@pytest.mark.parametrize("rows", [0, 1, 5, 7])
@pytest.mark.parametrize("model", [Blocks, Written, WrittenApart, Expanded])
def test_a_graph_calls_what_its_model_calls(model: type[torch.nn.Module], rows: int) -> None:
    of_model, of_graph = traces_at(model(), rows)
    assert of_model.error is None
    assert of_model.steps == of_graph.steps
    assert of_model.results == of_graph.results
    assert not of_graph.differing_axes


def test_tensors_of_sizes_need_no_run_of_the_graph() -> None:
    of_model, of_graph = traces_at(OfSizes(), 7)
    assert of_model.error is of_graph.error is None
    # A trace of operators is that of a second run.
    assert not of_model.steps
    assert not of_graph.differing_axes


def call(graph: torch.fx.Graph, target: Any, position: int = 0) -> torch.fx.Node:
    return [node for node in graph.nodes if node.target is target][position]


def other_number(graph: torch.fx.Graph) -> None:
    call(graph, ATEN.add.Tensor).update_kwarg("alpha", 2)


def other_operator(graph: torch.fx.Graph) -> None:
    call(graph, ATEN.relu.default).target = ATEN.sigmoid.default


def other_argument(graph: torch.fx.Graph) -> None:
    node = call(graph, ATEN.mul.Tensor)
    node.args = node.args[:1] * 2


def other_weight(graph: torch.fx.Graph) -> None:
    first, second = call(graph, ATEN.linear.default), call(graph, ATEN.linear.default, 1)
    second.args = (second.args[0], *first.args[1:])


def missing_call(graph: torch.fx.Graph) -> None:
    node = call(graph, ATEN.relu.default, -1)
    node.replace_all_uses_with(node.args[0])  # type: ignore[arg-type]
    graph.erase_node(node)


def further_call(graph: torch.fx.Graph) -> None:
    [output] = (node for node in graph.nodes if node.op == "output")
    with graph.inserting_before(output):
        graph.call_function(ATEN.relu.default, (output.args[0][-1],))  # type: ignore[index]


def other_order(graph: torch.fx.Graph) -> None:
    [output] = (node for node in graph.nodes if node.op == "output")
    output.args = (tuple(reversed(output.args[0])),)  # type: ignore[arg-type]


def other_size(graph: torch.fx.Graph) -> None:
    call(graph, ATEN.arange.default).update_arg(0, 5)


def part_of_axis(graph: torch.fx.Graph) -> None:
    call(graph, ATEN.slice.Tensor).args = (*call(graph, ATEN.slice.Tensor).args[:2], 0, 5)


def unclear_view(graph: torch.fx.Graph) -> None:
    call(graph, ATEN.reshape.default).update_arg(1, [-1, -1])


CHANGES: dict[Callable[[torch.fx.Graph], None], bool] = {
    other_number: True,
    other_operator: True,
    other_argument: True,
    other_weight: True,
    missing_call: True,
    further_call: True,
    other_order: False,
    other_size: True,
    part_of_axis: True,
    unclear_view: True,
}
"""Changes of the graph of `Blocks`, and whether they change what it calls."""


@pytest.mark.parametrize("change", CHANGES)
def test_a_graph_that_differs_is_told_apart(change: Callable[[torch.fx.Graph], None]) -> None:
    model = Blocks()
    program = captured(model)
    change(program.graph)
    of_model, of_graph = traces_at(model, 7, program)
    assert of_model.error is None
    differs = of_graph.error is not None or of_graph.steps != of_model.steps or bool(of_graph.differing_axes)
    assert differs if CHANGES[change] else of_graph.results != of_model.results


class Branching(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] > 3 else x + 2


def test_a_model_that_calls_something_else_at_other_sizes_is_told_apart() -> None:
    of_model, of_graph = traces_at(Branching(), 2)
    assert of_model.steps != of_graph.steps


@pytest.mark.parametrize(("differences", "runs_graph"), [(7, False), (8, True)])
def test_few_sizes_with_other_calls_do_not_make_the_graph_run_at_all_sizes(
    differences: int, runs_graph: bool
) -> None:
    model = Branching()
    tracer = tracer_of(model, captured(model))
    for rows in range(differences):
        of_model, of_graph = run_at(tracer, 1 + rows % 3)
        assert of_model.steps != of_graph.steps
    of_model, of_graph = run_at(tracer, 7)
    # Operators are noted only where both run.
    assert of_model.steps == of_graph.steps
    assert bool(of_graph.steps) is runs_graph


class Catching(Branching):
    """Goes on after exceptions of its operators."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        calls.append("begin")
        try:
            x = super().forward(x)
        except Exception:
            calls.append("caught")
        calls.append("end")
        return x.relu()


calls: list[str] = []


def test_a_model_that_differs_from_its_graph_is_run_no_further() -> None:
    model = Catching()
    tracer = tracer_of(model, captured(model))
    calls.clear()
    of_model, of_graph = run_at(tracer, 2)
    assert of_model.steps != of_graph.steps
    # The second run compares all operators with those of the graph.
    assert calls == ["begin", "begin", "end"]


class Refusing(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(x.shape[0], -1, 2).amax(1)


@pytest.mark.parametrize("rows", [0, 3])
def test_a_model_that_refuses_a_size_gives_its_own_error(rows: int) -> None:
    of_model, _ = traces_at(Refusing(), rows)
    assert (of_model.error is None) == (rows > 0)
    assert rows or "cannot reshape tensor of 0 elements" in str(of_model.error)


@pytest.mark.parametrize(
    ("model", "conditions"),
    [
        (Blocks, []),
        (Written, []),
        (WrittenApart, []),
        (Branching, ["rows >= 4"]),
        (Refusing, ["rows >= 1"]),
    ],
)
def test_an_export_states_the_sizes_that_its_graph_is_valid_for(
    model: type[torch.nn.Module], conditions: list[str]
) -> None:
    program = opsetta.export(
        model().eval(), (torch.ones(5, 4),), dynamic_shapes=({0: "rows"},), opset=17, narrow=True
    )
    assert [restriction.condition for restriction in program.dimensions["rows"].restrictions] == conditions
    program.verify((torch.rand(4, 4),))
    program.verify((torch.rand(9, 4),))


class Reading(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (x.sum().item() * 2 + 1)


class Failing(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.shape[0] > 3 else x @ x


@pytest.mark.parametrize("model", [Blocks, Reading, Failing])
def test_after_an_observed_run_torch_is_as_before(model: type[torch.nn.Module]) -> None:
    flags = torch.backends.cudnn.enabled, torch.backends.mkldnn.enabled
    example = torch.ones(3, 4)
    traces_at(model(), 3)
    assert (torch.backends.cudnn.enabled, torch.backends.mkldnn.enabled) == flags
    # An operator called directly runs its own kernel, is not recorded, and is seen by a mode of the user.
    assert torch.equal(ATEN.relu.default(example), example)
    with FlopCounterMode(display=False) as counter:
        example @ example.t()
    assert counter.get_total_flops() == 2 * 3 * 4 * 3
