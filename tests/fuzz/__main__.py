"""Mutate model files, and read them: each ends in a model or in an error of ours, within bounds.

    python -m tests.fuzz [--count N] [--seed S] [--first N] [--workers N]

Binary, text and JSON files are mutated: bits, cuts, splices, lengths of fields, doubled fields, tokens, and
fields of the message itself. Each is read, described, checked, turned into the intermediate representation
with all of its tensors, and written again, which must say what was read. What Python opens outside of the
model's folder is a failure, as are other exceptions, crashes, hangs and more memory than allowed.
A case depends on the seed and its number alone: `--first 1234 --count 1` runs one again.
"""

from __future__ import annotations

import argparse
import collections
import functools
import sys
import tempfile
import time
from typing import Any

from ..sweep import workers
from . import cases, corpus

CHUNK = 250


def main() -> int:
    """Run the command; 1 where a case failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    last = options.first + options.count
    jobs = [(start, min(start + CHUNK, last)) for start in range(options.first, last, CHUNK)]
    corpus.files()  # What is wrong with these would end every process that is started.
    with tempfile.TemporaryDirectory(prefix="opsetta-fuzz-") as root:
        return _report(jobs, functools.partial(cases.run_cases, root, options.seed), options)


def _report(jobs: list[tuple[int, int]], work: Any, options: argparse.Namespace) -> int:
    """Run chunks of cases, and print how they ended; 1 where one failed."""
    ends: collections.Counter[str] = collections.Counter()
    failures: list[tuple[int, str]] = []
    slowest, memory, begin = (0.0, -1), 0, time.monotonic()
    shown = 0
    for count, (job, found, problem) in enumerate(_run(work, jobs, options.workers), 1):
        if problem:
            failures.append((job[0], problem))
            ends["ended"] += 1
        else:
            ends.update(found["ends"])
            failures += found["failures"]
            slowest, memory = max(slowest, found["slowest"]), max(memory, found["memory"])
        for number, text in failures[shown:]:
            print(f"case {number}: {text.strip()}", file=sys.stderr, flush=True)
        shown = len(failures)
        if count % 40 == 0:
            print(f"{sum(ends.values())} cases, {len(failures)} failures", file=sys.stderr, flush=True)
    print(f"{sum(ends.values())} cases in {time.monotonic() - begin:.0f} s, seed {options.seed}")
    for end, times in ends.most_common():
        print(f"{times:9} {end}")
    print(f"slowest: case {slowest[1]}, {slowest[0]:.2f} s; memory of a process at most {memory >> 20} MiB")
    print(f"{len(failures)} failures")
    return 1 if failures else 0


def _run(work: Any, jobs: list[tuple[int, int]], count: int) -> Any:
    """Run chunks of cases; one whose process ended is run case by case, to find which it was."""
    for job, found, problem in workers.run(work, jobs, count, CHUNK * cases.SECONDS / 10):
        if not problem:
            yield job, found, problem
            continue
        singles = [(number, number + 1) for number in range(*job)]
        yield from workers.run(work, singles, 1, 6 * cases.SECONDS)


if __name__ == "__main__":
    sys.exit(main())
