"""Digests of files and of texts: SHA-256."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from typing import IO

from .small_files import open_regular

_BLOCK = 1 << 20


def file_digest(path: str | os.PathLike[str]) -> str:
    """The digest of a file.

    Raises:
        OSError: it cannot be read.
    """
    with open_regular(path) as file:
        return blob_digest(file, 0, os.fstat(file.fileno()).st_size)


def blob_digest(file: IO[bytes], offset: int, size: int) -> str:
    """The digest of a part of a file, which is read in blocks."""
    sha256 = hashlib.sha256()
    file.seek(offset)
    # A file may be larger than the memory.
    while size > 0 and (block := file.read(min(_BLOCK, size))):
        sha256.update(block)
        size -= len(block)
    return sha256.hexdigest()


def short_digest(lines: Iterable[str]) -> str:
    """The first 16 digits of the digest of some lines."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
