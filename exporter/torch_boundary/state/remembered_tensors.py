"""Finds fake tensors that a model's code stored outside the model, in function caches and module globals."""

from __future__ import annotations

import functools
import gc
import itertools
import operator
import sys
import types
import weakref
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch

from ..fake_tensors import FakeTensor
from ..static_lookups import (
    bases_of,
    class_attributes,
    defining_module,
    is_instance,
    module_attributes,
    module_name,
    underlying_function,
)
from .module_tree import modules_of
from .mutable_values import Members

_CONTAINERS = (dict, list, set)
_NESTED = (*_CONTAINERS, tuple)
_MEMBERS = (torch.Tensor, *_NESTED)
_PLAIN_CONTAINERS = frozenset(_NESTED)
_WITHOUT_MEMBERS = frozenset({bool, int, float, complex, str, bytes, type(None), types.FunctionType})
"""Classes of objects without members. Look up only classes with the metaclass `type`, because hashing a class
runs code of its metaclass."""
_SMALL = 16
"""A larger container of unchanged length is assumed unchanged, because searching it takes long."""
_CACHE: type[functools._lru_cache_wrapper[object]] = type(functools.lru_cache(lambda: None))
_DEFINED = (type, types.FunctionType, _CACHE)
_WITHOUT_TENSORS = frozenset("builtins google numpy onnx onnx_ir onnxruntime scipy sympy torch".split())
"""Packages, besides the standard library, whose code is not searched: it stores no tensors of a model."""
_OURS = __name__.removesuffix("torch_boundary.state.remembered_tensors")


class _Memory(NamedTuple):
    """The caches and containers of a Python module.

    Attributes:
        size: the number of names in the module at the time of the search.
        caches: the functions with `functools.lru_cache`, including methods.
        containers: the dicts, lists and sets that may be caches.
        used_modules: the names of the other modules whose code this module uses.
    """

    size: int
    caches: list[functools._lru_cache_wrapper[object]]
    containers: list[Members]
    used_modules: set[str]


_memories: dict[int, tuple[weakref.ref[types.ModuleType], _Memory]] = {}
"""The results of searches, by the `id` of the module: hashing a module may run code of another library."""


class _Walk(NamedTuple):
    """The result of a walk over the Python modules that a model's code uses, often hundreds.

    Attributes:
        names: the names of the modules.
        modules: weak references to the modules.
        sizes: the number of names in each module at the time of the search.
        memories: the caches and containers of each module.
        missing: names that are not in `sys.modules`.
    """

    names: list[str]
    modules: list[weakref.ref[types.ModuleType]]
    sizes: list[int]
    memories: list[_Memory]
    missing: list[str]

    def is_current(self) -> bool:
        """Whether a new walk would give the same: no module was added or replaced or got other names."""
        modules = [module for module in (reference() for reference in self.modules) if module is not None]
        # By identity, because comparing modules may run code of another library.
        return (
            len(modules) == len(self.modules)
            and all(map(operator.is_, modules, map(sys.modules.get, self.names)))
            and list(map(len, map(module_attributes, modules))) == self.sizes
            and not any(_module(name) is not None for name in self.missing)
        )


_MOST_WALKS = 8
_walks: dict[tuple[frozenset[str], frozenset[str]], _Walk] = {}
"""The last walks, by (names of the modules of the model's classes, names of the modules these use)."""


class RememberedTensors:
    """Removes fake tensors that a model's code stored outside the model since this was made.

    Searches function caches; dicts, lists and sets in modules and classes; and names in the modules and
    classes of the model. `Preserved` restores the objects that the model itself refers to.

    Runs no code of the visited objects: a module may import others when it is read, and a proxy may raise.

    Args:
        model: a `torch.nn.Module`, or an object whose attribute `forward` is a function.
    """

    def __init__(self, model: object):
        classes = _classes(model)
        names = {defining_module(cls) for cls in classes}
        function = vars(model).get("forward")
        if type(function) is types.FunctionType:
            names.add(defining_module(function))
        memories = _collect_memories(names)
        self._caches = [(cache, cache.cache_info().misses) for memory in memories for cache in memory.caches]
        self._containers = [(item, len(item)) for memory in memories for item in memory.containers]
        modules = [module for module in map(_module, names) if module is not None]
        self._owners = [(owner, dict(_attributes(owner))) for owner in (*classes, *modules)]

    def forget_fakes(self) -> bool:
        """Clear caches that hold fake tensors, remove container members that do, and restore names.

        Returns:
            Whether a fake tensor was found.
        """
        has_fakes = False
        # An unchanged number of misses means that nothing was added to the cache.
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
    """Return an imported module by name, or None; some libraries put other objects into `sys.modules`."""
    module = sys.modules.get(name)
    return module if issubclass(type(module), types.ModuleType) else None


def _attributes(owner: Any) -> Mapping[str, object]:
    """Return the attributes of a class or module."""
    return class_attributes(owner) if is_instance(owner, type) else module_attributes(owner)


def _restore_name(owner: Any, name: str, before: Mapping[str, object]) -> None:
    """Restore an attribute of a class or module without running code of its metaclass or class."""
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


