"""Plots of benchmarks as SVG, for the documentation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

_COLOURS = ("#0072b2", "#56b4e9", "#e69f00", "#d55e00", "#009e73")
_LABEL, _WIDTH, _BAR, _GAP, _TOP = 110, 480, 7, 8, 40
_LINES_HEIGHT = 240
_LEGEND = 110


class _Scale:
    """A logarithmic axis from one power of ten to another, of a given length."""

    def __init__(self, numbers: Sequence[float], length: float):
        self.powers = range(math.floor(math.log10(min(numbers))), math.ceil(math.log10(max(numbers))) + 1)
        self._length = length / max(1, len(self.powers) - 1)

    def __call__(self, number: float) -> float:
        """Where a number is on the axis."""
        return self._length * (math.log10(number) - self.powers[0])


def _frame(title: str, names: Sequence[str], height: float) -> list[str]:
    """The start of a plot: its title, and the colour of each name."""
    found = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LABEL + _WIDTH + 30} {height}" '
        'font-family="sans-serif" font-size="10">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        f'<text x="{_LABEL}" y="14" font-weight="bold">{escape(title)}</text>',
    ]
    for index, name in enumerate(names):
        x = _LABEL + index * _LEGEND
        found.append(f'<rect x="{x}" y="21" width="9" height="9" fill="{_COLOURS[index]}"/>')
        found.append(f'<text x="{x + 13}" y="29">{escape(name)}</text>')
    return found


def _horizontal(scale: _Scale, height: float) -> list[str]:
    """The axis at the bottom, with a line for each power of ten."""
    found = []
    for power in scale.powers:
        x = _LABEL + scale(10.0**power)
        found.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 4}" y2="{height - 20}" stroke="#cccccc"/>')
        found.append(f'<text x="{x:.1f}" y="{height - 8}" text-anchor="middle">{10.0**power:g}</text>')
    return found


def lines(series: Mapping[str, Sequence[tuple[float, float]]], title: str) -> str:
    """Lines through points with both axes logarithmic.

    Args:
        series: the points (x, y) of each line, all positive; at most five.
    """
    points = [point for each in series.values() for point in each]
    height = _TOP + _LINES_HEIGHT + 24
    along, up = _Scale([x for x, _ in points], _WIDTH), _Scale([y for _, y in points], _LINES_HEIGHT)
    found = [*_frame(title, list(series), height), *_horizontal(along, height)]
    for power in up.powers:
        y = height - 20 - up(10.0**power)
        found.append(
            f'<line x1="{_LABEL}" x2="{_LABEL + _WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#cccccc"/>'
        )
        found.append(f'<text x="{_LABEL - 6}" y="{y + 3:.1f}" text-anchor="end">{10.0**power:g}</text>')
    for colour, each in zip(_COLOURS, series.values(), strict=False):
        path = " ".join(f"{_LABEL + along(x):.1f},{height - 20 - up(y):.1f}" for x, y in each)
        found.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
    return "\n".join([*found, "</svg>", ""])


def bars(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], title: str) -> str:
    """Horizontal bars on a logarithmic axis, a group for each row.

    Args:
        rows: `model` is the label; the other columns are positive numbers, or None for no bar.
        columns: at most five.
    """
    scale = _Scale([row[column] for row in rows for column in columns if row[column] is not None], _WIDTH)
    group = _BAR * len(columns) + _GAP
    height = _TOP + group * len(rows) + 24
    found = [*_frame(title, columns, height), *_horizontal(scale, height)]
    for number, row in enumerate(rows):
        top = _TOP + number * group
        middle = top + (group - _GAP) / 2 + 3
        found.append(f'<text x="{_LABEL - 6}" y="{middle}" text-anchor="end">{escape(row["model"])}</text>')
        for index, column in enumerate(columns):
            if row[column] is not None:
                y, width = top + index * _BAR, scale(row[column])
                found.append(
                    f'<rect x="{_LABEL}" y="{y}" width="{width:.1f}" height="{_BAR - 1}" '
                    f'fill="{_COLOURS[index]}"><title>{escape(column)}: {row[column]:.3f} s</title></rect>'
                )
    return "\n".join([*found, "</svg>", ""])
