"""The value that an operator version implies for an argument that it lacks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

Accepts = Callable[[Any, Sequence[Any], Any], bool]
"""Whether omitting an argument is equivalent to passing a value. The parameters are the `GraphContext`, the
operator's inputs and that value."""


@dataclasses.dataclass(frozen=True, slots=True)
class ImpliedArgument:
    """The value that operator versions without an argument imply for it.

    Attributes:
        value: the equivalent value in versions with the argument; None for the argument's default.
        accepts: whether a value is equivalent; by default only `value` is.
    """

    value: Any = None
    accepts: Accepts | None = None
