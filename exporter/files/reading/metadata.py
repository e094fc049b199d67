"""Entries of a key and a value, and opset imports: one value for each key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import onnx

from ....registration import ModelFileError
from .names import quoted


def check_entries(entries: Iterable[Any], shown: str) -> None:
    """Refuse two values of one key; the same value twice is the same as once."""
    found: dict[str, str] = {}
    for entry in entries:
        if found.setdefault(entry.key, entry.value) != entry.value:
            raise ModelFileError(f"{shown} has two values of the metadata key {quoted(entry.key)}")


def merge_entries(source: Any, target: Any, shown: str) -> None:
    """Add a message's metadata to that of another, which must not say otherwise."""
    known = {entry.key: entry.value for entry in target.metadata_props}
    for entry in source.metadata_props:
        if known.setdefault(entry.key, entry.value) != entry.value:
            raise ModelFileError(f"{shown} has two values of the metadata key {quoted(entry.key)}")
    del target.metadata_props[:]
    for key, value in known.items():
        target.metadata_props.add(key=key, value=value)


def check_imports(entries: Sequence[onnx.OperatorSetIdProto], shown: str) -> set[str]:
    """Refuse two versions of one domain, and versions that there cannot be; the domains, "" for ai.onnx."""
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
    """The domain of ONNX's own operators has two names; the empty one stands for both."""
    return "" if domain == "ai.onnx" else domain
