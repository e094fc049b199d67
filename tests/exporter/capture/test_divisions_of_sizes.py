"""Quotients and remainders of sizes are Python's for divisors of any sign, nested ones included."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor, nn

import opsetta

EXPRESSIONS = [
    "n // 2 // -2",
    "-(n // 3 // -2)",
    "n // -3 // -4 // -2",
    "(n + m) // -2 // 3 // -2",
    "n // 3 // (2 * m - 9)",
    "n // (5 - 2 * m) // (7 - 2 * m)",
    "(-n - 5) % -3",
    "(-n * 3) % -2 + m",
    "((n % -4) - 7) % -5 % 6",
    "n % -4 % -3",
    "n % (9 - 2 * m)",
]
SIZES = [(n, m) for n, m in itertools.product((2, 5, 6, 13), (3, 4, 8))]


class Divisions(nn.Module):
    """Adds the values of expressions of the sizes `n` and `m` to its input."""

    def __init__(self, expressions: list[str]) -> None:
        super().__init__()
        self.functions = [eval(f"lambda n, m: {expression}") for expression in expressions]

    def forward(self, x: Tensor) -> Tensor:
        n, m = x.shape
        return torch.stack([x + function(n, m) for function in self.functions])


class ScriptedDivisions(nn.Module):
    """Some of the same expressions, as lengths of results."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        n = x.size(0)
        m = x.size(1)
        first = torch.ones([20 + n // 2 // -2])
        second = torch.ones([20 - n // 3 // -2])
        return first, second, torch.ones([20 + (-n - 5) % -3 + m])


@pytest.mark.parametrize("capture", ["direct", "torch.export"])
def test_divisors_of_any_sign(capture: str) -> None:
    model = Divisions(EXPRESSIONS).eval()
    program = opsetta.export(
        model, (torch.randn(9, 4),), opset=13, dynamic_shapes=({0: "n", 1: "m"},), capture=capture
    )
    for sizes in SIZES:
        program.verify((torch.randn(sizes),))


def test_divisors_of_any_sign_in_torchscript() -> None:
    program = opsetta.export(
        torch.jit.script(ScriptedDivisions().eval()),
        (torch.randn(9, 4),),
        opset=13,
        dynamic_shapes=({0: "n", 1: "m"},),
    )
    for sizes in SIZES:
        program.verify((torch.randn(sizes),))
