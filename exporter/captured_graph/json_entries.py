"""Reads and writes lists of entries in a model's metadata as JSON; `docs/metadata.md` describes them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from ...registration import OpsettaError
from ...registration.json_text import parse_json

_Entry = TypeVar("_Entry")


def write_entries(metadata: dict[str, str], key: str, records: Iterable[Any]) -> None:
    """Write dataclasses under a key of the metadata, if there are any."""
    entries = [dataclasses.asdict(entry) for entry in records]
    if entries:
        # Sorted keys, so that equal exports give equal bytes.
        metadata[key] = json.dumps(entries, sort_keys=True, separators=(",", ":"))


def read_entries(
    metadata: Mapping[str, str], key: str, entry: Callable[[Any], _Entry], error: type[OpsettaError]
) -> list[_Entry]:
    """Read the entries under a key of the metadata; [] without the key.

    Args:
        entry: makes an entry from its fields; raises ValueError, TypeError or LookupError for wrong ones.
        error: the class of the error to raise if the text does not have the documented form.
    """
    try:
        return [entry(fields) for fields in parse_json(metadata.get(key, "[]"))]
    except (ValueError, TypeError, LookupError) as cause:
        raise error(f"the metadata '{key}' does not have the documented form: {cause}") from cause
