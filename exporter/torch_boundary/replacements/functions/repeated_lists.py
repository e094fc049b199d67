"""Intercepts lists of one number that are multiplied by a symbolic size, such as `[label] * n`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch

from ...process.process_state import replace_attribute

_NUMBERS = (bool, int, float)


@contextlib.contextmanager
def repeat_by(make_list: Callable[[int | float, torch.SymInt], object]) -> Iterator[None]:
    """Make the lists by a function within the context.

    Args:
        make_list: takes the number and the size, and returns the list; if it returns None, Python makes the
            list, which fixes the size.
    """

    def make_product(multiply: Callable[..., object]) -> Callable[..., object]:
        def multiply_or_repeat(size: torch.SymInt, factor: object) -> object:
            # Python calls this method, because a list can be multiplied only by integers.
            is_list = type(factor) is list and len(factor) == 1 and type(factor[0]) in _NUMBERS
            repeated = make_list(factor[0], size) if is_list else None  # type: ignore[index]
            return multiply(size, factor) if repeated is None else repeated

        return multiply_or_repeat

    with contextlib.ExitStack() as stack:
        for name in ("__mul__", "__rmul__"):
            function = make_product(getattr(torch.SymInt, name))
            stack.enter_context(replace_attribute(torch.SymInt, name, function))
        yield
