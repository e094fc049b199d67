"""Operators whose result has another element type than the usual promotion of their operands gives."""

import functools

import pytest
import torch

import opsetta

from .records import Record, check, floats, integers, parametrized

HALF, DOUBLE = torch.float16, torch.float64
HUBER = torch.nn.functional.huber_loss
SOFT_MARGIN = torch.nn.functional.soft_margin_loss
SIGNS = torch.tensor([[1.0, -1.0, 1.0], [-1.0, -1.0, 1.0]])

LOSSES = [
    Record(f"{loss.__name__}-{reduction}", functools.partial(loss, reduction=reduction), inputs)
    for loss, inputs in (
        (HUBER, (floats(2, 3, dtype=HALF), floats(2, 3, seed=1))),
        (SOFT_MARGIN, (floats(2, 3, dtype=HALF), SIGNS)),
    )
    for reduction in ("none", "mean", "sum")
]
RECORDS = [
    *LOSSES,
    Record("huber_loss-wide-target", HUBER, (floats(2, 3), floats(2, 3, seed=1, dtype=DOUBLE))),
    Record("huber_loss-narrow-target", HUBER, (floats(2, 3), floats(2, 3, seed=1, dtype=HALF))),
    # The elements overflow float16 before the mean is taken, which would not.
    Record(
        "huber_loss-overflow",
        functools.partial(HUBER, delta=500.0),
        (torch.tensor([0.0, 600.0], dtype=HALF), torch.tensor([1.0, 0.0])),
    ),
    Record("kron-integers", torch.kron, (integers(2, 2, dtype=torch.int8), torch.tensor(300))),
    Record("kron-floats", torch.kron, (torch.tensor(300.1, dtype=DOUBLE), floats(2, 2))),
    Record(
        "addr-integers",
        torch.addr,
        (torch.tensor(300), integers(2, dtype=torch.int8), integers(3, seed=1, dtype=torch.int8)),
    ),
    Record(
        "addr-floats", torch.addr, (torch.tensor(0.1234567), floats(2, dtype=HALF), floats(3, dtype=HALF))
    ),
    Record("ldexp", torch.ldexp, (integers(3, dtype=torch.int8), torch.tensor(2.0, dtype=HALF))),
    Record("block_diag", torch.block_diag, (floats(2, 2), torch.tensor(2.0, dtype=DOUBLE), floats(3))),
    Record(
        "block_diag-dynamic",
        torch.block_diag,
        (floats(2, 2, dtype=HALF), torch.tensor(2.0)),
        dynamic=({0: "rows"}, {}),
    ),
    Record(
        "huber_loss-dynamic",
        HUBER,
        (floats(2, 3, dtype=HALF), floats(2, 3, seed=1)),
        dynamic=({0: "rows"}, {0: "rows"}),
    ),
    Record(
        "addr-dynamic",
        torch.addr,
        (torch.tensor(0.1234567), floats(2, dtype=HALF), floats(3, dtype=HALF)),
        dynamic=({}, {0: "rows"}, {0: "columns"}),
    ),
]


@parametrized(RECORDS)
def test_agrees_with_eager(record: Record) -> None:
    check(record)


@pytest.mark.parametrize("record", [pytest.param(r, id=r.name) for r in RECORDS if "integers" in r.name])
@pytest.mark.parametrize("capture", ["torch.export", "trace"])
def test_every_capture_records_the_type_of_eager(record: Record, capture: str) -> None:
    opsetta.export(record.function, record.inputs, opset=13, capture=capture).verify()


def test_what_reads_the_loss_is_computed_in_its_type() -> None:
    inputs = (floats(2, 3, dtype=HALF), floats(2, 3, seed=1), floats(2, 3, seed=2, dtype=HALF))
    program = opsetta.export(lambda x, y, z: HUBER(x, y, reduction="none") + z, inputs, opset=13)
    program.verify()
    assert program(*inputs)[0].dtype == HALF
