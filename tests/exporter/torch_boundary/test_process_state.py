"""An export leaves the process, the model and the arguments as they were, however it ends."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim

import opsetta
from opsetta.exporter.torch_boundary.boundary import boundary
from opsetta.exporter.torch_boundary.process.silence import quiet as silent
from opsetta.exporter.torch_boundary.state.model_state import Preserved

from .process_snapshot import changes, snapshot

Kind = tuple[Any, tuple, dict[str, Any]]


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lstm(x)[0]


class Noted(nn.Module):
    """Sets attributes, and fills a list and a dict, as it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("count", torch.zeros(()))
        self.seen: list[Any] = []
        self.memory: dict[str, Any] = {"last": None}
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        y = self.linear(x)
        self.seen.append(y)
        self.memory["last"] = y
        self.result = y
        return y


class Plain(nn.Module):
    """Writes to tensors that are neither parameters nor buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.total = torch.zeros(2)
        self.parts = [torch.zeros(2)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(1)
        self.parts[0].add_(x)
        return x + self.total + self.parts[0]


NORM = nn.BatchNorm1d(3)


class Branch(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x * 2, (x,))


class Scan(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from torch._higher_order_ops.associative_scan import associative_scan

        return associative_scan(lambda a, b: a + b, x, 0, combine_mode="generic")


class Random(nn.Module):
    """Draws from every generator; in training mode dropout does too."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        noise = torch.rand(3) * random.random() * float(np.random.rand())
        return nn.functional.dropout(x, training=True) + noise


