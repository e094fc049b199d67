"""Checks metadata entries and opset imports: each key has one value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import onnx

from .....registration import ModelFileError
from ..names import quoted

_WithMetadata: TypeAlias = onnx.ValueInfoProto | onnx.TensorProto


def check_entries(entries: Iterable[onnx.StringStringEntryProto], title: str) -> None:
    """Refuse two different values of a key."""
    values: dict[str, str] = {}
    for entry in entries:
        if values.setdefault(entry.key, entry.value) != entry.value:
            raise ModelFileError(f"{title} has two values of the metadata key {quoted(entry.key)}")


def merge_entries(source: _WithMetadata, target: _WithMetadata, title: str) -> None:
    """Add a message's metadata to that of another; refuse different values."""
    values = {entry.key: entry.value for entry in target.metadata_props}
    for entry in source.metadata_props:
        if values.setdefault(entry.key, entry.value) != entry.value:
            raise ModelFileError(f"{title} has two values of the metadata key {quoted(entry.key)}")
    # protobuf has no way to change entries by key, so write all of them again.
    del target.metadata_props[:]
    for key, value in values.items():
        target.metadata_props.add(key=key, value=value)


def check_imports(entries: Sequence[onnx.OperatorSetIdProto], title: str) -> set[str]:
    """Refuse two versions of a domain, and impossible versions; return the domains, with "" for ai.onnx."""
    versions: dict[str, int] = {}
    for entry in entries:
        domain = canonical(entry.domain)
        if not 1 <= entry.version < 2**31:
            raise ModelFileError(f"{title} imports version {entry.version} of {quoted(domain or 'ai.onnx')}")
        if versions.setdefault(domain, entry.version) != entry.version:
            raise ModelFileError(f"{title} imports two versions of {quoted(domain or 'ai.onnx')}")
        entry.domain = domain
    return set(versions)


def canonical(domain: str) -> str:
    """The canonical name of a domain: ONNX's `ai.onnx` becomes the empty name."""
    return "" if domain == "ai.onnx" else domain
