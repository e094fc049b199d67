"""Keeps `len(tensor)` and `int(number)` in a model's code dynamic: Python's own functions need a number."""

from __future__ import annotations

import ast
import builtins
import contextlib
import inspect
import sys
import types
import weakref
from collections.abc import Iterator
from typing import Any

import torch

from ...torch_boundary.recording.symbolic_numbers import whole
from ...torch_boundary.state.module_tree import modules_of

_OURS = __name__.removesuffix("capture.direct.builtin_functions")
_only_calls_int: weakref.WeakKeyDictionary[types.ModuleType, bool] = weakref.WeakKeyDictionary()


def _length(item: Any) -> Any:
    """The length of an object; of a tensor, the possibly symbolic size of its first axis."""
    if isinstance(item, torch.Tensor) and item.dim() > 0:
        return item.shape[0]
    return len(item)


class _Integer(type):
    """Python's `int` for calls and `isinstance`, which keeps symbolic numbers."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs and isinstance(args[0], (torch.SymInt, torch.SymFloat)):
            found = whole(args[0])
            if found is not None:
                return found
        return builtins.int(*args, **kwargs)

    def __instancecheck__(cls, item: Any) -> bool:
        # In eager PyTorch a size is one.
        return isinstance(item, (builtins.int, torch.SymInt))


class _Int(metaclass=_Integer):
    """What the name `int` stands for in the modules that define a model."""


@contextlib.contextmanager
def kept_symbolic(model: torch.nn.Module) -> Iterator[None]:
    """Within the context, the Python modules that define a model call these functions instead of Python's."""
    changed: list[tuple[dict[str, Any], str]] = []
    for space in _namespaces(model):
        functions: dict[str, Any] = {"len": _length}
        if "int" not in space and _calls_int_alone(space.get("__name__", "")):
            functions["int"] = _Int
        for name, function in functions.items():
            if name not in space:
                space[name] = function
                changed.append((space, name))
    try:
        yield
    finally:
        for space, name in changed:
            space.pop(name, None)


def _calls_int_alone(name: str) -> bool:
    """Whether a module uses `int` in nothing but calls with one argument, `isinstance` and annotations."""
    module = sys.modules.get(name)
    if module is None:
        return False
    if module not in _only_calls_int:
        try:
            tree = ast.parse(inspect.getsource(module))
        except (OSError, TypeError, SyntaxError, ValueError):
            tree = None
        _only_calls_int[module] = tree is not None and _is_called_alone(tree, "int")
    return _only_calls_int[module]


def _is_called_alone(tree: ast.Module, name: str) -> bool:
    allowed: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id == name and len(node.args) == 1 and not node.keywords:
                allowed.add(node.func)
            elif node.func.id == "isinstance" and len(node.args) == 2:
                allowed.update(ast.walk(node.args[1]))
        elif isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            allowed.update(ast.walk(node.annotation))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
            allowed.update(ast.walk(node.returns))
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == name]
    return all(node in allowed for node in names)


def _namespaces(model: torch.nn.Module) -> list[dict[str, Any]]:
    """The globals of the user's modules that define the classes of a model, or its function."""
    names = {base.__module__ for kind in set(map(type, modules_of(model))) for base in kind.__mro__}
    found = [vars(sys.modules[name]) for name in sorted(names) if name in sys.modules]
    forward = vars(model).get("forward")
    if isinstance(forward, types.FunctionType):
        found.append(forward.__globals__)
    unique = {id(space): space for space in found if _is_of_model(space.get("__name__", ""))}
    return list(unique.values())


def _is_of_model(name: str) -> bool:
    package = name.partition(".")[0]
    is_ours = name.startswith(_OURS)
    return not is_ours and package not in ("torch", "builtins") and package not in sys.stdlib_module_names
