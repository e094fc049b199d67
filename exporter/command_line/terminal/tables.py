"""Prints tables and JSON for commands."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ....registration.printable import printable

# Most commands, and `--help`, print no table.
if TYPE_CHECKING:
    from rich.table import Table

MOST_SHOWN = 500
"""Rows of one kind in a table; laying out a row takes longer than reading it from a file."""


def more(count: int) -> str:
    """The last row of a truncated table, with the number of omitted rows."""
    return f"and {count - MOST_SHOWN} more, which --json lists"


def print_json(content: object) -> None:
    """Print an object as JSON."""
    print(json.dumps(content, indent=2))


def table(*columns: str) -> Table:
    """A table with these headings."""
    from rich.table import Table

    grid = Table(box=None, pad_edge=False)
    for column in columns:
        grid.add_column(column, no_wrap=True)
    return grid


def row(rows: Table, *cells: str) -> None:
    """Add a row of texts, which may contain names from a file."""
    from rich.text import Text

    # Plain text, because rich would parse a shape such as [batch, 3] as markup.
    rows.add_row(*(Text(printable(cell)) for cell in cells))


def show(rows: Table) -> None:
    """Print a table."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        # In a file or a pipe, lines are not truncated.
        console = Console(width=1000)
    console.print(rows)


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
