"""Write what a sweep saw of each operator into the package, for `opsetta ops` and `docs/operators.md`.

    python -m tests.sweep.support [--add] [sweep-results]

With `--add`, only the results of the opsets that the folder has are replaced.
"""

from __future__ import annotations

import argparse
import collections
import json
import pathlib
import re
from typing import Any

import onnxruntime
import torch

from opsetta import symbolics  # noqa: F401
from opsetta.registration import default_registry
from opsetta.registration.functions.registry import split_name

from . import report
from .judge import BY_REFERENCE, PASSED, REFUSED
from .suites import OPSETS, SUITES

TARGET = pathlib.Path(__file__).resolve().parents[2] / "exporter" / "command_line" / "operator_support.json"
REASONS = 3
"""How many different reasons are kept of one operator."""

Seen = dict[str, dict[str, Any]]


def collect(folder: pathlib.Path) -> Seen:
    """Per operator the opsets where samples with it passed, and where it was refused and why."""
    passed: dict[str, set[int]] = collections.defaultdict(set)
    refused: dict[str, dict[str, set[int]]] = collections.defaultdict(dict)
    for path in sorted(folder.glob("*.jsonl")):
        if SUITES[path.stem].others:
            continue
        for cases in report.read(path).values():
            for case in cases:
                _collect_case(case, passed, refused)
    return {
        name: {
            "passed": sorted(passed.get(name, ())),
            "refused": {
                reason: sorted(opsets) for reason, opsets in list(refused.get(name, {}).items())[:REASONS]
            },
        }
        for name in sorted({*passed, *refused})
    }


def _collect_case(
    case: dict[str, Any], passed: dict[str, set[int]], refused: dict[str, dict[str, set[int]]]
) -> None:
    operators = {split_name(name)[0] for name in case["operators"]}
    for column, outcome in case["outcomes"].items():
        opset = int(column)
        if outcome["status"] in (PASSED, BY_REFERENCE):
            for name in operators:
                passed[name].add(opset)
        elif outcome["status"] == REFUSED:
            for inner, reason in outcome["refused"].items():
                for name, why in _blamed(split_name(inner)[0], reason, operators, opset):
                    refused[name].setdefault(_general(why), set()).add(opset)


def _blamed(name: str, reason: str, operators: set[str], opset: int) -> list[tuple[str, str]]:
    """The operator of the model that a refusal is about: it may be a piece of one that was decomposed."""
    if name in operators:
        return [(name, reason)]
    return [
        (operator, f"{name}: {reason}")
        for operator in operators
        if default_registry.lookup(operator, "", opset) is None
    ]


def _general(reason: str) -> str:
    """The reason without what is the single sample's: sizes and long texts."""
    reason = re.sub(r"\[[\d, ]*\]", "[...]", reason)
    return reason if len(reason) <= 160 else reason[:157] + "..."


def figures(folder: pathlib.Path) -> list[dict[str, Any]]:
    """The figures of every suite but the comparison."""
    found = []
    for path in sorted(folder.glob("*.jsonl")):
        if SUITES[path.stem].others:
            continue
        for column, entry in report.summary(report.read(path)).items():
            row = {"suite": path.stem.replace("-", ", "), "opset": int(column)}
            found.append(
                row | {key: entry[key] for key in ("entries", "samples", "passed", "by_reference", "ratio")}
            )
    return found


def add(earlier: dict[str, Any], results: dict[str, Any]) -> dict[str, Any]:
    """The results of two sweeps; of the earlier one, those of the opsets that the later one lacks."""
    rows = {(row["suite"], row["opset"]): row for row in (*earlier["figures"], *results["figures"])}
    swept = {row["opset"] for row in results["figures"]}

    def merge(old: list[int], new: list[int]) -> list[int]:
        return sorted({*(opset for opset in old if opset not in swept), *new})

    operators, nothing = {}, {"passed": [], "refused": {}}
    for name in sorted({*earlier["operators"], *results["operators"]}):
        old, new = (sweep["operators"].get(name, nothing) for sweep in (earlier, results))
        reasons = dict.fromkeys((*new["refused"], *old["refused"]))
        refused = {
            reason: merge(old["refused"].get(reason, []), new["refused"].get(reason, []))
            for reason in reasons
        }
        operators[name] = {
            "passed": merge(old["passed"], new["passed"]),
            "refused": {reason: opsets for reason, opsets in refused.items() if opsets},
        }
    versions = {
        package: " and ".join(sorted({*earlier[package].split(" and "), results[package]}))
        for package in ("torch", "onnxruntime")
    }
    return versions | {
        "opsets": sorted({*earlier["opsets"], *swept}),
        "figures": [rows[key] for key in sorted(rows)],
        "operators": operators,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=pathlib.Path, nargs="?", default=pathlib.Path("sweep-results"))
    parser.add_argument("--add", action="store_true", help="keep the results of other opsets")
    options = parser.parse_args()
    results = {
        "torch": torch.__version__.partition("+")[0],
        "onnxruntime": onnxruntime.__version__,
        "opsets": list(OPSETS),
        "figures": figures(options.folder),
        "operators": collect(options.folder),
    }
    if options.add:
        results = add(json.loads(TARGET.read_text(encoding="utf-8")), results)
    # One operator a line, so that a change reads well.
    entries = [f"{json.dumps(name)}: {_written(entry)}" for name, entry in results.items()]
    TARGET.write_text("{\n " + ",\n ".join(entries) + "\n}\n", encoding="utf-8")


def _written(item: Any) -> str:
    """JSON with a line for each entry."""
    if isinstance(item, dict):
        lines, ends = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in item.items()], "{}"
    elif isinstance(item, list) and isinstance(item[0], dict):
        lines, ends = [json.dumps(value) for value in item], "[]"
    else:
        return json.dumps(item)
    return f"{ends[0]}\n  " + ",\n  ".join(lines) + f"\n {ends[1]}"


if __name__ == "__main__":
    main()
