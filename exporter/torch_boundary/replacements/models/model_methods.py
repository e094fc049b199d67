"""Replaces methods of transformers' classes by functions that a capture can follow."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ...process.process_state import replace_attribute

_MODELS = "transformers.models"


def owner_of(model_type: str, class_name: str) -> type | None:
    """A class of a model type of transformers; None if its module is not imported, or lacks it."""
    module = sys.modules.get(f"{_MODELS}.{model_type}.modeling_{model_type}")
    owner: type | None = getattr(module, class_name, None)
    return owner


@contextlib.contextmanager
def replace_methods(
    methods: Mapping[tuple[str, str, str], Callable[..., Any]], called: frozenset[str]
) -> Iterator[None]:
    """Replace methods within the context, where the modules of their classes are imported.

    A method with other parameters stays as it is, as does one that does not call the functions of `called`:
    in that release of transformers it may compute something else.

    Args:
        methods: the replacements by model type, class and method.
        called: the names of functions that the original methods call.
    """
    with contextlib.ExitStack() as stack:
        for (model_type, class_name, name), function in methods.items():
            owner = owner_of(model_type, class_name)
            method = getattr(owner, name, None)
            code = getattr(method, "__code__", None)
            if owner is None or method is None or code is None or not set(code.co_names) >= called:
                continue
            if [*inspect.signature(method).parameters] == [*inspect.signature(function).parameters]:
                is_static = isinstance(inspect.getattr_static(owner, name), staticmethod)
                replacement = staticmethod(function) if is_static else function
                stack.enter_context(replace_attribute(owner, name, replacement))
        yield
