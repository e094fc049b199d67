"""`VerifiedFiles`: a record of the files whose digests were computed since the computer started."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import time
from collections.abc import Callable

from ....registration import ModelFileError
from ....registration.json_text import parse_json
from ...files.digests import file_digest
from ...files.small_files import read_small
from .manifest import VERIFIED

_BOOT = pathlib.Path("/proc/sys/kernel/random/boot_id")
_SETTLED = 2.0
"""Seconds after which another change of a file surely gives it another time of modification."""


class VerifiedFiles:
    """Digests of a folder's files, computed once as long as inode, size and time of modification stay.

    A folder that cannot be written to has no record: its digests are computed each time.
    """

    def __init__(self, folder: pathlib.Path):
        self._path = folder / VERIFIED
        try:
            # On a system without a boot identifier, a record is valid until the files change.
            self._boot = _BOOT.read_text().strip()
        except OSError:
            self._boot = ""
        self._digests: dict[str, list[int]] = {}
        with contextlib.suppress(OSError, ValueError, AttributeError, RecursionError):
            record = parse_json(read_small(self._path))
            if record.get("boot") == self._boot:
                self._digests = dict(record["files"])

    def digest_of(self, path: pathlib.Path, compute: Callable[[pathlib.Path], str] | None = None) -> str:
        """The digest of a file of the folder, read from the record if the file did not change.

        Args:
            compute: computes the digest; by default the SHA-256 of all bytes.

        Raises:
            OSError: it cannot be read.
        """
        status = os.stat(path)
        identity = [status.st_ino, status.st_size, status.st_mtime_ns]
        for digest, recorded in self._digests.items():
            if recorded == identity:
                return digest
        digest = (compute or file_digest)(path)
        # A file that changes while it is read has another status afterwards.
        after = os.stat(path)
        unchanged = identity == [after.st_ino, after.st_size, after.st_mtime_ns]
        if unchanged and time.time() - status.st_mtime > _SETTLED:
            self._digests = {**self._digests, digest: identity}
            # Publishing needs onnx, which takes longer to import than a session takes to open.
            from ...files.publishing import publish

            text = json.dumps({"boot": self._boot, "files": self._digests}).encode()
            with contextlib.suppress(ModelFileError):
                publish(self._path, lambda file, _: file.write(text))
        return digest
