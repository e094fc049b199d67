"""Trials at other sizes: rows whose number depends on data, and computed sizes that are 1 in the example."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._dynamo.source import ConstantSource
from torch.fx.experimental.symbolic_shapes import DimDynamic, StatelessSymbolicContext

import opsetta
from opsetta.exporter.capture.direct.sizes.environment import SizeEnvironment
from opsetta.exporter.capture.sizes.trials.recorded_answers import AnsweringEnvironment
from opsetta.exporter.torch_boundary.fake_tensors import FakeTensorMode
from opsetta.exporter.torch_boundary.operators.overloads import kernel_run
from opsetta.exporter.torch_boundary.symbolic_numbers import PythonMod


def test_rows_and_integers_are_known() -> None:
    environment = AnsweringEnvironment({})
    run = environment.with_known_rows(kernel_run)
    with FakeTensorMode(shape_env=environment, static_shapes=True):
        mask, short_mask = torch.ones(5, dtype=torch.bool), torch.ones(2, dtype=torch.bool)
        assert run(torch.ops.aten.nonzero.default, (mask,), {}).shape == (3, 1)
        assert run(torch.ops.aten.nonzero.default, (short_mask,), {}).shape == (2, 1)
        unique, inverse, _ = run(torch.ops.aten._unique2.default, (mask.long(), True, True), {})
        assert (tuple(unique.shape), tuple(inverse.shape)) == ((3,), (5,))
        count, scale = mask.sum(), mask.float().sum()
        assert run(torch.ops.aten._local_scalar_dense.default, (count,), {}) == 3
        assert (12 - count).item() == 9
        assert isinstance(run(torch.ops.aten._local_scalar_dense.default, (scale,), {}), torch.SymFloat)
        assert isinstance(torch.nonzero(mask.clone()).shape[0], torch.SymInt)


class RowsOfBuffer(nn.Module):
    """The number of rows of a buffer is a number of the program."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.tensor([True, False, True, True, True, True]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        positions = self.mask.nonzero()[:, 0]
        return torch.stack([x + number for number in range(len(positions))]).sum(0)


def test_a_fixed_number_of_rows_does_not_restrict_sizes() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = opsetta.export(
            RowsOfBuffer().eval(), (torch.rand(5),), opset=13, dynamic_shapes=({0: "n"},)
        )
    for n in (1, 5, 8):
        x = torch.rand(n)
        torch.testing.assert_close(program(x), RowsOfBuffer()(x))


class Pyramid(nn.Module):
    """The second level has the height and width 1 in the example."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 4, 3, 2, 1), nn.Conv2d(4, 4, 3, 2, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        levels = [self.first(image)]
        levels.append(self.second(levels[0]).relu())
        rows = []
        for level in levels:
            n, channels, height, width = level.shape
            split = level.view(n, -1, channels // 2, height, width).permute(0, 3, 4, 1, 2)
            rows.append(split.reshape(n, -1, channels // 2))
        return torch.cat(rows, dim=1)


@pytest.mark.parametrize("opset", [9, 18])
def test_a_computed_size_of_one_stays_dynamic(opset: int) -> None:
    torch.manual_seed(0)
    model = Pyramid().eval()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = opsetta.export(
            model, (torch.rand(1, 3, 4, 3),), opset=opset, dynamic_shapes=({2: "height", 3: "width"},)
        )
    for size in ((4, 3), (4, 9), (13, 4), (16, 11)):
        image = torch.rand(1, 3, *size)
        torch.testing.assert_close(program(image), model(image), atol=1e-5, rtol=1e-5)


class BestOfLevel(nn.Module):
    """A kernel learns that a level is larger than 1, which decides `min(8, ...)` for the example only."""

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        level = F.max_pool2d(image, 1, 2, 0)
        n, channels, height, width = level.shape
        scores = level.view(n, channels, 1, height, width).permute(0, 3, 4, 1, 2).reshape(n, -1)
        return scores.topk(min(8, scores.shape[1]), 1).values


@pytest.mark.parametrize("size", [(3, 4), (2, 4), (1, 2)])
def test_what_kernels_ask_does_not_decide_what_the_model_computes(size: tuple[int, int]) -> None:
    program = opsetta.export(
        BestOfLevel().eval(),
        (torch.rand(2, 2, *size),),
        opset=13,
        dynamic_shapes=({2: "height", 3: "width"},),
    )
    for other_size in ((1, 1), (2, 3), (3, 7), (8, 2)):
        image = torch.rand(2, 2, *other_size)
        torch.testing.assert_close(program(image), BestOfLevel()(image))


def test_questions_about_computed_ones_are_recognized() -> None:
    mode = FakeTensorMode(shape_env=SizeEnvironment())
    context = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC] * 2)
    source = ConstantSource("x")
    height, width = mode.from_tensor(torch.zeros(5, 9), source=source, symbolic_context=context).shape
    one = width // 8
    about_one = (one == 1, height * one == height, height % (height * one) != 0)
    others = (height % 3 != 0, height % (height + one) != 0, height != 1)
    assert all(question.node.original.is_about_computed_one() for question in about_one)
    assert not any(question.node.original.is_about_computed_one() for question in others)
    assert not any(question.node.original.is_about_zero() for question in about_one)
    # torch leaves this remainder as it is, in kernels.
    product, same = (height + 1) * (width + 1), height * width + height + width + 1
    remainder = mode.shape_env.create_symintnode(PythonMod(product.node.expr, same.node.expr), hint=0)
    assert not (remainder != 0).node.original.is_about_computed_one()


class Broadcast(nn.Module):
    """A computed size is 1, and broadcasts."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[: x.shape[0] // 4] * x


def test_a_computed_size_of_one_broadcasts() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = opsetta.export(Broadcast(), (torch.rand(5, 2),), opset=13, dynamic_shapes=({0: "n"},))
    for n in (4, 6, 7):
        x = torch.rand(n, 2)
        torch.testing.assert_close(program(x), Broadcast()(x))
    with pytest.raises(opsetta.OpsettaError):
        program(torch.rand(9, 2))
