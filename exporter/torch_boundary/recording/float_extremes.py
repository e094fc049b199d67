"""Keeps `min` and `max` of numbers symbolic if they depend on sizes; torch.export does so for integers."""

from __future__ import annotations

import builtins
import contextlib
import functools
from collections.abc import Callable, Iterator

import torch

from ..export_internals import non_strict_utils
from ..process.process_state import replace_attribute


@contextlib.contextmanager
def keep_extremes() -> Iterator[None]:
    """Replace `min` and `max` within the context, on top of torch.export's own replacement."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(non_strict_utils._override_builtin_ops())
        # Entered after torch's replacement, because these call torch's for integers.
        for name, symbolic in (("min", torch.sym_min), ("max", torch.sym_max)):
            original = getattr(builtins, name)
            stack.enter_context(
                replace_attribute(builtins, name, functools.partial(_extreme, original, symbolic))
            )
        yield


def _extreme(
    original: Callable[..., object], symbolic: Callable[..., object], *args: object, **kwargs: object
) -> object:
    # An integer operand would keep its type in Python, where the symbolic result is a float.
    are_floats = len(args) == 2 and all(isinstance(item, (float, torch.SymFloat)) for item in args)
    if are_floats and not kwargs and any(isinstance(item, torch.SymFloat) for item in args):
        return symbolic(*args)
    return original(*args, **kwargs)