class Raises(nn.Module):
    """Fails in the middle of its forward."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error
        self.noted = Noted()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.noted(x)
        with torch.autocast("cpu"), torch.enable_grad():
            raise self.error


class Unsupported(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.eigvals(x @ x).real


@torch.library.custom_op("opsetta_state::interrupted", mutates_args=())
def interrupted(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@interrupted.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    raise KeyboardInterrupt


class InOperator(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.opsetta_state.interrupted(x + 1)


def quantized() -> Any:
    class Quantized(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127)

    return Quantized()


def encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    return nn.TransformerEncoder(layer, 1, enable_nested_tensor=False).eval()


def x(*sizes: int) -> torch.Tensor:
    return torch.ones(*sizes)


def batched() -> Kind:
    return Noted().eval(), (x(1, 3),), {"dynamic_shapes": {"x": {0: Dim("batch")}}}


def saved(folder: Any) -> Kind:
    path = folder / "model.pt"
    torch.jit.script(Recurrent().eval()).save(path)
    return path, (x(2, 1, 3),), {}


KINDS: dict[str, Callable[[Any], Kind]] = {
    "module": lambda folder: (Noted().eval(), (x(2, 3),), {}),
    "training module": lambda folder: (nn.BatchNorm1d(3), (x(2, 3),), {"mutations": "outputs"}),
    "function": lambda folder: (lambda x: x * 2, (x(2),), {}),
    "function of a module": lambda folder: (Noted().eval().forward, (x(2, 3),), {}),
    "plain tensors": lambda folder: (Plain().eval(), (x(2),), {}),
    "function of a global module": lambda folder: (lambda x: NORM(x), (x(2, 3),), {}),
    "ExportedProgram": lambda folder: (torch.export.export(nn.Linear(3, 3), (x(2, 3),)), (), {}),
    "script": lambda folder: (torch.jit.script(Recurrent().eval()), (x(2, 1, 3),), {}),
    "trace": lambda folder: (torch.jit.trace(nn.Linear(3, 3), x(2, 3)), (x(2, 3),), {}),
    "saved script": saved,
    "LSTM": lambda folder: (Recurrent().eval(), (x(2, 1, 3),), {}),
    "transformer": lambda folder: (encoder(), (x(1, 2, 4),), {}),
    "quantized": lambda folder: (quantized(), (x(2),), {}),
    "cond": lambda folder: (Branch(), (x(2),), {}),
    "associative_scan": lambda folder: (Scan(), (x(4),), {}),
    "strict": lambda folder: (nn.Sequential(nn.Linear(3, 3), nn.ReLU()).eval(), (x(2, 3),), {"strict": True}),
    "strict cond": lambda folder: (Branch(), (x(2),), {"strict": True}),
    "enlarged": lambda folder: batched(),
    "random numbers": lambda folder: (Random(), (x(3),), {}),
    "decomposed": lambda folder: (lambda a: torch.special.multigammaln(a, 2), (x(3) + 3,), {"opset": 9}),
}
FAILURES: dict[str, tuple[Callable[[], Kind], type[BaseException]]] = {
    "error in forward": (lambda: (Raises(ValueError("no")), (x(2, 3),), {}), opsetta.CaptureError),
    "error in forward, strict": (
        lambda: (Raises(ValueError("no")), (x(2, 3),), {"strict": True}),
        opsetta.CaptureError,
    ),
    "interrupt in forward": (lambda: (Raises(KeyboardInterrupt()), (x(2, 3),), {}), KeyboardInterrupt),
    "interrupt in an operator": (lambda: (InOperator(), (x(2, 3),), {}), KeyboardInterrupt),
    "exit in forward": (lambda: (Raises(SystemExit(3)), (x(2, 3),), {}), SystemExit),
    "unsupported operator": (
        lambda: (Unsupported(), (x(3, 3),), {}),
        opsetta.UnsupportedOperatorsError,
    ),
    "value branch": (
        lambda: (lambda x: x + 1 if x.sum() > 0 else x, (x(2),), {}),
        opsetta.CaptureError,
    ),
}
SETTINGS: dict[str, Callable[[], contextlib.AbstractContextManager[Any]]] = {
    "no grad": torch.no_grad,
    "inference mode": torch.inference_mode,
    "float64": lambda: _default_dtype(torch.float64),
}


@contextlib.contextmanager
def _default_dtype(dtype: torch.dtype) -> Any:
    held = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(held)


@pytest.fixture(autouse=True, scope="module")
def imported() -> None:
    """Import what a first export imports, which may set up loggers and settings of its own."""
    from opsetta.exporter.command_line import application  # noqa: F401

    for strict in (False, True):
        opsetta.export(Branch(), x(2), strict=strict)


def unchanged(run: Callable[[], Any], *roots: Any) -> None:
    before = snapshot(*roots)
    run()
    assert changes(before, snapshot(*roots)) == []


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_changes_around_an_export(kind: str, tmp_path: Any) -> None:
    model, args, options = KINDS[kind](tmp_path)

    def run() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            opsetta.export(model, args, **options)

    unchanged(run, model, args, NORM, *vars(model).values() if isinstance(model, Plain) else ())


def test_a_plain_tensor_is_exported_as_it_was_before_the_capture() -> None:
    model = Plain().eval()
    torch.testing.assert_close(opsetta.export(model, (x(2),))(x(2)), model(x(2)))


@pytest.mark.parametrize("kind", ["module", "LSTM", "transformer", "cond", "trace", "script"])
def test_nothing_changes_around_a_verification(kind: str, tmp_path: Any) -> None:
    model, args, options = KINDS[kind](tmp_path)
    program = opsetta.export(model, args, **options)

    def run() -> None:
        program.verify()
        program.locate_mismatch()

    unchanged(run, model, args)


@pytest.mark.parametrize("failure", FAILURES)
def test_nothing_changes_around_a_failure(failure: str) -> None:
    make, error = FAILURES[failure]
    model, args, options = make()

    def run() -> None:
        with pytest.raises(error):
            opsetta.export(model, args, **options)

    unchanged(run, model, args)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("kind", ["module", "LSTM", "cond"])
def test_the_callers_settings_hold(setting: str, kind: str, tmp_path: Any) -> None:
    with SETTINGS[setting]():
        model, args, options = KINDS[kind](tmp_path)
        unchanged(lambda: opsetta.export(model, args, **options).verify(), model, args)


FACTORY = """
import random
import torch

def make():
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(7)
    random.seed(7)
    return torch.nn.Linear(3, 3).eval(), (torch.rand(2, 3),)
