"""Jobs on a Ray cluster of two nodes: a worker and a node are lost on the way, and no row is.

Of these, quick runs take those without a cluster, which takes ten seconds to start.
"""

import collections

import pytest

from opsetta.exporter.sweeps.engines.outcomes import DIED, Limits
from opsetta.exporter.sweeps.engines.ray_cluster import RayEngine
from opsetta.registration import OpsettaError
from tests.sweep.lost_node import stop, two_nodes

LIMITS = Limits(60.0)


@pytest.fixture(scope="module")
def cluster():
    opened, second = two_nodes()
    yield opened, second
    stop(opened)


def logged(log, number, then="0"):
    """A job that adds a line to a file, which several processes may do at a time."""
    return f"(open({str(log)!r}, 'a').write('{number}\\n'), {then}) and {number}"


def executions(log):
    return collections.Counter(map(int, log.read_text().split()))


@pytest.mark.sweep
def test_a_result_that_was_computed_and_not_reported_is_computed_again(cluster, tmp_path):
    log, mark = tmp_path / "log", tmp_path / "mark"
    of_the_server = "open(f'/proc/{__import__(\"os\").getppid()}/stat').read().split()[3]"
    kill_ray_worker = (
        f"__import__('os').path.exists({str(mark)!r}) or (open({str(mark)!r}, 'w').close(), "
        f"__import__('os').kill(int({of_the_server}), 9), __import__('time').sleep(60))"
    )
    jobs = [logged(log, 0, kill_ray_worker), logged(log, 1)]
    with RayEngine() as engine:
        ended = list(engine.run(eval, jobs, LIMITS))
    assert sorted(found.result for _, found in ended) == [0, 1]
    assert executions(log) == {0: 2, 1: 1}


@pytest.mark.sweep
def test_jobs_of_a_killed_node_run_on_the_other(cluster, tmp_path):
    opened, second = cluster
    log = tmp_path / "log"
    jobs = [logged(log, number, "__import__('time').sleep(0.25)") for number in range(10)]
    jobs.append("__import__('os').abort()")
    found = []
    with RayEngine() as engine:
        for job, ended in engine.run(eval, jobs, LIMITS):
            found.append((job, ended))
            if len(found) == 3:
                opened.remove_node(second, allow_graceful=False)
    assert sorted(job for job, _ in found) == sorted(jobs)
    results = sorted(ended.result for job, ended in found if job != jobs[-1])
    assert results == list(range(10))
    [died] = [ended for job, ended in found if job == jobs[-1]]
    assert (died.problem, died.attempts) == (DIED, 2)
    assert set(executions(log)) == set(range(10))


def test_an_address_of_the_environment_is_checked(monkeypatch):
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(OpsettaError, match="no Ray cluster at '127.0.0.1:1'"):
        RayEngine()


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("ray://127.0.0.1:1", "no Ray cluster at 'ray://127.0.0.1:1'"),
        ("ray://", "not the address of a Ray cluster: write ray://HOST:PORT"),
        ("ray://host:none", "not the address of a Ray cluster: write ray://HOST:PORT"),
    ],
)
def test_an_address_without_a_cluster_is_refused(address, message, monkeypatch):
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    with pytest.raises(OpsettaError, match=message):
        RayEngine(address)
