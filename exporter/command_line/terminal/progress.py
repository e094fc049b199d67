"""Shows the stages of a command on a terminal, and nothing elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def stages() -> Iterator[Callable[[str], None]]:
    """Yield a function to call with the name of each stage; it shows a spinner on stderr."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda stage: None
        return
    with console.status("starting") as status:
        yield lambda stage: status.update(stage)


@contextlib.contextmanager
def bars() -> Iterator[Callable[[str], None]]:
    """Yield a function to call with the name of each stage; each has a bar on stderr, with its time."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
    from rich.table import Column

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TimeElapsedColumn(table_column=Column(min_width=7)),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        stages: list[TaskID] = []

        def end() -> None:
            if stages:
                progress.update(stages[-1], total=1, completed=1)

        def begin(stage: str) -> None:
            end()
            # Without a total the bar moves to and fro until the stage has ended.
            stages.append(progress.add_task(stage, total=None))

        yield begin
        end()
