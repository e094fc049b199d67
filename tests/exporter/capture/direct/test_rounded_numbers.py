"""Numbers that are rounded from long expressions are symbols, which mean what the expressions say."""

from __future__ import annotations

import math
from typing import Any

import pytest
import sympy
import torch

import opsetta
from opsetta.exporter.capture.direct.sizes.environment import SizeEnvironment
from opsetta.exporter.torch_boundary.symbolic_sizes import new_symbol

SIZES = [(30, 37), (50, 31), (24, 24), (41, 100)]


def resized(height: Any, width: Any) -> Any:
    scale = torch.sym_min(24 / torch.sym_min(height, width), 40 / torch.sym_max(height, width))
    return math.trunc(torch.sym_float(height) * scale)


def environment_and_sizes() -> tuple[SizeEnvironment, list[sympy.Symbol], Any, Any]:
    environment = SizeEnvironment()
    symbols = [new_symbol(environment, name, size) for name, size in (("height", 30), ("width", 37))]
    sizes = [
        environment.create_symintnode(symbol, hint=size)
        for symbol, size in zip(symbols, (30, 37), strict=True)
    ]
    return environment, symbols, *sizes


def test_a_rounded_number_is_one_symbol_of_every_recording() -> None:
    environment, symbols, height, width = environment_and_sizes()
    number = resized(height, width)
    symbol = number.node.expr
    assert symbol.is_Symbol
    assert number.node.hint == resized(30, 37)
    for size in SIZES:
        values = dict(zip(symbols, map(sympy.Integer, size), strict=True))
        assert environment.definitions[symbol].xreplace(values) == resized(*size)
    assert resized(*environment_and_sizes()[2:]).node.expr == symbol
    # A short expression stays one.
    assert not math.trunc(torch.sym_float(height) * 0.7).node.expr.is_Symbol


def test_a_size_is_not_replaced_by_a_number_that_is_computed_of_it() -> None:
    environment, [height_symbol, _], height, width = environment_and_sizes()
    number = resized(height, width)
    assert bool(number + 6 == height)
    assert environment.replace(height_symbol) == height_symbol
    # If the sizes are fixed, the number is.
    assert bool(height == 30)
    assert bool(width == 37)
    assert number.node.expr == 24


class Resize(torch.nn.Module):
    """The size of a detector's image, and features of it; another factor for wide images."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = torch.nn.Conv2d(1, 2, 3, 2, 1)

    def forward(self, x: torch.Tensor) -> Any:
        scale = min(24 / min(x.shape[-2:]), 40 / max(x.shape[-2:]))
        y = torch.nn.functional.interpolate(x, scale_factor=scale, recompute_scale_factor=True)
        features = self.convolution(y).flatten(2)
        return features * (2.0 if y.shape[-1] > 39 else 1.0), x.new_ones(features.shape[-1] // 3)


def test_the_limits_of_a_rounded_number_are_those_of_the_sizes() -> None:
    model = Resize().eval()
    dynamic_shapes = ({2: "height", 3: "width"},)
    program = opsetta.export(model, (torch.rand(1, 1, 30, 37),), dynamic_shapes=dynamic_shapes, narrow=True)
    for height, width in SIZES:
        image = torch.rand(1, 1, height, width)
        if height == 41:
            with pytest.raises(opsetta.OpsettaError, match="39"):
                program(image)
        else:
            torch.testing.assert_close(program(image), model(image))
