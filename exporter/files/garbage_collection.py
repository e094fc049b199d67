"""Reduces garbage collection while large graphs, which are not garbage, are made."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

_RARE, _OLDER = 100_000, (20, 1_000)
"""Objects before a collection, and collections before an older generation is looked at as well."""
_LARGE = 5_000
"""Nodes from which a graph is worth it: the first collection afterwards looks at all objects."""
_lock = threading.Lock()
_inside = 0
_before = (0, 0, 0)


@contextlib.contextmanager
def rare_collections(objects: int = _RARE) -> Iterator[None]:
    """Make garbage collections rare.

    By default a full collection visits all objects each time that their number has grown by a quarter, which
    takes as long as making a graph. A threshold of zero, which switches collections off, stays. The
    thresholds are the process's own: they come back when the last of several threads leaves.

    Args:
        objects: the objects before a collection, if no other thread has set their number.
    """
    global _inside, _before
    with _lock:
        if not _inside:
            _before = gc.get_threshold()
            if _before[0]:
                gc.set_threshold(*map(max, _before, (objects, *_OLDER)))
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                gc.set_threshold(*_before)


def rare_for(nodes: int) -> contextlib.AbstractContextManager[None]:
    """Make collections rare while a graph with many nodes is converted."""
    return rare_collections() if nodes >= _LARGE else contextlib.nullcontext()
