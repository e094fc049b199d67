"""What the code of a model remembers outside of it: in caches of functions, and in dicts of modules."""

from __future__ import annotations

import functools
import gc
import sys
import types
import weakref
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch

from ..fake_tensors import FakeTensor
from .module_tree import modules_of
from .static_lookups import (
    bases_of,
    class_attributes,
    defining_module,
    is_instance,
    module_attributes,
    module_name,
    unbound,
)

_CONTAINERS = (dict, list, set)
_NESTED = (*_CONTAINERS, tuple)
_MEMBERS = (torch.Tensor, *_NESTED)
_PLAIN_CONTAINERS = frozenset(_NESTED)
_WITHOUT_MEMBERS = frozenset({bool, int, float, complex, str, bytes, type(None), types.FunctionType})
"""Classes of most members of containers and classes. Look up only classes of the metaclass `type`, because
the hash of a class is code of its metaclass."""
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


_memories: dict[int, tuple[weakref.ref[types.ModuleType], _Memory]] = {}
"""By the identity of a module, because its hash may be code of another library."""


class RememberedTensors:
    """The places outside of a model where its code may remember tensors, as they are now.

    These are caches of functions; dicts, lists and sets of modules and classes; and names in the modules and
    classes of the model itself. `Preserved` restores what the model refers to.

    No code of the objects that are visited runs: a module may import others at the first access to it, and a
    proxy may raise.

    Args:
        model: a module, or an object whose `forward` is a function.
    """

    def __init__(self, model: Any):
        classes = _classes(model)
        names = {defining_module(cls) for cls in classes}
        function = vars(model).get("forward")
        if type(function) is types.FunctionType:
            names.add(defining_module(function))
        memories = _used(names)
        self._caches = [(cache, cache.cache_info().misses) for memory in memories for cache in memory.caches]
        self._containers = [(item, len(item)) for memory in memories for item in memory.containers]
        modules = [module for module in map(_module, names) if module is not None]
        self._owners = [(owner, dict(_attributes(owner))) for owner in (*classes, *modules)]

    def forget_fakes(self) -> bool:
        """Clear caches with fake tensors, remove members that hold them, and restore names.

        Returns:
            Whether there was a fake tensor.
        """
        has_fakes = False
        for cache, misses in self._caches:
            if cache.cache_info().misses != misses and _has_fake(gc.get_referents(cache)):
                cache.cache_clear()
                has_fakes = True
        for container, size in self._containers:
            if container and (size <= _SMALL or len(container) != size) and _has_fake([container]):
                _remove_fakes(container)
                has_fakes = True
        for owner, before in self._owners:
            attributes = _attributes(owner)
            for name in [name for name, value in attributes.items() if issubclass(type(value), FakeTensor)]:
                has_fakes = True
                _restore_name(owner, name, before)
        return has_fakes

    def __enter__(self) -> RememberedTensors:
        return self

    def __exit__(self, *exception: object) -> None:
        self.forget_fakes()


def _module(name: str) -> types.ModuleType | None:
    """The module of a name, if it has been imported. Some libraries put other objects there."""
    module = sys.modules.get(name)
    return module if issubclass(type(module), types.ModuleType) else None


def _attributes(owner: Any) -> Mapping[str, Any]:
    """The names of a class or module."""
    return class_attributes(owner) if is_instance(owner, type) else module_attributes(owner)


def _restore_name(owner: Any, name: str, before: Mapping[str, Any]) -> None:
    """Let a name of a class or module be what it was before, by Python's rules and not those of its class."""
    if not is_instance(owner, type):
        attributes = module_attributes(owner)
        if name in before:
            attributes[name] = before[name]
        else:
            del attributes[name]
    elif name in before:
        type.__setattr__(owner, name, before[name])
    else:
        type.__delattr__(owner, name)


