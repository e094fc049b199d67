"""The value that an operator version implies for an argument that it lacks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

Accepts = Callable[[Any, Sequence[Any], Any], bool]
"""Whether a version without an argument means a value of it; called with the `GraphContext`, the operator's
inputs and that value."""


@dataclasses.dataclass(frozen=True, slots=True)
class ImpliedArgument:
    """What the versions of an operator that lack an argument mean by it.

    Attributes:
        value: what a version that has the argument is given to mean the same; None for its default.
        accepts: which values mean the same; `value` alone unless given.
    """

    value: Any = None
    accepts: Accepts | None = None
