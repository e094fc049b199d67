"""The modules of a TorchScript graph: their parameters and buffers, and the module path of each node."""

from __future__ import annotations

import re
from collections.abc import Iterator

import torch
from onnx_ir import Value

from ...torch_boundary import torchscript
from ..weights import Identity, first_names, identity
from .builder import ScriptGraphBuilder
from .script_graph import Program, ScriptHandle, ScriptNode

_STEP = re.compile(r"(\w+)\(([\w.]*)\)")
_UNNAMED = ("UNKNOWN", "INSTANCE_NAME_UNKNOWN", "TOP", "SELF")
_SCOPE = "__module."
"""Prefix of scopes in a trace, which are full paths; files do not store them."""


class State:
    """Parameters, buffers and other tensors by path; tensors that share memory are one value."""

    def __init__(self, program: Program):
        self._values: dict[Identity, Value] = {}
        named: dict[str, list[tuple[str, torch.Tensor]]] = {"parameter": [], "buffer": []}
        if isinstance(program, torch.nn.Module):
            named["parameter"] += program.named_parameters(remove_duplicate=False)
            named["buffer"] += program.named_buffers(remove_duplicate=False)
        self._persistent = set(program.state_dict()) if isinstance(program, torch.nn.Module) else set()
        self._kinds = {name: role for role, pairs in named.items() for name, _ in pairs}
        self._first_names = first_names(
            (name, identity(name, tensor)) for pairs in named.values() for name, tensor in pairs
        )

    @property
    def names(self) -> set[str]:
        """The names of the tensors in the graph."""
        return set(self._first_names.values())

    def value(self, build: ScriptGraphBuilder, path: str, tensor: torch.Tensor) -> Value:
        """The initializer of the tensor at a path of the module tree."""
        # Tied weights are one initializer, under the first of their names.
        key = identity(path, tensor)
        if key not in self._values:
            name = self._first_names.get(key, path)
            # A tensor in a plain attribute persists between calls like a buffer.
            role = self._kinds.get(name, "buffer")
            is_persistent = name in self._persistent
            self._values[key] = build.constant_tensor(tensor, name, role, persistent=is_persistent)
        return self._values[key]


class Hierarchy:
    """Restores full module paths: inlined graphs name only modules that are called, no containers."""

    def __init__(self, handle: ScriptHandle | None, *, is_traced: bool = False):
        self._is_traced = is_traced
        self._paths: dict[str, list[str]] = {}
        self._last_read: dict[str, int] = {}
        self._reads = 0
        if handle is not None:
            for short, full in _walk(handle, "", ""):
                self._paths.setdefault(short, []).append(full)

    def path(self, node: ScriptNode) -> str:
        """The path of a node's module; if ambiguous, the module that was read last."""
        if self._is_traced:
            scope = node.scopeName().rpartition("/")[2]
            if scope.startswith(_SCOPE):
                return scope.removeprefix(_SCOPE)
        # For example `encoder(Encoder).linear1(Linear)`, with the classes in brackets.
        text = node.getModuleHierarchy()
        steps = [name for name, class_name in _STEP.findall(text) if not name.startswith(_UNNAMED)]
        short = ".".join(steps)
        full_paths = self._paths.get(short)
        if not full_paths:
            return short
        return (
            full_paths[0]
            if len(full_paths) == 1
            else max(full_paths, key=lambda path: self._last_read.get(path, -1))
        )

    def note_read(self, path: str) -> None:
        """Record that a module was read as an attribute."""
        self._reads += 1
        self._last_read[path] = self._reads


def _walk(handle: ScriptHandle, short: str, full: str) -> Iterator[tuple[str, str]]:
    """(path without containers, full path) of each module below one."""
    for name, child in torchscript.children(handle):
        path = f"{full}.{name}" if full else name
        short_path = f"{short}.{name}" if short else name
        # A container is never called, so inlining leaves it out.
        called = torchscript.method(child, "forward") is not None
        if called:
            yield short_path, path
        yield from _walk(child, short_path if called else short, path)
