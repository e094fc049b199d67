"""Calls operators on fake tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import probe
from ..fake_tensors import FakeTensorMode

Run = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
"""Calls an operator with its arguments."""


def quick_run(mode: FakeTensorMode) -> Run | None:
    """Calls operators, or makes results like those of an earlier call; None where torch lacks the names."""
    if not probe.has(probe.DIRECT_CAPTURE):
        return None
    from ..recording.known_results import KnownResults

    return KnownResults(mode).run


def kernel_run(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call an operator."""
    return operator(*args, **kwargs)
