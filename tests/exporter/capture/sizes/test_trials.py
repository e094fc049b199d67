"""Trials at other sizes: what a captured graph runs, with kernels that are known by their arguments."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import sympy
import torch
import torch.utils._pytree as pytree
from torch.export import Dim

import opsetta
from opsetta.exporter.capture.sizes.operator_trace import Trace
from opsetta.exporter.capture.sizes.trials import Tracer


class Layers(torch.nn.Module):
    """The same layer several times, with a constant, views, and a result that is an argument."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(6))
        self.dropout = torch.nn.Dropout()

    def forward(self, x: torch.Tensor) -> Any:
        for layer in self.layers:
            x = self.dropout(torch.relu(layer(x))).to(x.dtype) + torch.tensor(2.0).item()
        return x, x.view(-1, 2)[1:], x


class Written(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y[:2].add_(1)
        y.mul_(y)
        return y + y


class Several(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        values, positions = x.topk(2)
        return values, positions, x.nonzero(), x.nonzero().sum(), [part + 1 for part in x.split(2, 1)]


class Reshaped(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y.unsqueeze_(0)
        return torch.as_strided(y, (2, 2), (2, 1)) + y[0, 0, 0]


def traces(model: torch.nn.Module, rows: int, known: bool) -> tuple[Tracer, Trace, Trace]:
    """A tracer, and the second run's trace of the model and of the graph."""
    example = torch.ones(5, 4)
    program = torch.export.export(model.eval(), (example,), dynamic_shapes=({0: Dim.AUTO},))
    tracer = Tracer(model, program, pytree.tree_flatten(((example,), {}))[1], contextlib.nullcontext)
    # Here the graph runs, also where it calls what the model calls.
    tracer._is_comparable = False
    if not known:
        tracer._kernels = None

    def size_of(size: Any) -> int | None:
        if isinstance(size, int):
            return size
        expression = size.node.expr
        inputs = [symbol for symbol in expression.free_symbols if not symbol.name.startswith("u")]
        value = expression.xreplace(dict.fromkeys(inputs, sympy.Integer(rows)))
        return int(value) if value.is_Integer else None

    for _ in range(2):
        found = tracer.run(lambda: [torch.empty(rows, 4)], size_of)
    return tracer, *found


@pytest.mark.parametrize("rows", [0, 1, 7])
@pytest.mark.parametrize("model", [Layers, Written, Several, Reshaped])
def test_known_kernels_give_what_running_the_operators_gives(model: type[torch.nn.Module], rows: int) -> None:
    _, of_model, plain = traces(model(), rows, known=False)
    _, _, found = traces(model(), rows, known=True)
    # Parameters are told apart by where they are, which differs between two models.
    ran, expected = ([(step[0], step[-1]) for step in trace.steps] for trace in (found, plain))
    assert ran == expected
    assert of_model.error is not None or ran == [(step[0], step[-1]) for step in of_model.steps]
    assert (found.differing_axes, found.other_rank) == (plain.differing_axes, plain.other_rank)
    assert [str(item)[:9] for item in found.results] == [str(item)[:9] for item in plain.results]


def test_graph_and_model_run_the_same_where_kernels_are_known() -> None:
    tracer, model, graph = traces(Layers(), 3, known=True)
    assert (model.error, graph.error) == (None, None)
    assert model.steps == graph.steps
    assert model.results == graph.results
    assert tracer._kernels is not None
    linear = [key for key in tracer._kernels if key[0] is torch.ops.aten.linear.default]
    assert len(linear) == 1


def test_a_list_whose_length_depends_on_a_size_is_refused_with_a_remedy() -> None:
    def pieces(x: torch.Tensor) -> Any:
        return x.split(3)

    with pytest.raises(opsetta.CaptureError, match=r"fixes it at 3.*split\(length\).*tensor_split.*unfold"):
        opsetta.export(pieces, (torch.ones(7),), dynamic_shapes=({0: "n"},))


@pytest.mark.parametrize("error", [AttributeError("x"), KeyError("x"), AssertionError("x")])
@pytest.mark.parametrize("part", ["OperatorRecorder.origin", "GraphTrace.trace"])
def test_a_fault_of_the_trials_is_not_said_to_be_the_models(
    part: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    from opsetta.exporter.capture.sizes import graph_trace, operator_trace

    space: dict[str, Any] = {"error": error}
    # The exception must come from a line of the folder.
    exec(compile("def fail(*args):\n    raise error", operator_trace.__file__, "exec"), space)
    name, attribute = part.split(".")
    owner = getattr(operator_trace, name, None) or getattr(graph_trace, name)
    monkeypatch.setattr(owner, attribute, space["fail"])
    with pytest.raises(opsetta.OpsettaError, match="fault of opsetta: please report it"):
        traces(Written(), 3, True)


@pytest.mark.parametrize(
    "error", [AttributeError, KeyError, IndexError, TypeError, AssertionError, RuntimeError]
)
def test_any_exception_of_a_model_at_other_sizes_is_a_restriction(error: type[Exception]) -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] < 4:
            raise error("it is too short")
        return x.T.reshape(x.shape[0], -1) * 2

    program = opsetta.export(model, torch.ones(6, 2), opset=17, dynamic_shapes=({0: "n"},))
    assert program.dimensions["n"].minimum == 4
    assert "it is too short" in program.dimensions["n"].restrictions[0].reason
