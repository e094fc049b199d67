"""Records that also run at sizes other than the captured ones."""

import dataclasses
from typing import Any

from .records import Record, _program, check


@dataclasses.dataclass(frozen=True, eq=False)
class Resized(Record):
    """A record with dynamic dimensions.

    Attributes:
        others: further arguments to run with, of other sizes.
    """

    others: tuple[tuple[Any, ...], ...] = ()


def check_sizes(record: Record, opset: int) -> None:
    """`check`, and for a record with further arguments the same comparison with each of them."""
    check(record, opset)
    if isinstance(record, Resized) and opset not in record.refused:
        lowered = _program(record).lower(opset=opset)
        for inputs in record.others:
            lowered.verify(inputs, rtol=record.rtol, atol=record.atol)
