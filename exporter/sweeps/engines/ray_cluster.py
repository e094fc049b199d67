"""Runs jobs on a Ray cluster, which schedules them, and reruns those of a lost node on another one."""

from __future__ import annotations

import dataclasses
import os
import pickle
import socket
import types
import urllib.parse
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ....registration import OpsettaError, UsageError
from .outcomes import DIED, Ended, Limits
from .processes import JobServer, Work

RETRIES = 3
"""How often Ray runs a task again whose node or worker process was lost."""
_SUBMITTED = 256
"""Tasks that Ray knows of at a time; the others wait here."""
_SECONDS_TO_CONNECT = 10.0


class RayEngine:
    """Runs jobs on a Ray cluster.

    Ray assigns each job to a processor. On a node the job runs under a `JobServer`, as it does on one
    machine: a job that crashes, hangs or grows ends alone, and Ray's worker process stays.

    Args:
        address: `"ray"` for the cluster that this process or the environment is connected to, else a new one
            on this machine; or `"ray://HOST:PORT"`, the address of a Ray client server.
        workers: how many jobs at a time; by default as many as the cluster has processors.
        imports: see `JobServer`.

    Raises:
        OpsettaError: Ray is not installed, or the cluster cannot be reached.
    """

    def __init__(self, address: str = "ray", workers: int | None = None, imports: Sequence[str] = ()):
        try:
            import ray
        except ImportError as error:
            raise OpsettaError("--engine ray needs Ray: pip install 'opsetta[fleet]'") from error
        self._ray: types.ModuleType = ray
        self._workers = workers
        self._imports = tuple(imports)
        # A cluster that the caller has joined stays the caller's.
        self._is_own = not ray.is_initialized()
        if self._is_own:
            self._connect(address)

    def _connect(self, address: str) -> None:
        options: dict[str, object] = {"log_to_driver": False, "logging_level": "ERROR"}
        if address != "ray":
            _check_reachable(address)
            options["address"] = address
        elif ":" in (environment_address := os.environ.get("RAY_ADDRESS", "")):
            _check_reachable(environment_address)
        try:
            self._ray.init(**options)
        except (OSError, RuntimeError, ValueError) as error:
            text = " ".join(str(error).split())
            raise OpsettaError(
                f"Ray cannot be started or reached at '{address}': {text}; a cluster with a token needs "
                "RAY_AUTH_MODE=token"
            ) from error

    def run(self, work: Work, jobs: Iterable[object], limits: Limits) -> Iterator[tuple[Any, Ended]]:
        """Run `work` on every job, and give each job with how it ended, in the order in which they end."""
        task = self._ray.remote(num_cpus=1, max_retries=RETRIES)(_run_on_node)
        payload = pickle.dumps(work)
        waiting = deque((job, 1) for job in jobs)
        submitted: dict[object, tuple[object, int]] = {}
        try:
            while waiting or submitted:
                # Ray keeps every submitted task in memory.
                while waiting and len(submitted) < (self._workers or _SUBMITTED):
                    job, attempt = waiting.popleft()
                    reference = task.remote(payload, job, limits, self._imports)
                    submitted[reference] = job, attempt
                [reference], _ = self._ray.wait(list(submitted), num_returns=1)
                job, attempt = submitted.pop(reference)
                ended = self._outcome_of(reference, attempt)
                if ended.may_run_again():
                    waiting.appendleft((job, attempt + 1))
                else:
                    yield job, ended
        finally:
            for reference in submitted:
                # A cluster would go on with the jobs of an interrupted sweep.
                self._ray.cancel(reference, force=True)

    def _outcome_of(self, reference: object, attempt: int) -> Ended:
        """The outcome of the `attempt`-th run of a task.

        Raises:
            OpsettaError: a node cannot run any job, or the cluster is gone.
        """
        errors = self._ray.exceptions
        try:
            result: Ended = dataclasses.replace(self._ray.get(reference), attempts=attempt)
            return result
        except errors.RayTaskError as error:
            text = str(error).strip().splitlines()[-1]
            raise OpsettaError(
                f"a node of the Ray cluster cannot run jobs: {text}. Every node needs the same Python, "
                "opsetta, and packages of the models"
            ) from error
        except (errors.WorkerCrashedError, errors.NodeDiedError, errors.OutOfMemoryError) as error:
            text = " ".join(str(error).split())
            lost = RETRIES + 1
            return Ended(problem=DIED, detail=f"Ray lost the job {lost} times: {text}", attempts=lost)
        except errors.RayError as error:
            raise OpsettaError(f"the Ray cluster failed: {' '.join(str(error).split())}") from error

    def close(self) -> None:
        """Leave the cluster; one that was started for this engine ends."""
        if self._is_own:
            self._ray.shutdown()

    def __enter__(self) -> RayEngine:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _check_reachable(address: str) -> None:
    """Refuse an unreachable address, to which Ray would try to connect for minutes.

    Raises:
        UsageError: the address is no `ray://HOST:PORT` or `HOST:PORT`.
        OpsettaError: nothing listens there.
    """
    parts = urllib.parse.urlsplit(address if "://" in address else f"//{address}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port:
        raise UsageError(
            f"'{address}' is not the address of a Ray cluster: write ray://HOST:PORT (the port is "
            "usually 10001)"
        )
    try:
        socket.create_connection((host, port), _SECONDS_TO_CONNECT).close()
    except OSError as error:
        raise OpsettaError(
            f"there is no Ray cluster at '{address}' ({error.strerror or error}): start one with "
            "`ray start --head`, whose client server listens at port 10001"
        ) from error


_servers: dict[tuple[str, ...], JobServer] = {}
"""The job server of this Ray worker process, by what it imports."""


def _run_on_node(payload: bytes, job: object, limits: Limits, imports: tuple[str, ...]) -> Ended:
    """Run one job on the node on which Ray calls this."""
    server = _servers.get(imports)
    if server is None or not server.is_alive():
        server = _servers[imports] = JobServer(imports)
    server.give(pickle.loads(payload), job, limits)
    return server.receive()
