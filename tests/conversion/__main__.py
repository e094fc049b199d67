"""Convert the node cases of onnx's backend tests to other opsets, and make the table of what came of them.

    python -m tests.conversion [--opset N ...] [--every N] [--only REGEX] [--beside] [--output FILE]

Each case is converted from its own opset to each of the targets and run there, in onnxruntime where that
has the kernels, else in onnx's evaluator. `--beside` adds onnx.version_converter, on every fifth case.
"""

from __future__ import annotations

import argparse
import collections
import functools
import json
import pathlib
import re
from typing import Any

from .. import jobs
from .cases import TARGETS, all_cases
from .judge import INVALID, REFUSED, RIGHT, STATUSES, UNRUN, judge_case

IMPORTS = (f"{__package__}.collected", "onnx.reference", "opsetta.symbolics", "opsetta.exporter.load_model")
"""Modules that every case needs, and the cases themselves, which take seconds to collect."""

Results = dict[str, dict[int, tuple[str, str]]]


def run(converter: str, due: list[int], targets: list[int], options: argparse.Namespace) -> Results:
    """The outcomes of cases by name; a process that dies or hangs is an invalid file."""
    results: Results = {}
    work = functools.partial(judge_case, converter, targets)
    for index, found, problem in jobs.run(work, due, options, 120.0, IMPORTS):
        case = all_cases()[index]
        if problem:
            kind = REFUSED if converter != "ours" else INVALID
            results[case.name] = dict.fromkeys(targets, (kind, problem))
        else:
            results[case.name] = found[2]
    return results


def table(results: Results, targets: list[int]) -> str:
    """Per opset how many cases came to what, as a Markdown table."""
    lines = ["| opset | " + " | ".join(STATUSES) + " | right of all |", "|---" * (len(STATUSES) + 2) + "|"]
    for opset in targets:
        counts = collections.Counter(outcomes[opset][0] for outcomes in results.values())
        share = counts[RIGHT] / max(len(results), 1)
        cells = " | ".join(str(counts[status]) for status in STATUSES)
        lines.append(f"| {opset} | {cells} | {share:.1%} |")
    return "\n".join(lines)


def _faults(results: Results) -> list[str]:
    bad = [
        f"{name} at {opset}: {status}: {detail[:300]}"
        for name, outcomes in sorted(results.items())
        for opset, (status, detail) in outcomes.items()
        if status not in (RIGHT, REFUSED, UNRUN)
    ]
    return bad


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--opset", action="append", type=int, help="a target; may be repeated")
    parser.add_argument("--every", type=int, default=1, help="only every so manieth case")
    parser.add_argument("--only", default="", metavar="REGEX", help="cases whose name matches")
    parser.add_argument("--beside", action="store_true", help="onnx.version_converter on every fifth case")
    parser.add_argument("--output", type=pathlib.Path, help="write every outcome to a JSON file")
    jobs.add_options(parser)
    options = parser.parse_args()
    targets = options.opset or list(TARGETS)
    names = [case.name for case in all_cases()]
    due = [i for i in range(0, len(names), options.every) if re.search(options.only, names[i])]
    written: dict[str, Any] = {"ours": run("ours", due, targets, options)}
    print(f"opsetta, {len(due)} cases\n\n{table(written['ours'], targets)}\n")
    for line in _faults(written["ours"]):
        print(line)
    if options.beside:
        fifth = [i for i in range(0, len(names), 5) if i in set(due)]
        written["version_converter"] = run("version_converter", fifth, targets, options)
        own = {names[i]: written["ours"][names[i]] for i in fifth}
        print(f"\nopsetta on the same {len(fifth)} cases\n\n{table(own, targets)}\n")
        print(f"onnx.version_converter, {len(fifth)} cases\n\n{table(written['version_converter'], targets)}")
    if options.output:
        options.output.write_text(json.dumps(written, indent=1) + "\n")


if __name__ == "__main__":
    main()