"""


@pytest.mark.parametrize("form", ["script", "factory"])
def test_a_command_leaves_no_trace(form: str, tmp_path: Any) -> None:
    # The import of rich, which a command does only when it prints, draws a random number.
    import rich.style  # noqa: F401

    from opsetta.exporter.command_line import cli

    source, target = tmp_path / "opsetta_factory.py", tmp_path / "model.onnx"
    source.write_text(FACTORY)
    given = [f"{source}:make"]
    if form == "script":
        given = [str(saved(tmp_path)[0]), "--input", "float32[2,1,3]"]

    def run() -> None:
        path, hook = list(sys.path), sys.excepthook
        with pytest.raises(SystemExit) as ended:
            cli.main(["export", *given, "-o", str(target), "--verify"])
        assert ended.value.code == 0
        # Modules beside the factory can be imported for as long as the program runs; typer shows its errors.
        sys.path[:], sys.excepthook = path, hook

    unchanged(run)
    assert target.is_file()


def test_four_threads_export_at_once() -> None:
    kinds = ["LSTM", "transformer", "cond", "module"] * 2
    made = [KINDS[kind](None) for kind in kinds]
    results: list[Any] = [None] * len(made)
    start = threading.Barrier(len(made))

    def run(place: int) -> None:
        model, args, options = made[place]
        start.wait()
        try:
            program = opsetta.export(model, args, **options)
            program.verify()
            results[place] = program
        except Exception as error:
            results[place] = error

    def together() -> None:
        threads = [threading.Thread(target=run, args=(place,)) for place in range(len(made))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    unchanged(together, *(part for model, args, _ in made for part in (model, args)))
    assert [result for result in results if not isinstance(result, opsetta.Program)] == []


def test_no_vmap_is_left_open() -> None:
    def model(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.vmap(lambda a: torch.vmap(lambda b: (a * b).sum())(y))(x)

    free = {0: Dim.DYNAMIC}
    opsetta.export(model, (x(3, 2), x(4, 2)), dynamic_shapes=(free, free)).verify()
    # A vmap that were open would refuse random numbers.
    torch.rand(1)


def test_a_model_may_export_another_while_it_is_captured() -> None:
    class Outer(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with boundary():
                return x + 1

    opsetta.export(Outer(), x(2)).verify()


def test_a_change_of_every_setting_is_undone() -> None:
    def run() -> None:
        with boundary():
            random.random(), np.random.rand(), torch.rand(1)
            torch.set_grad_enabled(False)
            torch.set_default_dtype(torch.float64)
            torch.set_default_device("meta")
            torch.use_deterministic_algorithms(True)
            torch.backends.mha.set_fastpath_enabled(False)
            torch.set_autocast_enabled("cpu", True)
            torch.set_autocast_dtype("cpu", torch.float16)
            torch.set_autocast_cache_enabled(False)
            torch.set_num_threads(torch.get_num_threads() + 1)
            logging.disable(logging.ERROR)
            logging.getLogger("torch").setLevel(logging.DEBUG)
            logging.getLogger("torch").handlers.clear()
            logging.root.addHandler(logging.NullHandler())
            warnings.simplefilter("error")
            os.environ["OPSETTA_TEST"] = "1"
            os.chdir("/")
            sys.setrecursionlimit(sys.getrecursionlimit() + 10)

    unchanged(run)


def test_one_failing_patch_undoes_the_others() -> None:
    entered: list[str] = []

    @contextlib.contextmanager
    def first() -> Any:
        entered.append("first")
        try:
            yield
        finally:
            entered.append("left")

    @contextlib.contextmanager
    def second() -> Any:
        raise ValueError("no")
        yield

    with pytest.raises(ValueError, match="no"), boundary(first(), second()):
        pytest.fail("entered")
    assert entered == ["first", "left"]
    # The lock is free again.
    thread = threading.Thread(target=lambda: boundary().__enter__())
    thread.start()
    thread.join(10)
    assert not thread.is_alive()


@pytest.fixture
def interrupts() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt, which a shell turns off for what it runs in the background."""
    held = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, held)


@pytest.mark.usefixtures("interrupts")
def test_an_interrupt_while_state_is_restored_waits_until_it_is() -> None:
    @contextlib.contextmanager
    def interrupted_patch() -> Any:
        try:
            yield
        finally:
            signal.raise_signal(signal.SIGINT)
            torch.set_grad_enabled(True)

    def run() -> None:
        with pytest.raises(KeyboardInterrupt), boundary(torch.no_grad(), interrupted_patch()):
            torch.set_default_dtype(torch.float64)

    unchanged(run)


def test_attributes_classes_and_members_are_put_back() -> None:
    class Cache:
        def __init__(self) -> None:
            self.keys: list[int] = [1]

    model = Noted()
    model.cache = Cache()
    model.nested = [{"a": {1}}, (Cache(),)]
    before = [1], [{"a": {1}}]

    def run() -> None:
        with Preserved(model):
            model.cache.keys.append(2)
            model.cache.more = True
            model.nested[0]["a"].add(2)
            model.nested[1][0].keys.clear()
            model.nested.append(0)
            model.register_forward_hook(lambda *call: None)
            model.__class__ = nn.Linear
            model.eval()
            model.linear.weight = nn.Parameter(torch.zeros(1))
            del model.count

    unchanged(run, model)
    assert ([*model.cache.keys], [model.nested[0]]) == before
    assert vars(model.cache).keys() == {"keys"}
    assert model.nested[1][0].keys == [1]
    assert len(model.nested) == 2


def test_other_loggers_and_prints_are_heard(caplog: Any, capsys: Any) -> None:
    log = logging.getLogger("users.own")

    class Talks(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            log.warning("heard")
            print("printed")
            return x + 1

    with silent():
        logging.getLogger("torch._dynamo").error("unheard")
    opsetta.export(Talks(), x(2))
    assert "heard" in caplog.messages
    assert "unheard" not in caplog.messages
    assert "printed" in capsys.readouterr().out
