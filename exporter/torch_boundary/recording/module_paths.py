"""Tracks which module of a model is running, as torch.export does."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ..process.process_state import replace_attribute
from ..state.module_tree import ModuleTree

Stack = dict[str, tuple[str, object]]
"""The running modules in the type of torch's `nn_module_stack`: (path, class) by key, outermost first."""
ROOT = "_export_root"
_OPAQUE = (torch.fx.GraphModule, torch.jit.ScriptModule)
"""Classes of modules whose calls are not tracked."""


class Root(torch.nn.Module):
    """Holds the model as torch.export does, so that modules reached by several paths get the same paths."""

    def __init__(self, tree: ModuleTree):
        super().__init__()
        self._export_root = tree.model
        self._modules_by_path: dict[str, torch.nn.Module] = {"": self}
        for path, module in tree.modules.items():
            self._modules_by_path[f"{ROOT}.{path}" if path else ROOT] = module

    def named_modules(
        self, memo: set[torch.nn.Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, torch.nn.Module]]:
        """The modules by path, without a new walk: torch's tracer asks for them twice."""
        if not remove_duplicate:
            yield from self._modules_by_path.items()
            return
        seen: set[int] = set()
        for path, module in self._modules_by_path.items():
            if id(module) not in seen:
                seen.add(id(module))
                yield path, module


class ModulePaths:
    """Tracks the path of the innermost running module.

    Args:
        tracer: torch's tracer of a `Root`.
    """

    def __init__(self, tracer: Any):
        self._tracer = tracer
        followed = {
            module: path for module, path in tracer.submodule_paths.items() if not isinstance(module, _OPAQUE)
        }
        self._paths = {id(module): _within(path) for module, path in followed.items()}
        self._calls = {module_class: module_class.__call__ for module_class in map(type, followed)}
        self._stacks: list[Stack] = [{"": ("", None)}]

    @property
    def current(self) -> Stack:
        """The innermost running module; the outer ones are left out, because no later step reads them."""
        return self._stacks[-1]

    @contextlib.contextmanager
    def follow_modules(self) -> Iterator[None]:
        """Track the calls of modules within the context."""
        # `__call__` is patched, because global forward hooks run before a module's hooks, whose operators
        # would then get the path of the caller. Only the model's classes are patched: setting an attribute
        # visits all subclasses, and `torch.nn.Module` has thousands.
        with contextlib.ExitStack() as stack:
            for module_class, call in self._calls.items():
                stack.enter_context(replace_attribute(module_class, "__call__", self._follow_calls(call)))
            stack.enter_context(self._attributes())
            yield

    def _follow_calls(self, call: Callable[..., object]) -> Callable[..., object]:
        """Wrap the `__call__` of a class so that it tracks the called module."""
        paths = self

        def followed_call(module: torch.nn.Module, *args: object, **kwargs: object) -> object:
            # TorchDynamo traces the functions of higher-order operators, and would trace into this class.
            if torch.compiler.is_dynamo_compiling():
                return call(module, *args, **kwargs)
            return paths._call(call, module, args, kwargs)

        return followed_call

    def _call(
        self,
        call: Callable[..., object],
        module: torch.nn.Module,
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> object:
        path = self._path(module)
        if path is None:
            return call(module, *args, **kwargs)
        entry = (path, type(module))
        stack: dict[str, tuple[str, type]] = self._tracer.module_stack
        key = path
        # The same module may already be running in an outer call.
        while key in stack:
            key += "@"
        stack[key] = entry
        self._stacks.append({path: entry})
        try:
            return call(module, *args, **kwargs)
        finally:
            self._stacks.pop()
            stack.pop(key, None)

    def _path(self, module: torch.nn.Module) -> str | None:
        """Return the path of a module; None if it is not part of the model or is not tracked."""
        if self._tracer.enable_attr_proxy and module in self._tracer.proxy_paths:
            return None if isinstance(module, _OPAQUE) else _within(self._tracer.proxy_paths[module])
        return self._paths.get(id(module))

    @contextlib.contextmanager
    def _attributes(self) -> Iterator[None]:
        """Make an attribute access return modules that know the path by which they were reached."""
        if not self._tracer.enable_attr_proxy:
            yield
            return
        read, tracer = torch.nn.Module.__getattr__, self._tracer

        def get(module: torch.nn.Module, name: str) -> object:
            if torch.compiler.is_dynamo_compiling():
                return read(module, name)
            return tracer.getattr(name, read(module, name), {})

        with replace_attribute(torch.nn.Module, "__getattr__", get):
            yield


def _within(path: str) -> str:
    """Convert a path below `Root` to one below the model."""
    return path.removeprefix(ROOT).removeprefix(".")
