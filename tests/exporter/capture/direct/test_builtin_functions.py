"""`len` and `int` in a model's code: sizes stay dynamic, and everything else is as in Python."""

from __future__ import annotations

import importlib
import math
import pathlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim

import opsetta
from opsetta.exporter.capture.direct import builtin_functions

X = torch.randn(2, 8, 8, 6)
BATCH = ({0: "batch"},)


class Windows(nn.Module):
    """Swin: the batch is computed from the number of windows, with a division of floats."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        _, height, width, channels = x.shape
        side = 4
        parts = x.view(-1, height // side, side, width // side, side, channels).transpose(2, 3)
        windows = parts.reshape(-1, side, side, channels).softmax(-1)
        batch = int(windows.shape[0] / (height * width / side / side))
        parts = windows.view(batch, height // side, width // side, side, side, channels).transpose(2, 3)
        return parts.reshape(batch, height, width, channels)


class Sizes(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch = int(x.shape[0])
        if not isinstance(batch, int):
            raise TypeError("a size is an integer")
        half = int((batch + batch) / 2)
        return x.reshape(half, len(x[0]) * int("8") * int(6.9))


@pytest.mark.parametrize("model", [Windows(), Sizes()], ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("opset", [9, 13, 17])
def test_integers_of_sizes_stay_dynamic(model: nn.Module, opset: int) -> None:
    program = opsetta.export(model.eval(), (X,), opset=opset, dynamic_shapes=BATCH, capture="direct")
    assert all(each.condition == "batch >= 1" for each in program.dimensions["batch"].restrictions)
    for size in (2, 1, 5):
        program.verify((torch.randn(size, 8, 8, 6),))
    assert "int" not in globals()


def test_a_quotient_that_is_no_integer_is_rounded_down() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return x.new_zeros(int(x.shape[0] / 3), int(x.shape[0] / 2.0))

    program = opsetta.export(model, (torch.ones(7),), opset=13, dynamic_shapes=({0: "n"},), capture="direct")
    for size in (7, 2, 3, 11):
        program.verify((torch.ones(size),))


EXACT_FRACTIONS = [
    lambda n, m: int(n * 0.25),
    lambda n, m: int(0.5 * (n + m) / 2),
    lambda n, m: int(n / 4 + m * 1.5),
    lambda n, m: int(n * m / (m * 0.5 / 8)),
    lambda n, m: int(((n + 3) * 0.125 + 2 - 0.5) / (m / 16)),
    lambda n, m: int(n * m * 0.5 * 0.5 / 3),
]


@pytest.mark.parametrize("function", EXACT_FRACTIONS)
def test_an_exact_fraction_is_rounded_down(function: Callable[[Any, Any], Any]) -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return x.new_zeros(function(*x.shape)) + function(*x.shape)

    program = opsetta.export(
        model, (torch.ones(1, 7),), opset=13, dynamic_shapes=({0: "n", 1: "m"},), capture="direct"
    )
    assert all(each.condition == "m >= 1" for d in program.dimensions.values() for each in d.restrictions)
    for sizes in ((1, 7), (2, 2), (3, 1), (11, 5), (64, 33)):
        assert torch.equal(program(torch.ones(sizes)), model(torch.ones(sizes)))


class PaddedWindows(nn.Module):
    """SwinIR: the batch is computed from padded dynamic sizes, with divisions of floats."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.pad(x, (0, 0, 0, -x.shape[1] % 8))
        height, width = x.shape[1:]
        windows = x.view(-1, height // 8, 8, width // 8, 8).transpose(2, 3).reshape(-1, 8, 8)
        batch = int(windows.shape[0] / (height * width / 8 / 8))
        return windows.view(batch, height // 8, width // 8, 8, 8).transpose(2, 3).reshape(batch, height, -1)


def test_a_batch_computed_from_dynamic_sizes_stays_dynamic() -> None:
    shapes = ({0: "b", 1: "h"},)
    program = opsetta.export(
        PaddedWindows().eval(), (torch.ones(1, 10, 16),), opset=13, dynamic_shapes=shapes
    )
    for sizes in ((1, 10, 16), (3, 8, 16), (2, 17, 16)):
        program.verify((torch.randn(sizes),))


INEXACT = [
    lambda n: int(n * 0.7),
    lambda n: int(n * (1 / 3)),
    lambda n: int((3 - n) / 2),
    lambda n: int(n**0.5),
]


@pytest.mark.parametrize("function", INEXACT)
def test_another_float_is_truncated_as_by_python(function: Callable[[Any], Any]) -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return x.sum() + function(x.shape[0])

    program = opsetta.export(model, (torch.zeros(7),), opset=13, dynamic_shapes=({0: "n"},), capture="direct")
    for size in (1, 2, 3, *range(10, 400, 10), 25, 1000, 4096, 10**6):
        assert program(torch.zeros(size)).item() == function(size)


HELPERS = """
_known = {}

def half(x):
    return x[: int(x.shape[0] / 2.0)]

def times(x):
    return x * _known.setdefault(tuple(int(size) for size in x.shape), 3)
"""


@pytest.fixture
def helpers(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A Python module of helper functions, which defines no torch module."""
    (tmp_path / "helpers_of_models.py").write_text(HELPERS)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("helpers_of_models")
    del sys.modules["helpers_of_models"]


@pytest.mark.parametrize("capture", ["direct", "auto"])
def test_integers_of_sizes_stay_dynamic_in_helpers(helpers: Any, capture: str) -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return helpers.half(x) * 2

    program = opsetta.export(
        Model(), (torch.ones(8, 3),), opset=13, dynamic_shapes=({0: "n"},), capture=capture
    )
    for size in (8, 2, 3, 11):
        program.verify((torch.ones(size, 3),))
    assert "int" not in vars(helpers)


def test_helpers_that_need_numbers_get_them(helpers: Any) -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return helpers.times(x)

    program = opsetta.export(
        Model().eval(), (torch.ones(8, 3),), opset=13, dynamic_shapes=({0: Dim.AUTO},), capture="direct"
    )
    assert not program.dimensions
    program.verify((torch.ones(8, 3),))
    with pytest.raises(opsetta.CaptureError, match="int\\(size\\) for size in x.shape"):
        opsetta.export(Model(), (torch.ones(8, 3),), dynamic_shapes=({0: "n"},), capture="direct")


USES = {
    "def f(x: int) -> int:\n    n: int = int(x)\n    return isinstance(n, (int, float))\n": True,
    "def f(x):\n    return type(x) is int\n": False,
    "def f(x):\n    return list(map(int, x))\n": False,
    "def f(x):\n    return int(x, 16)\n": False,
    "int = round\n": False,
    "def f(x: int) -> float:\n    return float(x)\n": False,
}


@pytest.mark.parametrize("source", USES)
def test_modules_that_use_int_as_an_object_keep_it(
    source: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "uses_of_int.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    __import__("uses_of_int")
    try:
        assert builtin_functions._only_calls(vars(sys.modules["uses_of_int"]), "int") is USES[source]
    finally:
        del sys.modules["uses_of_int"]


def test_square_roots_of_sizes_stay_symbolic() -> None:
    root = math.sqrt

    def model(x: torch.Tensor) -> torch.Tensor:
        side = math.isqrt(x.shape[0])
        return x[: side * side].reshape(side, side) / math.sqrt(x.shape[0])

    program = opsetta.export(model, torch.randn(9), opset=9, dynamic_shapes=({0: "n"},), capture="direct")
    for size in (9, 16, 30, 2):
        program.verify((torch.randn(size),))
    assert math.sqrt is root


def test_divmod_of_a_size_stays_dynamic() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        blocks, remaining = divmod(x.shape[0], 4)
        hours, minutes = divmod(130, 60)
        return x[: blocks * 4].reshape(blocks, 4).sum(0) * hours + remaining + minutes

    program = opsetta.export(model, (torch.ones(7),), opset=9, dynamic_shapes=({0: "n"},), capture="direct")
    for size in (4, 9, 15):
        program.verify((torch.randn(size),))
    assert "divmod" not in globals()


def test_lengths_in_functions_of_other_modules_stay_dynamic(tmp_path, monkeypatch):
    (tmp_path / "functions_of_lengths.py").write_text(
        "def repeat(row, like):\n    return row.expand(len(like), -1) * 2\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    functions = importlib.import_module("functions_of_lengths")

    class Model(torch.nn.Module):
        def forward(self, row, like):
            return functions.repeat(row, like) + like

    program = opsetta.export(
        Model().eval(),
        (torch.randn(1, 4), torch.randn(3, 4)),
        opset=13,
        dynamic_shapes=(None, {0: "n"}),
        capture="direct",
    )
    for size in (1, 5):
        program.verify((torch.randn(1, 4), torch.randn(size, 4)))


def test_lengths_of_objects_that_return_a_size_stay_dynamic() -> None:
    class Boxes:
        def __init__(self, corners: torch.Tensor):
            self.corners = corners

        def __len__(self) -> int:
            return self.corners.shape[0]

    def count(x: torch.Tensor) -> tuple[torch.Tensor, int]:
        boxes = Boxes(torch.cat([x, x]))
        return boxes.corners * len(boxes), len(boxes) + len(nn.ModuleList([nn.ReLU()]))

    program = opsetta.export(count, (torch.randn(3, 4),), opset=13, dynamic_shapes=({0: "n"},))
    for size in (1, 5):
        program.verify((torch.randn(size, 4),))
