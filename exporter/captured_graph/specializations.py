"""Records, in metadata, the decisions on values that an export fixed at those of the example.

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
        line: the user's line, `model.py:12`; "" if unknown.
        code: the text of the line.
        kind: `branch` for a bool, `int` or `float` for a number, `array` for a numpy array or a list.
        value: the example's value, which the program uses for all inputs; None for an array or if unknown.
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
    """List decisions for a message, one per line, at most ten."""
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
    """Read the decisions in the metadata of a model.

    Raises:
        ModelFileError: the entry does not have the documented form.
    """
    return read_entries(metadata, SPECIALIZATIONS, lambda fields: _entry(**fields), ModelFileError)


def _entry(*, line: str, code: str, kind: str, value: bool | int | float | None) -> Specialization:
    if not (isinstance(line, str) and isinstance(code, str)):
        raise TypeError(f"line {line!r} or code {code!r} is not text")
    if kind not in _KINDS:
        raise ValueError(f"kind {kind!r} is not one of {', '.join(_KINDS)}")
    # The file may be untrusted, so the type is checked.
    if value is not None and not isinstance(value, (bool, int, float)):
        raise TypeError(f"{value!r} is not a number")
    return Specialization(line, code, kind, value)