def _classes(model: object) -> list[type]:
    """Return the classes of a model's modules, and their bases, except those of excluded packages."""
    modules = modules_of(model) if isinstance(model, torch.nn.Module) else [model]
    module_classes = list(map(type, modules))
    # By identity, because the hash of a class is code of its metaclass.
    model_classes = dict(zip(map(id, module_classes), module_classes, strict=True))
    classes = {id(base): base for model_class in model_classes.values() for base in bases_of(model_class)}
    return [cls for cls in classes.values() if _is_searched(defining_module(cls))]


def _is_searched(name: str) -> bool:
    package = name.partition(".")[0]
    is_excluded = package in sys.stdlib_module_names or package in _WITHOUT_TENSORS or name.startswith(_OURS)
    return not is_excluded


def _collect_memories(names: set[str]) -> list[_Memory]:
    """Return the caches and containers of modules, and of the modules whose code they use.

    The modules in `names`, which define the model, are always searched again: a notebook redefines functions.
    """
    memories = [_search_module(module) for module in map(_module, names) if module is not None]
    used_modules = frozenset(itertools.chain.from_iterable(memory.used_modules for memory in memories))
    key = frozenset(names), used_modules
    walk = _walks.get(key)
    if walk is None or not walk.is_current():
        if len(_walks) >= _MOST_WALKS:
            _walks.clear()
        walk = _walks[key] = _walk_modules(names, used_modules)
    return memories + walk.memories


def _walk_modules(excluded: set[str], used_modules: frozenset[str]) -> _Walk:
    """Search modules, and the modules whose code they use, except `excluded`."""
    waiting, seen = list(used_modules - excluded), excluded | used_modules
    walk = _Walk([], [], [], [], [])
    while waiting:
        name = waiting.pop()
        module = _module(name)
        if module is None:
            walk.missing.append(name)
            continue
        memory = _find_memory(module) or _search_module(module)
        walk.names.append(name)
        walk.modules.append(weakref.ref(module))
        walk.sizes.append(memory.size)
        walk.memories.append(memory)
        for used_module in memory.used_modules:
            if used_module not in seen:
                seen.add(used_module)
                waiting.append(used_module)
    return walk


def _find_memory(module: types.ModuleType) -> _Memory | None:
    """Return the result of an earlier search of a module; None if its number of names has changed."""
    reference, memory = _memories.get(id(module), (None, None))
    if reference is None or memory is None or reference() is not module:
        return None
    return memory if memory.size == len(module_attributes(module)) else None


def _search_module(module: types.ModuleType) -> _Memory:
    attributes = module_attributes(module)
    name = module_name(module)
    memory = _Memory(len(attributes), [], [], set())
    for value in list(attributes.values()):
        value_class = type(value)
        if issubclass(value_class, types.ModuleType):
            memory.used_modules.add(module_name(value))
        # An imported class or function shows whose code the module uses.
        elif issubclass(value_class, _DEFINED) and (origin := defining_module(value)) != name:
            memory.used_modules.add(origin)
        else:
            _note(memory, value)
            if issubclass(value_class, type):
                for member in list(class_attributes(value).values()):
                    member_class = type(member)
                    if type(member_class) is not type or member_class not in _WITHOUT_MEMBERS:
                        _note(memory, underlying_function(member))
    memory.used_modules.difference_update([name for name in memory.used_modules if not _is_searched(name)])
    _memories[id(module)] = weakref.ref(module), memory
    return memory


def _note(memory: _Memory, value: Any) -> None:
    value_class = type(value)
    if value_class is _CACHE:
        memory.caches.append(value)
    elif value_class is dict or value_class is list or value_class is set:
        members = value.values() if value_class is dict else value
        if all(issubclass(member_class, _MEMBERS) for member_class in map(type, members)):
            memory.containers.append(value)


def _members(item: Any) -> Iterable[object]:
    """Return the members of a container (values of a dict) without running code of a subclass."""
    kind = type(item)
    if type(kind) is type and kind in _PLAIN_CONTAINERS:
        return item.values() if kind is dict else item  # type: ignore[no-any-return]
    if is_instance(item, dict):
        return dict.values(item)
    return next(
        container_class for container_class in _NESTED if is_instance(item, container_class)
    ).__iter__(item)


def _has_fake(items: Iterable[object], depth: int = 3) -> bool:
    """Whether a fake tensor is among the items, or in containers among them up to `depth` levels deep."""
    for item in items:
        item_class = type(item)
        if type(item_class) is type:
            if item_class in _WITHOUT_MEMBERS:
                continue
            if item_class in _PLAIN_CONTAINERS and not item:
                continue
        if issubclass(item_class, FakeTensor):
            return True
        if depth and issubclass(item_class, _NESTED) and _has_fake(_members(item), depth - 1):
            return True
    return False


def _remove_fakes(container: Members) -> None:
    """Remove the members of a container that hold fake tensors."""
    if isinstance(container, dict):
        for key in [key for key, value in container.items() if _has_fake([key, value])]:
            del container[key]
    else:
        real_members = [member for member in container if not _has_fake([member])]
        container.clear()
        container.update(real_members) if isinstance(container, set) else container.extend(real_members)
