"""Trials at other sizes: what a captured graph runs, beside what its model runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sympy
import torch
import torch.utils._pytree as pytree
from torch.export import Dim

import opsetta
from opsetta.exporter.capture.sizes.trials.operator_trace import Trace
from opsetta.exporter.capture.sizes.trials.size_trials import Tracer, _ModuleState
from opsetta.exporter.torch_boundary import capture_patches


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


def traces(model: torch.nn.Module, rows: int) -> tuple[Trace, Trace]:
    """The second run's trace of the model and of the graph."""
    example = torch.ones(5, 4)
    program = torch.export.export(model.eval(), (example,), dynamic_shapes=({0: Dim.AUTO},))
    tracer = Tracer(model, program, pytree.tree_flatten(((example,), {}))[1])
    # Here the graph runs, also where it calls what the model calls.
    tracer._remaining_differences = 0

    def size_of(size: Any) -> int | None:
        if isinstance(size, int):
            return size
        expression = size.node.expr
        inputs = [symbol for symbol in expression.free_symbols if not symbol.name.startswith("u")]
        value = expression.xreplace(dict.fromkeys(inputs, sympy.Integer(rows)))
        return int(value) if value.is_Integer else None

    for _ in range(2):
        found = tracer.run(lambda: [torch.empty(rows, 4)], size_of)
    return found


CUT = {(Layers, 0): {"slice_1"}, (Written, 0): {"slice_1", "add_"}, (Written, 1): {"slice_1", "add_"}}
"""Values that have another number of rows than the graph promises, because a slice finds fewer rows."""


@pytest.mark.parametrize("rows", [0, 1, 7])
@pytest.mark.parametrize("model", [Layers, Written, Several, Reshaped])
def test_graph_and_model_run_the_same(model: type[torch.nn.Module], rows: int) -> None:
    of_model, of_graph = traces(model(), rows)
    if of_model.error is None:
        assert of_graph.error is None
        assert of_model.steps == of_graph.steps
        assert of_model.results == of_graph.results
        assert of_graph.differing_axes == {name: {0} for name in CUT.get((model, rows), ())}
        assert of_graph.other_rank is None


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
    from opsetta.exporter.capture.sizes.trials import graph_trace, operator_trace

    space: dict[str, Any] = {"error": error}
    # The exception must come from a line of the folder.
    exec(compile("def fail(*args):\n    raise error", operator_trace.__file__, "exec"), space)
    name, attribute = part.split(".")
    owner = getattr(operator_trace, name, None) or getattr(graph_trace, name)
    monkeypatch.setattr(owner, attribute, space["fail"])
    with pytest.raises(opsetta.OpsettaError, match="fault of opsetta: please report it"):
        traces(Written(), 3)


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


class AssignedSize(torch.nn.Module):
    """Ball queries of PointNet++: a mask assigns a size, and fewer rows than neighbours fail."""

    def forward(self, distances: torch.Tensor) -> torch.Tensor:
        size = distances.shape[0]
        positions = torch.arange(size)
        positions[distances > 0.5] = size
        nearest = positions.sort()[0][:4]
        mask = nearest == size
        nearest[mask] = nearest[:1].repeat(4)[mask]
        return nearest


def test_an_assigned_size_is_a_constant_of_a_trial() -> None:
    dynamic = ({0: "n"},)
    program = opsetta.export(AssignedSize().eval(), (torch.rand(9),), opset=13, dynamic_shapes=dynamic)
    assert program.dimensions["n"].minimum == 4
    for size in (4, 30):
        program.verify((torch.rand(size),))


def test_the_trials_of_a_search_share_the_patches_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    patch, run = capture_patches.apply_capture_patches, Tracer.run
    monkeypatch.setattr(
        capture_patches, "apply_capture_patches", lambda packs: calls.append("patches") or patch(packs)
    )
    monkeypatch.setattr(Tracer, "run", lambda *args, **kwargs: calls.append("run") or run(*args, **kwargs))
    opsetta.export(torch.nn.Linear(4, 4).eval(), (torch.ones(3, 4),), dynamic_shapes=({0: "rows"},))
    assert calls == ["patches", "run", "run"]


class Stateful(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.empty: dict[str, int] = {}
        self.sizes = {"first": 1, "second": 2}
        self.last_size = 0


CHANGES: dict[str, Callable[[Any], object]] = {
    "an attribute": lambda module: setattr(module, "last_size", 7),
    "a new attribute": lambda module: setattr(module, "further_size", 7),
    "a member": lambda module: module.sizes.update(first=7),
    "an empty dict": lambda module: module.empty.update(first=7),
    "the order": lambda module: module.sizes.update(first=module.sizes.pop("first")),
    "a key": lambda module: module.sizes.update(third=module.sizes.pop("second")),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_a_trial_changes_in_a_module_is_restored(change: Callable[[Any], object]) -> None:
    module = Stateful()
    state = _ModuleState([module])
    for _ in range(2):
        change(module)
        state.restore()
        assert list(module.sizes.items()) == [("first", 1), ("second", 2)]
        assert (module.empty, module.last_size, hasattr(module, "further_size")) == ({}, 0, False)


def test_a_recording_that_differs_at_the_examples_sizes_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that does something else in each call cannot be compared at other sizes either."""
    run, other = Tracer.run, Trace()
    other.steps, other.shapes = [("another operator", ())], [(7,)]
    monkeypatch.setattr(Tracer, "run", lambda *args, **kwargs: (run(*args, **kwargs)[0], other))
    with pytest.raises(opsetta.CaptureError, match=r"recorded \[\(7,\)\]"):
        opsetta.export(torch.nn.Linear(4, 4).eval(), (torch.ones(3, 4),), dynamic_shapes=({0: "rows"},))
