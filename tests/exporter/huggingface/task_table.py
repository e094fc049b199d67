"""The table of tasks in docs/huggingface.md: `python -m tests.exporter.huggingface.task_table` writes it."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterable

from opsetta.exporter.huggingface.tasks.table import TASKS

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "huggingface.md"
_TABLE = re.compile(r"\| task \|.*?\n\n", re.DOTALL)


def _names(names: Iterable[str]) -> str:
    """Names of inputs or outputs; of those that each layer has, the first layer's."""
    listed = list(names)
    shown = ", ".join(f"`{name.replace('{layer}', '0')}`" for name in listed)
    return f"{shown}, …" if any("{layer}" in name for name in listed) else shown


def table() -> str:
    """The table, with a row for each file of each task."""
    rows = ["| task | file | inputs | outputs |", "|---|---|---|---|"]
    rows += [
        f"| `{task.name}` | `{file.name}` | {_names(file.inputs)} | {_names(file.outputs)} |"
        for records in TASKS.values()
        for task in records
        for file in task.files
    ]
    # A task may have equal records for several classes.
    return "\n".join(dict.fromkeys(rows)) + "\n"


def with_table(page: str) -> str:
    """The page with the current table."""
    return _TABLE.sub(lambda _: f"{table()}\n", page, count=1)


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
