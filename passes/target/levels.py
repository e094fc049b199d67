"""The levels of optimization, and what a user may give for one."""

from __future__ import annotations

from typing import Any

from ...registration import UsageError

LEVELS = ("none", "basic", "full")
"""`none` removes dead code, `basic` computes the same numbers by fewer nodes, `full` may round otherwise."""
DEFAULT_LEVEL = "full"


def check_level(level: Any) -> str:
    """The name of a level; True stands for the default and False for "none", as in torch.onnx.

    Raises:
        UsageError: it is none of these.
    """
    if isinstance(level, bool):
        return DEFAULT_LEVEL if level else "none"
    if level not in LEVELS:
        raise UsageError(f"optimize must be 'none', 'basic' or 'full', not {level!r}")
    return str(level)
