"""The levels of optimization, and the check of the `optimize` argument."""

from __future__ import annotations

from ...registration import UsageError

LEVELS = ("none", "basic", "full")
"""`none` removes dead code; `basic` keeps the results with fewer nodes; `full` may change their rounding."""
DEFAULT_LEVEL = "full"


def check_level(level: object) -> str:
    """The name of a level; True stands for the default and False for "none", as in torch.onnx.

    Raises:
        UsageError: the level is none of these.
    """
    if isinstance(level, bool):
        return DEFAULT_LEVEL if level else "none"
    if level not in LEVELS:
        raise UsageError(f"optimize must be 'none', 'basic' or 'full', not {level!r}")
    return str(level)
