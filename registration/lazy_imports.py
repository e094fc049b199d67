"""Names of a package that are imported when they are first asked for."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def lazy_imports(
    package: str, modules: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The functions `__getattr__` and `__dir__` of a package (PEP 562).

    A name that was asked for becomes an attribute of the package, so that it is looked up once.

    Args:
        package: the package's `__name__`.
        modules: the modules, relative to the package, with the names that each one defines. The package "."
            defines its own modules.
    """
    places = {name: module for module, names in modules.items() for name in names}

    def get(name: str) -> Any:
        module = places.get(name)
        if module is None:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        if module == ".":
            return importlib.import_module(f".{name}", package)
        found = getattr(importlib.import_module(module, package), name)
        setattr(sys.modules[package], name, found)
        return found

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *places})

    return get, names
