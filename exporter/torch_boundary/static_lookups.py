"""Reads objects of any class without running code of that class.

A walk over modules, closures and attributes meets objects of other people's code: modules that import at the
first access, proxies of what does not exist, classes whose metaclass raises. `isinstance` asks such an object
for its `__class__`, `vars` for its `__dict__`, and a set of types asks its metaclass for a hash.
The functions here ask only Python itself.
"""

from __future__ import annotations

import itertools
import sys
import types
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

_MRO: types.MemberDescriptorType = type.__dict__["__mro__"]
_CLASS_ATTRIBUTES: types.GetSetDescriptorType = type.__dict__["__dict__"]
_CLASS_MODULE: types.GetSetDescriptorType = type.__dict__["__module__"]
_MODULE_ATTRIBUTES: types.MemberDescriptorType = vars(types.ModuleType)["__dict__"]
Item = TypeVar("Item")
Instance = TypeVar("Instance")
_METHODS = (staticmethod, classmethod)


def is_instance(item: object, classes: type | tuple[type, ...]) -> bool:
    """Whether the type of an object is one of some classes, or below one."""
    return issubclass(type(item), classes)


class ClassSet(Generic[Instance]):
    """Classes that are compared by identity, because the hash of a class is code of its metaclass.

    A walk over a model looks at each attribute of each module. No Python code runs for one of them here.

    Args:
        classes: the classes.
    """

    def __init__(self, classes: Iterable[type[Instance]]):
        self._others = dict.fromkeys(map(id, classes), False)

    def only(self, items: Collection[Any]) -> Iterator[Instance]:
        """The items that are instances of these classes themselves, not of classes below them."""
        return itertools.compress(items, map(self._others.__contains__, map(id, map(type, items))))

    def without(self, items: Collection[Item], values: Collection[object] | None = None) -> Iterator[Item]:
        """The items that are instances of other classes.

        Args:
            values: the objects whose classes decide, one for each item; by default the items.
        """
        classes = map(type, items if values is None else values)
        return itertools.compress(items, map(self._others.get, map(id, classes), itertools.repeat(True)))


def bases_of(cls: type) -> tuple[type, ...]:
    """A class and those above it, in the order of method resolution."""
    bases: tuple[type, ...] = _MRO.__get__(cls)
    return bases


def class_attributes(cls: type) -> Mapping[str, Any]:
    """The attributes that a class itself defines."""
    attributes: Mapping[str, Any] = _CLASS_ATTRIBUTES.__get__(cls)
    return attributes


def module_attributes(module: types.ModuleType) -> dict[str, Any]:
    """The names in a module that exist now."""
    attributes: dict[str, Any] = _MODULE_ATTRIBUTES.__get__(module)
    return attributes


def instance_attributes(item: object) -> dict[str, object] | None:
    """The dict of an object's attributes; None if it has none, or if its class computes it."""
    for base in bases_of(type(item)):
        descriptor = class_attributes(base).get("__dict__")
        if descriptor is not None:
            if type(descriptor) is not types.GetSetDescriptorType:
                return None
            attributes = descriptor.__get__(item)
            return attributes if type(attributes) is dict else None
    return None


def defining_module(item: object) -> str:
    """The name of the module that defines a class, function or cached function; empty if it has none."""
    name: object
    if type(item) is types.FunctionType:
        name = item.__module__
    elif is_instance(item, type):
        name = _CLASS_MODULE.__get__(item)
    else:
        name = (instance_attributes(item) or {}).get("__module__")
    return name if type(name) is str else ""


def module_name(module: types.ModuleType) -> str:
    """The name of a module; empty if it has none."""
    name = module_attributes(module).get("__name__")
    return name if type(name) is str else ""


def underlying_function(member: object) -> object:
    """The function of a static or class method; other attributes of a class are returned as they are."""
    member_class = type(member)
    if issubclass(member_class, _METHODS):
        method = staticmethod if issubclass(member_class, staticmethod) else classmethod
        return method.__dict__["__func__"].__get__(member)
    return member


def is_of_user(module: str) -> bool:
    """Whether a Python module, by its name, belongs to the user or to a model library."""
    package = module.partition(".")[0]
    return package not in sys.stdlib_module_names and package not in ("torch", "builtins")
