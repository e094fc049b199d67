"""Parses JSON that anybody may have written, in files and in the metadata of models.

A few bytes may nest values deeper than the parser recurses, or become objects a hundred times their size.
"""

from __future__ import annotations

import json
from typing import Any

_MEMORY, _MEMORY_PER_BYTE = 150_000_000, 2
"""Bytes of the values of a text: those of any text, and those for each of its bytes."""
_OBJECT, _LIST, _ENTRY, _STRING = 240, 90, 40, 60
"""Bytes of an object, a list, an entry in either, and a string without its contents."""


def parse_json(text: bytes | str, **options: Any) -> Any:
    """The contents of a JSON text; bytes are UTF-8.

    Args:
        options: those of `json.loads`.

    Raises:
        ValueError: it is malformed, nested too deeply, or would take too much memory.
    """
    if isinstance(text, bytes):
        text = text.decode()
    # Marks within strings count too. Looking for them is quick, and the bound is far above what files need.
    objects, lists, entries, quotes = map(text.count, '{[,"')
    needed = _OBJECT * objects + _LIST * lists + _ENTRY * entries + _STRING * quotes // 2
    allowed = _MEMORY + _MEMORY_PER_BYTE * len(text)
    if needed > allowed:
        raise ValueError(f"its values would take {needed} bytes of memory, more than the limit of {allowed}")
    try:
        return json.loads(text, **options)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
