"""Computes the content of a target's file at a version of the product.

A file describes the newest measured version. Each table of `versions` has the bounds `from` (included) and
`below` (excluded), and the keys that differ within them: its tables are merged into the file's, its rules of
`forms` come before the file's, and other values replace the file's. The tables apply in the order of the
file. Names in `also_refused` are added to the refused operators. A table with the key `target` names another
target that describes these versions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

VersionKey = tuple[int, ...]
BOUNDS = ("from", "below")
ALSO_REFUSED = "also_refused"
_VERSION = re.compile(r"\d{1,9}(\.\d{1,9}){0,5}")


def is_version(text: object) -> bool:
    """Whether a text is a version: whole numbers with dots between them."""
    return isinstance(text, str) and _VERSION.fullmatch(text) is not None


def version_key(version: str) -> VersionKey:
    """Return a key that orders versions; "4.5" and "4.5.0" have the same key."""
    numbers = [int(number) for number in version.split(".")]
    while len(numbers) > 1 and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def split_version(target: str) -> tuple[str, str | None]:
    """Split "name@version"; the version is None if there is none, or if the target is a path."""
    name, separator, version = target.rpartition("@")
    return (name, version) if separator and not target.endswith(".toml") else (target, None)


def applies(entry: Mapping[str, Any], version: str) -> bool:
    """Whether a version is within the bounds of a table of `versions`."""
    key = version_key(version)
    return not ("from" in entry and key < version_key(entry["from"])) and not (
        "below" in entry and key >= version_key(entry["below"])
    )


def content_at(content: Mapping[str, Any], version: str) -> dict[str, Any]:
    """Return the content of a target's file at a version, without the key `versions`."""
    merged = {key: value for key, value in content.items() if key != "versions"}
    for entry in content.get("versions", ()):
        if "target" not in entry and applies(entry, version):
            merged = _merge(merged, {key: value for key, value in entry.items() if key not in BOUNDS})
    return merged


def other_target(content: Mapping[str, Any], version: str) -> str | None:
    """Return the name of another target that describes a version, or None."""
    entries = (entry for entry in content.get("versions", ()) if "target" in entry)
    return next((entry["target"] for entry in entries if applies(entry, version)), None)


def first_versions(content: Mapping[str, Any], measured: Iterable[str]) -> list[str]:
    """Return the first measured version of each span of versions with equal content, newest first."""
    bounds = sorted(
        {
            version_key(entry[bound])
            for entry in content.get("versions", ())
            for bound in BOUNDS
            if bound in entry
        }
    )
    first: dict[int, str] = {}
    for version in sorted(measured, key=version_key):
        span = sum(bound <= version_key(version) for bound in bounds)
        first.setdefault(span, version)
    return list(reversed(first.values()))


def _merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in changes.items():
        before = merged.get(key)
        if isinstance(value, dict) and isinstance(before, dict | None):
            merged[key] = _merge(before or {}, value)
        elif key == "forms" and isinstance(before, list) and isinstance(value, list):
            merged[key] = [*value, *before]
        elif key == ALSO_REFUSED and isinstance(value, list):
            merged["refused"] = [*merged.get("refused", []), *value]
        else:
            merged[key] = value
    return merged
