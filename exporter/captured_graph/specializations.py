"""Decisions that an export fixed at the values of the example, as metadata.

Works without torch. `docs/metadata.md` describes the format.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from ...registration import SPECIALIZATIONS, ModelFileError
from .json_entries import read_entries, write_entries

_MAXIMUM_LISTED = 10
_KINDS = ("branch", "int", "float", "array")


@dataclasses.dataclass(frozen=True)
class Specialization:
    """A decision of the model's Python code on the value of a tensor.

    Attributes:
        line: the user's line, `model.py:12`; empty if unknown.
        code: the text of the line.
        kind: `branch`, a truth value; `int` or `float`, a number; `array`, a numpy array or a list.
        value: the value for the example, which the program has for all inputs; None if unknown or an array.
    """

    line: str
    code: str
    kind: str
    value: bool | int | float | None

    def __str__(self) -> str:
        subject = "branch for" if self.kind == "branch" else "value"
        value = "that of the example" if self.value is None else self.value
        return f"{self.line or 'unknown line'}: {self.code} ({subject} {value})"


def describe(specializations: Iterable[Specialization]) -> str:
    """A list of decisions, one on each line, for a message."""
    lines = [f"  {entry}" for entry in specializations]
    more = (
        [f"  and {len(lines) - _MAXIMUM_LISTED} more, in program.specializations"]
        if len(lines) > _MAXIMUM_LISTED
        else []
    )
    return "\n".join([*lines[:_MAXIMUM_LISTED], *more])


def write_specializations(metadata: dict[str, str], specializations: Iterable[Specialization]) -> None:
    """Write decisions into the metadata of a model, if there are any."""
    write_entries(metadata, SPECIALIZATIONS, specializations)


def read_specializations(metadata: Mapping[str, str]) -> list[Specialization]:
    """The decisions in the metadata of a model.

    Raises:
        ModelFileError: the entry does not have the documented form.
    """
    return read_entries(metadata, SPECIALIZATIONS, lambda fields: _entry(**fields), ModelFileError)


def _entry(*, line: str, code: str, kind: str, value: bool | int | float | None) -> Specialization:
    if not (isinstance(line, str) and isinstance(code, str)):
        raise TypeError(f"line {line!r} or code {code!r} is not text")
    if kind not in _KINDS:
        raise ValueError(f"kind {kind!r} is not one of {', '.join(_KINDS)}")
    # A file that somebody else wrote may have anything here.
    if value is not None and not isinstance(value, (bool, int, float)):
        raise TypeError(f"{value!r} is not a number")
    return Specialization(line, code, kind, value)
