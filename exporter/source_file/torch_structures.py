"""Tree structures of a file as torch's own, for calls. Classes are looked up, and never imported."""

from __future__ import annotations

import builtins
import dataclasses
import sys
from typing import Any

import torch.export
import torch.utils._pytree as pytree

from ...registration import OpsettaError
from ..capture.source import Interface
from ..capture.structure import register_structures
from .structures import Structure, TypeName

_CONTAINERS = ("list", "dict", "tuple", "int", "float", "str", "bool", "set")


def callable_interface(interface: Interface) -> Interface:
    """The interface with torch's tree structures in the place of those of a file.

    Raises:
        OpsettaError: the program takes or gives a container whose class is not known to this process.
    """
    structures = interface.input_specification, interface.output_specification
    if not any(item is None or isinstance(item, Structure) for item in structures):
        return interface
    register_structures()
    given, result = map(_specification, structures)
    return dataclasses.replace(interface, input_specification=given, output_specification=result)


def _specification(item: Any) -> Any:
    if item is None:
        return pytree.tree_flatten(0)[1]
    if not isinstance(item, Structure):
        return item
    children = [_specification(child) for child in item.children]
    return pytree.TreeSpec(_container(item.type), _context(item.context), children)


def _container(name: str) -> Any:
    known = {f"{kind.__module__}.{kind.__qualname__}": kind for kind in pytree.SUPPORTED_NODES}
    if name in known:
        return known[name]
    found = _class(name)
    if not isinstance(found, type) or not dataclasses.is_dataclass(found):
        raise OpsettaError(
            f"the model takes or returns a {name}, which is not known to this process: import its module, "
            "and register it with torch.utils._pytree, before the program is called"
        )
    torch.export.register_dataclass(found)
    return found


def _context(item: Any) -> Any:
    if isinstance(item, TypeName):
        found = _class(item.name)
        if found is None or not _is_container(found):
            raise OpsettaError(
                f"the model takes or returns a {item.name}, which is not known to this process: "
                "import its module before the program is called"
            )
        return found
    if isinstance(item, (list, tuple)):
        return type(item)(_context(member) for member in item)
    if isinstance(item, dict):
        return {key: _context(member) for key, member in item.items()}
    return item


def _class(name: str) -> Any:
    """The class of a module that this process has imported, or None; what is no class is none."""
    parts = name.split(".")
    for count in range(len(parts) - 1, 0, -1):
        module = sys.modules.get(".".join(parts[:count]))
        if module is None:
            continue
        found: Any = module
        for part in parts[count:]:
            found = vars(found).get(part) if hasattr(found, "__dict__") else None
        return found if isinstance(found, type) else None
    return None


def _is_container(kind: type) -> bool:
    """Whether a class is one that a structure is made of: building it does nothing else."""
    if kind.__module__ == builtins.__name__:
        return kind.__name__ in _CONTAINERS
    return (issubclass(kind, tuple) and hasattr(kind, "_fields")) or dataclasses.is_dataclass(kind)
