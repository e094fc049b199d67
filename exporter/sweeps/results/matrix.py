"""The matrix of a sweep: models down, opsets and variants across, as one self-contained HTML page."""

from __future__ import annotations

import html
import json
import os
import pathlib
from collections.abc import Iterable, Sequence

from ...files.output.publishing import publish
from ..rows import STATUSES, Row, count_statuses

_TEMPLATE = pathlib.Path(__file__).with_name("matrix.html")
_AXES = ("dtype", "shape", "target")
"""What a column may have beside its opset, where the rows differ in it."""

Variant = tuple[str, ...]


def write_matrix(path: str | os.PathLike[str], rows: Sequence[Row]) -> None:
    """Write the page.

    Raises:
        ModelFileError: the path cannot be written.
    """
    page = matrix_page(rows).encode()
    publish(path, lambda file, location: file.write(page))


def matrix_page(rows: Sequence[Row]) -> str:
    """The page. It needs no network; names and messages are escaped."""
    axes = [axis for axis in _AXES if len({getattr(row, axis) for row in rows}) > 1]
    columns = sorted(
        dict.fromkeys((row.opset, _variant(row, axes)) for row in rows), key=lambda column: column[0]
    )
    counts = count_statuses(rows)
    parts = {
        "summary": html.escape(_summary(rows)),
        "chips": "".join(_chip(status, counts[status]) for status in counts),
        "head": _head(columns),
        "body": _body(rows, columns, axes),
        "data": _json([row.as_plain() for row in rows]),
    }
    page = _TEMPLATE.read_text(encoding="utf-8")
    for name, text in parts.items():
        before, after = page.split(f"<!-- {name} -->")
        page = before + text + after
    return page


def _variant(row: Row, axes: Sequence[str]) -> Variant:
    return tuple(getattr(row, axis) for axis in axes)


def _summary(rows: Sequence[Row]) -> str:
    models = len({row.model for row in rows})
    opsets = len({row.opset for row in rows})
    versions = ", ".join(sorted({row.opsetta for row in rows}))
    latest = max((row.finished for row in rows), default="")[:16].replace("T", " ")
    return f"{models} models, {opsets} opsets, {len(rows)} jobs, opsetta {versions}, finished {latest} UTC"


def _chip(status: str, count: int) -> str:
    name = _css(status)
    return (
        f'<button type="button" class="chip {name}" aria-pressed="false" data-status="{name}" '
        f'title="{html.escape(STATUSES[status])}"><b>{count}</b> {html.escape(status)}</button>'
    )


def _head(columns: Sequence[tuple[int, Variant]]) -> str:
    opsets = list(dict.fromkeys(opset for opset, _ in columns))
    spans = [sum(opset == column_opset for column_opset, _ in columns) for opset in opsets]
    cells = [
        f'<th scope="colgroup" colspan="{span}" class="first">{opset}</th>'
        for opset, span in zip(opsets, spans, strict=True)
    ]
    has_variants = any(variant for _, variant in columns)
    corner = f'<th scope="col" class="model" rowspan="{1 + has_variants}">model <span>opset</span></th>'
    lines = [f"<tr>{corner}{''.join(cells)}</tr>"]
    if has_variants:
        labels = "".join(
            f'<th scope="col"{_first(columns, column)}>{"<br>".join(map(html.escape, variant))}</th>'
            for column, (_, variant) in enumerate(columns)
        )
        lines.append(f"<tr>{labels}</tr>")
    return "".join(lines)


def _first(columns: Sequence[tuple[int, Variant]], column: int) -> str:
    """Marks the first column of an opset."""
    return ' class="first"' if not column or columns[column - 1][0] != columns[column][0] else ""


def _body(rows: Sequence[Row], columns: Sequence[tuple[int, Variant]], axes: Sequence[str]) -> str:
    row_indices = {
        (row.model, row.opset, _variant(row, axes)): row_index for row_index, row in enumerate(rows)
    }
    lines = []
    for model in dict.fromkeys(row.model for row in rows):
        cells = []
        for index, (opset, variant) in enumerate(columns):
            row_index = row_indices.get((model, opset, variant))
            inner = ""
            if row_index is not None:
                status = rows[row_index].status
                inner = (
                    f'<button type="button" class="{_css(status)}" data-row="{row_index}">'
                    f"{html.escape(status)}</button>"
                )
            cells.append(f"<td{_first(columns, index)}>{inner}</td>")
        name = html.escape(model)
        lines.append(
            f'<tr data-model="{name}"><th scope="row" class="model">{name}</th>{"".join(cells)}</tr>'
        )
    return "\n".join(lines)


def _css(status: str) -> str:
    return status.replace(" ", "-")


def _json(rows: Iterable[dict[str, object]]) -> str:
    """Rows as JSON that can stand in an HTML page."""
    text = json.dumps(list(rows), separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
