"""Locks on open files, which end with the process that holds them."""

from __future__ import annotations

import contextlib
import enum
import errno
import os
import time
from collections.abc import Iterator

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


def acquire(descriptor: int, *, wait: bool = False, patience: float = _PATIENCE) -> Lock:
    """Lock an open file until `release`, or until the process ends.

    Args:
        wait: whether to wait for another process to release the lock.
        patience: the seconds to wait.
    """
    if fcntl is None:
        return Lock.UNSUPPORTED
    deadline = time.monotonic() + patience
    pause = 0.002
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return Lock.HELD
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES):
                return Lock.UNSUPPORTED
        if not wait or time.monotonic() > deadline:
            return Lock.BUSY
        time.sleep(pause)
        # Long waits are for slow work, which does not end within milliseconds.
        pause = min(2.0 * pause, 0.1)


@contextlib.contextmanager
def lock_folder(path: str | os.PathLike[str]) -> Iterator[None]:
    """Lock a folder, so that its files change together; does nothing on a system without locks."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except OSError:
        # Windows opens no folders; a folder that only others may list cannot be locked either.
        yield
        return
    try:
        acquire(descriptor, wait=True)
        yield
    finally:
        release(descriptor)
        os.close(descriptor)


def release(descriptor: int) -> None:
    """Release a lock, also in processes forked while it was held."""
    if fcntl is not None:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)
