"""From the outcomes of single cases to figures: entries that pass wholly, refusals by reason, faults."""

from __future__ import annotations

import collections
import json
import pathlib
from typing import Any

from .judge import BY_REFERENCE, FAULTS, PASSED

Entries = dict[str, list[dict[str, Any]]]


def read(path: pathlib.Path) -> Entries:
    """The cases of each entry of one suite; entries without a case left out."""
    with path.open() as file:
        lines = [json.loads(line) for line in file]
    return {line["entry"]: line["cases"] for line in lines if line["cases"]}


def summary(entries: Entries) -> dict[str, Any]:
    """Per opset or exporter: how many entries pass wholly, which do not and why, and which are at fault."""
    columns = list(dict.fromkeys(name for cases in entries.values() for name in cases[0]["outcomes"]))
    return {column: _column(entries, column) for column in columns}


def _column(entries: Entries, column: str) -> dict[str, Any]:
    passed, by_reference, faults, refused = 0, 0, {}, {}
    for entry, cases in entries.items():
        outcomes = [case["outcomes"][column] for case in cases if column in case["outcomes"]]
        failed = [outcome for outcome in outcomes if outcome["status"] != PASSED]
        passed += not failed
        by_reference += bool(failed) and all(outcome["status"] == BY_REFERENCE for outcome in failed)
        for outcome in failed:
            group = faults if outcome["status"] in FAULTS else refused
            group.setdefault(entry, collections.Counter())[f"{outcome['status']}: {outcome['detail']}"] += 1
    return {
        "entries": len(entries),
        "samples": sum(map(len, entries.values())),
        "passed": passed,
        "by_reference": by_reference,
        "ratio": round(passed / max(len(entries), 1), 4),
        "faults": faults,
        "refused": {entry: reasons for entry, reasons in refused.items() if entry not in faults},
    }


def write_summary(folder: pathlib.Path) -> dict[str, Any]:
    """Write `summary.json`: the summary of every suite that the folder holds."""
    found = {path.stem: summary(read(path)) for path in sorted(folder.glob("*.jsonl"))}
    (folder / "summary.json").write_text(json.dumps(found, indent=1) + "\n")
    return found


def table(folder: pathlib.Path) -> str:
    """The figures as a Markdown table: per suite and opset or exporter, entries, passed, faults."""
    found = json.loads((folder / "summary.json").read_text())
    rows = [
        f"| {suite} | {column} | {entry['entries']} | {entry['passed']} | {entry['ratio']:.1%} "
        f"| {entry['by_reference']} | {len(entry['faults'])} |"
        for suite, columns in found.items()
        for column, entry in columns.items()
    ]
    return "\n".join(
        [
            "| suite | at | entries | pass | | by onnx.reference | faults |",
            "|---|---|---|---|---|---|---|",
            *rows,
        ]
    )
