"""Records that also run at sizes other than the captured ones."""

import dataclasses
from typing import Any

from .records import Record, check


@dataclasses.dataclass(frozen=True, eq=False)
class Resized(Record):
    """A record with dynamic dimensions.

    Attributes:
        others: further arguments to run with, of other sizes.
    """

    others: tuple[tuple[Any, ...], ...] = ()


def check_sizes(record: Record) -> None:
    """`check`, and for a record with further arguments the same comparison with each of them."""
    check(record, record.others if isinstance(record, Resized) else ())
