"""A failed capture names the user's line, the cause, and what was seen to help; nothing else is printed."""

from __future__ import annotations

import importlib
import inspect
import os
import pathlib
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim

import opsetta
from opsetta.exporter.capture import user_lines
from opsetta.exporter.capture.pytorch import alternatives
from opsetta.exporter.capture.pytorch.ways import Failures
from opsetta.exporter.torch_boundary.fake_tensors import is_without_data
from opsetta.tests.document_programs import run_program

from ..torch_boundary.process_snapshot import changes, snapshot
from .data_dependent import Branch

ROOT = pathlib.Path(opsetta.__file__).resolve().parent
OURS = re.compile(r"(?<!tests/)exporter/capture|torch_export\.py|recurrent\.py|site-packages/torch")
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("nothing_compiled")]


class Flag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("initted", torch.tensor(False))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.initted:
            return x + 1
        return x


class Count(nn.Module):
    def forward(self, i: torch.Tensor) -> torch.Tensor:
        n = int(i.max()) + 1
        return torch.zeros(n).index_add(0, i, torch.ones(i.shape[0]))


class Numpy(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(np.sin(x.numpy())) + x


class Condition(nn.Module):
    """An option is a condition on a size; the buffer has no `nbytes`, as that of Whisper."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("heads", torch.eye(3).to_sparse())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum(0, keepdim=x.shape[0] > 1)


class Opaque:
    """A class that nothing can open."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


class Takes(nn.Module):
    def forward(self, x: torch.Tensor, other: Any) -> torch.Tensor:
        return x + 1


class Returns(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return Opaque(x + 1)


class Product(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ torch.ones(5, 5)


class SingleElement(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * x.mean(1).item()


class SingleFloat(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * float(x[:, 0])


class SingleBranch(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.mean(1) > 0 else -x


class Fixed(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(3, 4)


class Listed(nn.Module):
    """A Python list of a dynamic length is compared."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        positions = list(range(x.shape[0]))
        return x + 1 if positions == [0, 1, 2] else x


class LookedUp(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * {3: 2.0, 4: 5.0}.get(x.shape[0], 1.0)


class Stored(nn.Module):
    """Rotary embeddings of CLVP and Wav2Vec2-Conformer, after a call: those of its length are kept."""

    def __init__(self) -> None:
        super().__init__()
        self.length: int | None = None
        self.table: torch.Tensor | None = None
        self(torch.ones(3, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.table is None or x.shape[0] != self.length:
            self.length, self.table = x.shape[0], torch.arange(x.shape[0])[:, None]
        return x + self.table


@torch.library.custom_op("opsetta_failures::faceless", mutates_args=())
def faceless(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


class Faceless(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return faceless(x)


class Loud(nn.Module):
    """Prints, counts, draws, and writes to a buffer, before it fails to be captured."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))
        self.calls: list[int] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.append(len(self.calls))
        self.seen.add_(1)
        if (x + torch.rand(3)).sum() > 0:
            return x + 1
        return x


X = torch.ones(3)
ROWS = {"dynamic_shapes": {"x": {0: "rows"}}}
MODELS: dict[str, tuple[Callable[[], Any], tuple, dict[str, Any], str, list[str]]] = {
    "branch": (
        Branch,
        (X,),
        {},
        "if x.sum() > 0:",
        [
            "A branch depends on the values of a tensor",
            "torch.cond(",
            "torch.where(",
            "export(torch.jit.script(model), args) captures this model (tried)",
            "torch.jit.trace(model, args) does not help: for other inputs its results differ (tried)",
            "specialize=True",
        ],
    ),
    "branch, strict": (
        Branch,
        (X,),
        {"strict": True},
        "if x.sum() > 0:",
        ["A branch depends", "torch.cond("],
    ),
    "flag": (
        Flag,
        (X,),
        {"capture": "torch.export"},
        "if not self.initted:",
        ["'initted' is a buffer", "Python value", "the path of the example"],
    ),
    "size from values": (
        Count,
        (torch.tensor([1, 2, 2]),),
        {"capture": "torch.export"},
        "n = int(i.max()) + 1",
        ["depends on a number read from a tensor", "x.shape[0]", "torch.jit.script(model)"],
    ),
    "numpy": (
        Numpy,
        (X,),
        {"capture": "torch.export"},
        "return torch.from_numpy(np.sin(x.numpy())) + x",
        ["numpy", "strict=True captures this model (tried)"],
    ),
    "unopened input": (
        Takes,
        (X, [Opaque(X)]),
        {},
        "",
        ["Input 'other[0]' is of class Opaque", "register_pytree_node"],
    ),
    "missing argument": (
        Takes,
        (X,),
        {},
        "",
        ["do not fit the parameters of the model's forward", "'other'"],
    ),
    "generator": (Takes, (X, torch.Generator()), {}, "", ["input 'other' is a torch.Generator"]),
    "wrong shape": (
        Product,
        (torch.ones(3, 3),),
        {},
        "return x @ torch.ones(5, 5)",
        ["the model fails in PyTorch itself on the example arguments", "3x3 and 5x5"],
    ),
    "hint specialised": (
        Fixed,
        (torch.ones(3, 4),),
        ROWS,
        "return x.reshape(3, 4)",
        ["axis 0 of 'x'", "constant (3)", "leave"],
    ),
    "list of a size": (
        Listed,
        (torch.ones(3, 4),),
        ROWS,
        "return x + 1 if positions == [0, 1, 2] else x",
        ["a comparison of a list of a dynamic length", "use torch.arange", "make the dimension static"],
    ),
    **{
        f"one element of a dynamic number: {model.__name__}": (
            model,
            (torch.ones(1, 4),),
            ROWS,
            code,
            ["a dynamic number of elements in the file", "leave the dimension out", "torch.where", "x.max()"],
        )
        for model, code in {
            SingleElement: "return x * x.mean(1).item()",
            SingleFloat: "return x * float(x[:, 0])",
            SingleBranch: "return x if x.mean(1) > 0 else -x",
        }.items()
    },
    "size looked up": (
        LookedUp,
        (torch.ones(3, 4),),
        ROWS,
        "return x * {3: 2.0, 4: 5.0}.get(x.shape[0], 1.0)",
        ["looked up in a dict", "compare it instead", "leave the dimension out"],
    ),
    "condition as an option": (
        Condition,
        (torch.ones(3, 4),),
        ROWS,
        "return x.sum(0, keepdim=x.shape[0] > 1)",
        ["a function of torch that takes a bool", "bool(x.shape[1] > 1)"],
    ),
    "size stored by an earlier call": (
        Stored,
        (torch.ones(3, 4),),
        {"dynamic_shapes": {"x": {0: Dim.DYNAMIC}}},
        "if self.table is None or x.shape[0] != self.length:",
        ["attribute 'length' is 3 in the model", "set it to None"],
    ),
    "Dim specialised": (
        Fixed,
        (torch.ones(3, 4),),
        {"dynamic_shapes": {"x": {0: Dim("rows")}}},
        "return x.reshape(3, 4)",
        ["axis 0 of 'x'", "constant (3)", "leave the dimension out of dynamic_shapes"],
    ),
    "no fake kernel": (
        Faceless,
        (X,),
        {},
        "return faceless(x)",
        [
            '@torch.library.register_fake("opsetta_failures::faceless")',
            '@opsetta.onnx_symbolic("opsetta_failures::faceless"',
        ],
    ),
    "unopened result": (Returns, (X,), {}, "", ["returns an object of a class", "Opaque", "dataclass"]),
}


def failure(name: str) -> opsetta.CaptureError:
    make, args, options, _, _ = MODELS[name]
    with pytest.raises(opsetta.CaptureError) as raised:
        opsetta.export(make().eval(), args, explain=True, **options)
    return raised.value


def test_a_size_that_an_earlier_call_stored_is_reset() -> None:
    model = Stored().eval()
    model.length = None
    program = opsetta.export(model, (torch.ones(3, 4),), opset=17, dynamic_shapes=({0: "rows"},))
    for rows in (1, 3, 5):
        program.verify((torch.ones(rows, 4),))


@pytest.mark.parametrize("name", MODELS)
def test_the_message_has_line_cause_and_remedies(name: str) -> None:
    make, _, _, code, phrases = MODELS[name]
    message = str(failure(name))
    assert [phrase for phrase in phrases if phrase not in message] == []
    assert len(message.splitlines()[0]) < 200
    assert not OURS.search(message)
    assert "def forward(self, arg0_1" not in message
    assert len(message.splitlines()) <= 12
    if code:
        lines, start = inspect.getsourcelines(make)
        line = next(start + at for at, text in enumerate(lines) if text.strip() == code)
        first = message.splitlines()[0]
        assert first.endswith(f"{pathlib.Path(inspect.getfile(make)).name}:{line}, in forward: {code}")


@pytest.mark.parametrize("name", ["branch", "numpy", "no fake kernel", "hint specialised"])
def test_the_error_of_torch_is_the_cause(name: str) -> None:
    cause = failure(name).__cause__
    assert cause is not None
    assert not isinstance(cause, opsetta.OpsettaError)


def test_trying_alternatives_leaves_no_trace(capfd: Any) -> None:
    model = Loud().eval()
    before = snapshot(model, X)
    with pytest.raises(opsetta.CaptureError, match="A branch depends"):
        opsetta.export(model, (X,), explain=True)
    assert changes(before, snapshot(model, X)) == []
    assert capfd.readouterr() == ("", "")


def test_other_forms_are_tried_on_request_only() -> None:
    with pytest.raises(opsetta.CaptureError) as raised:
        opsetta.export(Branch().eval(), (X,))
    message = str(raised.value)
    assert (
        "explain=True tries other captures: torch.jit.script(model), torch.jit.trace(model, args)" in message
    )
    assert "torch.cond(" in message
    assert "tried)" not in message
    assert "fails too" not in message


class Stops(nn.Module):
    """A model that decides on a value, or fixes a size, and notes whether a capture or PyTorch runs it."""

    def __init__(self, runs: list[bool]) -> None:
        super().__init__()
        self.note = runs.append

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.note(not is_without_data(x))
        return x + 1 if x.dim() == 1 and x.sum() > 0 else x + torch.ones(3, 4)


@pytest.mark.parametrize(("example", "options"), [(X, {}), (torch.ones(3, 4), ROWS)])
@pytest.mark.parametrize("explain", [False, True])
def test_pytorch_runs_a_model_that_a_capture_explains_on_request_only(
    example: torch.Tensor, options: dict[str, Any], explain: bool
) -> None:
    runs: list[bool] = []
    with pytest.raises(opsetta.CaptureError, match="A branch depends|does not support every size"):
        opsetta.export(Stops(runs).eval(), (example,), explain=explain, **options)
    assert False in runs
    assert (True in runs) == explain


def test_without_a_request_a_model_that_fails_in_pytorch_is_named() -> None:
    with pytest.raises(opsetta.CaptureError, match="the model fails in PyTorch itself"):
        opsetta.export(nn.Linear(4, 2).eval(), (X,))


def test_nothing_is_tried_after_a_long_capture(monkeypatch: Any) -> None:
    monkeypatch.setattr(alternatives, "SECONDS", -1.0)
    message = str(failure("branch"))
    assert "not tried" in message
    assert "(tried" not in message


def test_a_function_that_closes_over_a_model_is_not_run_again() -> None:
    norm = nn.BatchNorm1d(3)

    def function(x: torch.Tensor) -> torch.Tensor:
        y = norm(x)
        return y if y.sum() > 0 else -y

    before = {name: value.clone() for name, value in norm.state_dict().items()}
    with pytest.raises(opsetta.CaptureError, match="not tried"):
        opsetta.export(function, (torch.randn(4, 3),))
    for name, value in norm.state_dict().items():
        assert torch.equal(value, before[name])


def test_compiled_functions_of_the_user_stay_compiled() -> None:
    from torch._dynamo.testing import CompileCounter

    counter = CompileCounter()
    compiled = torch.compile(lambda x: x.sin() + 1, backend=counter)
    compiled(X)
    failure("numpy")
    compiled(X)
    assert counter.frame_count == 1
    torch.compiler.reset()


def test_a_model_that_differentiates_is_not_said_to_fail_in_pytorch() -> None:
    class Gradient(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x.detach().requires_grad_(True)
            return torch.autograd.grad((x * x).sum(), x)[0]

    with pytest.raises(opsetta.CaptureError, match="in forward: return torch.autograd.grad") as raised:
        opsetta.export(Gradient(), (X,), capture="torch.export")
    assert "fails in PyTorch itself" not in str(raised.value)


def test_a_recommended_script_exports() -> None:
    program = opsetta.export(torch.jit.script(Branch()), (X,), opset=16)
    for x in (X, -X):
        torch.testing.assert_close(program(x), Branch()(x))


LIBRARY = """
import torch

class Cached(torch.nn.Module):
    shape = None

    def forward(self, x):
        if self.shape != x.shape:
            self.shape, self.positions = x.shape, torch.arange(x.shape[0])[:, None]
        return x + self.positions

def positive(x):
    if x.sum() > 0:
        return x
    return -x
"""


@pytest.fixture
def package(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An installed package with `LIBRARY`."""
    (tmp_path / "package_with_cache.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(user_lines, "_LIBRARIES", [*user_lines._LIBRARIES, f"{tmp_path.resolve()}{os.sep}"])
    yield importlib.import_module("package_with_cache")
    del sys.modules["package_with_cache"]


def test_a_branch_in_a_package_is_said_to_be_one(package: Any) -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return package.positive(x) * 2

    with pytest.raises(opsetta.CaptureError, match="A branch depends on the values") as raised:
        opsetta.export(Model(), (X,))
    assert re.search(r"It is in a package: .*: if x.sum\(\) > 0:", str(raised.value))


def test_a_package_that_keeps_the_shape_of_a_call_is_named(package: Any) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = package.Cached()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x) * 2

    model, x = Model().eval(), torch.ones(3, 4)
    model(x)
    with pytest.raises(opsetta.CaptureError) as raised:
        opsetta.export(model, (x,), opset=17, dynamic_shapes={"x": {0: Dim.DYNAMIC}})
    message = str(raised.value)
    assert "return self.inner(x) * 2" in message.splitlines()[0]
    assert re.search("It is in a package: .*package_with_cache.py:8, .*: if self.shape != x.shape:", message)
    assert "attribute 'shape' is (3, 4) in 'inner'" in message
    assert "set it to None" in message


def test_the_line_that_fixed_a_size_explains_more_than_an_error_of_the_model() -> None:
    fixed = ValueError("You marked it as dynamic but your code specialized it to be a constant (2).")
    own = RuntimeError("Seems to be out of memory.")
    other = RuntimeError("Could not extract specialized integer from data-dependent expression u0.")
    assert Failures({"direct": fixed, "torch.export": own, "strict": own}, []).explained is fixed
    assert Failures({"direct": fixed, "torch.export": other}, []).explained is other
    assert Failures({"direct": own, "torch.export": other}, []).explained is other


def test_a_user_frame_below_a_library_is_found() -> None:
    class Inner(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * float(x.sum() > 1)

    with pytest.raises(opsetta.CaptureError, match=r"in forward: return x \* float\(x.sum\(\) > 1\)"):
        opsetta.export(nn.Sequential(nn.ReLU(), Inner()), (X,), capture="torch.export")


SCRIPT = """
import sys
import torch
import opsetta

class Branch(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x + 1
        return x

class Size(torch.nn.Module):
    def forward(self, x):
        return x.reshape(3, 4)

for model, x, shapes in ((Branch(), torch.ones(3), None), (Size(), torch.ones(3, 4), {"x": {0: "n"}})):
    for strict in (False, True):
        try:
            opsetta.export(model.eval(), x, dynamic_shapes=shapes, strict=strict)
        except opsetta.CaptureError as error:
            print("refused")
"""


def test_nothing_but_the_error_reaches_the_user(tmp_path: Any) -> None:
    assert run_program(SCRIPT, tmp_path) == "refused\n" * 4


class WithScript(nn.Module):
    """A model with a TorchScript module, which torch.export calls with an argument too many."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.jit.script(nn.Sequential(nn.Linear(2, 2)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def test_direct_capture_of_a_model_with_a_scripted_module_is_explained() -> None:
    with pytest.raises(opsetta.CaptureError, match="module 'layers' is TorchScript"):
        opsetta.export(WithScript().eval(), torch.ones(1, 2), capture="direct")


def test_a_model_that_needs_no_grad_is_not_said_to_fail_in_pytorch() -> None:
    class WithoutGradients(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if torch.is_grad_enabled():
                raise NotImplementedError("it has no derivative")
            return x * 2 if x.sum() > 0 else x

    with pytest.raises(opsetta.CaptureError, match="A branch depends on the values") as raised:
        opsetta.export(WithoutGradients(), (X,))
    assert "fails in PyTorch itself" not in str(raised.value)


def test_a_buffer_is_no_remedy_where_an_operator_lacks_its_shapes() -> None:
    class Buffered(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", torch.ones(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return faceless(x + self.table)

    with pytest.raises(opsetta.CaptureError) as raised:
        opsetta.export(Buffered().eval(), (torch.randn(3),))
    assert "register_fake" in str(raised.value)
    assert "Python value" not in str(raised.value)
