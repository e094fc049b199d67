"""Packages whose names are imported when they are asked for."""

from __future__ import annotations

import ast
import importlib
import pathlib
import types

import pytest

import opsetta
from opsetta.registration.lazy_imports import lazy_imports

PACKAGES = ("opsetta.exporter", "opsetta.passes", "opsetta.registration")


def declared(package: types.ModuleType) -> set[str]:
    """The names that type checkers see: those that the source of a package imports."""
    assert package.__file__ is not None
    tree = ast.parse(pathlib.Path(package.__file__).read_text(encoding="utf-8"))
    found = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    return {alias.asname or alias.name for node in found for alias in node.names} - {"TYPE_CHECKING"}


@pytest.mark.parametrize("name", PACKAGES)
def test_every_declared_name_can_be_imported(name):
    package = importlib.import_module(name)
    found = declared(package)
    assert [each for each in sorted(found) if not hasattr(package, each)] == []
    assert found <= {*dir(package)}


@pytest.mark.parametrize("name", PACKAGES)
def test_an_unknown_name_is_an_attribute_error(name):
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'nothing'"):
        importlib.import_module(name).nothing  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        exec(f"from {name} import nothing", {})


def test_a_name_is_looked_up_once(monkeypatch):
    package = types.ModuleType("opsetta.pretended")
    monkeypatch.setitem(importlib.import_module("sys").modules, package.__name__, package)
    get, names = lazy_imports(package.__name__, {"opsetta.registration.construction.names": ("Names",)})
    assert "Names" in names()
    assert get("Names") is vars(package)["Names"] is opsetta.registration.Names
