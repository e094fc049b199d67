"""Mutate model files, and read them; or compare random programs with eager PyTorch.

    python -m tests.fuzz [--source NAME] [--count N] [--seed S] [--first N] [--workers N]
    python -m tests.fuzz --programs N [--generator NAME] [--first N] [--workers N]
    python -m tests.fuzz --nodes N [--first N] [--workers N]
    python -m tests.fuzz --operators N [--dialect NAME] [--first N] [--workers N]

Binary, text and JSON files are mutated: bits, cuts, splices, lengths of fields, doubled fields, tokens, and
fields of the message itself. Each is read, described, checked, turned into the intermediate representation
with all of its tensors, and written again, which must say what was read, or refused by an error of ours. What
Python opens outside of the model's folder is a failure, as are other exceptions, crashes, hangs and more
memory than allowed.
`--source` does the same with other files: TensorFlow's graphs, its checkpoints, graphs that are frozen, and
Caffe2's nets, which it converts, too.
A case depends on the seed and its number alone: `--first 1234 --count 1` runs one again.

Programs, N of each generator, are exported at three opsets each, and give what eager PyTorch gives, or are
refused; refusals are counted by message. `--programs 1 --first 1234` runs one again.

Nodes, N changed ones, are converted to other opsets (`copied_nodes`).
Operators, N cases of each dialect, get random parameters: a file passes onnx's checker and loads in
onnxruntime, or is refused. `--dialect onnx --operators 1 --first 1234` runs one again.
"""

from __future__ import annotations

import argparse
import collections
import functools
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from ..jobs import add_options, run
from . import cases, copied_nodes, corpus, operator_parameters, programs

CHUNK = 250
PROGRAMS = 10
"""How many programs one process is given at a time."""
NODES = 200
"""How many nodes one process is given at a time."""
NODE_SECONDS = 10.0
"""How long one node may take."""
OPERATOR_SECONDS = 20.0
"""How long one case of an operator may take; the first one captures PyTorch's calls."""
PROGRAM_SECONDS = 60.0
"""How long one program may take."""


