"""Finds TorchScript modules and functions that an eager model calls."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

import torch

from ...torch_boundary.state.model_state import referenced_objects
from ...torch_boundary.state.module_tree import modules_of
from ...torch_boundary.static_lookups import (
    bases_of,
    class_attributes,
    is_instance,
    is_of_user,
    module_attributes,
)

_SCRIPTED = (torch.jit.ScriptModule, torch.jit.ScriptFunction)


def has_scripted_parts(model: torch.nn.Module) -> bool:
    """Whether a model has a TorchScript module, or its code names a TorchScript function."""
    return any(is_instance(item, _SCRIPTED) for item in _reachable(model))


def _reachable(model: torch.nn.Module) -> Iterator[object]:
    """The modules of a model, and what the functions of its classes refer to, directly or by others."""
    modules = modules_of(model)
    yield from modules
    pending: list[Any] = [vars(model).get("forward")]
    for model_class in dict.fromkeys(map(type, modules)):
        pending += [item for base in bases_of(model_class) for item in class_attributes(base).values()]
    for module in modules:
        pending += vars(module).values()
    visited: set[int] = set()
    while pending:
        item = pending.pop()
        if id(item) in visited:
            continue
        visited.add(id(item))
        yield item
        if is_instance(item, (staticmethod, classmethod, types.MethodType)):
            pending.append(item.__func__)
        elif is_instance(item, types.FunctionType) and is_of_user(item.__module__ or ""):
            objects: list[Any] = list(referenced_objects(item))
            pending += objects
            for named in objects:
                if is_instance(named, types.ModuleType) and is_of_user(named.__name__):
                    members = module_attributes(named)
                    pending += [members[name] for name in item.__code__.co_names if name in members]
