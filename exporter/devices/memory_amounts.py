"""Memory settings: the default alignment, and a parser of amounts such as "200MB"."""

from __future__ import annotations

import re

from ...registration import UsageError

ALIGNMENT = 64
"""Every offset of a plan is by default a multiple of this many bytes, the size of a cache line."""
LOWEST = "lowest"
"""The value of a memory limit that asks for the least memory that the search finds."""
EXTRA_WORK = 0.2
"""How many operations recomputed nodes may add by default, as a share of the model's operations."""
_PREFIXES = {"": 1} | {
    f"{prefix}{binary}": (1024 if binary else 1000) ** power
    for power, prefix in enumerate("KMGT", 1)
    for binary in ("", "I")
}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]I?)?B?", re.ASCII)


def memory_amount(amount: int | str) -> int:
    """Convert a number of bytes, or a text such as `"200MB"`, `"64 MiB"` or `"4096"`, to bytes.

    Raises:
        UsageError: the amount is neither, or is not positive.
    """
    size = 0
    if isinstance(amount, int) and not isinstance(amount, bool):
        size = amount
    elif isinstance(amount, str) and (match := _AMOUNT.fullmatch(amount.strip().upper())):
        size = int(float(match[1]) * _PREFIXES[match[2] or ""])
    if size <= 0:
        raise UsageError(f"{amount!r} is not an amount of memory: write 200MB, 64MiB or a number of bytes")
    return size
