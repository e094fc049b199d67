"""Sweep a zoo here and on a Ray cluster that loses one of its two nodes, and compare the tables.

    python -m tests.sweep.lost_node [--zoo tests/zoo.py] [--opsets 9,11,13,17,21,28] [--output FOLDER]

Both nodes are processes of this machine. One is killed when some jobs are done and others run on it. The
tables must have one row for each job, and agree in all but times and memory. Results go to `local.sqlite` and
`ray.sqlite`; a local one that is there already is gone on with.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import time
from typing import Any

import opsetta
from opsetta.exporter.sweeps.jobs.product import parse_opsets
from opsetta.exporter.sweeps.rows import Row

COMPARED = (
    "status",
    "error_class",
    "error",
    "nodes",
    "composed",
    "composed_operators",
    "weight_bytes",
    "parity_error",
    "fingerprint",
)
"""The columns that do not depend on where a job ran."""


def two_nodes(processors: int = 1) -> tuple[Any, Any]:
    """A Ray cluster of two nodes, to which this process is connected, and the node that may be killed."""
    import ray
    from ray.cluster_utils import Cluster

    options = {"num_cpus": processors, "object_store_memory": 80_000_000}
    cluster = Cluster(initialize_head=True, head_node_args={**options, "include_dashboard": False})
    second = cluster.add_node(**options)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    return cluster, second


def stop(cluster: Any) -> None:
    """Leave the cluster, and end its processes."""
    import ray

    ray.shutdown()
    cluster.shutdown()


def differences(one: list[Row], other: list[Row]) -> list[str]:
    """What differs between two tables, beside times and memory."""
    rows = {row.key: row for row in other}
    found = [f"{row.key} is missing" for row in one if row.key not in rows]
    found += [f"{row.key} is new" for row in other if row.key not in {row.key for row in one}]
    found += [
        f"{row.key}: {column} is {getattr(row, column)!r} and {getattr(rows[row.key], column)!r}"
        for row in one
        if row.key in rows
        for column in COMPARED
        if getattr(row, column) != getattr(rows[row.key], column)
    ]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--zoo", default=str(pathlib.Path(__file__).parents[1] / "zoo.py"))
    parser.add_argument("--opsets", default="9,11,13,17,21,28")
    parser.add_argument("--only", default="")
    parser.add_argument("--processors", type=int, default=1, help="of each node; together the local workers")
    parser.add_argument("--kill-after", type=int, default=20, help="jobs after which the node is killed")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("sweep-results"))
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    wanted: dict[str, Any] = {"opsets": parse_opsets(options.opsets), "only": options.only}
    begin = time.monotonic()
    local = opsetta.sweep(
        options.zoo,
        **wanted,
        workers=2 * options.processors,
        output=options.output / "local.sqlite",
        progress=_say,
    )
    print(f"local: {local.counts} in {time.monotonic() - begin:.0f} s", flush=True)
    (options.output / "ray.sqlite").unlink(missing_ok=True)
    begin = time.monotonic()
    cluster, second = two_nodes(options.processors)

    def kill(row: Row, count: int, total: int) -> None:
        _say(row, count, total)
        if count == options.kill_after:
            print("killing a node", file=sys.stderr, flush=True)
            cluster.remove_node(second, allow_graceful=False)

    try:
        remote = opsetta.sweep(
            options.zoo, **wanted, engine="ray", output=options.output / "ray.sqlite", progress=kill
        )
    finally:
        stop(cluster)
    print(f"ray: {remote.counts} in {time.monotonic() - begin:.0f} s", flush=True)
    found = differences(list(local.rows), list(remote.rows))
    print("\n".join(found) or f"{len(local.rows)} rows, and no difference")
    return 1 if found else 0


def _say(row: Row, count: int, total: int) -> None:
    print(f"{count}/{total} {row.model} at {row.opset}: {row.status}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
