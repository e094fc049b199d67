"""Converts the tree structures in a source file to torch's pytree structures, for calls.

No class that a file names is imported or registered: a container is built only if this process has registered
its class with torch's pytree. Other containers become a dict or tuple.
"""

from __future__ import annotations

import builtins
import dataclasses
import sys

from ...registration import ModelFileError
from ...registration.warning import warn
from ..captured_graph.capture import Interface
from ..files.graph_file.structures import TreeStructure, TypeName
from ..torch_boundary.containers import pytree
from ..torch_boundary.containers.structures import register_structures

_FACTORIES = ("list", "dict", "tuple", "int", "float", "str", "bool", "set")
"""The builtins allowed as the default factory of a defaultdict."""


def callable_interface(interface: Interface) -> Interface:
    """Return the interface with torch's pytree structures in place of a file's descriptions.

    Warns: UserWarning: a class is not registered in this process, and becomes a dict or tuple.

    Raises:
        ModelFileError: a structure of the file is not valid for a call.
    """
    structures = interface.input_specification, interface.output_specification
    if not any(item is None or isinstance(item, TreeStructure) for item in structures):
        return interface
    register_structures()
    unknown: list[str] = []
    try:
        arguments, result = (_specification(item, unknown) for item in structures)
        for specification in (arguments, result):
            _check_containers(specification)
    except (TypeError, ValueError, LookupError, AttributeError, RuntimeError) as error:
        raise ModelFileError(
            f"the file describes invalid arguments or results: {type(error).__name__}: {error}"
        ) from error
    if unknown:
        warn(
            f"the program's arguments or results contain {', '.join(dict.fromkeys(unknown))}, which this "
            "process has not registered with torch's pytree: they become dicts and tuples. Register the "
            f"class before the first call with {pytree.REGISTRATION}, or torch.export.register_dataclass "
            "for a dataclass"
        )
    return dataclasses.replace(interface, input_specification=arguments, output_specification=result)


def _check_containers(specification: pytree.TreeSpec) -> None:
    """Build the containers of a structure once as a test, because each class has rules for its context.

    Raises:
        ValueError: the containers have another number of members than the structure.
    """
    count = specification.num_leaves
    # The context of a container comes from the file, so it may contradict the number of members.
    container = pytree.tree_unflatten(list(range(count)), specification)
    if len(pytree.tree_leaves(container)) != count:
        raise ValueError(f"a container has other members than {specification}")


def _specification(item: TreeStructure | pytree.TreeSpec | None, unknown: list[str]) -> pytree.TreeSpec:
    if item is None:
        return pytree.tree_flatten(0)[1]
    if not isinstance(item, TreeStructure):
        return item
    children = [_specification(child, unknown) for child in item.children]
    node_type = _container(item)
    if node_type is None:
        class_name = item.context.name if isinstance(item.context, TypeName) else item.type
        unknown.append(class_name)
        node_type = _plain(item)
    container_class, context = node_type
    return pytree.TreeSpec(container_class, context, children)


def _container(item: TreeStructure) -> tuple[type, object] | None:
    """Return the registered class of a container and its context; None if either is unknown."""
    registered_classes = {
        f"{container_class.__module__}.{container_class.__qualname__}": container_class
        for container_class in pytree.SUPPORTED_NODES
    }
    container_class = registered_classes.get(item.type)
    if container_class is None or pytree.is_internal(item.type):
        return None
    try:
        return container_class, _context(item.context, item)
    except LookupError:
        return None


def _plain(item: TreeStructure) -> tuple[type, object]:
    """Return (dict, names) if the container stores names of its children, else (tuple, None)."""
    context = item.context
    for names in (context, context[0] if isinstance(context, (list, tuple)) and context else None):
        if not isinstance(names, (list, tuple)) or not len(names) == len(item.children) > 0:
            continue
        if all(isinstance(name, str) for name in names):
            return dict, list(names)
    return tuple, None


def _context(stored_context: object, container: TreeStructure) -> object:
    if isinstance(stored_context, TypeName):
        return _type(stored_context.name, container)
    if isinstance(stored_context, (list, tuple)):
        return type(stored_context)(_context(member, container) for member in stored_context)
    if isinstance(stored_context, dict):
        return {key: _context(member, container) for key, member in stored_context.items()}
    return stored_context


def _type(name: str, container: TreeStructure) -> type:
    """Return a class in a container's context: an imported namedtuple, or the factory of a defaultdict.

    Raises:
        LookupError: the name refers to something else.
    """
    module, _, qualified = name.rpartition(".")
    if container.type == "collections.defaultdict":
        if module == builtins.__name__ and qualified in _FACTORIES:
            result: type = getattr(builtins, qualified)
            return result
        raise LookupError(name)
    imported_class = _imported_class(name)
    if imported_class is None or not _is_namedtuple(imported_class, len(container.children)):
        raise LookupError(name)
    return imported_class


def _imported_class(name: str) -> type | None:
    """Return a class by its qualified name if this process has imported its module, or None."""
    segments = name.split(".")
    for count in range(len(segments) - 1, 0, -1):
        # Only imported modules are searched: a file must not make this process import, and so run, code.
        module = sys.modules.get(".".join(segments[:count]))
        if module is None:
            continue
        member: object = module
        for segment in segments[count:]:
            # `getattr` could run a property or a module's `__getattr__`.
            member = vars(member).get(segment) if hasattr(member, "__dict__") else None
        return member if isinstance(member, type) else None
    return None


def _is_namedtuple(candidate: type, children: int) -> bool:
    """Whether a class is a namedtuple with this many fields and an unchanged constructor."""
    fields = getattr(candidate, "_fields", None)
    return (
        issubclass(candidate, tuple)
        and isinstance(fields, tuple)
        and len(fields) == children
        # The constructor of a subclass would run code on a file's values.
        and str(getattr(candidate.__new__, "__module__", "")).startswith("namedtuple_")
        and candidate.__init__ is object.__init__
    )
