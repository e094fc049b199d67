"""Options whose entries are NAME=VALUE."""

from __future__ import annotations

from collections.abc import Sequence

from ....registration import UsageError


def parse_values(entries: Sequence[str] | None, option: str, form: str = "NAME=VALUE") -> dict[str, str]:
    """The values of an option by name; names may contain no "=" unless the form is NAME=SIZE.

    Raises:
        UsageError: an entry has another form.
    """
    values = {}
    for entry in entries or ():
        # Names of dimensions may be any text, and sizes have no "=".
        name, equals, value = entry.rpartition("=") if form == "NAME=SIZE" else entry.partition("=")
        if not name or not equals or (form == "NAME=SIZE" and not value.isdecimal()):
            raise UsageError(f"{option}: '{entry}' is not of the form {form}")
        values[name] = value
    return values


def parse_sizes(entries: Sequence[str] | None) -> dict[str, int]:
    """The sizes of dimensions by name.

    Raises:
        UsageError: an entry is not NAME=SIZE.
    """
    return {name: int(size) for name, size in parse_values(entries, "--dim", "NAME=SIZE").items()}
