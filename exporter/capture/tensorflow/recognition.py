"""Recognises TensorFlow files by their first bytes."""

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
"""Maximum number of fields of one message that are examined."""
_NUMBER, _CONTENTS = 0, 2
"""Wire types: a number, and a length followed by that many bytes."""
_FIELDS: Mapping[str, Mapping[int, int]] = {
    GRAPH: {1: _CONTENTS, 2: _CONTENTS, 3: _NUMBER, 4: _CONTENTS, 5: _CONTENTS},
    META_GRAPH: dict.fromkeys(range(1, 8), _CONTENTS),
    SAVED_MODEL: {1: _NUMBER, 2: _CONTENTS},
    "NodeDef": dict.fromkeys(range(1, 8), _CONTENTS),
}
"""The wire types of the known fields of these messages. A later TensorFlow may add fields."""
_REQUIRED_FIELDS = {GRAPH: (1, "NodeDef"), META_GRAPH: (2, GRAPH), SAVED_MODEL: (2, META_GRAPH)}
"""The field that a message must have, and its type."""
_OPERATOR_FIELD = 2
_WORD = re.compile(rb"[^\x00-\x20\x7f]+")
_FILE_TYPES_BY_FIRST_WORD = {
    **dict.fromkeys("node library version versions debug_info".split(), GRAPH),
    **dict.fromkeys(
        "meta_info_def graph_def saver_def collection_def signature_def asset_file_def "
        "object_graph_def".split(),
        META_GRAPH,
    ),
    **dict.fromkeys("saved_model_schema_version meta_graphs".split(), SAVED_MODEL),
}
"""The file type of a text, by the field that it begins with; other model formats do not use these fields."""


class Format(NamedTuple):
    """The type of a file, such as `GRAPH`, and its encoding, "binary" or "text"."""

    file_type: str
    encoding: str


def recognise(source: str | os.PathLike[str] | bytes) -> Format | None:
    """Detect the format of a file, a SavedModel's folder or bytes; None if it is not TensorFlow's.

    Unreadable files and graphs without nodes are not recognised: the result is None.
    """
    if isinstance(source, bytes):
        return recognise_head(source, len(source))
    try:
        path = file_of(source)
        # Opening a named pipe would wait for its writer.
        if not path.is_file():
            return None
        with open(path, "rb") as file:
            return recognise_head(file.read(_HEAD), os.fstat(file.fileno()).st_size)
    except (OSError, ValueError):
        return None


def file_of(path: str | os.PathLike[str]) -> pathlib.Path:
    """The file to read: the path itself, or the file in a SavedModel's folder."""
    location = pathlib.Path(os.fsdecode(path))
    if location.is_dir():
        return next((location / name for name in SAVED_MODEL_FILES if (location / name).is_file()), location)
    return location


def recognise_head(head: bytes, size: int) -> Format | None:
    """Return the format of a file of this size with these first bytes."""
    for file_type in (GRAPH, META_GRAPH, SAVED_MODEL):
        if _may_be_message(file_type, head, 0, size, size):
            return Format(file_type, "binary")
    word = first_word(head)
    return Format(_FILE_TYPES_BY_FIRST_WORD[word], "text") if word in _FILE_TYPES_BY_FIRST_WORD else None


class _Malformed(Exception):
    """The bytes are not fields."""


def _may_be_message(file_type: str, head: bytes, begin: int, end: int, size: int) -> bool:
    """Whether bytes may be a message: its fields have the right wire types, and required fields exist.

    A truncated message is accepted; its parser reports the error.
    """
    has_required_field = False
    try:
        for number, wire_type, inner_begin, inner_end in _fields(head, begin, end, size):
            if _FIELDS[file_type].get(number, wire_type) != wire_type:
                return False
            if file_type == "NodeDef" and number == _OPERATOR_FIELD:
                has_required_field = _WORD.fullmatch(head, inner_begin, inner_end) is not None
            elif (
                file_type != "NodeDef" and number == _REQUIRED_FIELDS[file_type][0] and not has_required_field
            ):
                if not _may_be_message(_REQUIRED_FIELDS[file_type][1], head, inner_begin, inner_end, size):
                    return False
                has_required_field = True
    except _Malformed:
        return has_required_field and end >= size
    return has_required_field


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
