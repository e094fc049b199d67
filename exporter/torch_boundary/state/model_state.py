"""Saves and restores the state that running a model changes: attributes, hooks, members of containers."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch

from ..containers import pytree
from ..static_lookups import (
    bases_of,
    class_attributes,
    defining_module,
    instance_attributes,
    is_instance,
    is_of_user,
)
from .module_tree import modules_of
from .mutable_values import (
    BUILT_IN,
    Members,
    container_class,
    copied_members,
    has_state,
    is_same_dict,
    keep_value,
    members_of,
    refill,
    slot_values,
)
from .scripted_state import ScriptedState

_VALUE_IDS = frozenset(map(id, (bool, int, float, complex, str, bytes, type(None))))
_BUILT_IN_IDS = frozenset(map(id, BUILT_IN))
_PYTHONS_OWN = frozenset(
    map(
        "__{}__".format,
        "annotations dataclass_fields static_attributes slots match_args firstlineno orig_bases".split(),
    )
)
"""Attributes that Python sets when a class is defined; running a model changes none of them."""
_FEW = 4
"""Containers with at most this many members put all of them into the queue, without a filter."""
_MODULE_ATTRIBUTES: types.GetSetDescriptorType = vars(torch.nn.Module)["__dict__"]
"""Reads the `__dict__` of a module without `__getattribute__` of its class."""
_TENSOR_ATTRIBUTES: types.GetSetDescriptorType = vars(torch.Tensor)["__dict__"]
"""Reads the `__dict__` of a plain parameter; faster than `instance_attributes`, with the same result."""
_OPAQUE = (torch.Tensor, type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType)


class Preserved:
    """A context that restores the attributes and members of modules, and of the objects in them, at its end.

    Covers each module's attributes (flags, parameters, buffers, hooks), and the lists, dicts, sets, numpy
    arrays, random generators, closure variables and objects of the user's classes in them, at any depth, and
    the attributes of these classes. New attributes on tensors are removed. A capture replaces a model's
    parameters and buffers by fake tensors, but writes to other tensors directly, so their elements are
    restored too: tensors in plain attributes or members, and buffers of a module that a function uses through
    its closure or globals.

    Restores the state at its construction, and may be entered several times. Runs no code of the visited
    objects.

    Args:
        roots: modules, functions, and arguments of a call.
    """

    def __init__(self, *roots: object):
        reachable = _Reachable(roots)
        self._objects = [(item, type(item), dict(attributes)) for item, attributes in reachable.objects]
        self._built_in = [(item, item.copy()) for item in reachable.built_in]
        self._containers = [(item, copied_members(item)) for item in reachable.containers]
        self._classes = [(cls, dict(class_attributes(cls))) for cls in reachable.classes]
        self._values = [restore for item in reachable.values for restore in keep_value(item)]
        self._empty = reachable.empty
        self._scripted = reachable.scripted
        uncopied = _uncopied_tensors(reachable, roots)
        self._elements = [(item, item._version, item.detach().clone()) for item in uncopied]

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exception: object) -> None:
        for item, item_class, contents in self._objects:
            # Lazy modules and parameters change their class when they first run.
            if type(item) is not item_class:
                object.__setattr__(item, "__class__", item_class)
            is_module = issubclass(item_class, torch.nn.Module)
            attributes = _MODULE_ATTRIBUTES.__get__(item) if is_module else instance_attributes(item)
            if attributes is not None and not (
                type(attributes) is dict and is_same_dict(attributes, contents)
            ):
                refill(attributes, contents)
        for container, members in self._built_in:
            # A fast check: most are tables of parameters, buffers or submodules, and unchanged.
            if not (
                isinstance(container, dict) and isinstance(members, dict) and is_same_dict(container, members)
            ):
                refill(container, members)
        for custom_container, members in self._containers:
            refill(custom_container, members)
        for cls, contents in self._classes:
            _restore_class(cls, contents)
        for restore in self._values:
            restore()
        for item in self._empty:
            if item:
                item.clear()
        for tensor, version, before in self._elements:
            if tensor._version != version:
                # The data of a tensor counts its own versions.
                tensor.data.copy_(before)
                torch._C._autograd._unsafe_set_version_counter((tensor,), (version,))
        for state in self._scripted:
            state.restore()


def _uncopied_tensors(reachable: _Reachable, roots: tuple[object, ...]) -> list[torch.Tensor]:
    """Return the tensors that a capture does not copy, except parameters, which no forward writes to."""
    if not reachable.tensors:
        return []
    copied_ids = {id(leaf) for leaf in pytree.tree_leaves(roots)}
    for root in roots:
        if isinstance(root, torch.nn.Module):
            for module in modules_of(root):
                if module._buffers:
                    copied_ids.update(map(id, module._buffers.values()))
    return [
        item
        for item in reachable.tensors
        if id(item) not in copied_ids and not isinstance(item, torch.nn.Parameter) and _has_elements(item)
    ]


def _has_elements(tensor: torch.Tensor) -> bool:
    return (
        type(tensor) is torch.Tensor
        and tensor.layout == torch.strided
        and tensor.device.type != "meta"
        and not tensor.is_inference()
        and not tensor.is_nested
    )


class _Reachable:
    """Collects the mutable objects that are reachable from some roots, each once.

    Attributes:
        objects: the objects with attributes, each with the dict of its attributes.
        built_in: the Python containers (not of subclasses) that have members.
        containers: the objects of subclasses of Python's containers.
        empty: the containers without members. A module has about ten, for its hooks.
        classes: the classes of the objects, and their bases, that belong to the user.
        values: the objects with other state: see `mutable_values`.
        tensors: the tensors among the objects, without plain parameters.
        scripted: the state of the TorchScript modules that are reached from Python.
    """

    def __init__(self, roots: tuple[object, ...]):
        self.objects: list[tuple[object, dict[str, object]]] = []
        self.built_in: list[Members] = []
        self.containers: list[object] = []
        self.empty: list[Any] = []
        self.classes: list[type] = []
        self.values: list[object] = []
        self.tensors: list[torch.Tensor] = []
        self.scripted: list[ScriptedState] = []
        # By `id`, because hashing may run code of the object's class.
        self._seen: set[int] = set()
        self._seen_classes: set[int] = set()
        self._waiting: list[object] = []
        self._wait_for(roots)
        while self._waiting:
            item = self._waiting.pop()
            identity = id(item)
            if identity not in self._seen:
                self._seen.add(identity)
                self._visit(item)

    def _wait_for(self, items: Iterable[object]) -> None:
        # Most attributes are numbers and empty containers. One loop is faster here than `itertools`, which
        # needs several passes.
        keep_empty, wait = self.empty.append, self._waiting.append
        for item in items:
            # By `id`, because the hash of a class is code of its metaclass.
            class_id = id(type(item))
            if class_id in _BUILT_IN_IDS and not item:
                keep_empty(item)
            elif class_id not in _VALUE_IDS:
                wait(item)

    def _visit(self, item: Any) -> None:
        cls = type(item)
        if cls is torch.nn.Parameter:
            self._keep_attributes(item)
        elif cls is tuple:
            # Most tuples are arguments of convolutions and pooling, a few numbers, which are dropped.
            self._wait_for(item)
        elif type(cls) is type and cls in BUILT_IN:
            self.built_in.append(item)
            members = item.values() if issubclass(cls, dict) else item
            if len(item) > _FEW:
                self._wait_for(members)
            else:
                # Mostly parameters, buffers or submodules, nearly all of which `_wait_for` would keep.
                self._waiting += members
        elif issubclass(cls, torch.Tensor):
            if self._keep_attributes(item) and cls is not torch.nn.Parameter:
                self.tensors.append(item)
        elif issubclass(cls, torch.nn.Module):
            self._keep_module(item)
        # A subclass of `tuple` may define `__iter__`, which must not run.
        elif issubclass(cls, tuple):
            self._wait_for(tuple.__iter__(item))
        elif cls is types.MethodType:
            self._waiting.append(item.__self__)
        elif cls is types.FunctionType:
            # Functions of torch and the standard library are skipped, because their globals are many.
            if is_of_user(defining_module(item)):
                self.values += item.__closure__ or ()
                self._wait_for(referenced_objects(item))
        else:
            if container_class(item) is not None:
                self.containers.append(item)
                self._wait_for(members_of(item))
            if has_state(item):
                self.values.append(item)
            elif _is_plain(item):
                self._keep_object(item)

    def _keep_object(self, item: object) -> None:
        self.values.append(item)
        self._keep_classes(item)
        attributes = instance_attributes(item)
        if attributes is not None:
            self.objects.append((item, attributes))
            self._wait_for(attributes.values())
        self._wait_for(slot_values(item))

    def _keep_classes(self, item: object) -> None:
        """Keep the user's classes of an object, and visit the containers among the class attributes."""
        if id(type(item)) in self._seen_classes:
            return
        for cls in bases_of(type(item)):
            if id(cls) in self._seen_classes:
                continue
            self._seen_classes.add(id(cls))
            if is_of_user(defining_module(cls)):
                self.classes.append(cls)
                # Most attributes of a class are functions.
                self._wait_for(
                    [
                        value
                        for name, value in class_attributes(cls).items()
                        if type(value) is not types.FunctionType
                        and container_class(value) is not None
                        and name not in _PYTHONS_OWN
                    ]
                )

    def _keep_attributes(self, tensor: torch.Tensor) -> bool:
        """Keep the Python attributes of a tensor; returns whether it may have some."""
        is_plain = type(tensor) is torch.nn.Parameter or type(tensor) is torch.Tensor
        attributes = _TENSOR_ATTRIBUTES.__get__(tensor) if is_plain else instance_attributes(tensor)
        if attributes is None:
            return False
        if is_plain and not attributes:
            # Nearly all weights and buffers. Unlike a lazy parameter, they do not change their class.
            self.empty.append(attributes)
        else:
            self.objects.append((tensor, attributes))
        return True

    def _keep_module(self, module: torch.nn.Module) -> None:
        attributes: dict[str, object] = _MODULE_ATTRIBUTES.__get__(module)
        self.objects.append((module, attributes))
        self._keep_classes(module)
        self._wait_for(attributes.values())
        if isinstance(module, torch.jit.ScriptModule):
            # No Python object holds its tensors and submodules.
            state = ScriptedState(module)
            self.scripted.append(state)
            for tensor in state.tensors:
                if id(tensor) not in self._seen:
                    self._seen.add(id(tensor))
                    self._keep_attributes(tensor)


def referenced_objects(function: types.FunctionType) -> Iterator[object]:
    """Yield the objects in a function's closure and defaults, and the globals that its code names."""
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):
            yield cell.cell_contents
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    # The globals may be of a subclass of `dict`, whose `get` must not run.
    read: Callable[[dict[str, object], str], object] = dict.get
    yield from (read(function.__globals__, name) for name in function.__code__.co_names)


def _is_plain(item: object) -> bool:
    """Whether an object's class is written by the user or a model library."""
    return not is_instance(item, _OPAQUE) and is_of_user(defining_module(type(item)))


def _restore_class(cls: type, contents: Mapping[str, object]) -> None:
    """Restore the attributes of a class, except internal ones (`__x__`, `_abc_x`)."""
    current = dict(class_attributes(cls))
    if is_same_dict(current, contents):
        return
    for name in {**contents, **current}:
        if name.startswith(("__", "_abc_")) or (
            name in current and name in contents and current[name] is contents[name]
        ):
            continue
        if name in contents:
            type.__setattr__(cls, name, contents[name])
        else:
            type.__delattr__(cls, name)
