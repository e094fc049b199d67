"""Jobs in processes of their own: how they end, and that none takes another with it."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from opsetta.exporter.sweeps.engines.outcomes import DIED, MEMORY, RAISED, TIMEOUT, Limits
from opsetta.exporter.sweeps.engines.processes import JobServer, LocalEngine
from opsetta.registration import OpsettaError

LIMITS = Limits(60.0)
OF_THE_SERVER = "__import__('os').getppid()"


@pytest.fixture(scope="module")
def engine():
    with LocalEngine(2) as opened:
        yield opened


def test_each_job_gives_its_result_once(engine):
    ended = dict(engine.run(eval, ["1 + 1", "2 + 2", "'x' * 3_000_000"], LIMITS))
    assert {job: found.result for job, found in ended.items()} == {
        "1 + 1": 2,
        "2 + 2": 4,
        "'x' * 3_000_000": "x" * 3_000_000,
    }
    assert all(found.problem == "" and found.peak_memory > 1_000_000 for found in ended.values())
    assert {found.attempts for found in ended.values()} == {1}


def test_a_job_that_kills_its_process_twice_died(engine):
    died = engine.call(eval, "print('before') or __import__('os').abort()", LIMITS)
    assert (died.problem, died.attempts) == (DIED, 2)
    assert died.detail == "the process ended by signal 6 (Aborted)\nbefore"
    assert engine.call(eval, "__import__('os')._exit(3)", LIMITS).detail == "the process ended with code 3"


def test_a_job_that_kills_its_process_once_runs_again(engine, tmp_path):
    mark = tmp_path / "mark"
    crash = f"open({str(mark)!r}, 'w').write('done') and __import__('os').abort()"
    job = f"open({str(mark)!r}).read() if __import__('os').path.exists({str(mark)!r}) else ({crash})"
    ended = engine.call(eval, job, LIMITS)
    assert (ended.result, ended.problem, ended.attempts) == ("done", "", 2)


def test_a_job_that_kills_the_process_that_watches_it_died(engine):
    ended = engine.call(eval, f"__import__('os').kill({OF_THE_SERVER}, 9)", LIMITS)
    assert (ended.problem, ended.attempts) == (DIED, 2)
    assert engine.call(eval, "3", LIMITS).result == 3


def test_an_exception_is_told(engine):
    ended = engine.call(eval, "1 / 0", LIMITS)
    assert (ended.problem, ended.attempts) == (RAISED, 1)
    assert ended.detail.startswith("ZeroDivisionError: division by zero\nTraceback")


def test_a_hang_ends_at_its_time(engine):
    ended = engine.call(eval, "__import__('time').sleep(60)", Limits(0.3))
    assert (ended.problem, ended.detail) == (TIMEOUT, "not done within 0.3 seconds")
    assert 0.3 <= ended.seconds < 5


def test_a_job_ends_at_its_memory(engine):
    ended = engine.call(eval, "bytes(bytearray(b'x') * 2_000_000_000)", Limits(60.0, 200_000_000))
    assert (ended.problem, ended.detail) == (MEMORY, "more than 200,000,000 bytes in memory")
    assert ended.peak_memory > 200_000_000


def alive(process):
    status = pathlib.Path(f"/proc/{process}/stat")
    try:
        return status.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_what_a_job_started_ends_with_it(engine):
    started = "__import__('subprocess').Popen(['sleep', '60']).pid"
    process = engine.call(eval, started, LIMITS).result
    deadline = time.monotonic() + 5
    while alive(process) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not alive(process)


def test_processes_end_with_the_one_that_owns_them(tmp_path):
    place = tmp_path / "process"
    job = f"open({str(place)!r}, 'w').write(str(__import__('os').getpid())) and __import__('time').sleep(60)"
    code = (
        "from opsetta.exporter.sweeps.engines.processes import *\n"
        f"LocalEngine(1).call(eval, {job!r}, Limits(60.0))"
    )
    owner = subprocess.Popen([sys.executable, "-c", code])
    deadline = time.monotonic() + 30
    while not (place.exists() and place.read_text()) and time.monotonic() < deadline:
        time.sleep(0.01)
    process = int(place.read_text())
    os.kill(owner.pid, signal.SIGKILL)
    owner.wait()
    while alive(process) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not alive(process)


def test_jobs_run_at_the_same_time(engine, tmp_path):
    mine, theirs = (repr(str(tmp_path / name)) for name in ("mine", "theirs"))
    wait = "all(__import__('time').sleep(0.01) is None for _ in iter(lambda: open({}, 'a').tell(), 1))"
    jobs = [f"open({a}, 'w').write('x') and {wait.format(b)}" for a, b in ((mine, theirs), (theirs, mine))]
    assert [ended.result for _, ended in engine.run(eval, jobs, LIMITS)] == [True, True]


def test_imports_come_before_the_jobs():
    with LocalEngine(1, ("this_module_does_not_exist", "fractions")) as engine:
        assert engine.call(eval, "'fractions' in __import__('sys').modules", LIMITS).result
        engine.imports = (*engine.imports, "wave")
        assert engine.call(eval, "'wave' in __import__('sys').modules", LIMITS).result


def test_a_system_that_cannot_fork_is_refused(monkeypatch):
    monkeypatch.delattr(os, "fork")
    with pytest.raises(OpsettaError, match="Linux and macOS"):
        JobServer()
