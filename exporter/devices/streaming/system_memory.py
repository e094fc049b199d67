"""Functions of the C library that read mapped files ahead and return memory to the system."""

from __future__ import annotations

import ctypes
import errno
import functools
from typing import Any

WILLNEED, DONTNEED, POPULATE_READ = 3, 4, 22
"""Advice of Linux's madvise; the last one came with Linux 5.14."""


def advise(begin: int, size: int, advice: int) -> int | None:
    """Call madvise for a range of memory that begins at a page.

    Returns:
        The error number, 0 for success, None on a system without madvise.
    """
    function = _function("madvise", ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    if function is None:
        return None
    while function(begin, size, advice):
        failure = ctypes.get_errno()
        if failure != errno.EINTR:
            return failure
    return 0


def trim() -> None:
    """Return free memory that the C library keeps to the system."""
    function = _function("malloc_trim", ctypes.c_size_t)
    if function is not None:
        function(0)


@functools.cache
def _function(name: str, *arguments: object) -> Any:
    """Return a function of the C library, which releases the GIL; None if the library lacks it."""
    try:
        function = getattr(ctypes.CDLL(None, use_errno=True), name)
    except (OSError, AttributeError, TypeError):
        return None
    function.argtypes = arguments
    return function
