"""A fault of opsetta is reported as one; an error of the user's code at the same place is the user's."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import opsetta
from opsetta.passes.faults import Fault, is_fault

X = torch.ones(3, 4)
REPORT = "This is a fault of opsetta: please report it"
pytestmark = pytest.mark.filterwarnings("ignore")


class Product(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x @ x.T).relu()


class Loss(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.huber_loss(x, x * 2)


def break_function(monkeypatch: pytest.MonkeyPatch, place: str, error: Exception) -> None:
    """Replace a function by one that raises; its code counts as code of the module that defines it."""
    path, name = place.split(":")
    module = importlib.import_module(f"opsetta.{path}")
    *owners, attribute = name.split(".")
    owner: Any = module
    for part in owners:
        owner = getattr(owner, part)
    space: dict[str, Any] = {"error": error}
    exec(compile("def fail(*args, **kwargs):\n    raise error", str(module.__file__), "exec"), space)
    monkeypatch.setattr(owner, attribute, space["fail"])


PLACES = {
    "recorder": "exporter.torch_boundary.recording.recorder:GraphRecorder._arguments",
    "results of the recorder": "exporter.torch_boundary.recording.recorder:GraphRecorder._map_results",
    "end of a recording": "exporter.capture.direct.recording:_Recording._finish",
    "decision": "exporter.capture.pytorch.capture_model:placeholders",
    "sizes": "exporter.capture.pytorch.capture_model:limits_of_sides",
    "trial": "exporter.capture.sizes.trials.size_trials:Tracer._call_model",
    "end of a node": "exporter.lowering.driver:record_inplace",
    "lowering": "exporter.lowering.driver:Driver._check_element_types",
    "names of dimensions": "exporter.capture.pytorch.capture_model:symbol_names",
    "importer": "exporter.capture.fx_import.fx_graph:GraphImporter._operator",
}
ERRORS = [AttributeError("absent"), KeyError("absent"), RuntimeError("broken"), ValueError("broken")]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("place", PLACES)
def test_a_fault_in_a_capture_is_reported(
    place: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_function(monkeypatch, PLACES[place], error)
    with pytest.raises(opsetta.OpsettaError, match=REPORT) as caught:
        opsetta.export(Product(), (X,), dynamic_shapes=({0: "rows"},))
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize(
    "place",
    [
        "exporter.capture.fx_import.decomposition:_import_trace",
        "exporter.torch_boundary.operators.decompositions:apply",
    ],
)
def test_a_fault_in_a_decomposition_is_not_a_missing_decomposition(
    place: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_function(monkeypatch, place, error)
    with pytest.raises(opsetta.OpsettaError, match=REPORT):
        opsetta.export(Loss(), (X,))


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_fault_of_a_symbolic_function_is_reported(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_function(monkeypatch, "registration.context:GraphContext.op", error)
    with pytest.raises(opsetta.OpsettaError, match=REPORT):
        opsetta.export(Product(), (X,))


def test_a_name_that_is_gone_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    from opsetta.exporter.torch_boundary.recording import recorder

    monkeypatch.setattr(recorder.GraphRecorder, "_node_of", None)
    with pytest.raises(Fault, match="in the capture 'direct' of the model: TypeError: 'NoneType'"):
        opsetta.export(Product(), (X,))


def test_a_fault_in_an_alternative_does_not_speak_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def branch(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.sum() > 0 else x

    place = "exporter.capture.torchscript.interpreter:Interpreter.stem"
    break_function(monkeypatch, place, KeyError("absent"))
    for model in (branch, torch.jit.script(Product())):
        with pytest.raises(Fault, match=REPORT):
            opsetta.export(model, (X,), explain=True)


class Failing(nn.Module):
    """Raises an error of the user at other sizes than the example's, or at once."""

    def __init__(self, error: Exception, rows: int) -> None:
        super().__init__()
        self.error = error
        self.rows = rows

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] < self.rows:
            raise type(self.error)(*self.error.args)
        return (x @ x.T).relu()


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_errors_of_the_model_are_its_own(error: Exception) -> None:
    with pytest.raises(opsetta.CaptureError, match=r"raise type\(self.error\)") as caught:
        opsetta.export(Failing(error, 4), (X,))
    assert REPORT not in str(caught.value)
    program = opsetta.export(Failing(error, 3), (X,), dynamic_shapes=({0: "rows"},))
    assert [each.condition for each in program.dimensions["rows"].restrictions] == ["rows >= 3"]


WRONG: dict[str, Callable[[torch.Tensor], Any]] = {
    "axis": lambda x: x.sum(7),
    "index": lambda x: x[:, 9],
    "shape": lambda x: x.reshape(5, 5),
    "type": lambda x: torch.conv2d(x, "weight"),  # type: ignore[call-overload]
    "attribute": lambda x: x.no_such_method(),  # type: ignore[attr-defined]
    "keyword": lambda x: x.view(none=1),  # type: ignore[call-overload]
    "number": lambda x: x.expand("3"),  # type: ignore[arg-type]
    "made": lambda x: torch.tensor([x, "a"]),
    "filled": lambda x: torch.zeros(x.shape[0], -1),
    "loss": lambda x: torch.nn.functional.cross_entropy(x, x[:2]),
    "norm": lambda x: torch.linalg.norm(x, ord="none"),
    "concatenated": lambda x: torch.cat([x, 3]),  # type: ignore[list-item]
    "split": lambda x: x.split("a"),
    "einsum": lambda x: torch.einsum("ij,jk", x, x),
    "cond": lambda x: torch.cond(x.sum() > 0, lambda: x, lambda x: x, (x,)),
    "assigned": lambda x: setattr(x, "data", 3),
    "length": lambda x: x * len(x[0, 0]),
    "integer": lambda x: x * int("a"),
    "missing": lambda x: {}[x.shape[0]],
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("is_dynamic", [False, True])
def test_wrong_calls_in_a_model_are_not_faults_of_opsetta(name: str, is_dynamic: bool) -> None:
    shapes = ({0: "rows"},) if is_dynamic else None
    for way in ("auto", "direct", "torch.export"):
        with pytest.raises(opsetta.CaptureError) as caught:
            opsetta.export(WRONG[name], (X,), dynamic_shapes=shapes, capture=way)
        assert REPORT not in str(caught.value)


@torch.library.custom_op("opsetta_own_faults::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@doubled.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    raise KeyError("shape of the user")


def test_errors_of_the_users_operator_are_the_users() -> None:
    with pytest.raises(opsetta.CaptureError, match="shape of the user") as caught:
        opsetta.export(lambda x: doubled(x), (X,))
    assert REPORT not in str(caught.value)


def test_errors_of_the_users_symbolic_function_are_the_users() -> None:
    registry = opsetta.default_registry.fork()

    def symbolic(g: Any, self: Any) -> Any:
        raise KeyError("symbolic of the user")

    registry.register("aten::relu", 9, symbolic, override=True)
    with pytest.raises(opsetta.OpsettaError, match="lowering aten::relu.default failed .*KeyError") as caught:
        opsetta.export(Product(), (X,), registry=registry)
    assert REPORT not in str(caught.value)


def test_the_origin_of_an_exception_decides() -> None:
    for call in (lambda: torch.ones(2) @ torch.ones(3), lambda: [][1], lambda: int("a")):
        with pytest.raises((RuntimeError, IndexError, ValueError)) as caught:
            call()
        assert not is_fault(caught.value)
    assert not is_fault(opsetta.CaptureError("refused"))
    assert not is_fault(ValueError("never raised"))