def _classes(model: Any) -> list[type]:
    """The classes of a model's parts, and their bases, except PyTorch's."""
    modules = modules_of(model) if isinstance(model, torch.nn.Module) else [model]
    types_of_modules = list(map(type, modules))
    # By identity, because the hash of a class is code of its metaclass.
    kinds = dict(zip(map(id, types_of_modules), types_of_modules, strict=True))
    classes = {id(base): base for kind in kinds.values() for base in bases_of(kind)}
    return [cls for cls in classes.values() if _is_searched(defining_module(cls))]


def _is_searched(name: str) -> bool:
    package = name.partition(".")[0]
    is_other = package in sys.stdlib_module_names or package in _WITHOUT_TENSORS or name.startswith(_OURS)
    return not is_other


def _used(names: set[str]) -> list[_Memory]:
    """What modules and those whose code they use may remember.

    The modules of the model itself are searched again: a notebook defines functions anew.
    """
    waiting, seen, memories = list(names), set(names), []
    while waiting:
        name = waiting.pop()
        module = _module(name)
        if module is None:
            continue
        memory = None if name in names else _searched_before(module)
        if memory is None:
            memory = _searched(module)
            _memories[id(module)] = weakref.ref(module), memory
        memories.append(memory)
        for other in memory.used:
            if other not in seen:
                seen.add(other)
                waiting.append(other)
    return memories


def _searched_before(module: types.ModuleType) -> _Memory | None:
    """What an earlier search of a module gave, unless names were added to it since."""
    reference, memory = _memories.get(id(module), (None, None))
    if reference is None or memory is None or reference() is not module:
        return None
    return memory if memory.size == len(module_attributes(module)) else None


def _searched(module: types.ModuleType) -> _Memory:
    attributes = module_attributes(module)
    name = module_name(module)
    memory = _Memory(len(attributes), [], [], set())
    for value in list(attributes.values()):
        kind = type(value)
        if issubclass(kind, types.ModuleType):
            memory.used.add(module_name(value))
        elif issubclass(kind, _DEFINED) and (origin := defining_module(value)) != name:
            memory.used.add(origin)
        else:
            _note(memory, value)
            if issubclass(kind, type):
                for member in list(class_attributes(value).values()):
                    member_class = type(member)
                    if type(member_class) is not type or member_class not in _WITHOUT_MEMBERS:
                        _note(memory, unbound(member))
    memory.used.difference_update([name for name in memory.used if not _is_searched(name)])
    return memory


def _note(memory: _Memory, value: Any) -> None:
    container = type(value)
    if container is _CACHE:
        memory.caches.append(value)
    elif container is dict or container is list or container is set:
        members = value.values() if container is dict else value
        if all(issubclass(kind, _MEMBERS) for kind in map(type, members)):
            memory.containers.append(value)


def _members(item: Any) -> Iterable[Any]:
    """The members of a container, by the methods of Python's own classes."""
    kind = type(item)
    if type(kind) is type and kind in _PLAIN_CONTAINERS:
        return item.values() if kind is dict else item  # type: ignore[no-any-return]
    if is_instance(item, dict):
        return dict.values(item)
    members: Iterable[Any] = next(kind for kind in _NESTED if is_instance(item, kind)).__iter__(item)
    return members


def _has_fake(items: Iterable[Any], depth: int = 3) -> bool:
    """Whether a fake tensor is among some objects, or in containers among them."""
    for item in items:
        kind = type(item)
        if type(kind) is type:
            if kind in _WITHOUT_MEMBERS:
                continue
            if kind in _PLAIN_CONTAINERS and not item:
                continue
        if issubclass(kind, FakeTensor):
            return True
        if depth and issubclass(kind, _NESTED) and _has_fake(_members(item), depth - 1):
            return True
    return False


def _remove_fakes(container: Any) -> None:
    """Remove the members of a container that hold fake tensors."""
    if isinstance(container, dict):
        for key in [key for key, value in container.items() if _has_fake([key, value])]:
            del container[key]
    else:
        others = [member for member in container if not _has_fake([member])]
        container.clear()
        container.update(others) if isinstance(container, set) else container.extend(others)
