"""Imports the names of a package at their first use."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def lazy_imports(
    package: str, modules: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make the functions `__getattr__` and `__dir__` of a package (PEP 562).

    An imported name becomes an attribute of the package, so that it is looked up only once.

    Args:
        package: the package's `__name__`.
        modules: the modules, relative to the package, with the names that each one defines. The package "."
            defines its own modules.
    """
    module_of = {name: module for module, names in modules.items() for name in names}

    def get(name: str) -> Any:
        module = module_of.get(name)
        if module is None:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        if module == ".":
            return importlib.import_module(f".{name}", package)
        imported = getattr(importlib.import_module(module, package), name)
        setattr(sys.modules[package], name, imported)
        return imported

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *module_of})

    return get, names
