"""Options of the form NAME=VALUE and NAME=SIZE."""

from __future__ import annotations

import pytest

import opsetta
from opsetta.exporter.command_line.options.named_values import parse_sizes, parse_values


def test_values_may_contain_an_equals_sign_and_names_of_dimensions_too() -> None:
    assert parse_values(["key=a=b", "empty="], "--key") == {"key": "a=b", "empty": ""}
    assert parse_sizes(["batch=2", "n==m=07"]) == {"batch": 2, "n==m": 7}
    assert parse_sizes(None) == {}


@pytest.mark.parametrize("entry", ["batch", "=3", "batch=", "batch=-1", "batch=2.5", "batch=two"])
def test_other_sizes_are_refused(entry: str) -> None:
    with pytest.raises(opsetta.UsageError, match=f"--dim: '{entry}' is not of the form NAME=SIZE"):
        parse_sizes([entry])


@pytest.mark.parametrize("entry", ["key", "=value"])
def test_other_values_are_refused(entry: str) -> None:
    with pytest.raises(opsetta.UsageError, match=f"--set: '{entry}' is not of the form NAME=VALUE"):
        parse_values([entry], "--set")
