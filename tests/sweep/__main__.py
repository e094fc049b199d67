"""Run the operator sweep and write its results.

    python -m tests.sweep [--suite NAME ...] [--opsets N ...] [--samples N] [--only REGEX] [--output FOLDER]
        [--engine ray]
    python -m tests.sweep --transformers [--only REGEX] [--output FOLDER] [--page FILE]

Each suite is a database, an element type and opsets; without `--suite` all of them run, which takes hours
on two cores. Results are one JSON object per entry, `<suite>.jsonl`, and a summary of all suites that the
folder holds, `summary.json`. A suite that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import pathlib
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

from .. import jobs
from .suites import SUITES, Suite, sweep_entry

MODEL_TYPES = "transformers"
"""The file with the outcomes of model types."""
BASE_MODELS = "base-models"
"""The file with the outcomes of `opsetta.export` of their base models."""
IMPORTS = (f"{__package__}.cases", f"{__package__}.judge", "opsetta.symbolics")
"""Modules that every entry needs; the databases among them take seconds to import."""


def _names(suite: Suite) -> list[str]:
    from . import cases

    return cases.operator_names() if suite.database == "operators" else cases.module_names()


def run_suite(name: str, options: argparse.Namespace) -> None:
    """Run one suite, entry by entry, appending to its file what is not there yet."""
    suite = SUITES[name]
    if options.opsets:
        suite = dataclasses.replace(suite, opsets=tuple(options.opsets))
    samples = options.samples if options.samples is not None else suite.samples
    outcomes = {str(opset): {"status": "failed", "refused": {}} for opset in suite.opsets}
    work = functools.partial(sweep_entry, suite, samples)
    _run_entries(name, _names(suite), work, IMPORTS, {"operators": [], "outcomes": outcomes}, options)


def run_model_types(options: argparse.Namespace) -> None:
    """Export every model type of transformers, and write the outcomes into a page."""
    from . import base_models, model_types

    imports = ("transformers", "opsetta.symbolics")
    work = functools.partial(model_types.sweep_type, options.opsets or model_types.OPSETS)
    if not options.base_only:
        _run_entries(MODEL_TYPES, model_types.names_of_types(), work, imports, {}, options)
    work = functools.partial(base_models.sweep_base_model, tuple(options.opsets or model_types.OPSETS))
    _run_entries(BASE_MODELS, base_models.names_of_types(), work, imports, {}, options)
    files = {
        "Tasks, by `opsetta.export_huggingface`": options.output / f"{MODEL_TYPES}.jsonl",
        "Base models, by `opsetta.export`": options.output / f"{BASE_MODELS}.jsonl",
    }
    if options.page is not None or not options.only:
        model_types.write_page(files, options.page or pathlib.Path("docs/model-types.md"))


def _run_entries(
    name: str,
    entries: list[str],
    work: Callable[[int], list[dict[str, Any]]],
    imports: Sequence[str],
    failed_case: dict[str, Any],
    options: argparse.Namespace,
) -> None:
    """Append the cases of the entries that a file lacks.

    Args:
        name: of the file.
        entries: their names.
        work: gives the cases of an entry by its index.
        imports: modules that every entry needs.
        failed_case: the case of an entry whose process ended.
    """
    path = options.output / f"{name}.jsonl"
    done = {json.loads(line)["entry"] for line in path.open()} if path.exists() else set()
    due = [i for i, entry in enumerate(entries) if entry not in done and re.search(options.only, entry)]
    runs = jobs.run(work, due, options, options.seconds, imports)
    with path.open("a") as file:
        for count, (index, cases, problem) in enumerate(runs, 1):
            if problem:
                outcomes = {
                    opset: outcome | {"detail": problem}
                    for opset, outcome in failed_case.get("outcomes", {}).items()
                }
                cases = [failed_case | ({"outcomes": outcomes} if outcomes else {"detail": problem})]
            file.write(json.dumps({"entry": entries[index], "cases": cases}) + "\n")
            file.flush()
            if count % 25 == 0 or count == len(due):
                print(f"{name}: {count} of {len(due)} entries", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--suite", action="append", choices=sorted(SUITES))
    parser.add_argument(
        "--transformers", action="store_true", help="export every model type of transformers instead"
    )
    parser.add_argument(
        "--base-only", action="store_true", help="with --transformers: only opsetta.export of the base models"
    )
    parser.add_argument(
        "--page",
        type=pathlib.Path,
        help="with --transformers: the page whose tables are replaced; by default that of the docs, and none "
        "with --only",
    )
    parser.add_argument(
        "--opsets",
        nargs="+",
        type=int,
        metavar="N",
        help="instead of those of the suite; with --transformers, 13 and 18 by default",
    )
    parser.add_argument(
        "--samples", type=int, help="at most so many samples of each entry, at even distances"
    )
    parser.add_argument("--only", default="", metavar="REGEX", help="entries whose name matches")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("sweep-results"))
    jobs.add_options(parser)
    parser.add_argument("--seconds", type=float, default=900.0, help="how long one entry may take")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    if options.transformers:
        run_model_types(options)
        return
    for name in options.suite or SUITES:
        run_suite(name, options)
    from . import report

    report.write_summary(options.output)
    print(report.table(options.output))


if __name__ == "__main__":
    main()
