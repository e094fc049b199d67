"""Prints docs/tensorflow-operators.md from the records."""

from __future__ import annotations

import opsetta.symbolics  # noqa: F401
from opsetta.registration import default_registry

from .records import Record, subjects

PAGE = """# TensorFlow operators

{count} operators of TensorFlow graphs have a symbolic function. The second column is the lowest opset
at which the results agree with TensorFlow's. Most of these operators also work below opset 9. An
operator that does not, or that is not in this table, is an error that names it. `opsetta ops --filter
tf::` prints the list.

`python -m tests.tensorflow.support > docs/tensorflow-operators.md` writes this page from the test
records in tests/tensorflow. A record is a call of an operator with the results of TensorFlow 2.21. The
tests lower each call with known shapes, with unknown sizes and with unknown ranks, and run it in
onnxruntime at every opset at which its graph changes. The last two columns show whether an operator
needs known ranks or sizes at opset 9 for all of its records.

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