def main() -> int:
    """Run the command; 1 where a case failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--source", choices=cases.SOURCES, default="onnx")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    add_options(parser)
    parser.add_argument("--programs", type=int, default=0)
    parser.add_argument("--operators", type=int, default=0)
    parser.add_argument("--dialect", choices=operator_parameters.DIALECTS, action="append")
    parser.add_argument("--generator", choices=sorted(programs.GENERATORS), action="append")
    parser.add_argument("--nodes", type=int, default=0)
    options = parser.parse_args()
    if options.nodes:
        return _nodes(options)
    if options.programs:
        return _programs(options)
    if options.operators:
        return _operators(options)
    last = options.first + options.count
    jobs = [(start, min(start + CHUNK, last)) for start in range(options.first, last, CHUNK)]
    corpus.files()  # What is wrong with these would end every process that is started.
    with tempfile.TemporaryDirectory(prefix="opsetta-fuzz-") as root:
        return _report(jobs, functools.partial(cases.run_cases, root, options.source, options.seed), options)


def _programs(options: argparse.Namespace) -> int:
    """Run random programs, and print what became of them; 1 where one is wrong or crashed."""
    last, failed = options.first + options.programs, 0
    for name in options.generator or programs.GENERATORS:
        starts = range(options.first, last, PROGRAMS)
        jobs = [(name, start, min(start + PROGRAMS, last)) for start in starts]
        outcomes: list[programs.Outcome] = []
        begin = time.monotonic()
        runs = _run(programs.run_range, jobs, options, PROGRAM_SECONDS, ("torch", "opsetta.symbolics"))
        for count, (job, found, problem) in enumerate(runs, 1):
            found = [programs.Outcome(job[1], 0, programs.CRASHED, problem)] if problem else found
            outcomes += found
            for outcome in found:
                if outcome.kind in (programs.WRONG, programs.CRASHED):
                    print(f"{name}: {outcome}\n", file=sys.stderr, flush=True)
            if count % 10 == 0:
                print(f"{name}: {count} of {len(jobs)} chunks", file=sys.stderr, flush=True)
        ends = collections.Counter(outcome.kind for outcome in outcomes)
        print(f"{options.programs} {name} programs in {time.monotonic() - begin:.0f} s")
        print(", ".join(f"{times} {kind}" for kind, times in ends.most_common()))
        for times, message, seed in programs.refusals(outcomes):
            print(f"{times:6} {message} (seed {seed})")
        failed += ends[programs.WRONG] + ends[programs.CRASHED]
    return 1 if failed else 0


def _nodes(options: argparse.Namespace) -> int:
    """Convert changed nodes, and print what became of them; 1 where one is invalid or crashed."""
    last = options.first + options.nodes
    jobs = [(start, min(start + NODES, last)) for start in range(options.first, last, NODES)]
    imports = ("opsetta.symbolics", "onnxruntime", "tests.conversion.collected")
    outcomes = _run(copied_nodes.run_range, jobs, options, NODE_SECONDS, imports)
    return _count_outcomes(outcomes, f"{options.nodes} nodes", copied_nodes.FAILURES)


def _operators(options: argparse.Namespace) -> int:
    """Run operators with random parameters, and print what became of them; 1 where one failed."""
    last, failed = options.first + options.operators, 0
    for dialect in options.dialect or operator_parameters.DIALECTS:
        starts = range(options.first, last, CHUNK)
        jobs = [(dialect, start, min(start + CHUNK, last)) for start in starts]
        outcomes = _run(operator_parameters.run_range, jobs, options, OPERATOR_SECONDS)
        title = f"{options.operators} {dialect} operators"
        failed |= _count_outcomes(outcomes, title, operator_parameters.FAILED)
    return failed


def _count_outcomes(chunks: Any, title: str, failures: Sequence[str]) -> int:
    """Print how many cases had each outcome, and those that failed; 1 where one did."""
    ends: collections.Counter[str] = collections.Counter()
    begin = time.monotonic()
    for job, outcomes, problem in chunks:
        if problem:
            ends["ended"] += 1
            print(f"{title}: case {job[-2]}: {problem}", file=sys.stderr, flush=True)
            continue
        ends.update(outcome.kind for outcome in outcomes)
        for outcome in outcomes:
            if outcome.kind in failures:
                print(f"{title}: {outcome}", file=sys.stderr, flush=True)
    counted = ", ".join(f"{times} {kind}" for kind, times in ends.most_common())
    print(f"{title} in {time.monotonic() - begin:.0f} s: {counted}")
    return 1 if any(ends[kind] for kind in (*failures, "ended")) else 0


def _report(jobs: list[tuple[int, int]], work: Any, options: argparse.Namespace) -> int:
    """Run chunks of cases, and print how they ended; 1 where one failed."""
    ends: collections.Counter[str] = collections.Counter()
    failures: list[tuple[int, str]] = []
    slowest, memory, begin = (0.0, -1), 0, time.monotonic()
    shown = 0
    for count, (job, found, problem) in enumerate(_run(work, jobs, options, cases.SECONDS), 1):
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


def _run(
    work: Any, jobs: list[Any], options: argparse.Namespace, seconds: float, imports: tuple[str, ...] = ()
) -> Any:
    """Run chunks of cases; one whose process ended is run case by case, to find which it was.

    A job ends with the first number of its cases and the one after the last.
    """
    longest = max(job[-1] - job[-2] for job in jobs)
    for job, found, problem in run(work, jobs, options, longest * seconds / 10 + 6 * seconds, imports):
        if not problem:
            yield job, found, problem
            continue
        singles = [(*job[:-2], number, number + 1) for number in range(job[-2], job[-1])]
        yield from run(work, singles, options, 6 * seconds, imports)


if __name__ == "__main__":
    sys.exit(main())
