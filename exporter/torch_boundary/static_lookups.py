"""Reads objects of any class without running code of that class.

A walk over modules, closures and attributes meets objects of foreign code: modules that import others at the
first access, proxies of missing objects, classes whose metaclass raises. `isinstance` reads the `__class__`
of such an object, `vars` its `__dict__`, and a set of types calls `__hash__` of its metaclass. The functions
here use only C-level lookups.
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
    """Whether the type of an object is one of some classes or a subclass; does not read `__class__`."""
    return issubclass(type(item), classes)


class ClassSet(Generic[Instance]):
    """A set of classes that compares by identity, because hashing a class runs code of its metaclass.

    Filters items in C, without a Python call per item: a walk over a model looks at every attribute.

    Args:
        classes: the classes.
    """

    def __init__(self, classes: Iterable[type[Instance]]):
        self._others = dict.fromkeys(map(id, classes), False)

    def only(self, items: Collection[Any]) -> Iterator[Instance]:
        """Return the items whose class is in the set; instances of subclasses do not count."""
        return itertools.compress(items, map(self._others.__contains__, map(id, map(type, items))))

    def without(self, items: Collection[Item], values: Collection[object] | None = None) -> Iterator[Item]:
        """Return the items whose class is not in the set.

        Args:
            values: the objects whose classes decide, one for each item; by default the items themselves.
        """
        classes = map(type, items if values is None else values)
        return itertools.compress(items, map(self._others.get, map(id, classes), itertools.repeat(True)))


def bases_of(cls: type) -> tuple[type, ...]:
    """Return the method resolution order of a class: the class, then its bases."""
    bases: tuple[type, ...] = _MRO.__get__(cls)
    return bases


def class_attributes(cls: type) -> Mapping[str, Any]:
    """Return the attributes that a class defines, without inherited ones."""
    attributes: Mapping[str, Any] = _CLASS_ATTRIBUTES.__get__(cls)
    return attributes


def module_attributes(module: types.ModuleType) -> dict[str, Any]:
    """Return the `__dict__` of a module; lazy attributes that were not read yet are missing."""
    attributes: dict[str, Any] = _MODULE_ATTRIBUTES.__get__(module)
    return attributes


def instance_attributes(item: object) -> dict[str, object] | None:
    """Return an object's `__dict__`; None if it has none, or if its class computes it."""
    for base in bases_of(type(item)):
        descriptor = class_attributes(base).get("__dict__")
        if descriptor is not None:
            if type(descriptor) is not types.GetSetDescriptorType:
                return None
            attributes = descriptor.__get__(item)
            return attributes if type(attributes) is dict else None
    return None


def defining_module(item: object) -> str:
    """Return the name of the module that defines a class, function or cached function; "" if unknown."""
    name: object
    if type(item) is types.FunctionType:
        name = item.__module__
    elif is_instance(item, type):
        name = _CLASS_MODULE.__get__(item)
    else:
        name = (instance_attributes(item) or {}).get("__module__")
    return name if type(name) is str else ""


def module_name(module: types.ModuleType) -> str:
    """Return the name of a module; "" if it has none."""
    name = module_attributes(module).get("__name__")
    return name if type(name) is str else ""


def underlying_function(member: object) -> object:
    """Return the function of a static or class method; return other attributes of a class unchanged."""
    member_class = type(member)
    if issubclass(member_class, _METHODS):
        method = staticmethod if issubclass(member_class, staticmethod) else classmethod
        return method.__dict__["__func__"].__get__(member)
    return member


def is_of_user(module: str) -> bool:
    """Whether the module of a name is neither torch's nor the standard library's."""
    package = module.partition(".")[0]
    return package not in sys.stdlib_module_names and package not in ("torch", "builtins")
