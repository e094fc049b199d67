"""Locks on open files, which end with the process that holds them."""

from __future__ import annotations

import contextlib
import enum
import errno
import time

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_PATIENCE = 10.0
"""Seconds to wait for another process, which holds a lock only while it renames or compares a file."""


class Lock(enum.Enum):
    """The result of an attempt to lock a file."""

    HELD = enum.auto()
    BUSY = enum.auto()
    """Another process, or another open file of this process, holds the lock."""
    UNSUPPORTED = enum.auto()
    """The system or the file system has no locks."""


def acquire(descriptor: int, *, wait: bool = False) -> Lock:
    """Lock an open file until `release`, or until the process ends.

    Args:
        wait: whether to wait some seconds for another process to release the lock.
    """
    if fcntl is None:
        return Lock.UNSUPPORTED
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return Lock.HELD
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES):
                return Lock.UNSUPPORTED
        if not wait or time.monotonic() > deadline:
            return Lock.BUSY
        time.sleep(0.002)


def release(descriptor: int) -> None:
    """Release a lock, also in processes forked while it was held."""
    if fcntl is not None:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)
