"""Calls a function in a fork of this process, which survives a crash of foreign code."""

from __future__ import annotations

import dataclasses
import faulthandler
import gc
import os
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable

IS_AVAILABLE = sys.platform.startswith("linux")
"""Forks of a process with threads are not safe on other systems."""


@dataclasses.dataclass(frozen=True)
class ForkLimits:
    """Limits on the resources of a fork.

    Attributes:
        memory: bytes of address space, in addition to those of this process.
        seconds: seconds of processor time.
    """

    memory: int
    seconds: int


def call_in_fork(
    function: Callable[[], bytes], seconds: float, limits: ForkLimits | None = None
) -> bytes | None:
    """Call a function in a fork, and return the bytes that it returns.

    A fork takes milliseconds, while a new process would import onnx for half a second.

    Args:
        function: computes bytes from objects in memory; its other effects are lost.
        seconds: the elapsed time after which the fork is killed.
        limits: the limits on resources, beyond which the fork is killed or the function gets a MemoryError.

    Returns:
        The bytes; None if the function raises an error, crashes or takes too long.
    """
    receiving, sending = os.pipe()
    with warnings.catch_warnings():
        # Python 3.12 warns of threads; the fork uses none of their locks.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        _run(function, sending, limits)
    os.close(sending)
    try:
        data = _read_all(receiving, time.monotonic() + seconds)
    except BaseException:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise
    finally:
        os.close(receiving)
    if data is None:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return data if data is not None and status == 0 else None


def _run(function: Callable[[], bytes], sending: int, limits: ForkLimits | None) -> None:
    """Run the function in the fork and exit, without running finalizers of this process's objects."""
    # Windows does not have the module.
    import resource

    code = 1
    try:
        # A collection could run finalizers of objects that belong to the parent.
        gc.disable()
        faulthandler.disable()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        # Hides what the C++ library prints when it ends the process.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        if limits is not None:
            with open("/proc/self/statm") as file:
                space = int(file.read().split()[0]) * resource.getpagesize() + limits.memory
            resource.setrlimit(resource.RLIMIT_AS, (space, space))
            resource.setrlimit(resource.RLIMIT_CPU, (limits.seconds, limits.seconds))
        data = memoryview(function())
        while data:
            data = data[os.write(sending, data) :]
        code = 0
    finally:
        os._exit(code)


def _read_all(receiving: int, deadline: float) -> bytes | None:
    """Read all bytes up to the end of the stream; None if it does not end before the deadline."""
    chunks: list[bytes] = []
    while True:
        seconds_left = deadline - time.monotonic()
        if seconds_left <= 0 or not select.select([receiving], [], [], seconds_left)[0]:
            return None
        chunk = os.read(receiving, 1 << 20)
        if not chunk:
            return b"".join(chunks)
        chunks.append(chunk)
