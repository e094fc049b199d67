"""Lets a process that SIGTERM ends remove its unfinished files first."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class _Terminated(BaseException):
    """SIGTERM arrived."""


@contextlib.contextmanager
def cleaned_up_when_terminated() -> Iterator[None]:
    """Within the context, SIGTERM unwinds the stack before it ends the process.

    Without a handler the process ends at once, and leaves a hidden file of any size. The caller's own handler
    stays. Only the main thread can set one.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def unwind(number: int, frame: FrameType | None) -> None:
        raise _Terminated

    signal.signal(signal.SIGTERM, unwind)
    try:
        yield
    except _Terminated:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
        raise
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
