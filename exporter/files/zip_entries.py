"""Bounds the entries of the zip archives that torch writes by the size of the archive."""

from __future__ import annotations

import zipfile

_PICKLED, _SIZES_OF_PICKLED = 2**22, 16
"""Bytes that a pickle in an archive of any size may have, and bytes of the archive for each further one. Each
byte of a pickle may make an object of a hundred bytes."""
_COMPRESSED, _COMPRESSION = 2**26, 32
"""The bytes that a decompressed entry may have, and the bytes it may have in addition per compressed byte."""
_PROGRAM = 2**20
"""The bytes that a decompressed program may have; fewer, because compiling it takes more than reading it."""


def unpacked_size(archive: zipfile.ZipFile) -> int:
    """The bytes of all entries of an archive, as it states them; a reader stops there."""
    return sum(entry.file_size for entry in archive.infolist())


def oversized_entry(archive: zipfile.ZipFile, size: int) -> str | None:
    """Describe an entry that is much larger than an archive of `size` bytes allows; None if there is none."""
    for entry in archive.infolist():
        if entry.filename.endswith(".pkl"):
            most = _PICKLED + size // _SIZES_OF_PICKLED
        elif entry.filename.endswith(".py") and entry.compress_type != zipfile.ZIP_STORED:
            most = _PROGRAM + _COMPRESSION * entry.compress_size
        elif entry.compress_type != zipfile.ZIP_STORED:
            most = _COMPRESSED + _COMPRESSION * entry.compress_size
        else:
            continue
        if entry.file_size > most:
            name = entry.filename.encode("unicode_escape").decode()[:100]
            return f"has an entry '{name}' of {entry.file_size} bytes, more than the limit of {most}"
    return None
