"""Prints docs/tensorflow-operators.md from the records."""

from __future__ import annotations

import opsetta.symbolics  # noqa: F401
from opsetta.registration import default_registry

from .records import Record, subjects

PAGE = """# TensorFlow operators

The operators of TensorFlow graphs that have a symbolic function, {count} in all, by the lowest opset at
which TensorFlow's own results were met. Below opset 9 most of them work, too; what does not is refused by
name, like every operator that is not in this table. `opsetta ops --filter tf::` lists them at the prompt.

`python -m tests.tensorflow.support > docs/tensorflow-operators.md` writes this page from the records of
tests/tensorflow: calls of an operator with what TensorFlow 2.21 computes. A call is lowered with known
shapes, without sizes and without ranks, and run in onnxruntime wherever its graph changes with the opset.
The last two columns say what must be known for all of an operator's records to be expressed at opset 9.

| operator | from opset | needs ranks | needs sizes |
|---|---|---|---|
{rows}
"""


def _row(operator: str, listed: list[Record]) -> str:
    lowest = min((record.lowest for record in listed), default=9)
    sizes = any(record.needs_sizes for record in listed)
    ranks = sizes or any(record.needs_rank for record in listed)
    marks = " | ".join("yes" if mark else "" for mark in (ranks, sizes))
    return f"| `{operator}` | {lowest} | {marks} |"


def page() -> str:
    """The page."""
    records: dict[str, list[Record]] = {}
    for listed in subjects().values():
        for record in listed:
            records.setdefault(record.op, []).append(record)
    domains = ("tf::", "tf_complex::")
    names = {name.partition("::")[2] for name in default_registry.names() if name.startswith(domains)}
    rows = [_row(name, records.get(name, [])) for name in sorted(names)]
    return PAGE.format(count=len(names), rows="\n".join(rows))


if __name__ == "__main__":
    print(page(), end="")
