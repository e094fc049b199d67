"""Save, then load and lower where torch cannot be imported: equal graphs, and equal bytes at every opset."""

from __future__ import annotations

import functools
import pathlib
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import opsetta

from ....models import quantized
from ....models.scripted import records
from ....models.test_scripted_programs import RECORDS
from ....models.zoo import ARCHITECTURES, BY_NAME, DECODERS
from .fresh_process import check_round_trip

SCRIPTED = {record.name: record for record in RECORDS}


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3)
        self.normalization = nn.BatchNorm2d(4)
        self.register_buffer("mask", torch.ones(4, 1, 1), persistent=False)
        self.register_buffer("scale", torch.tensor(2.0, dtype=torch.bfloat16))

    def forward(self, x: torch.Tensor, *, factor: float = 0.1) -> dict[str, Any]:
        y = self.normalization(self.convolution(x)) * self.mask * factor
        return {
            "maps": nn.functional.celu(y, 0.3),
            "rest": [y.sum(), (y.shape[0], None)],
            "s": self.scale.float(),
        }


class Packed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(4, 6)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> Any:
        output, state = self.gru(pack_padded_sequence(x, lengths, enforce_sorted=False))
        return pad_packed_sequence(output)[0], state


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count[1:] += x[1:]
        x.mul_(2)
        return x * self.count


def decomposed(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        nn.functional.huber_loss(x, y, delta=0.3),
        nn.functional.unfold(x[None, None], (2, 3)),
        torch.diag_embed(y),
        nn.functional.cross_entropy(x, y.softmax(-1), label_smoothing=0.1),
        torch.rot90(x),
    )


def complex_numbers(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (
        torch.fft.irfft(torch.fft.rfft(x) * torch.polar(y, y)).abs()
        + torch.view_as_complex(torch.stack([x, x], -1)).angle()
    )


def branches(x: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    x = torch.cond(x.sum() > 0, lambda y: y * 2, lambda y: y - 1, (x,))
    return torch.while_loop(lambda i, y: i < count, lambda i, y: (i + 1, y.sin() + i), (count * 0, x))[1]


def _convolutions() -> opsetta.Program:
    x = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    return opsetta.export(
        Convolutions().eval(),
        (x,),
        {"factor": 0.25},
        dynamic_shapes={"x": {0: torch.export.Dim("batch", min=2, max=64), 2: "height"}, "factor": None},
        input_names=["image:0"],
        output_names=["a/b"],
        source_lines=True,
    )


def _packed() -> opsetta.Program:
    shapes = {"x": {0: "length", 1: "batch"}, "lengths": {0: "batch"}}
    return opsetta.export(
        Packed().eval(), (torch.randn(5, 3, 4), torch.tensor([2, 5, 1])), dynamic_shapes=shapes
    )


def _lstm() -> opsetta.Program:
    model = nn.LSTM(4, 6, 2, bidirectional=True, batch_first=True).eval()
    return opsetta.export(model, (torch.randn(2, 5, 4),), dynamic_shapes=({0: "batch", 1: "length"},))


def _decomposed() -> opsetta.Program:
    example = (torch.randn(4, 5), torch.randn(4, 5))
    return opsetta.export(decomposed, example, dynamic_shapes={"x": {0: "n"}, "y": {0: "n"}})


def _quantized() -> opsetta.Program:
    return opsetta.export(*quantized.resnet18())


PROGRAMS: dict[str, Callable[[], opsetta.Program]] = {
    "convolutions": _convolutions,
    "packed": _packed,
    "lstm": _lstm,
    "decomposed": _decomposed,
    "quantized": _quantized,
    "mutations": lambda: opsetta.export(Counter(), torch.ones(3), mutations="outputs"),
    "complex": lambda: opsetta.export(
        complex_numbers, (torch.randn(8), torch.rand(5)), dynamic_shapes=({0: None}, None)
    ),
    "branches": lambda: opsetta.export(branches, (torch.randn(3), torch.tensor(4))),
    "script": lambda: records._captured(next(iter(RECORDS))),
    "integers": lambda: opsetta.export(lambda x: (x // 3, x << 2, x.to(torch.float16)), torch.arange(6)),
}


def _made(programs: dict[str, Callable[[], opsetta.Program]]) -> dict[str, opsetta.Program]:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name: make() for name, make in programs.items()}


def test_small_programs(tmp_path: pathlib.Path, sweep: bool) -> None:
    # The quantized network has far more nodes than all others.
    chosen = {name: make for name, make in PROGRAMS.items() if sweep or name != "quantized"}
    check_round_trip(tmp_path, _made(chosen))


def test_scripted_programs(tmp_path: pathlib.Path, sweep: bool) -> None:
    chosen = list(SCRIPTED) if sweep else list(SCRIPTED)[::8]
    check_round_trip(
        tmp_path, _made({name: functools.partial(records._captured, SCRIPTED[name]) for name in chosen})
    )


@pytest.mark.parametrize(
    "name",
    [pytest.param(a.name, marks=[] if a.name == "bert" else [pytest.mark.sweep]) for a in ARCHITECTURES],
)
def test_architectures(name: str, tmp_path: pathlib.Path) -> None:
    architecture = BY_NAME[name]
    shapes = architecture.dynamic_shapes
    model, inputs = architecture.build(), architecture.inputs(2, 7)
    program = opsetta.export(model, (), inputs, opset=18, dynamic_shapes=shapes)
    check_round_trip(tmp_path, {name: program})


@pytest.mark.sweep
@pytest.mark.parametrize("decoder", DECODERS, ids=lambda decoder: decoder.name)
def test_generation_steps_with_a_cache(decoder: Any, tmp_path: pathlib.Path) -> None:
    model = decoder.build()
    inputs = decoder.inputs(model, 2, 3)
    shapes = decoder.dynamic_shapes(inputs)
    program = opsetta.export(model, (), inputs, opset=18, dynamic_shapes=shapes, narrow=["total"])
    check_round_trip(tmp_path, {decoder.name: program})


@pytest.mark.sweep
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_quantized_bert(dynamic: bool, tmp_path: pathlib.Path) -> None:
    check_round_trip(tmp_path, {"bert": opsetta.export(*quantized.bert(dynamic))})
