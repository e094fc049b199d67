"""Runs jobs in separate processes on this machine, so that a crash, hang or leak affects one job only."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import multiprocessing
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing import connection
from typing import Any

from ....registration import OpsettaError
from .outcomes import DIED, Ended, Limits

Work = Callable[[Any], object]
"""A function that a new process finds by its module and name, or a `functools.partial` of one."""
_MODULE = f"{__package__}.job_server"
_PATIENCE = 0.5
"""Seconds in which a server ends its job; one that still imports does not listen."""
_THREADS = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


class JobServer:
    """A process that runs each job in a fork; `job_server` is its program.

    Args:
        imports: modules to import before the first fork. They must start no threads.
    """

    def __init__(self, imports: Sequence[str] = ()):
        if not hasattr(os, "fork"):
            raise OpsettaError("sweeps run on Linux and macOS: this system cannot fork processes")
        self.connection, theirs = multiprocessing.Pipe()
        code = f"import sys; from {_MODULE} import serve; serve(int(sys.argv[1]))"
        # The server must find the modules that this process finds, also those beside a script.
        paths = dict.fromkeys(map(os.path.abspath, sys.path))
        # As many jobs as processors run at a time. A library with threads of its own cannot be forked.
        environment = {**os.environ, **_THREADS, "PYTHONPATH": os.pathsep.join(paths)}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code, str(theirs.fileno())],
                env=environment,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                # An interrupt of the terminal goes to its whole foreground group; the owner ends its servers
                # itself.
                start_new_session=True,
            )
        self._imported: tuple[str, ...] = ()
        self.load(imports)

    def load(self, imports: Sequence[str]) -> None:
        """Import modules that the next jobs need, unless already imported."""
        missing = [name for name in imports if name not in self._imported]
        if missing:
            self._imported = (*self._imported, *missing)
            self._send(missing)

    def give(self, work: Work, job: object, limits: Limits) -> None:
        """Start a job; `receive` returns its result."""
        self._send((pickle.dumps((work, job)), limits))

    def _send(self, message: object) -> None:
        # `receive` reports that the process is dead.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send(message)

    def receive(self) -> Ended:
        """Wait for the job to end. A server that died cannot run another."""
        try:
            outcome: Ended = self.connection.recv()
            return outcome
        except (EOFError, ConnectionResetError):
            # The connection closes only when the server ends.
            code = self._process.wait()
            return Ended(problem=DIED, detail=f"the process that watches the job ended with code {code}")

    def is_alive(self) -> bool:
        """Whether the process can run a job."""
        return self._process.poll() is None

    def close(self) -> None:
        """End the server, and the job that it runs."""
        self.connection.close()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class LocalEngine:
    """Runs jobs on this machine.

    Args:
        workers: how many at a time; by default one for each processor.
        imports: see `JobServer`; may be changed between two calls of `run`.
    """

    def __init__(self, workers: int | None = None, imports: Sequence[str] = ()):
        self.workers = workers or os.cpu_count() or 1
        self.imports = tuple(imports)
        self._idle: list[JobServer] = []
        self._busy: dict[Any, tuple[JobServer, Any, int]] = {}

    def run(self, work: Work, jobs: Iterable[object], limits: Limits) -> Iterator[tuple[Any, Ended]]:
        """Run `work` on every job, and give each job with how it ended, in the order in which they end."""
        waiting = collections.deque((job, 1) for job in jobs)
        while waiting or self._busy:
            while waiting and len(self._busy) < self.workers:
                job, attempt = waiting.popleft()
                server = self._idle.pop() if self._idle else JobServer()
                server.load(self.imports)
                server.give(work, job, limits)
                self._busy[server.connection] = server, job, attempt
            for ready in connection.wait(list(self._busy)):
                server, job, attempt = self._busy.pop(ready)
                ended = dataclasses.replace(server.receive(), attempts=attempt)
                self._keep(server)
                if ended.may_run_again():
                    waiting.appendleft((job, attempt + 1))
                else:
                    yield job, ended

    def call(self, work: Work, job: object, limits: Limits) -> Ended:
        """Run one job."""
        [(_, ended)] = self.run(work, [job], limits)
        return ended

    def close(self) -> None:
        """End all processes."""
        for server in [*self._idle, *(server for server, _, _ in self._busy.values())]:
            server.close()
        self._idle.clear()
        self._busy.clear()

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _keep(self, server: JobServer) -> None:
        if server.is_alive():
            self._idle.append(server)
        else:
            server.close()
