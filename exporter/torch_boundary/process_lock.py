"""The lock under which exports, which change global state for a while, take turns; it needs no torch."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator

LOCK = threading.RLock()
"""Held while torch is patched, and while Python's random generator is used on the way."""


@contextlib.contextmanager
def random_state_preserved() -> Iterator[None]:
    """Leave Python's random generator as it is now; also a decorator.

    beartype, which checks the arguments of symbolic functions, asks it which element of a list to look at.
    """
    with LOCK:
        held = random.getstate()
        try:
            yield
        finally:
            random.setstate(held)
