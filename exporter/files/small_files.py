"""Reads small files that anybody may have written: settings, indexes and descriptions.

A path may be that of a FIFO or a device, whose reader waits or never ends. A few bytes may nest values deeper
than a parser recurses, or write a number with more digits than Python converts.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from typing import IO, Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MAXIMUM_BYTES = 2**25
"""Bytes of a JSON file at most: about 200,000 records."""
MAXIMUM_SETTINGS = 2**16
"""Bytes of a TOML file at most."""
_MAXIMUM_DOTS = 64
"""Dots in a line of TOML: the time for a dotted key grows with the square of its length."""


class UnreadableFile(OSError):
    """A path does not name a regular file, or the file is too large; `strerror` says which."""

    def __init__(self, reason: str):
        super().__init__(errno.EINVAL, reason)


def open_regular(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a regular file to read; does not wait for the writer of a FIFO.

    Raises:
        UnreadableFile: it is a folder, a FIFO or a device.
        OSError: it cannot be opened.
        ValueError: the path has a NUL.
    """
    _check_regular(os.stat(path))
    # The path may name another file by now: check the open file too.
    flags = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    try:
        _check_regular(os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def read_small(path: str | os.PathLike[str], most: int = MAXIMUM_BYTES) -> bytes:
    """The bytes of a regular file.

    Raises:
        UnreadableFile: it is not a regular file, or has more than `most` bytes.
        OSError: it cannot be read.
        ValueError: the path has a NUL.
    """
    with open_regular(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise UnreadableFile(f"it has more than {most} bytes")
    return data


def parse_toml(data: bytes) -> dict[str, Any]:
    """The contents of a TOML text in UTF-8.

    Raises:
        ValueError: it is malformed, nested too deeply, or has a key of too many parts.
    """
    text = data.decode()
    number = next((n for n, line in enumerate(text.splitlines(), 1) if line.count(".") > _MAXIMUM_DOTS), None)
    if number is not None:
        raise ValueError(f"line {number} has more than {_MAXIMUM_DOTS} dots")
    try:
        result: dict[str, Any] = tomllib.loads(text)
        return result
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def reason_of(error: Exception) -> str:
    """The reason of an error of these functions, in a few words."""
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8, at byte {error.start}"
    return str(getattr(error, "strerror", None) or error)[:300]


def _check_regular(status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise UnreadableFile("it is a folder")
    if not stat.S_ISREG(status.st_mode):
        raise UnreadableFile("it is not a regular file")
