"""ONNX operators composed below the opset where they begin, or take integers, against eager PyTorch."""

import math

import pytest
import torch

import opsetta

from .records import Record, check, floats, integers, parametrized

OPSETS = (7, 8, 9)
LARGE = torch.tensor([2**63 - 1, -(2**63), 2**53 + 1, 2**53, -1, 0, 2**32, -(2**32) - 1])
OTHER = torch.tensor([2**63 - 2, 2**63 - 1, 2**53, 2**53 + 1, 0, -1, -(2**32), -(2**32)])
ODD = torch.tensor([[math.nan, math.inf, -math.inf], [1.0, -0.0, 3e38]])
X, ROW = floats(4, 5), floats(5, seed=1)
EMPTY = torch.zeros(2, 0)

RECORDS = [
    Record("where of odd numbers", lambda c, x: torch.where(c, x, 1.0), (ODD > 0, ODD), OPSETS),
    Record("where both ways", lambda c, x, y: torch.where(c, x, y), (X[:, :1] > 0, ROW, X), OPSETS),
    Record(
        "where of large integers", lambda c, x, y: torch.where(c, x, y), (LARGE > 0, LARGE, OTHER), OPSETS
    ),
    Record(
        "where dynamic",
        lambda c, x, y: torch.where(c, x, y),
        (X > 0, X, ROW),
        OPSETS,
        dynamic=({0: "n", 1: "m"}, {0: "n", 1: "m"}, {0: "m"}),
    ),
    Record(
        "where of nothing dynamic",
        lambda x: torch.where(x == x, x, 0),
        (torch.zeros(3, 0, dtype=torch.int16),),
        (7, 8),
        dynamic=({0: "n"},),
    ),
    Record("where of nothing", lambda x: torch.where(x > 0, x, 1.0).sum(), (EMPTY,), OPSETS),
    Record("less of integers", lambda x, y: (x < y, x > y, x <= y, x >= y), (LARGE, OTHER), OPSETS),
    Record("less than a number", lambda x: (x < 2**53, x > -1), (LARGE,), OPSETS),
    Record("maximum broadcast", lambda x, y: (torch.maximum(x, y), torch.minimum(y, x)), (X, ROW), OPSETS),
    Record("maximum of integers", lambda x, y: torch.maximum(x, y), (LARGE, OTHER), OPSETS),
    Record("clamp of integers", lambda x: x.clamp(-3, 5), (integers(4, 5),), OPSETS),
    Record(
        "expand dynamic",
        lambda x, y: x.expand(y.shape[0], x.shape[0]),
        (ROW, X),
        OPSETS,
        dynamic=({0: "m"}, {0: "n"}),
    ),
    Record(
        "erf of halves",
        lambda x: (torch.erf(x), torch.nn.functional.gelu(x)),
        (torch.linspace(-6, 6, 41).half(),),
        OPSETS,
        atol=2e-3,
    ),
    Record("isnan", torch.isnan, (ODD,), OPSETS),
    Record("sign", torch.sign, (ODD.nan_to_num(),), OPSETS),
    Record("nonzero", lambda x: torch.nonzero(x > 0), (X,), OPSETS),
    Record("nonzero of nothing", torch.nonzero, (EMPTY,), OPSETS),
    Record(
        "nonzero of a part that may be empty",
        lambda x: (torch.nonzero(x[4:]), torch.nonzero(x[:, 5:])),
        (X,),
        OPSETS,
        dynamic=({0: "n", 1: "m"},),
    ),
    Record(
        "scatter, the last of equal places stays",
        lambda x, i, s: x.scatter(1, i, s),
        (X, torch.tensor([[1, 1, 0], [4, 4, 4]]), X + 9),
        OPSETS,
    ),
    Record(
        "operators that make nothing",
        lambda x: (torch.nn.functional.group_norm(x, 1), torch.nn.functional.softmax(x, 1)),
        (torch.zeros(0, 2, 3),),
        (7, 9, 18),
    ),
]


@parametrized(RECORDS)
def test_agrees_with_eager(record: Record) -> None:
    check(record)


@pytest.mark.parametrize("shape", [(3, 0), (0, 4), (0, 0), (5, 2)])
def test_a_choice_of_unknown_sizes_takes_empty_tensors(shape: tuple[int, int]) -> None:
    program = opsetta.export(
        lambda x: torch.where(x > 0, x, -x), (X,), opset=7, dynamic_shapes=({0: "n", 1: "m"},)
    )
    program.verify((floats(*shape),))


def test_ranges_below_nine_are_computed_in_the_loop() -> None:
    """In onnxruntime 1.0 an iteration number that a Loop returns for each iteration is the last one."""
    program = opsetta.export(
        lambda x: (torch.arange(x.shape[0]), torch.arange(x.shape[0], -2, -2), torch.arange(4)),
        (X,),
        opset=7,
        dynamic_shapes=({0: "n"},),
    )
    program.verify((floats(5, X.shape[1]),))
    loops = [node for node in program.model.graph if node.op_type == "Loop"]
    assert len(loops) == 2
    assert all("Add" in {node.op_type for node in loop.attributes["body"].as_graph()} for loop in loops)
