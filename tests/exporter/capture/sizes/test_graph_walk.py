"""A graph that calls what the model calls at other sizes does not run; every difference makes it run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import sympy
import torch
import torch.utils._pytree as pytree
from torch.export import Dim

import opsetta
from opsetta.exporter.capture.sizes.graph_trace import GraphTrace
from opsetta.exporter.capture.sizes.graph_walk import infers_sizes
from opsetta.exporter.capture.sizes.operator_trace import Trace
from opsetta.exporter.capture.sizes.trials import Tracer

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


class Expanded(torch.nn.Module):
    """At one row the sum is not broadcast; the graph's sizes hold for others only."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum(0, keepdim=True).expand(x.shape[0], 4) @ torch.ones(4, 2)


def tracer_of(model: torch.nn.Module) -> Tracer:
    example = torch.ones(5, 4)
    program = torch.export.export(model.eval(), (example,), dynamic_shapes=({0: Dim.AUTO},))
    return Tracer(model, program, pytree.tree_flatten(((example,), {}))[1], contextlib.nullcontext)


def ran(tracer: Tracer, rows: int) -> tuple[Trace, Trace]:
    def size_of(size: Any) -> int | None:
        if isinstance(size, int):
            return size
        value = size.node.expr.xreplace(dict.fromkeys(size.node.expr.free_symbols, sympy.Integer(rows)))
        return int(value) if value.is_Integer else None

    return tracer.run(lambda: [torch.empty(rows, 4)], size_of)


@pytest.mark.parametrize("rows", [0, 1, 5, 7])
@pytest.mark.parametrize("model", [Blocks, Written, WrittenApart, Expanded])
def test_a_graph_that_does_not_run_is_judged_as_one_that_runs(
    model: type[torch.nn.Module], rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracer = tracer_of(model())
    tracer._is_comparable = False
    _, expected = ran(tracer, rows)
    monkeypatch.setattr(GraphTrace, "trace", lambda *args: pytest.fail("the graph runs"))
    tracer._is_comparable, tracer.infers_sizes = True, False
    of_model, found = ran(tracer, rows)
    assert of_model.error is None
    assert of_model.steps == found.steps
    assert of_model.results == found.results
    assert (found.claims, found.other_rank) == (expected.claims, expected.other_rank)
    assert tracer._is_comparable


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
def test_a_graph_that_differs_runs(change: Callable[[torch.fx.Graph], None]) -> None:
    tracer = tracer_of(Blocks())
    change(tracer._program.graph)
    tracer._graph = GraphTrace(tracer._program.graph_module, tracer._kernels)
    model, graph = ran(tracer, 7)
    assert model.error is None
    assert not tracer._is_comparable
    differs = graph.error is not None or graph.steps != model.steps or bool(graph.claims)
    assert differs if CHANGES[change] else graph.results != model.results


class Branching(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] > 3 else x + 2


def test_a_model_that_calls_something_else_at_other_sizes_is_told_apart() -> None:
    model, graph = ran(tracer_of(Branching()), 2)
    assert model.steps != graph.steps


class Refusing(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(x.shape[0], -1, 2).amax(1)


@pytest.mark.parametrize("rows", [0, 3])
def test_a_model_that_refuses_a_size_gives_its_own_error(rows: int) -> None:
    tracer = tracer_of(Refusing())
    assert infers_sizes(tracer._program.graph)
    model, _ = ran(tracer, rows)
    assert (model.error is None) == (rows > 0)
    assert tracer._is_comparable
    assert rows or "cannot reshape tensor of 0 elements" in str(model.error)


def test_a_model_is_exported_without_a_run_of_its_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GraphTrace, "trace", lambda *args: pytest.fail("the graph runs"))
    program = opsetta.export(Blocks().eval(), (torch.ones(5, 4),), dynamic_shapes=({0: "rows"},), opset=17)
    assert program.source is not None


class Reading(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (x.sum().item() * 2 + 1)


class Failing(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.shape[0] > 3 else x @ x


@pytest.mark.parametrize("model", [Blocks, Reading, Failing])
def test_after_an_observed_run_torch_is_as_before(model: type[torch.nn.Module]) -> None:
    tracer = tracer_of(model())

    def state() -> list[Any]:
        keys = (torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set())
        flags = (torch.backends.cudnn.enabled, torch.backends.mkldnn.enabled)
        return [*map(str, keys), *flags, torch._C._len_torch_dispatch_stack()]

    before = state()
    ran(tracer, 3)
    assert state() == before
    x = torch.ones(3, 4)
    assert torch.equal(torch.ops.aten.relu.default(x), x)
