"""Shows the current stage on a terminal, and nothing elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console


@contextlib.contextmanager
def stages() -> Iterator[Callable[[str], None]]:
    """Yield a function to call with the name of each stage; it shows a spinner on stderr."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda stage: None
        return
    with console.status("starting") as status:
        yield lambda stage: status.update(stage)
