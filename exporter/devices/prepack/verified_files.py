"""`VerifiedFiles`: caches the digests of files until the files change or the computer restarts."""

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
"""After this many seconds, another change of a file is sure to change its modification time."""


class VerifiedFiles:
    """The digests of a folder's files; cached while inode, size and modification time stay the same.

    In a folder that cannot be written, there is no cache and digests are computed each time.
    """

    def __init__(self, folder: pathlib.Path):
        self._path = folder / VERIFIED
        try:
            # Without a boot identifier, the cache is valid until the files change.
            self._boot = _BOOT.read_text().strip()
        except OSError:
            self._boot = ""
        self._digests: dict[str, list[int]] = {}
        with contextlib.suppress(OSError, ValueError, AttributeError, RecursionError):
            record = parse_json(read_small(self._path))
            if record.get("boot") == self._boot:
                self._digests = dict(record["files"])

    def digest_of(self, path: pathlib.Path, compute: Callable[[pathlib.Path], str] | None = None) -> str:
        """Return the digest of a file of the folder, from the cache if the file did not change.

        Args:
            compute: computes the digest; by default the SHA-256 of all bytes.

        Raises:
            OSError: the file cannot be read.
        """
        status = os.stat(path)
        identity = [status.st_ino, status.st_size, status.st_mtime_ns]
        for digest, recorded in self._digests.items():
            if recorded == identity:
                return digest
        digest = (compute or file_digest)(path)
        # If the file changes while it is read, its status changes too, and the digest is not cached.
        after = os.stat(path)
        unchanged = identity == [after.st_ino, after.st_size, after.st_mtime_ns]
        if unchanged and time.time() - status.st_mtime > _SETTLED:
            self._digests = {**self._digests, digest: identity}
            # Imported here, because it imports onnx, which takes longer than opening a session.
            from ...files.output.publishing import publish

            text = json.dumps({"boot": self._boot, "files": self._digests}).encode()
            with contextlib.suppress(ModelFileError):
                publish(self._path, lambda file, _: file.write(text))
        return digest
