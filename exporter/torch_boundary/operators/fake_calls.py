"""Calls operators on fake tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import probe
from ..fake_tensors import FakeTensorMode

Run = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
"""A function that takes an operator, its positional and its keyword arguments, and returns the result."""


def quick_run(mode: FakeTensorMode) -> Run | None:
    """A function that calls operators, but makes the result itself where it knows its sizes and strides.

    None for a release of torch without the names that this needs.
    """
    if not probe.has(probe.DIRECT_CAPTURE):
        return None
    from ..recording.known_results import KnownResults

    return KnownResults(mode, is_recording=False).run


def kernel_run(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call an operator by torch's own kernel."""
    return operator(*args, **kwargs)
