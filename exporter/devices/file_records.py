"""Records the names, sizes and digests of files, to detect changes to a saved folder."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from ...registration import OpsettaError
from ...registration.json_text import parse_json
from ..files.digests import file_digest
from ..files.small_files import read_small, reason_of

_MEMBER, _END = b',\n  "sha256": "', b"\n}"
"""The text before the digest in a signed JSON object, which the C header looks for, and after it."""


@dataclasses.dataclass(frozen=True)
class FileRecord:
    """A file of a folder: its name, its size in bytes, and its SHA-256."""

    name: str
    size: int
    sha256: str

    @classmethod
    def of(cls, folder: pathlib.Path, name: str) -> FileRecord:
        """Make the record of an existing file."""
        path = folder / name
        return cls(name, path.stat().st_size, file_digest(path))

    def problem(
        self,
        folder: pathlib.Path,
        verify: str,
        digest_of: Callable[[pathlib.Path], str] = file_digest,
    ) -> str | None:
        """Describe how the file differs from the record; None if it does not.

        Args:
            folder: the folder of the file.
            verify: `"full"` compares size and SHA-256, `"size"` only the size.
            digest_of: computes the SHA-256 of a file.
        """
        try:
            size = (folder / self.name).stat().st_size
            # Comparing sizes first finds most changes without reading the file.
            if size != self.size:
                return f"'{self.name}' has {size} bytes instead of {self.size}"
            if verify == "full" and digest_of(folder / self.name) != self.sha256:
                return f"'{self.name}' does not have the contents that were saved"
        except OSError as error:
            return f"'{self.name}' cannot be read: {error.strerror}"
        return None


def sign_json(body: Mapping[str, object]) -> bytes:
    """Serialize a JSON object; the last member `sha256` is the digest of the text without this member."""
    return _sign_text(json.dumps(body, indent=2).encode())


def _sign_text(text: bytes) -> bytes:
    return text.removesuffix(_END) + _MEMBER + hashlib.sha256(text).hexdigest().encode() + b'"' + _END


def read_signed(path: pathlib.Path, version: int, failure: type[OpsettaError]) -> dict[str, Any]:
    """Read and verify the members of a file that `sign_json` wrote.

    Args:
        version: the required value of the member `format`.
        failure: the class of the error to raise.

    Raises:
        FileNotFoundError: the file does not exist.
        OpsettaError: the file cannot be read, is damaged, or has another format; raised as `failure`.
    """
    try:
        content = read_small(path)
        body = parse_json(content)
        del body["sha256"]
        intact = content == _sign_text(content[: content.rindex(_MEMBER)] + _END)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise failure(f"'{path}' cannot be read: {reason_of(error)}") from error
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise failure(f"'{path}' is damaged: {error}") from error
    if body.get("format") != version:
        raise failure(
            f"'{path}' has format {body.get('format')!r}, but this version of opsetta reads format {version}"
        )
    if not intact:
        raise failure(f"'{path}' is damaged: its digest does not match")
    return dict(body)


def is_beside(record: FileRecord) -> bool:
    """Whether a record, read from a file, has the right types and names a file directly in the folder."""
    text = isinstance(record.name, str) and isinstance(record.sha256, str) and isinstance(record.size, int)
    return text and record.name == os.path.basename(record.name) and record.name not in ("", ".", "..")
