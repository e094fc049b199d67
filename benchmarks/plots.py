"""Plots of benchmarks as SVG, for the documentation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

_COLOURS = ("#0072b2", "#56b4e9", "#e69f00", "#d55e00")
_LABEL, _WIDTH, _BAR, _GAP, _TOP = 110, 480, 7, 8, 40


def bars(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], title: str) -> str:
    """Horizontal bars on a logarithmic axis, a group for each row.

    Args:
        rows: `model` is the label; the other columns are numbers, or None for no bar.
        columns: at most four.
    """
    numbers = [row[column] for row in rows for column in columns if row[column] is not None]
    low, high = (f(math.log10(g(numbers))) for f, g in ((math.floor, min), (math.ceil, max)))

    def at(number: float) -> float:
        return _LABEL + _WIDTH * (math.log10(number) - low) / max(1, high - low)

    group = _BAR * len(columns) + _GAP
    height = _TOP + group * len(rows) + 24
    found = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LABEL + _WIDTH + 30} {height}" '
        'font-family="sans-serif" font-size="10">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        f'<text x="{_LABEL}" y="14" font-weight="bold">{escape(title)}</text>',
    ]
    for index, column in enumerate(columns):
        x = _LABEL + index * 110
        found.append(f'<rect x="{x}" y="21" width="9" height="9" fill="{_COLOURS[index]}"/>')
        found.append(f'<text x="{x + 13}" y="29">{escape(column)}</text>')
    for power in range(low, high + 1):
        x = at(10**power)
        found.append(f'<line x1="{x}" x2="{x}" y1="{_TOP - 4}" y2="{height - 20}" stroke="#cccccc"/>')
        found.append(f'<text x="{x}" y="{height - 8}" text-anchor="middle">{10.0**power:g}</text>')
    for number, row in enumerate(rows):
        top = _TOP + number * group
        middle = top + (group - _GAP) / 2 + 3
        found.append(f'<text x="{_LABEL - 6}" y="{middle}" text-anchor="end">{escape(row["model"])}</text>')
        for index, column in enumerate(columns):
            if row[column] is not None:
                y, width = top + index * _BAR, at(row[column]) - _LABEL
                found.append(
                    f'<rect x="{_LABEL}" y="{y}" width="{width:.1f}" height="{_BAR - 1}" '
                    f'fill="{_COLOURS[index]}"><title>{escape(column)}: {row[column]:.3f} s</title></rect>'
                )
    return "\n".join([*found, "</svg>", ""])
