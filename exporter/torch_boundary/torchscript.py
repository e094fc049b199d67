"""The graphs, schemas and module handles of TorchScript."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch


def handle_of(module: torch.jit.ScriptModule) -> Any:
    """Return the C++ object of a TorchScript module, which has its attributes, sub-modules and methods."""
    return module._c


def is_handle(item: object) -> bool:
    """Whether an attribute of a handle is itself a handle: a module or an object of a TorchScript class."""
    return isinstance(item, torch._C.ScriptModule)


def children(handle: Any) -> Iterator[tuple[str, Any]]:
    """Yield the name and handle of each sub-module."""
    yield from torch._C.ModuleDict(handle).items()


def method(handle: Any, name: str) -> Any | None:
    """Return a method of a handle by name, or None."""
    return handle._get_method(name) if handle._has_method(name) else None


def method_names(handle: Any) -> list[str]:
    """Return the names of a handle's methods."""
    result: list[str] = handle._method_names()
    return result


def prepare(handle: Any) -> None:
    """Make TorchScript compile the functions that a module's methods call.

    Otherwise the first run compiles them for good, without optimization if a capture has switched it off.
    """
    for name in method_names(handle):
        inline_calls(handle._get_method(name).graph)


def class_name(module: torch.jit.ScriptModule) -> str:
    """The qualified name of the TorchScript class of a module."""
    result: str = module._c._type().qualified_name()
    return result


@functools.lru_cache(maxsize=4096)
def parse_schema(schema: str) -> Any:
    """Parse a TorchScript schema, such as `aten::add.Tensor(Tensor self, …) -> Tensor`."""
    return torch._C.parse_schema(schema)


def inline_calls(graph: Any) -> Any:
    """Return a copy of a graph with all function calls inlined."""
    # The pass works in place, and the graph belongs to the user's module.
    copy = graph.copy()
    torch._C._jit_pass_inline(copy)
    return copy


@functools.cache
def define_function(source: str, callee: torch.jit.ScriptFunction[Any, Any]) -> Any:
    """Compile a source text that defines `call` and may call `callee`; returns the unit with `call`.

    The cache keeps every result alive, because a graph does not own the functions that it calls.
    """
    unit = torch.jit.CompilationUnit()
    unit.define(source, rcb={"callee": callee}.get)
    return unit
