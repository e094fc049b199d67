"""The context manager in which torch runs on the user's behalf."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from types import FrameType

from .process import process_state
from .process.process_lock import LOCK

_inside: list[object] = []
"""The boundaries that are open now, all of them in the thread that holds the lock."""


@contextlib.contextmanager
def boundary(*patches: AbstractContextManager[object]) -> Iterator[None]:
    """Run torch in one thread at a time, and restore the state of the process afterwards in any case.

    Grad mode, default dtype and device, random generators, warning filters, logging and the settings that
    `process_state` lists are saved, and restored after success, failure and interrupt. The patches of torch
    are global, so threads run one after the other. The same thread may enter again; logging is restored at
    the end of the outermost context.

    Args:
        patches: entered in order, after the state was saved; left in reverse, before it is restored.
    """
    with LOCK, contextlib.ExitStack() as stack:
        try:
            # An interrupt while patches are being applied would leave some of them in place.
            with interrupts_deferred():
                process_state.save(stack, loggers=not _inside)
                _inside.append(stack)
                stack.callback(_inside.pop)
                for patch in patches:
                    stack.enter_context(patch)
            yield
        finally:
            with interrupts_deferred():
                stack.close()


@contextlib.contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Defer SIGINT until the end of the context; Python delivers it to the main thread only."""
    handler = signal.getsignal(signal.SIGINT)
    # signal.signal works only in the main thread, and SIG_IGN or None cannot be called afterwards.
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    arrived: list[FrameType | None] = []
    signal.signal(signal.SIGINT, lambda number, frame: arrived.append(frame))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if arrived:
            handler(signal.SIGINT, arrived[0])
