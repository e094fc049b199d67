"""Saves and restores the state of a TorchScript module, which cannot be called with other state."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator
from typing import Any

import torch

from .. import torchscript

_WITH_FUNCTIONS = ("prim::fork", "prim::awaitable", "prim::Closure")
"""Kinds of nodes that hold a function, as a graph in the attribute `Subgraph`."""
_PLAIN = (bool, int, float, complex, str, enum.Enum, type(None))


def tensors_of(module: torch.jit.ScriptModule) -> dict[str, torch.Tensor]:
    """Every tensor in a module, by its path: `layers.0.weight`, or `memory.1` in a list."""
    leaves = [
        leaf for path, owner, name in _attributes(module) for leaf in _leaves(path, owner.getattr(name))
    ]
    return {path: item for path, item in leaves if isinstance(item, torch.Tensor)}


class ScriptedState:
    """The attributes of a TorchScript module, and the contents of its tensors, as they are now.

    Args:
        module: the module; those in it are covered too.
        written: paths of the parameters that a call writes to; the others are assumed not to change.
    """

    def __init__(self, module: torch.jit.ScriptModule, written: frozenset[str] = frozenset()):
        self._attributes = [
            (path, owner, name, owner.getattr(name)) for path, owner, name in _attributes(module)
        ]
        leaves = [leaf for path, _, _, item in self._attributes for leaf in _leaves(path, item)]
        self._contents = [
            (item, item.detach().clone())
            for path, item in leaves
            if isinstance(item, torch.Tensor) and (path in written or not _is_parameter(item))
        ]

    def restore(self) -> None:
        """Write back what has changed since."""
        with torch.no_grad():
            for tensor, before in self._contents:
                tensor.copy_(before)
        for path, owner, name, item in self._attributes:
            if not _are_unchanged(_leaves(path, item), _leaves(path, owner.getattr(name))):
                owner.setattr(name, item)


@contextlib.contextmanager
def preserved(module: torch.jit.ScriptModule, written: frozenset[str] = frozenset()) -> Iterator[None]:
    """Restore a module's attributes and the contents of its tensors at the end, see `ScriptedState`."""
    state = ScriptedState(module, written)
    try:
        yield
    finally:
        state.restore()


def _is_parameter(tensor: torch.Tensor) -> bool:
    return isinstance(tensor, torch.nn.Parameter) or tensor.requires_grad


def _modules(handle: Any, path: str) -> Iterator[tuple[str, Any]]:
    yield path, handle
    for name, child in torchscript.children(handle):
        yield from _modules(child, f"{path}{name}.")


def _attributes(module: torch.jit.ScriptModule) -> list[tuple[str, Any, str]]:
    """(path, owner, name) of each tensor and other attribute of a module and of those in it.

    TorchScript lists parameters and buffers; other attributes are found in the methods and hooks.
    """
    owners = list(_modules(torchscript.handle_of(module), ""))
    names: dict[str, None] = {}
    tables: tuple[Any, Any] = torch._C.ParameterDict, torch._C.BufferDict
    for _, owner in owners:
        for table in tables:
            names.update((name, None) for name, _ in table(owner).items())
        functions = [owner._get_method(name) for name in owner._method_names()]
        for function in [*functions, *owner._get_forward_hooks(), *owner._get_forward_pre_hooks()]:
            names.update(dict.fromkeys(_names(function.graph)))
    pairs = [(path, owner, name) for path, owner in owners for name in names if owner.hasattr(name)]
    return [
        (f"{path}{name}", owner, name)
        for path, owner, name in pairs
        if not torchscript.is_handle(owner.getattr(name))
    ]


def _names(graph: Any) -> Iterator[str]:
    """The names of the module attributes that a graph reads or writes, in its blocks and functions too."""
    for kind in ("prim::GetAttr", "prim::SetAttr"):
        for node in graph.findAllNodes(kind):
            yield node.s("name")
    for kind in _WITH_FUNCTIONS:
        for node in graph.findAllNodes(kind):
            yield from _names(node.g("Subgraph"))


def _leaves(path: str, item: Any) -> list[tuple[str, Any]]:
    """The items in an attribute by path; an empty container has its own path."""
    members: Any = ()
    if isinstance(item, (list, tuple)):
        members = enumerate(item)
    elif isinstance(item, dict):
        members = item.items()
    found = [leaf for key, member in members for leaf in _leaves(f"{path}.{key}", member)]
    return found or [(path, item)]


def _are_unchanged(before: list[tuple[str, Any]], now: list[tuple[str, Any]]) -> bool:
    """Whether an attribute is unchanged; assumed for items that cannot be compared."""
    if [path for path, _ in before] != [path for path, _ in now]:
        return False
    return all(_is_same(old, new) for (_, old), (_, new) in zip(before, now, strict=True))


def _is_same(old: Any, new: Any) -> bool:
    if isinstance(old, torch.Tensor) or isinstance(new, torch.Tensor):
        return old is new
    if isinstance(old, _PLAIN) and isinstance(new, _PLAIN):
        return type(old) is type(new) and (old == new or (old != old and new != new))
    return True
