"""Forks a process for each job after importing the modules that all jobs need, and watches it.

A fork takes milliseconds, where a new interpreter imports torch for seconds. The server has one thread, and
runs none of the user's code: that happens in the forks.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import pickle
import resource
import select
import signal
import socket
import sys
import tempfile
import time
import traceback
from multiprocessing.connection import Connection
from typing import IO

from ...captured_graph.stages import resident_bytes
from .outcomes import DIED, MEMORY, RAISED, TIMEOUT, Ended, Limits

_POLL = 0.02
"""Seconds between two looks at a process."""
_SHOWN = 1500
"""Bytes of the output of a process that a problem's detail has at most."""
_PARENT_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of Linux's prctl."""


def serve(descriptor: int) -> None:
    """Run jobs that come through a connection, one at a time, until its other end is closed."""
    # An interrupt of the terminal is for the process that owns this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = Connection(descriptor)
    while True:
        try:
            message: list[str] | tuple[bytes, Limits] = connection.recv()
        except EOFError:
            return
        if isinstance(message, list):
            _import(message)
        else:
            payload, limits = message
            connection.send(_run(payload, limits, connection))


def _import(names: list[str]) -> None:
    for name in names:
        # A job that needs a missing module reports the error itself.
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    # The garbage collector does not visit frozen objects, so all processes share their memory.
    gc.collect()
    gc.freeze()


def _run(payload: bytes, limits: Limits, connection: Connection) -> Ended:
    """Run one job in a fork.

    Args:
        payload: a pickled function and its argument.
    """
    reader, writer = os.pipe()
    begin = time.monotonic()
    with tempfile.TemporaryFile() as output:
        child = os.fork()
        if not child:
            os.close(reader)
            connection.close()
            _work(payload, writer, output)
        os.close(writer)
        result, problem, usage, status = _watch(child, reader, limits, connection)
        os.close(reader)
        # The job may have left processes behind.
        _kill_group(child)
        ended = _describe_outcome(result, problem, status, limits, _tail(output))
    # macOS gives bytes, Linux kilobytes.
    peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return Ended(*ended, time.monotonic() - begin, peak, host=socket.gethostname())


def _work(payload: bytes, writer: int, output: IO[bytes]) -> None:
    """Run a job in its process, and send its result."""
    try:
        # A session of its own, so that the job's child processes can be ended with it.
        os.setsid()
        if sys.platform == "linux":
            # End with the server, even if that is killed; other systems have no such request.
            ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        # A model that reads from the terminal would wait forever.
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for descriptor in (1, 2):
            os.dup2(output.fileno(), descriptor)
        try:
            function, argument = pickle.loads(payload)
            content = pickle.dumps((function(argument), ""))
        # SystemExit and KeyboardInterrupt of the user's code are outcomes of the job, too.
        except BaseException as error:
            traceback.print_exc()
            content = pickle.dumps((None, f"{type(error).__name__}: {error}"))
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(content)
    finally:
        # Nothing of the server is cleaned up twice.
        os._exit(0)


def _watch(
    child: int, reader: int, limits: Limits, connection: Connection
) -> tuple[bytes, str, resource.struct_rusage, int]:
    """Receive the result of a process; end the process at its limits.

    Returns:
        The result, the limit that was reached, the resources used, and the exit status.
    """
    result, problem = bytearray(), ""
    deadline = time.monotonic() + limits.seconds
    # The pipe is read while the job runs: a result larger than the pipe's buffer would block the job.
    waited: list[int | Connection] = [reader, connection]
    while True:
        ready = select.select(waited, [], [], _POLL)[0]
        if reader in ready:
            received = os.read(reader, 1 << 20)
            result += received
            if not received:
                # The pipe is closed, and the process is about to end.
                time.sleep(_POLL / 4)
        if connection in ready:
            # Nothing is sent while a job runs: the owner of this process has ended.
            _kill_group(child)
            os.kill(child, signal.SIGKILL)
            os._exit(0)
        ended, status, usage = os.wait4(child, os.WNOHANG)
        if ended:
            # What the process wrote before it ended may still be in the pipe.
            while select.select([reader], [], [], 0)[0] and (remainder := os.read(reader, 1 << 20)):
                result += remainder
            return bytes(result), problem, usage, status
        if time.monotonic() > deadline:
            problem = TIMEOUT
        elif limits.memory is not None and (resident_bytes(child) or 0) > limits.memory:
            problem = MEMORY
        if problem:
            os.kill(child, signal.SIGKILL)


def _kill_group(child: int) -> None:
    """Kill the processes of a job's session. The first ends some time after it has begun the session."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)


def _describe_outcome(
    content: bytes, problem: str, status: int, limits: Limits, tail: str
) -> tuple[object, str, str]:
    """The result, the problem and its detail."""
    if problem == TIMEOUT:
        return None, problem, f"not done within {limits.seconds:g} seconds{tail}"
    if problem == MEMORY:
        return None, problem, f"more than {limits.memory or 0:,} bytes in memory{tail}"
    try:
        result, error = pickle.loads(content)
    except (EOFError, pickle.UnpicklingError):
        return None, DIED, f"the process ended {_exit(status)}{tail}"
    return (None, RAISED, error + tail) if error else (result, "", "")


def _exit(status: int) -> str:
    if not os.WIFSIGNALED(status):
        return f"with code {os.WEXITSTATUS(status)}"
    number = os.WTERMSIG(status)
    return f"by signal {number} ({signal.strsignal(number)})"


def _tail(output: IO[bytes]) -> str:
    """The last lines that a process printed."""
    output.seek(max(output.seek(0, os.SEEK_END) - _SHOWN, 0))
    text = output.read().decode(errors="replace").strip()
    return f"\n{text}" if text else ""
