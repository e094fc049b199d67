"""What the code of a model remembers outside of it: in caches of functions, and in dicts of modules."""

from __future__ import annotations

import functools
import gc
import sys
import types
import weakref
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensor

from .module_tree import modules_of

_CONTAINERS = (dict, list, set)
_NESTED = (*_CONTAINERS, tuple)
_MEMBERS = (torch.Tensor, *_NESTED)
_SMALL = 16
"""A container with more members counts as unchanged while it has as many."""
_CACHE: Any = type(functools.lru_cache(lambda: None))
_DEFINED = (type, types.FunctionType, _CACHE)
_WITHOUT_TENSORS = frozenset("builtins google numpy onnx onnx_ir onnxruntime scipy sympy torch".split())
"""Packages besides the standard library whose code remembers no tensor of a model."""
_OURS = __name__.removesuffix("torch_boundary.state.remembered_tensors")


class _Memory(NamedTuple):
    """What a module of Python code may remember.

    Attributes:
        size: the number of names in the module, when it was searched.
        caches: the functions with a cache, those in its classes too.
        containers: the dicts, lists and sets that may be caches.
        used: the names of other modules whose code it uses.
    """

    size: int
    caches: list[Any]
    containers: list[Any]
    used: set[str]


_memories: weakref.WeakKeyDictionary[types.ModuleType, _Memory] = weakref.WeakKeyDictionary()


class RememberedTensors:
    """The places outside of a model where its code may remember tensors, as they are now.

    These are caches of functions; dicts, lists and sets of modules and classes; and names in the modules and
    classes of the model itself. `Preserved` restores what the model refers to.

    Args:
        model: a module, or an object whose `forward` is a function.
    """

    def __init__(self, model: Any):
        classes = _classes(model)
        names = {each.__module__ for each in classes}
        function = vars(model).get("forward")
        if isinstance(function, types.FunctionType):
            names.add(function.__module__)
        memories = _used(names)
        self._caches = [(cache, cache.cache_info().misses) for memory in memories for cache in memory.caches]
        self._containers = [(item, len(item)) for memory in memories for item in memory.containers]
        owners: list[Any] = [*classes, *(sys.modules[name] for name in names if name in sys.modules)]
        self._owners = [(each, dict(vars(each))) for each in owners]

    def forget_fakes(self) -> bool:
        """Clear caches with fake tensors, remove members that hold them, and restore names.

        Returns:
            Whether there was a fake tensor.
        """
        found = False
        for cache, misses in self._caches:
            if cache.cache_info().misses != misses and _has_fake(gc.get_referents(cache)):
                cache.cache_clear()
                found = True
        for container, size in self._containers:
            if container and (size <= _SMALL or len(container) != size) and _has_fake([container]):
                _remove_fakes(container)
                found = True
        for owner, before in self._owners:
            for name in [name for name, value in vars(owner).items() if isinstance(value, FakeTensor)]:
                found = True
                if name in before:
                    setattr(owner, name, before[name])
                else:
                    delattr(owner, name)
        return found

    def __enter__(self) -> RememberedTensors:
        return self

    def __exit__(self, *exception: object) -> None:
        self.forget_fakes()


def _classes(model: Any) -> set[type]:
    """The classes of a model's parts, and their bases, except PyTorch's."""
    modules = modules_of(model) if isinstance(model, torch.nn.Module) else [model]
    found = {base for kind in {type(each) for each in modules} for base in kind.__mro__}
    return {each for each in found if _is_searched(each.__module__)}


def _is_searched(name: str) -> bool:
    package = name.partition(".")[0]
    is_other = package in sys.stdlib_module_names or package in _WITHOUT_TENSORS or name.startswith(_OURS)
    return not is_other


def _used(names: set[str]) -> list[_Memory]:
    """What modules and those whose code they use may remember.

    The modules of the model itself are searched again: a notebook defines functions anew.
    """
    waiting, seen, found = list(names), set(names), []
    while waiting:
        name = waiting.pop()
        module = sys.modules.get(name)
        if not isinstance(module, types.ModuleType):
            continue
        memory = _memories.get(module)
        if memory is None or memory.size != len(vars(module)) or name in names:
            memory = _memories[module] = _searched(module)
        found.append(memory)
        for other in memory.used:
            if other not in seen:
                seen.add(other)
                waiting.append(other)
    return found


def _searched(module: types.ModuleType) -> _Memory:
    memory = _Memory(len(vars(module)), [], [], set())
    for value in list(vars(module).values()):
        if isinstance(value, types.ModuleType):
            memory.used.add(value.__name__)
        elif isinstance(value, _DEFINED) and value.__module__ != module.__name__:
            memory.used.add(str(value.__module__))
        else:
            _note(memory, value)
            if isinstance(value, type):
                for member in vars(value).values():
                    _note(memory, getattr(member, "__func__", member))
    memory.used.difference_update([name for name in memory.used if not _is_searched(name)])
    return memory


def _note(memory: _Memory, value: Any) -> None:
    if isinstance(value, _CACHE):
        memory.caches.append(value)
    elif type(value) in _CONTAINERS:
        members = value.values() if isinstance(value, dict) else value
        if all(isinstance(member, _MEMBERS) for member in members):
            memory.containers.append(value)


def _has_fake(items: Iterable[Any], depth: int = 3) -> bool:
    """Whether a fake tensor is among some objects, or in containers among them."""
    for item in items:
        if isinstance(item, FakeTensor):
            return True
        if depth and isinstance(item, _NESTED):
            members = item.values() if isinstance(item, dict) else item
            if _has_fake(members, depth - 1):
                return True
    return False


def _remove_fakes(container: Any) -> None:
    """Remove the members of a container that hold fake tensors."""
    if isinstance(container, dict):
        for key in [key for key, value in container.items() if _has_fake([key, value])]:
            del container[key]
    else:
        kept = [each for each in container if not _has_fake([each])]
        container.clear()
        container.update(kept) if isinstance(container, set) else container.extend(kept)
