"""The lock that makes exports run one after the other, because they change global state; needs no torch."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator

# Reentrant, because a thread may enter `boundary` again within it.
LOCK = threading.RLock()
"""Held while torch is patched, and while Python's random generator is used internally."""


@contextlib.contextmanager
def random_state_preserved() -> Iterator[None]:
    """Restore the state of Python's random generator; also a decorator.

    beartype, which checks arguments of symbolic functions, uses it to choose the list element to check.
    """
    with LOCK:
        state = random.getstate()
        try:
            yield
        finally:
            random.setstate(state)
