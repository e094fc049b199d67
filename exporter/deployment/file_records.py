"""Records of files with digests, by which a folder is compared with what was saved."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

_BLOCK = 1 << 20


@dataclasses.dataclass(frozen=True)
class FileRecord:
    """A file of the folder: its name, its bytes, and their SHA-256."""

    name: str
    size: int
    sha256: str

    @classmethod
    def of(cls, folder: pathlib.Path, name: str) -> FileRecord:
        """The record of a file as it is."""
        path = folder / name
        return cls(name, path.stat().st_size, digest(path))

    def problem(self, folder: pathlib.Path, verify: str) -> str | None:
        """What is wrong with the file, or None.

        Args:
            verify: `"full"` compares its SHA-256, `"size"` only its size.
        """
        try:
            size = (folder / self.name).stat().st_size
            if size != self.size:
                return f"'{self.name}' has {size} bytes instead of {self.size}"
            if verify == "full" and digest(folder / self.name) != self.sha256:
                return f"'{self.name}' does not have the contents that were saved"
        except OSError as error:
            return f"'{self.name}' cannot be read: {error.strerror}"
        return None


def digest(path: str | os.PathLike) -> str:
    """The SHA-256 of a file."""
    with open(path, "rb") as file:
        return blob_digest(file, 0, os.fstat(file.fileno()).st_size)


def blob_digest(file: Any, offset: int, size: int) -> str:
    """The SHA-256 of a part of a file, read in blocks."""
    found = hashlib.sha256()
    file.seek(offset)
    while size > 0 and (block := file.read(min(_BLOCK, size))):
        found.update(block)
        size -= len(block)
    return found.hexdigest()


def body_digest(body: Mapping[str, Any]) -> str:
    """The SHA-256 of the members of a JSON object."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def is_beside(record: FileRecord) -> bool:
    """Whether a record names a file of the folder itself."""
    text = isinstance(record.name, str) and isinstance(record.sha256, str) and isinstance(record.size, int)
    return text and record.name == os.path.basename(record.name) and record.name not in ("", ".", "..")
