"""Checks metadata entries and opset imports: each key has one value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import onnx

from .....registration import ModelFileError
from ..names import quoted


def check_entries(entries: Iterable[Any], shown: str) -> None:
    """Refuse two different values of a key."""
    found: dict[str, str] = {}
    for entry in entries:
        if found.setdefault(entry.key, entry.value) != entry.value:
            raise ModelFileError(f"{shown} has two values of the metadata key {quoted(entry.key)}")


def merge_entries(source: Any, target: Any, shown: str) -> None:
    """Add a message's metadata to that of another; refuse different values."""
    known = {entry.key: entry.value for entry in target.metadata_props}
    for entry in source.metadata_props:
        if known.setdefault(entry.key, entry.value) != entry.value:
            raise ModelFileError(f"{shown} has two values of the metadata key {quoted(entry.key)}")
    del target.metadata_props[:]
    for key, value in known.items():
        target.metadata_props.add(key=key, value=value)


def check_imports(entries: Sequence[onnx.OperatorSetIdProto], shown: str) -> set[str]:
    """Refuse two versions of a domain, and impossible versions; return the domains, with "" for ai.onnx."""
    versions: dict[str, int] = {}
    for entry in entries:
        domain = canonical(entry.domain)
        if not 1 <= entry.version < 2**31:
            raise ModelFileError(f"{shown} imports version {entry.version} of {quoted(domain or 'ai.onnx')}")
        if versions.setdefault(domain, entry.version) != entry.version:
            raise ModelFileError(f"{shown} imports two versions of {quoted(domain or 'ai.onnx')}")
        entry.domain = domain
    return set(versions)


def canonical(domain: str) -> str:
    """The canonical name of a domain: ONNX's `ai.onnx` becomes the empty name."""
    return "" if domain == "ai.onnx" else domain
