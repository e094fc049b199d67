"""Opens an engine by its name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ....registration import UsageError

if TYPE_CHECKING:
    from .processes import LocalEngine
    from .ray_cluster import RayEngine

LOCAL = "local"


def check_engine(name: str) -> None:
    """Refuse an unknown name of an engine.

    Raises:
        UsageError: it is neither `"local"`, nor `"ray"`, nor an address that begins with `ray://`.
    """
    if name not in (LOCAL, "ray") and not name.startswith("ray://"):
        raise UsageError(f"the engine must be local, ray or ray://HOST:PORT, not '{name}'")


def open_engine(name: str, workers: int | None, imports: Sequence[str]) -> LocalEngine | RayEngine:
    """Make the engine of a name that `check_engine` accepts, with its arguments.

    Raises:
        UsageError: there is no such engine.
        OpsettaError: Ray is not installed, or the cluster cannot be reached.
    """
    from .processes import LocalEngine
    from .ray_cluster import RayEngine

    check_engine(name)
    return LocalEngine(workers, imports) if name == LOCAL else RayEngine(name, workers, imports)
