"""Texts of dynamic sizes: messages fix nothing; what depends on a text keeps the sizes that give it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import opsetta
from opsetta import OpsettaError

FACTORS = {"6x4": 2.0, "7x4": 5.0}
DEPENDENT = {
    "a comparison": lambda h, w: 2.0 if f"{h}x{w}" == "6x4" else 3.0,
    "a key": lambda h, w: FACTORS.get(f"{h}x{w}", 3.0),
    "a specification": lambda h, w: 2.0 if f"{h:03d}" == "006" else 3.0,
    "a float": lambda h, w: 2.0 if f"{h / w:.2f}" == "1.50" else 3.0,
    "a length": lambda h, w: float(len(str(h * w))),
    "a shape": lambda h, w: 2.0 if str(torch.Size([h, w])) == "torch.Size([6, 4])" else 3.0,
}


class Scale(torch.nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return x * self.factor(*x.shape)


def export(factor):
    model = Scale(factor).eval()
    shapes = ({0: "h", 1: "w"},)
    return model, opsetta.export(model, (torch.rand(6, 4),), opset=13, dynamic_shapes=shapes, narrow=True)


@pytest.mark.parametrize("name", DEPENDENT)
def test_a_result_that_depends_on_a_text_is_right_or_its_size_is_refused(name):
    model, program = export(DEPENDENT[name])
    np.testing.assert_array_equal(program(torch.ones(6, 4)), model(torch.ones(6, 4)))
    assert any(dimension.restrictions for dimension in program.dimensions.values())
    for sizes in ((5, 4), (7, 4), (6, 3), (12, 8), (40, 30)):
        x = torch.rand(sizes)
        try:
            result = program(x)
        except OpsettaError:
            continue
        np.testing.assert_array_equal(result, model(x))


def test_the_length_of_a_text_keeps_the_sizes_of_that_length():
    _, program = export(lambda h, w: len(str(h)))
    [restriction] = program.dimensions["h"].restrictions
    assert restriction.condition == "h < 10"


def test_messages_fix_nothing():
    def factor(h, w):
        torch._assert(h >= 0, f"height {h} of {h}x{w}")
        print(h, math.prod((h, w)), end="")
        return 2.0

    _, program = export(factor)
    assert all(dimension.restrictions == () for dimension in program.dimensions.values())


def test_outside_of_a_capture_nothing_is_changed():
    before = torch.SymInt.__repr__, "__format__" in vars(torch.SymInt)
    export(DEPENDENT["a comparison"])
    assert (torch.SymInt.__repr__, "__format__" in vars(torch.SymInt)) == before
