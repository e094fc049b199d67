"""Saves and restores a TorchScript module's state, which unlike a Python module's cannot be replaced."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from .. import torchscript
from .repeated_memory import RepeatedMemory

_WITH_FUNCTIONS = ("prim::fork", "prim::awaitable", "prim::Closure")
"""Kinds of nodes whose attribute `Subgraph` holds a function as a graph."""
_PLAIN = (bool, int, float, complex, str, enum.Enum, type(None))


def tensors_of(module: torch.jit.ScriptModule) -> dict[str, torch.Tensor]:
    """Return every tensor in a module by path: `layers.0.weight`, or `memory.1` in a list."""
    leaves = [
        leaf for path, owner, name in _attributes(module) for leaf in _leaves(path, owner.getattr(name))
    ]
    return {path: item for path, item in leaves if isinstance(item, torch.Tensor)}


class ScriptedState:
    """Saves the attributes of a TorchScript module, and the contents of its tensors.

    Args:
        module: the module; its submodules are included.
        written: paths of the parameters that a call writes to; the others are assumed not to change.

    Attributes:
        tensors: the tensors in the module.
    """

    def __init__(self, module: torch.jit.ScriptModule, written: frozenset[str] = frozenset()):
        torchscript.prepare(torchscript.handle_of(module))
        self._attributes = [
            (path, owner, name, owner.getattr(name)) for path, owner, name in _attributes(module)
        ]
        leaves = [leaf for path, _, _, item in self._attributes for leaf in _leaves(path, item)]
        tensors = [(path, item) for path, item in leaves if isinstance(item, torch.Tensor)]
        self.tensors = [tensor for _, tensor in tensors]
        repeated = RepeatedMemory()
        for path, tensor in tensors:
            repeated.add(path, tensor)
        self._contents = [
            (tensor, tensor.detach().clone(), _version(tensor))
            for path, tensor in tensors
            # Parameters that no call writes to are not copied, which would double the memory.
            if (path in written or not (isinstance(tensor, torch.nn.Parameter) or tensor.requires_grad))
            and not tensor.is_meta
        ]

    def restore(self) -> None:
        """Restore the attributes and tensors that have changed since."""
        for tensor, before, version in self._contents:
            if _version(tensor) != version or not (
                tensor.layout == torch.strided and torch.equal(tensor.detach(), before)
            ):
                # torch allows writes to inference tensors only in inference mode.
                with torch.inference_mode(tensor.is_inference()), torch.no_grad():
                    tensor.detach().copy_(before)
                if version is not None:
                    torch._C._autograd._unsafe_set_version_counter((tensor,), (version,))
        for path, owner, name, item in self._attributes:
            if not _are_unchanged(_leaves(path, item), _leaves(path, owner.getattr(name))):
                owner.setattr(name, item)


@contextlib.contextmanager
def preserve_state(module: torch.jit.ScriptModule, written: frozenset[str]) -> Iterator[None]:
    """Restore a module's attributes and the contents of its tensors at the end, see `ScriptedState`."""
    state = ScriptedState(module, written)
    try:
        yield
    finally:
        state.restore()


def _version(tensor: torch.Tensor) -> int | None:
    """Return how often a tensor was written to; None for an inference tensor, which has no such count."""
    return None if tensor.is_inference() else tensor._version


def _modules(handle: object, path: str) -> Iterator[tuple[str, Any]]:
    yield path, handle
    for name, child in torchscript.children(handle):
        yield from _modules(child, f"{path}{name}.")


def _attributes(module: torch.jit.ScriptModule) -> list[tuple[str, Any, str]]:
    """Return (path, owner, name) of each attribute of a module and its submodules; owner is a handle.

    TorchScript lists only parameters and buffers; other attributes are found in the methods and hooks.
    """
    owners = list(_modules(torchscript.handle_of(module), ""))
    names: dict[str, None] = {"training": None}
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
    """Yield the names of the attributes that a graph, its blocks and its functions read or write."""
    for operator_name in ("prim::GetAttr", "prim::SetAttr"):
        for node in graph.findAllNodes(operator_name):
            yield node.s("name")
    for operator_name in _WITH_FUNCTIONS:
        for node in graph.findAllNodes(operator_name):
            yield from _names(node.g("Subgraph"))


def _leaves(path: str, item: object) -> list[tuple[str, object]]:
    """Return (path, item) of the items in nested containers; an empty container counts as an item."""
    members: Iterable[tuple[object, object]] = ()
    if isinstance(item, (list, tuple)):
        members = enumerate(item)
    elif isinstance(item, dict):
        members = item.items()
    leaves = [leaf for key, member in members for leaf in _leaves(f"{path}.{key}", member)]
    return leaves or [(path, item)]


def _are_unchanged(before: list[tuple[str, object]], current: list[tuple[str, object]]) -> bool:
    """Whether the items of an attribute are unchanged; items that cannot be compared count as unchanged."""
    if [path for path, _ in before] != [path for path, _ in current]:
        return False
    return all(_is_unchanged(old, new) for (_, old), (_, new) in zip(before, current, strict=True))


def _is_unchanged(old: object, new: object) -> bool:
    # The elements of tensors are restored separately.
    if isinstance(old, torch.Tensor) or isinstance(new, torch.Tensor):
        return old is new
    # The last condition is for NaN, which differs from itself.
    if isinstance(old, _PLAIN) and isinstance(new, _PLAIN):
        return type(old) is type(new) and (old == new or (old != old and new != new))
    return True
