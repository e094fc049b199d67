"""Prints tables and JSON for commands."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Sequence

from ....registration.printable import printable

MOST_SHOWN = 500
"""Rows of one kind in a table; laying out a row takes longer than reading it from a file."""


def more(count: int) -> str:
    """The last row of a truncated table, with the number of omitted rows."""
    return f"and {count - MOST_SHOWN} more, which --json lists"


def print_json(content: object) -> None:
    """Print an object as JSON."""
    print(json.dumps(content, indent=2))


@dataclasses.dataclass
class Table:
    """A table of texts: its headings and its rows."""

    columns: tuple[str, ...]
    rows: list[tuple[str, ...]] = dataclasses.field(default_factory=list)


def table(*columns: str) -> Table:
    """A table with these headings."""
    return Table(columns)


def row(rows: Table, *cells: str) -> None:
    """Add a row of texts, which may contain names from a file."""
    rows.rows.append(tuple(map(printable, cells)))


def show(rows: Table) -> None:
    """Print a table; on a terminal, lines are truncated to its width."""
    lines = [rows.columns, *rows.rows]
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table as Grid
        from rich.text import Text

        grid = Grid(box=None, pad_edge=False)
        for column in rows.columns:
            grid.add_column(column, no_wrap=True)
        for cells in rows.rows:
            # Plain text, because rich would parse a shape such as [batch, 3] as markup.
            grid.add_row(*map(Text, cells))
        Console().print(grid)
        return
    cell_width: Callable[[str], int] = len
    if not all(cell.isascii() for cells in lines for cell in cells):
        from rich.cells import cell_len as cell_width
    widths = [max(map(cell_width, column)) for column in zip(*lines, strict=True)]
    for cells in lines:
        padded = (cell + " " * (width - cell_width(cell)) for cell, width in zip(cells, widths, strict=True))
        print("  ".join(padded))


def size_text(count: int) -> str:
    """Format a number of bytes."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} bytes"


def count_text(count: int, noun: str) -> str:
    """Format a number of things: `1 node`, `2 nodes`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def shape_text(shape: Sequence[int | str | None] | None) -> str:
    """Format a shape; `?` is an unknown size."""
    return "unknown" if shape is None else "[" + ", ".join("?" if d is None else str(d) for d in shape) + "]"
