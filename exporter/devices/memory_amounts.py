"""Amounts of memory: the default alignment, and a parser of numbers and texts."""

from __future__ import annotations

import re

from ...registration import UsageError

ALIGNMENT = 64
"""The bytes of which every offset of a plan is a multiple by default: those of a line of the cache."""
LOWEST = "lowest"
"""The memory limit that asks for as little memory as the search achieves."""
EXTRA_WORK = 0.2
"""The operations that nodes may add by running again, as a share of those of the model."""
_PREFIXES = {"": 1} | {
    f"{prefix}{binary}": (1024 if binary else 1000) ** power
    for power, prefix in enumerate("KMGT", 1)
    for binary in ("", "I")
}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]I?)?B?", re.ASCII)


def memory_amount(amount: int | str) -> int:
    """The bytes of a number, or of a text such as `"200MB"`, `"64 MiB"` or `"4096"`.

    Raises:
        UsageError: it is neither, or is not positive.
    """
    size = 0
    if isinstance(amount, int) and not isinstance(amount, bool):
        size = amount
    elif isinstance(amount, str) and (match := _AMOUNT.fullmatch(amount.strip().upper())):
        size = int(float(match[1]) * _PREFIXES[match[2] or ""])
    if size <= 0:
        raise UsageError(f"{amount!r} is not an amount of memory: write 200MB, 64MiB or a number of bytes")
    return size
