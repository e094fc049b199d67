"""Numbers that a model computes with tensors of sizes stay expressions of the sizes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import opsetta
from opsetta.exporter.capture.capture_options import CaptureOptions
from opsetta.exporter.export_model import capture_model

Number = Callable[[torch.Tensor], torch.Tensor]

COMPUTED: dict[str, Number] = {
    "div": lambda x: torch.div(x.shape[1], 4, rounding_mode="trunc"),  # type: ignore[call-overload]
    "floor": lambda x: torch.div(torch.tensor(x.shape[1]), 4, rounding_mode="floor"),
    "floor_divide": lambda x: torch.tensor(x.shape[1]) // torch.tensor(4),
    "sum": lambda x: (torch.tensor(x.shape[1]) + torch.tensor(8)) // 4 - 2,
    "product": lambda x: torch.prod(torch.tensor(x.shape)) // 8,
    "rounded up": lambda x: torch.ceil((torch.tensor(x.shape[1]) - 3) / 4).long(),
    "rounded down": lambda x: torch.floor(1 + torch.tensor(x.shape[1]) / 4).to(torch.int32) - 1,
    "cut off": lambda x: (torch.tensor(x.shape[1]) / 4).long(),
    "quotient of Python, cut off": lambda x: torch.as_tensor(x.shape[1] / 4).to(torch.int64),
    "quotient of Python, rounded down": lambda x: torch.floor(torch.tensor(2 * x.shape[1] / 8)).long(),
    "quotient of Python, rounded up": lambda x: torch.as_tensor((x.shape[1] - 3) / 4).ceil().int(),
    "element": lambda x: (torch.tensor([x.shape[0], x.shape[1]]) // 4)[1],
}
"""The fourth part of the second size."""


@pytest.mark.parametrize("name", COMPUTED)
def test_arithmetic_of_integers_is_known(name: str) -> None:
    def parts(x: torch.Tensor) -> torch.Tensor:
        y = x.view(2, COMPUTED[name](x).item(), 4)  # type: ignore[arg-type]
        return y if y.shape[1] == 1 or y.shape[1] > 3 else y + 1

    dynamic = {"dynamic_shapes": {"x": {1: "s"}}, "narrow": True}
    captured = capture_model(parts, (torch.ones(2, 24),), {}, CaptureOptions(capture="direct", **dynamic))
    operators = {node.op_type for node in captured.source.graph}
    # The quotients of Python stay, because arithmetic of numbers is recorded as it runs.
    assert operators - {"truediv"} <= {"sym_size", "add", "sub", "mul", "floordiv", "view"}
    program = opsetta.export(parts, (torch.ones(2, 24),), opset=13, **dynamic)
    program.verify((torch.ones(2, 48),))


INEXACT: dict[str, Number] = {
    "negative": lambda x: torch.div(torch.tensor(x.shape[1]) - 9, 4, rounding_mode="trunc"),
    "computed divisor": lambda x: torch.tensor(x.shape[1]) // torch.tensor(x.shape[0]),
    "multiplied quotient": lambda x: torch.ceil(torch.tensor(x.shape[1]) / 8 * 2).long(),
    "negative quotient that is cut off": lambda x: (torch.tensor(x.shape[1] - 9) / 4).long(),
    "quotient of a quotient": lambda x: torch.as_tensor(x.shape[1] / 2 / 2).floor().long(),
    "compared quotient": lambda x: (torch.tensor(x.shape[1]) / 4 > 3).long() + 5,
    "quotient that is subtracted": lambda x: torch.ceil(12 - torch.tensor(x.shape[1]) / 4).long(),
    "input": lambda x: torch.tensor(x.shape[1]) // 4 + x.long().sum(),
    "product along an axis": lambda x: torch.prod(torch.tensor(x.shape), 0) // 8,
    "written to": lambda x: torch.tensor(x.shape[1]).floor_divide_(4),
}


@pytest.mark.parametrize("name", INEXACT)
def test_other_numbers_are_read_when_the_program_runs(name: str) -> None:
    def parts(x: torch.Tensor) -> torch.Tensor:
        return torch.zeros(INEXACT[name](x).item())  # type: ignore[call-overload]

    x = torch.zeros(2, 24)
    options = CaptureOptions(capture="direct", dynamic_shapes={"x": {0: "b", 1: "s"}})
    captured = capture_model(parts, (x,), {}, options)
    assert "item" in {node.op_type for node in captured.source.graph}
    opsetta.export(parts, (x,), opset=13, dynamic_shapes={"x": {0: "b", 1: "s"}}).verify(
        (torch.zeros(2, 40),)
    )


CONVERTED: dict[str, Callable[[torch.Tensor], int]] = {
    "integer": lambda x: int(torch.tensor(x.shape[1]) // 4),
    "rounded float": lambda x: int(torch.ceil(torch.as_tensor(x.shape[1] / 4))),
    "float": lambda x: int(torch.as_tensor(x.shape[1] / 4)),
}


@pytest.mark.parametrize("name", CONVERTED)
def test_int_of_a_tensor_of_sizes_is_a_size(name: str) -> None:
    def parts(x: torch.Tensor) -> torch.Tensor:
        return x[:, : CONVERTED[name](x)]

    dynamic = {"dynamic_shapes": {"x": {1: "s"}}}
    capture_model(parts, (torch.zeros(2, 24),), {}, CaptureOptions(capture="direct", **dynamic))
    program = opsetta.export(parts, (torch.zeros(2, 24),), opset=13, **dynamic)
    for size in (1, 5, 42):
        program.verify((torch.rand(2, size),))


def test_a_result_is_trimmed_to_the_size_of_a_convolution_after_resampling() -> None:
    """Demucs: the length after resampling is a rounded float tensor, and decides how much is cut off."""

    class Trimmed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution = torch.nn.Conv1d(2, 2, 8, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            length = torch.floor(torch.as_tensor(2 * x.shape[-1] / 1)).long()
            x = torch.cat([x, x, x], -1)[..., :length]
            surplus = x.size(-1) - self.convolution(x).size(-1)
            return x[..., surplus // 2 : -(surplus - surplus // 2)] if surplus else x

    program = opsetta.export(
        Trimmed().eval(), (torch.rand(1, 2, 100),), opset=13, dynamic_shapes=({0: "b", 2: "n"},)
    )
    for shape in ((1, 2, 100), (3, 2, 37), (2, 2, 5)):
        program.verify((torch.rand(shape),))


class PaddedConvolution(torch.nn.Module):
    """EnCodec and Mimi: buffers hold the sizes of a kernel, by which the signal is padded to whole frames."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.mode = mode
        self.convolution = torch.nn.Conv1d(1, 2, 5, 3)
        self.register_buffer("stride", torch.tensor(3), persistent=False)
        self.register_buffer("kernel", torch.tensor(5), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = x.shape[-1]
        frames = torch.ceil((length - self.kernel + 2) / self.stride + 1).to(torch.int64) - 1
        padding = frames * self.stride + self.kernel - 2 - length
        if length <= max(2, padding):
            raise ValueError("too short")
        for offset in range(0, length, length):
            x = x[..., offset : offset + length]
        return self.convolution(torch.nn.functional.pad(x, (2, padding), mode=self.mode))


@pytest.mark.parametrize("mode", ["constant", "reflect"])
def test_buffers_give_the_padding_of_a_convolution(mode: str) -> None:
    program = opsetta.export(
        PaddedConvolution(mode).eval(),
        (torch.randn(2, 1, 20),),
        opset=13,
        dynamic_shapes={"x": {0: "b", 2: "s"}},
        narrow=True,
    )
    for length in (18, 19, 31):
        program.verify((torch.randn(1, 1, length),))


def test_shapes_in_a_tensor_are_sizes_and_bounds() -> None:
    """Deformable DETR: the positions of a feature map by `torch.linspace` with elements of a tensor."""

    def positions(x: torch.Tensor) -> torch.Tensor:
        shapes = torch.as_tensor([(x.shape[0], x.shape[1])], dtype=torch.long)
        results = []
        for height, width in shapes:
            rows = torch.linspace(0.5, height - 0.5, height) / height  # type: ignore[call-overload]
            results.append(rows[:, None] + torch.linspace(0, width - 1, width))  # type: ignore[call-overload]
        return torch.cat(results)

    dynamic = ({0: "height", 1: "width"},)
    program = opsetta.export(positions, (torch.zeros(5, 6),), opset=13, dynamic_shapes=dynamic)
    for size in ((1, 3), (9, 4)):
        program.verify((torch.zeros(size),))
