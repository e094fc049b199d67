"""Operands that only torch's kernels refuse are found in models too large for a run on their example."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from torch import nn

import opsetta
from opsetta.exporter.capture.torchscript.fakes import Fakes
from opsetta.exporter.capture.torchscript.kernel_checks import KernelChecks

WIDTH = 512


class Selected(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return torch.index_select(self.layer(x), 1, index)


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(2000, WIDTH)
        self.layer = nn.Linear(WIDTH, 8)

    def forward(self, index: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return self.layer(self.words(index)) + self.layer(x)


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, bits: torch.Tensor) -> torch.Tensor:
        return torch.where((bits & 1) == 1, self.layer(x), x)


class Members(nn.Module):
    def __init__(this) -> None:
        super().__init__()
        this.layer = nn.Linear(WIDTH, WIDTH)

    def forward(this, d: dict[str, torch.Tensor]) -> torch.Tensor:
        return torch.index_select(this.layer(d["x"]), 0, d["index"])


SELECTED, WORDS, MASKED, MEMBERS = (
    torch.jit.script(kind().eval()) for kind in (Selected, Words, Masked, Members)
)
X = torch.randn(256, WIDTH)
INDEX = torch.arange(4)

WRONG: dict[str, tuple[Any, tuple, str]] = {
    "index of fractions": (SELECTED, (X, INDEX.float()), "index_select"),
    "short index": (SELECTED, (X, INDEX.short()), "index_select"),
    "rank of an index": (SELECTED, (X, INDEX.reshape(2, 2)), "index"),
    "index beyond the end": (SELECTED, (X, INDEX + WIDTH), "index"),
    "integers for a layer": (WORDS, (INDEX, INDEX.new_ones(4, WIDTH)), "dtype"),
    "doubles for a layer": (WORDS, (INDEX, torch.ones(4, WIDTH).double()), "dtype"),
    "word beyond the end": (WORDS, (INDEX + 1999, torch.ones(4, WIDTH)), "out of range"),
    "bits of fractions": (MASKED, (X, torch.ones(256, 1)), "bitwise_and"),
    "member of fractions": (MEMBERS, ({"x": X, "index": INDEX.float()},), "index_select"),
    "no such member": (MEMBERS, ({"x": X},), "KeyError"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_refusal_of_a_kernel_is_the_models_error(case: str) -> None:
    model, args, message = WRONG[case]
    with pytest.raises(opsetta.CaptureError, match=rf"fails in PyTorch itself on the example .*{message}"):
        opsetta.export(model, args, opset=15)


RIGHT: dict[str, tuple[Any, tuple]] = {
    "index": (SELECTED, (X, INDEX.int())),
    "words": (WORDS, (INDEX.int(), torch.ones(4, WIDTH))),
    "bits": (MASKED, (X, torch.arange(256).reshape(256, 1))),
    "members": (MEMBERS, ({"x": X, "index": INDEX},)),
}


@pytest.mark.parametrize("case", RIGHT)
def test_a_model_that_the_kernels_accept_is_not_run(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*args: Any) -> None:
        raise AssertionError("the whole model ran")

    torchscript = sys.modules["opsetta.exporter.capture.torchscript.capture_script"]
    monkeypatch.setattr(torchscript, "check_example", run)
    monkeypatch.setattr(torchscript, "is_suspect", lambda *args: False)
    model, args = RIGHT[case]
    given = [value.clone() for value in (args[0].values() if isinstance(args[0], dict) else args)]
    opsetta.export(model, args, opset=15).verify(args)
    after = args[0].values() if isinstance(args[0], dict) else args
    assert all(map(torch.equal, given, after))


def test_a_kernel_runs_once_for_types_and_ranks_and_not_for_large_operands() -> None:
    calls = []

    def kernel(**arguments: Any) -> None:
        calls.append(arguments)

    fakes, checks = Fakes(), KernelChecks()
    small, other = fakes.tensor([3, 4], torch.float32), fakes.tensor([7, 2], torch.float32)
    large = fakes.tensor([1 << 13, 1 << 13], torch.float32)
    for operand in (small, other, large):
        assert not checks.refuses("aten::exp", kernel, {"self": operand})
    assert [call["self"].shape for call in calls] == [(3, 4)]
    assert not checks.refuses("aten::linear", kernel, {"input": small, "weight": other})
    assert not checks.refuses("mylib::exp", kernel, {"self": small})
    assert len(calls) == 1
    assert not checks.refuses(
        "aten::linear", kernel, {"input": fakes.tensor([2], torch.int64), "weight": large}
    )
    assert len(calls) == 2
