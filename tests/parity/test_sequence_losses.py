"""Connectionist temporal classification against eager PyTorch: targets in rows and end to end, lengths."""

import math

import pytest
import torch
import torch.nn.functional as F

import opsetta

from .records import HIGHEST, Record, check, floats, parametrized

OPSETS = (7, 8, 9, 11, 13, HIGHEST)
LOG_PROBS = floats(6, 3, 5).log_softmax(-1)
# What stands behind a target is not read.
ROWS = torch.tensor([[1, 2, 2, 3], [4, 4, 0, -1], [1, 9, 9, 9]])
END_TO_END = torch.tensor([1, 2, 2, 3, 4, 4, 1])
STEPS, LABELS = torch.tensor([6, 5, 6]), torch.tensor([4, 2, 1])
IMPOSSIBLE = LOG_PROBS.masked_fill(torch.arange(5) == 2, -math.inf)
BATCHED = ({0: "steps", 1: "batch"}, {0: "batch", 1: "labels"}, {0: "batch"}, {0: "batch"})
JOINED = ({0: "steps", 1: "batch"}, {0: "labels"}, {0: "batch"}, {0: "batch"})


def _loss(**options):
    return lambda log_probs, targets, steps, labels: F.ctc_loss(log_probs, targets, steps, labels, **options)


def _record(name, *inputs, opsets=OPSETS, dynamic=None, **options) -> Record:
    return Record(name, _loss(**options), inputs, opsets, dynamic=dynamic)


RECORDS = [
    *(
        _record(
            f"{reduction} of {name}", LOG_PROBS, targets, STEPS, LABELS, reduction=reduction, dynamic=dynamic
        )
        for reduction in ("none", "mean", "sum")
        for name, targets, dynamic in (
            ("rows", ROWS, None),
            ("rows, dynamic", ROWS, BATCHED),
            ("end to end", END_TO_END, None),
            ("end to end, dynamic", END_TO_END, JOINED),
        )
    ),
    *(
        _record(
            f"too short, {reduction}, zero_infinity {zero}",
            LOG_PROBS,
            ROWS,
            torch.tensor([2, 0, 0]),
            torch.tensor([4, 0, 1]),
            reduction=reduction,
            zero_infinity=zero,
        )
        for reduction in ("none", "mean")
        for zero in (False, True)
    ),
    _record("blank", LOG_PROBS, ROWS % 4, STEPS, LABELS, blank=4, reduction="none"),
    _record("double", LOG_PROBS.double(), ROWS, STEPS, LABELS, reduction="none", opsets=OPSETS[1:]),
    _record("int32", LOG_PROBS, ROWS.int(), STEPS.int(), LABELS.int()),
    _record("impossible labels", IMPOSSIBLE, ROWS, STEPS, LABELS, reduction="none"),
    _record("no labels", LOG_PROBS, END_TO_END[:0], STEPS, LABELS * 0, reduction="none"),
    *(
        _record(
            f"one sequence, {reduction}", LOG_PROBS[:, 0], ROWS[0], STEPS[0], LABELS[0], reduction=reduction
        )
        for reduction in ("none", "mean", "sum")
    ),
    *(
        Record(
            f"lengths as numbers, {reduction}, {name}",
            lambda x, y, r=reduction: F.ctc_loss(x, y, (6, 5, 6), (4, 2, 1), reduction=r),
            (LOG_PROBS, targets),
            OPSETS,
        )
        for reduction in ("none", "mean")
        for name, targets in (("rows", ROWS), ("end to end", END_TO_END))
    ),
]


@parametrized(RECORDS)
def test_agrees_with_eager(record: Record) -> None:
    check(record)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("targets", [ROWS, END_TO_END], ids=["rows", "end to end"])
def test_of_a_script(targets: torch.Tensor, reduction: str) -> None:
    module = torch.jit.script(torch.nn.CTCLoss(reduction=reduction).eval())
    program = opsetta.export(module, (LOG_PROBS, targets, STEPS, LABELS), opset=13)
    program.verify()
    program.lower(opset=7).verify()


def test_other_sizes_than_the_example() -> None:
    program = opsetta.export(
        torch.nn.CTCLoss(reduction="none").eval(),
        (LOG_PROBS, ROWS, STEPS, LABELS),
        opset=13,
        dynamic_shapes=BATCHED,
    )
    log_probs = floats(9, 2, 5, seed=1).log_softmax(-1)
    program.verify(
        (log_probs, torch.tensor([[1, 2, 2], [4, 4, 0]]), torch.tensor([9, 7]), torch.tensor([3, 2]))
    )


def test_torch_is_left_as_it_was() -> None:
    opsetta.export(torch.nn.CTCLoss().eval(), (LOG_PROBS, ROWS, STEPS, LABELS), opset=13)
    with pytest.raises(Exception, match="ctc_loss"):
        torch.export.export(torch.nn.CTCLoss().eval(), (LOG_PROBS, ROWS, STEPS, LABELS))
