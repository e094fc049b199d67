"""`specialize=True` follows the example and lists what it fixed; `capture="auto"` tries what may help."""

from __future__ import annotations

import json
import pathlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import opsetta
from opsetta.exporter.capture.pytorch import alternatives, capture_model, ways
from opsetta.exporter.capture.pytorch.capture_call import capture_call
from opsetta.exporter.captured_graph import specializations
from opsetta.exporter.captured_graph.specializations import Specialization
from opsetta.exporter.command_line.application import make_application
from opsetta.registration import SPECIALIZATIONS

from .data_dependent import Branch

X = torch.ones(3)
pytestmark = pytest.mark.usefixtures("nothing_compiled")


class Repeats(nn.Module):
    """Takes two numbers from the input: one that Python needs, and one that may stay dynamic."""

    def forward(self, x: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        for _ in range(n.item()):
            x = x + 1
        return x, x * n.item()


class Array(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.from_numpy(np.sort(x.numpy()))


class Number(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.zeros(int(x.max()) + 1)


class Loop(nn.Module):
    """Branches on a value, then runs a Python function on every element, which no way captures."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            x = x.data.apply_(lambda element: element + 1)
        return x


def specialized(model: nn.Module, *args: torch.Tensor, **options: Any) -> opsetta.Program:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return opsetta.export(model.eval(), args, opset=17, specialize=True, **options)


def test_the_warning_names_line_and_value() -> None:
    with pytest.warns(
        UserWarning, match=r"data_dependent.py:\d+: if x.sum\(\) > 0: \(branch for True\)"
    ) as seen:
        opsetta.export(Branch().eval(), (X,), specialize=True)
    assert [entry.filename for entry in seen] == [__file__]


@pytest.mark.parametrize("sign", [1, -1])
def test_the_path_is_that_of_the_example(sign: int) -> None:
    program = specialized(Branch(), sign * X)
    program.verify((sign * 2 * X,))
    assert [entry.value for entry in program.specializations] == [sign > 0]
    with pytest.raises(opsetta.VerificationError):
        program.verify((-sign * 2 * X,))


def test_only_decisions_are_fixed() -> None:
    program = specialized(Repeats(), X, torch.tensor(3))
    assert [(entry.kind, entry.value) for entry in program.specializations] == [("int", 3)]
    result = program(X, torch.tensor(5))
    torch.testing.assert_close(result, (X + 3, (X + 3) * 5))


def test_dynamic_sizes_stay_dynamic() -> None:
    # The example grows for the capture, and its entries repeat.
    program = specialized(Branch(), X[:1], dynamic_shapes={"x": {0: "n"}})
    program.verify((torch.ones(7),))
    assert program.dimensions["n"].restrictions == ()


def test_an_array_of_an_input_is_that_of_the_example() -> None:
    program = specialized(Array(), torch.tensor([3.0, 1.0, 2.0]), capture="direct")
    assert [entry.kind for entry in program.specializations] == ["array"]
    torch.testing.assert_close(program(X), X + torch.tensor([1.0, 2.0, 3.0]))


def test_nothing_is_fixed_where_another_way_needs_no_decision() -> None:
    program = specialized(Number(), torch.tensor([1, 2]))
    assert program.specializations == []
    assert program(torch.tensor([1, 6])).shape == (7,)


def test_a_trace_lists_decisions_without_values() -> None:
    program = specialized(Branch(), X, capture="trace")
    [entry] = program.specializations
    assert (entry.code, entry.kind, entry.value) == ("if x.sum() > 0:", "branch", None)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + torch.from_numpy(np.sort(x.numpy())),
        lambda x: x + torch.tensor(x.tolist()),
        lambda x: x + np.asarray(x)[0],
    ],
)
def test_a_trace_lists_arrays_and_lists(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    with pytest.warns(UserWarning, match="follows the decisions of the example"):
        program = opsetta.export(function, (X,), opset=17, capture="trace")
    assert "array" in {entry.kind for entry in program.specializations}


@pytest.mark.parametrize("name", ["apply_", "map_"])
def test_a_trace_refuses_functions_of_elements(name: str) -> None:
    def changed(x: torch.Tensor) -> torch.Tensor:
        doubled = x * 2
        others = () if name == "apply_" else (x,)
        return getattr(doubled, name)(*others, lambda *elements: elements[0] + 1)

    with pytest.raises(opsetta.CaptureError, match=f"Tensor.{name} runs a Python function"):
        opsetta.export(changed, (X,), opset=17, capture="trace")
    assert name not in vars(torch.Tensor)


def test_where_tracing_fails_too_the_line_comes_first() -> None:
    with pytest.raises(opsetta.CaptureError, match=r"^direct capture .*: x = x.data.apply_") as failed:
        specialized(Loop(), X)
    assert "trace (torch.jit.trace could not" in str(failed.value)


def test_files_keep_the_decisions(tmp_path: pathlib.Path) -> None:
    program = specialized(Branch(), X)
    path = tmp_path / "branch.onnx"
    program.save(path)
    [entry] = (e for e in onnx.load(path).metadata_props if e.key == SPECIALIZATIONS)
    assert [Specialization(**found) for found in json.loads(entry.value)] == program.specializations
    assert opsetta.export(nn.ReLU(), (X,)).specializations == []


def test_the_command_line_takes_it_and_info_shows_it(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.py").write_text(
        "import torch\n\nclass M(torch.nn.Module):\n    def forward(self, x):\n        if x.sum() > 0:\n"
        "            return x * 2\n        return x\n\ndef make():\n    return M().eval(), (torch.ones(3),)\n"
    )
    monkeypatch.chdir(tmp_path)
    refused = CliRunner().invoke(make_application(), ["export", "model.py:make", "-o", "m.onnx"])
    assert "model.py:5" in str(refused.exception)
    done = CliRunner().invoke(make_application(), ["export", "model.py:make", "-o", "m.onnx", "--specialize"])
    assert done.exit_code == 0, done.output
    shown = CliRunner().invoke(make_application(), ["info", "m.onnx"])
    assert "fixed at the example: model.py:5: if x.sum() > 0: (branch for True)" in shown.output


@pytest.mark.parametrize("capture", ["torch.export", "strict"])
def test_other_ways_cannot_specialize(capture: str) -> None:
    with pytest.raises(opsetta.UsageError, match="specialize=True needs"):
        opsetta.export(Branch(), (X,), specialize=True, capture=capture)


def test_metadata_of_another_form_is_refused() -> None:
    entry = {"line": "", "code": "", "kind": "branch", "value": True}
    for text in ("[", "[1]", json.dumps([entry | {"kind": "x"}]), json.dumps([entry | {"value": "x"}])):
        with pytest.raises(opsetta.OpsettaError, match="documented form"):
            specializations.read_specializations({SPECIALIZATIONS: text})


def tried(error: Exception, eager_error: Exception | None = None) -> list[str]:
    """The ways that are tried where each raises an error."""
    seen = []

    def attempt(way: str, specialize: bool) -> None:
        seen.append(way)
        raise error

    with pytest.raises(ways.Failures):
        ways.capture_by("auto", False, attempt, lambda: eager_error)
    return seen


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError("Could not guard on data-dependent expression Eq(u0, 1)"), ["direct", "strict"]),
        (RuntimeError(".numpy() is not supported"), ["direct", "torch.export", "strict"]),
        (ValueError("Constraints violated (rows)"), ["direct", "torch.export", "strict"]),
        (ValueError("the image is too small"), ["direct", "torch.export", "strict"]),
        (RuntimeError("There was no fake impl registered for a::b"), ["direct"]),
        (opsetta.CaptureError("axis 0 takes no other size"), ["direct", "torch.export"]),
    ],
    ids=lambda item: str(item)[:20],
)
def test_a_way_is_tried_where_it_may_help(error: Exception, expected: list[str], monkeypatch: Any) -> None:
    monkeypatch.setattr(ways, "has_compiled_code", lambda: False)
    assert tried(error) == expected


def test_torch_export_is_tried_where_pytorch_fails_otherwise() -> None:
    """torch.export needs no kernels: a model may fail in PyTorch for the lack of one."""
    error = ValueError("the image is too small")
    assert tried(error, RuntimeError("no kernel for half")) == ["direct", "torch.export"]


@pytest.mark.parametrize(
    ("model", "match"),
    [
        (lambda x: x @ x.reshape(2, -1), "fails in PyTorch itself"),
        (lambda x: x.absent, "fails in PyTorch itself(.|\n)*AttributeError: 'Tensor' object"),
        (lambda x: x if len(x) > 9 else next(iter(())), "fails in PyTorch itself(.|\n)*StopIteration"),
    ],
    ids=["shapes", "attribute", "raises"],
)
def test_an_error_of_the_model_needs_no_torch_export(model: Any, match: str, monkeypatch: Any) -> None:
    captured_by: list[str] = []

    def count_captures(*arguments: Any) -> Any:
        captured_by.append(arguments[-2])
        return capture_call(*arguments)

    monkeypatch.setattr(capture_model, "capture_call", count_captures)
    with pytest.raises(opsetta.CaptureError, match=match):
        opsetta.export(model, (torch.ones(4),))
    assert captured_by == ["direct"]


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        # A kernel, and the model's own code, test whether the size is 3.
        (lambda x: x + torch.ones(3, 4), {"direct"}),
        (lambda x: x * 2 if x.shape[0] == 3 else x.absent, {"direct"}),
        # TorchDynamo may keep a number symbolic that code makes of a size.
        (lambda x: x * (1, 2, 4, 8)[x.shape[0]], {"direct", "torch.export", "strict"}),
    ],
)
def test_torch_export_is_left_out_where_a_condition_fixes_a_size(
    model: Any, expected: set[str], monkeypatch: Any
) -> None:
    captured_by: set[str] = set()

    def count_captures(*arguments: Any) -> Any:
        captured_by.add(arguments[-2])
        return capture_call(*arguments)

    monkeypatch.setattr(capture_model, "capture_call", count_captures)
    monkeypatch.setattr(ways, "has_compiled_code", lambda: False)
    with pytest.raises(opsetta.CaptureError, match="does not support every size") as raised:
        opsetta.export(model, (torch.ones(3, 4),), dynamic_shapes=({0: "rows"},))
    assert captured_by == expected
    assert (ways.SAME_CONDITION in str(raised.value)) == (expected == {"direct"})


@pytest.mark.parametrize(
    ("function", "modes", "error"),
    [
        (lambda x: x * 2, [False], None),
        (lambda x: x.absent, [False], "no attribute 'absent'"),
        (lambda x: torch.autograd.grad((x * x).sum(), x)[0], [False, True], None),
        (lambda x: torch.autograd.grad((x * x).sum(), x)[1], [False, True], "tuple index out of range"),
    ],
)
def test_a_model_runs_twice_only_for_an_error_about_gradients(
    function: Any, modes: list[bool], error: str | None
) -> None:
    gradient_modes = []

    def model(x: torch.Tensor) -> torch.Tensor:
        gradient_modes.append(torch.is_grad_enabled())
        return function(x)

    with torch.enable_grad():
        raised = alternatives._error_of(model, (torch.ones(2, requires_grad=True),), {})
    assert gradient_modes == modes
    assert (raised is None) if error is None else (error in str(raised))


def _by_condition(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if (x.sum() > 0).item() else x[:1]


def _by_loop(x: torch.Tensor) -> torch.Tensor:
    # TorchScript has no `key`, and keeps other loops.
    while x.max() < 9:
        x = sorted([x * 2, x * 3], key=id)[0]
    return x


@pytest.mark.parametrize("function", [Branch(), _by_condition, _by_loop])
def test_strict_capture_is_left_out_for_branches_on_values(function: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(ways, "has_compiled_code", lambda: False)
    with pytest.raises(opsetta.CaptureError, match="A branch depends on the values of a tensor") as raised:
        opsetta.export(function, (X,))
    assert "tried in turn" not in str(raised.value)


def test_strict_capture_is_left_out_for_compiled_code_and_models_that_fail(monkeypatch: Any) -> None:
    monkeypatch.setattr(ways, "has_compiled_code", lambda: True)
    with pytest.raises(opsetta.CaptureError, match="strict capture was not tried"):
        opsetta.export(Number().eval(), (torch.tensor([1, 2]),))
    monkeypatch.setattr(ways, "has_compiled_code", lambda: False)
    with pytest.raises(opsetta.CaptureError, match="fails in PyTorch itself") as raised:
        opsetta.export(Number().eval(), (torch.tensor([], dtype=torch.int64),))
    assert "strict (" not in str(raised.value)
