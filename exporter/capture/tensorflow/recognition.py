"""Recognises TensorFlow files by their first bytes."""

from __future__ import annotations

import os
import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ...files.reading.encodings.text import first_word
from ...files.reading.encodings.wire import varint

GRAPH, META_GRAPH, SAVED_MODEL = "GraphDef", "MetaGraphDef", "SavedModel"
SAVED_MODEL_FILES = ("saved_model.pb", "saved_model.pbtxt")
"""The files of a SavedModel's folder, in the order in which TensorFlow looks for them."""

_HEAD = 2**20
_MOST_FIELDS = 1000
"""Fields of one message that are looked at."""
_NUMBER, _CONTENTS = 0, 2
"""Wire types: a number, and a length with as many bytes."""
_FIELDS: Mapping[str, Mapping[int, int]] = {
    GRAPH: {1: _CONTENTS, 2: _CONTENTS, 3: _NUMBER, 4: _CONTENTS, 5: _CONTENTS},
    META_GRAPH: dict.fromkeys(range(1, 8), _CONTENTS),
    SAVED_MODEL: {1: _NUMBER, 2: _CONTENTS},
    "NodeDef": dict.fromkeys(range(1, 8), _CONTENTS),
}
"""The wire types of the fields that these messages have. A later TensorFlow may add others."""
_INNER = {GRAPH: (1, "NodeDef"), META_GRAPH: (2, GRAPH), SAVED_MODEL: (2, META_GRAPH)}
"""The field that a message must have, and its type."""
_OPERATOR = 2
_WORD = re.compile(rb"[^\x00-\x20\x7f]+")
_TEXT = {
    "node": GRAPH,
    "library": GRAPH,
    "version": GRAPH,
    "versions": GRAPH,
    "debug_info": GRAPH,
    "meta_info_def": META_GRAPH,
    "graph_def": META_GRAPH,
    "saver_def": META_GRAPH,
    "collection_def": META_GRAPH,
    "signature_def": META_GRAPH,
    "asset_file_def": META_GRAPH,
    "object_graph_def": META_GRAPH,
    "saved_model_schema_version": SAVED_MODEL,
    "meta_graphs": SAVED_MODEL,
}
"""What a text is that begins with one of these fields; no other format of models has them."""


class Format(NamedTuple):
    """A file format.

    Attributes:
        kind: `GRAPH`, `META_GRAPH` or `SAVED_MODEL`.
        form: "binary" or "text".
    """

    kind: str
    form: str


def recognise(source: str | os.PathLike[str] | bytes) -> Format | None:
    """Detect the format of a file, a SavedModel's folder or bytes; None if it is not TensorFlow's.

    Unreadable files and graphs without nodes give None.
    """
    if isinstance(source, bytes):
        return recognise_head(source, len(source))
    try:
        path = file_of(source)
        # Opening a pipe waits for its writer.
        if not path.is_file():
            return None
        with open(path, "rb") as file:
            return recognise_head(file.read(_HEAD), os.fstat(file.fileno()).st_size)
    except (OSError, ValueError):
        return None


def file_of(path: str | os.PathLike[str]) -> pathlib.Path:
    """The file to read: the path itself, or the file in a SavedModel's folder."""
    given = pathlib.Path(os.fsdecode(path))
    if given.is_dir():
        return next((given / name for name in SAVED_MODEL_FILES if (given / name).is_file()), given)
    return given


def recognise_head(head: bytes, size: int) -> Format | None:
    """Return the format of a file of this size with these first bytes."""
    for kind in (GRAPH, META_GRAPH, SAVED_MODEL):
        if _fits(kind, head, 0, size, size):
            return Format(kind, "binary")
    word = first_word(head)
    return Format(_TEXT[word], "text") if word in _TEXT else None


class _Malformed(Exception):
    """The bytes are not fields."""


def _fits(kind: str, head: bytes, begin: int, end: int, size: int) -> bool:
    """Whether bytes may be a message: its fields have the right wire types, and required fields exist.

    A truncated message is accepted; its parser reports the error.
    """
    found = False
    try:
        for number, wire_type, inner_begin, inner_end in _fields(head, begin, end, size):
            if _FIELDS[kind].get(number, wire_type) != wire_type:
                return False
            if kind == "NodeDef" and number == _OPERATOR:
                found = _WORD.fullmatch(head, inner_begin, inner_end) is not None
            elif kind != "NodeDef" and number == _INNER[kind][0] and not found:
                if not _fits(_INNER[kind][1], head, inner_begin, inner_end, size):
                    return False
                found = True
    except _Malformed:
        return found and end >= size
    return found


def _fields(head: bytes, begin: int, end: int, size: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield number, wire type, start and end of the fields that start within the first bytes."""
    position, visible = begin, min(end, len(head))
    for _ in range(_MOST_FIELDS):
        if position >= visible:
            return
        tag, start = varint(head, position, visible)
        number, wire_type = tag >> 3, tag & 7
        length, position = 0, start
        if start >= 0 and wire_type in (_NUMBER, _CONTENTS):
            length, position = varint(head, start, visible)
        if start < 0 or position < 0:
            if visible < end:
                return
            raise _Malformed
        start = position
        position += {0: 0, 1: 8, 2: length, 5: 4}.get(wire_type, end)
        if not number or (position > end and end < size):
            raise _Malformed
        yield number, wire_type, start, position
