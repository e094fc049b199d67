"""The generated part of docs/toolchains/operators.md: the operators that are right in each consumer."""

from __future__ import annotations

import json
import pathlib
import re
from collections import Counter, defaultdict

from . import report
from .consumers import CONSUMERS

PAGE = report.FOLDER / "operators.md"
_VERDICTS = {
    "agrees": "agree",
    "wrong": "wrong",
    "refused": "refused",
    "crashes": "crash",
    "not written": "not written",
}


def operator_of(record: str) -> str:
    """The subject of a record and the first word of its name, which is an operator in most subjects."""
    subject, _, name = record.partition("/")
    first_word = re.split(r"[-\s]", name)[0]
    return f"{subject}: {first_word}"


def table(results: dict[str, dict[str, dict[str, str]]], root: pathlib.Path) -> list[str]:
    """The totals of consumers, a row for each operator that is not right everywhere, and wrong records."""
    names = [name for name in CONSUMERS if name in results]
    records = {record for outcomes in results.values() for record in outcomes}
    counts: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    totals: dict[str, Counter[str]] = defaultdict(Counter)
    for name in names:
        for record, outcome in results[name].items():
            counts[operator_of(record)][name][outcome["verdict"]] += 1
            totals[name][outcome["verdict"]] += 1
    lines = [f"This table rests on {len(records)} forms of {len(counts)} operators.", ""]
    lines += report.versions(root, names)
    lines += [
        "",
        "| consumer | " + " | ".join(_VERDICTS.values()) + " |",
        "|---" * (len(_VERDICTS) + 1) + "|",
    ]
    for name in names:
        cells = [str(totals[name][verdict]) for verdict in _VERDICTS]
        lines.append(f"| {CONSUMERS[name].name} | " + " | ".join(cells) + " |")
    lines += ["", "| operator | " + " | ".join(CONSUMERS[name].name for name in names) + " |"]
    lines.append("|---" * (len(names) + 1) + "|")
    right = []
    for operator, by_consumer in sorted(counts.items()):
        if all(set(by_consumer[name]) <= {"agrees"} for name in names):
            right.append(operator)
        else:
            lines.append(f"| {operator} | " + " | ".join(_cell(by_consumer[name]) for name in names) + " |")
    lines += ["", f"All forms of these {len(right)} agree in each consumer: {', '.join(right)}."]
    wrong = [
        f"- {CONSUMERS[name].name}: {', '.join(of_consumer)}"
        for name in names
        if (of_consumer := sorted(r for r, o in results[name].items() if o["verdict"] == "wrong"))
    ]
    return [*lines, "", "Wrong numbers without an error:", "", *wrong] if wrong else lines


def _cell(verdicts: Counter[str]) -> str:
    total = sum(verdicts.values())
    others = [f"{verdicts[v]} {word}" for v, word in _VERDICTS.items() if v != "agrees" and verdicts[v]]
    return ", ".join([f"{verdicts['agrees']} of {total}", *others]) if total else ""


def write(root: pathlib.Path, page: pathlib.Path = PAGE) -> None:
    """Write the results into the page, between the marks of its generated part."""
    results = json.loads((root / "operators.json").read_text(encoding="utf-8"))
    report.replace_generated(page, table(results, root))
