"""Collects the modules, parameters, buffers and attributes of a model in one walk."""

from __future__ import annotations

import collections
from collections.abc import Mapping

import torch

from ..static_lookups import ClassSet

_PLAIN_TYPES = ClassSet((bool, int, float, str, tuple, list, dict, collections.OrderedDict, set, type(None)))
"""Types of attributes that hold no tensor to list here; they skip a slower check."""
_TENSOR_TYPES = (torch.Tensor, torch.ScriptObject)


def modules_of(model: torch.nn.Module) -> list[torch.nn.Module]:
    """Return the modules of a model, each once, in the order of `model.modules()`.

    `model.modules()` nests a generator for each level of modules and takes several times as long.
    """
    modules: dict[int, torch.nn.Module] = {}
    waiting: list[torch.nn.Module | None] = [model]
    while waiting:
        module = waiting.pop()
        if module is not None and (identity := id(module)) not in modules:
            modules[identity] = module
            if module._modules:
                # Reversed, because `pop` takes the last one first.
                waiting += reversed(module._modules.values())
    return list(modules.values())


def tensors_of(module: torch.nn.Module) -> list[torch.Tensor]:
    """Return the parameters and buffers of a module, without those of its submodules."""
    return [
        tensor
        for table in (module._parameters, module._buffers)
        for tensor in table.values()
        if tensor is not None
    ]


def scripted_tensors(model: torch.nn.Module) -> list[torch.Tensor]:
    """Return the parameters and buffers of the TorchScript modules in a model."""
    modules = [module for module in modules_of(model) if isinstance(module, torch.jit.ScriptModule)]
    return [tensor for module in modules for tensor in tensors_of(module)]


class ModuleTree:
    """The modules and tensors of a model; a shared module or tensor is listed under each of its names.

    One walk finds everything; torch's `named_parameters`, `named_buffers` and others walk once each.

    Args:
        model: the model, whose modules must not be their own submodules.

    Attributes:
        modules: the modules by path.
        parameters: the parameters by name.
        buffers: the buffers by name.
        holders: for each buffer by name, the `_buffers` dict that holds it, and its key there.
        absent: the same for each buffer that is None.
        transient: the names of buffers that are not part of the state_dict.
        attributes: tensors and TorchScript objects in plain attributes, by name.
    """

    def __init__(self, model: torch.nn.Module):
        self.model = model
        self.modules: dict[str, torch.nn.Module] = {}
        self.parameters: dict[str, torch.Tensor] = {}
        self.buffers: dict[str, torch.Tensor] = {}
        self.holders: dict[str, tuple[dict[str, torch.Tensor | None], str]] = {}
        self.absent: dict[str, tuple[dict[str, torch.Tensor | None], str]] = {}
        self.transient: set[str] = set()
        self.attributes: dict[str, torch.Tensor | torch.ScriptObject] = {}
        self._visit(model, "", "")

    def _visit(self, module: torch.nn.Module, path: str, prefix: str) -> None:
        self.modules[path] = module
        for name, parameter in module._parameters.items():
            if parameter is not None:
                self.parameters[prefix + name] = parameter
        buffers = module._buffers
        for name, buffer in buffers.items():
            if buffer is None:
                self.absent[prefix + name] = (buffers, name)
            else:
                self.buffers[prefix + name] = buffer
                self.holders[prefix + name] = (buffers, name)
        self.transient.update(prefix + name for name in module._non_persistent_buffers_set)
        attributes = vars(module)
        # Submodules, parameters and hooks are kept in dicts, so nearly all attributes have a plain type.
        for name, item in _PLAIN_TYPES.without(attributes.items(), attributes.values()):
            if issubclass(type(item), _TENSOR_TYPES):
                self.attributes[prefix + name] = item
        for name, child in module._modules.items():
            if child is not None:
                self._visit(child, prefix + name, f"{prefix}{name}.")


def replace_tensors(model: torch.nn.Module, named: Mapping[str, torch.Tensor]) -> None:
    """Replace all parameters and buffers of a model; the types of the new tensors are not checked.

    TorchScript modules are skipped: a write would reach the C++ module of the user's model, which nothing
    restores.

    Args:
        named: the new tensors, by the names of the parameters and buffers.
    """
    for path, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            continue
        for table in (module._parameters, module._buffers):
            for name, tensor in table.items():
                if tensor is not None:
                    table[name] = named[f"{path}.{name}" if path else name]
