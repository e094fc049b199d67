"""Run the operator sweep and write its results.

    python -m tests.sweep [--suite NAME ...] [--samples N] [--only REGEX] [--output FOLDER] [--engine ray]

Each suite is a database, an element type and opsets; without `--suite` all of them run, which takes hours
on two cores. Results are one JSON object per entry, `<suite>.jsonl`, and a summary of all suites that the
folder holds, `summary.json`. A suite that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import argparse
import functools
import json
import pathlib
import re
import sys

from .. import jobs
from .suites import SUITES, Suite, sweep_entry

IMPORTS = (f"{__package__}.cases", f"{__package__}.judge", "opsetta.symbolics")
"""Modules that every entry needs; the databases among them take seconds to import."""


def _names(suite: Suite) -> list[str]:
    from . import cases

    return cases.operator_names() if suite.database == "operators" else cases.module_names()


def run_suite(name: str, options: argparse.Namespace) -> None:
    """Run one suite, entry by entry, appending to its file what is not there yet."""
    suite = SUITES[name]
    path = options.output / f"{name}.jsonl"
    done = {json.loads(line)["entry"] for line in path.open()} if path.exists() else set()
    names = _names(suite)
    due = [i for i, entry in enumerate(names) if entry not in done and re.search(options.only, entry)]
    samples = options.samples if options.samples is not None else suite.samples
    work = functools.partial(sweep_entry, suite, samples)
    runs = jobs.run(work, due, options, options.seconds, IMPORTS)
    with path.open("a") as file:
        for count, (index, found, problem) in enumerate(runs, 1):
            if problem:
                outcome = {"status": "failed", "detail": problem, "refused": {}}
                found = [{"operators": [], "outcomes": {str(opset): outcome for opset in suite.opsets}}]
            file.write(json.dumps({"entry": names[index], "cases": found}) + "\n")
            file.flush()
            if count % 25 == 0 or count == len(due):
                print(f"{name}: {count} of {len(due)} entries", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--suite", action="append", choices=sorted(SUITES))
    parser.add_argument(
        "--samples", type=int, help="at most so many samples of each entry, at even distances"
    )
    parser.add_argument("--only", default="", metavar="REGEX", help="entries whose name matches")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("sweep-results"))
    jobs.add_options(parser)
    parser.add_argument("--seconds", type=float, default=900.0, help="how long one entry may take")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    for name in options.suite or SUITES:
        run_suite(name, options)
    from . import report

    report.write_summary(options.output)
    print(report.table(options.output))


if __name__ == "__main__":
    main()
