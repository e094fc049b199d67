"""Lists of one number that Python code repeats as often as a symbolic size says, such as `[label] * n`."""

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
        make_list: takes the number and the size; None lets Python make the list, which fixes the size.
    """

    def make_product(multiply: Callable[..., object]) -> Callable[..., object]:
        def multiply_or_repeat(size: torch.SymInt, factor: object) -> object:
            # Python asks the size first, because a list has no product but with integers.
            is_list = type(factor) is list and len(factor) == 1 and type(factor[0]) in _NUMBERS
            repeated = make_list(factor[0], size) if is_list else None  # type: ignore[index]
            return multiply(size, factor) if repeated is None else repeated

        return multiply_or_repeat

    with contextlib.ExitStack() as stack:
        for name in ("__mul__", "__rmul__"):
            function = make_product(getattr(torch.SymInt, name))
            stack.enter_context(replace_attribute(torch.SymInt, name, function))
        yield
