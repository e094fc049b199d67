"""Which of many similar cases a quick run takes."""

import collections
import sys
from pathlib import Path

import pytest
from _pytest.mark.structures import MarkDecorator

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NUMBER_OF_VARIANTS: dict[str, dict[str, int]] = tomllib.loads(
    Path(__file__).with_name("variants.toml").read_text(encoding="utf-8")
)
"""How many variants of a test quick runs take, by file; full runs take all. They are costly, or hundreds."""


def spread(count: int, number: int) -> set[int]:
    """That many of the numbers below a count, the first and the last among them, at equal distances."""
    if number >= count:
        return set(range(count))
    return {index * (count - 1) // max(1, number - 1) for index in range(number)}


class Variants:
    """Marks the variants of a subject that are left to full runs.

    Args:
        first: how many variants of each subject quick runs take.
        step: of the further ones, quick runs take every `step`-th.
    """

    def __init__(self, first: int, step: int):
        self._first, self._step = first, step
        self._counts = collections.Counter[str]()

    def marks(self, subject: str = "") -> list[MarkDecorator]:
        """The marks of the next variant of a subject."""
        self._counts[subject] += 1
        further = self._counts[subject] - self._first
        return [] if further <= 0 or further % self._step == 0 else [pytest.mark.sweep]
