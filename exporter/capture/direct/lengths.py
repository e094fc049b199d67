"""Keeps `len(tensor)` in a model's code dynamic: Python's own `len` needs a number."""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Iterator
from typing import Any

import torch

from ...torch_boundary.state.module_tree import modules_of

_OURS = __name__.removesuffix("capture.direct.lengths")


def _length(item: Any) -> Any:
    """The length of an object; of a tensor, the possibly symbolic size of its first axis."""
    if isinstance(item, torch.Tensor) and item.dim() > 0:
        return item.shape[0]
    return len(item)


@contextlib.contextmanager
def kept_symbolic(model: torch.nn.Module) -> Iterator[None]:
    """Within the context, the Python modules that define a model call this `len` instead of Python's."""
    spaces = [space for space in _namespaces(model) if "len" not in space]
    for space in spaces:
        space["len"] = _length
    try:
        yield
    finally:
        for space in spaces:
            space.pop("len", None)


def _namespaces(model: torch.nn.Module) -> list[dict[str, Any]]:
    """The globals of the user's modules that define the classes of a model, or its function."""
    names = {base.__module__ for kind in set(map(type, modules_of(model))) for base in kind.__mro__}
    found = [vars(sys.modules[name]) for name in sorted(names) if name in sys.modules]
    forward = vars(model).get("forward")
    if isinstance(forward, types.FunctionType):
        found.append(forward.__globals__)
    unique = {id(space): space for space in found if _is_of_model(space.get("__name__", ""))}
    return list(unique.values())


def _is_of_model(name: str) -> bool:
    package = name.partition(".")[0]
    is_ours = name.startswith(_OURS)
    return not is_ours and package not in ("torch", "builtins") and package not in sys.stdlib_module_names
