"""Jobs in processes of their own: one that crashes or hangs is an outcome, not the end of the sweep."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import connection
from typing import Any

Job = Any
Work = Callable[[Job], Any]


class _Worker:
    def __init__(self, work: Work):
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=_serve, args=(other, work), daemon=True)
        self.process.start()
        other.close()
        self.job: Job | None = None
        self.deadline = float("inf")

    def give(self, job: Job, seconds: float) -> None:
        self.job, self.deadline = job, time.monotonic() + seconds
        self.pipe.send(job)

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def _serve(pipe: connection.Connection, work: Work) -> None:
    while True:
        try:
            job = pipe.recv()
        except EOFError:
            return
        pipe.send(work(job))


def run(work: Work, jobs: Iterable[Job], count: int, seconds: float) -> Iterator[tuple[Job, Any, str]]:
    """Run `work` on every job, `count` at a time, and give each job, its result and what went wrong.

    Args:
        seconds: how long one job may take before its process is ended.
    """
    waiting = iter(jobs)
    workers: list[_Worker] = []
    for job in waiting:
        workers.append(_Worker(work))
        workers[-1].give(job, seconds)
        if len(workers) == count:
            break
    while workers:
        ready = connection.wait([worker.pipe for worker in workers], timeout=5.0)
        for worker in list(workers):
            result, problem = None, ""
            if worker.pipe in ready:
                try:
                    result = worker.pipe.recv()
                except (EOFError, ConnectionResetError):
                    worker.process.join()
                    problem = f"the process ended with code {worker.process.exitcode}"
            elif time.monotonic() > worker.deadline:
                problem = f"not done within {seconds:.0f} seconds"
            else:
                continue
            yield worker.job, result, problem
            if problem:
                worker.stop()
                workers.remove(worker)
                worker = _Worker(work)
                workers.append(worker)
            following = next(waiting, None)
            if following is None:
                worker.stop()
                workers.remove(worker)
            else:
                worker.give(following, seconds)
