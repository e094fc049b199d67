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
import os
import pathlib
import re
from typing import Any

from ..sweep import workers
from .cases import TARGETS, all_cases
from .judge import INVALID, REFUSED, RIGHT, STATUSES, UNRUN, judge_case

Results = dict[str, dict[int, tuple[str, str]]]


def run(converter: str, jobs: list[int], targets: list[int], count: int) -> Results:
    """The outcomes of cases by name; a process that dies or hangs is an invalid file."""
    results: Results = {}
    work = functools.partial(judge_case, converter, targets)
    for index, found, problem in workers.run(work, jobs, count, 120.0):
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
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    targets = options.opset or list(TARGETS)
    names = [case.name for case in all_cases()]
    jobs = [i for i in range(0, len(names), options.every) if re.search(options.only, names[i])]
    written: dict[str, Any] = {"ours": run("ours", jobs, targets, options.workers)}
    print(f"opsetta, {len(jobs)} cases\n\n{table(written['ours'], targets)}\n")
    for line in _faults(written["ours"]):
        print(line)
    if options.beside:
        fifth = [i for i in range(0, len(names), 5) if i in set(jobs)]
        written["version_converter"] = run("version_converter", fifth, targets, options.workers)
        own = {names[i]: written["ours"][names[i]] for i in fifth}
        print(f"\nopsetta on the same {len(fifth)} cases\n\n{table(own, targets)}\n")
        print(f"onnx.version_converter, {len(fifth)} cases\n\n{table(written['version_converter'], targets)}")
    if options.output:
        options.output.write_text(json.dumps(written, indent=1) + "\n")


if __name__ == "__main__":
    main()
