"""Tree structures of calls and results: names of leaves, and registration of containers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any

import torch.export

from ..static_lookups import defining_module, instance_attributes, is_instance
from . import pytree
from .caches import register_caches


def _child_names(specification: pytree.TreeSpec) -> list[str]:
    """Return the names of a tree node's children: keys, fields, or positions."""
    count = specification.num_children
    node_type, context = specification.type, specification.context
    if (
        isinstance(context, (list, tuple))
        and len(context) == count
        and all(isinstance(name, str) for name in context)
    ):
        return list(context)
    if isinstance(node_type, type) and dataclasses.is_dataclass(node_type):
        names = [field.name for field in dataclasses.fields(node_type)]
        if len(names) == count:
            return names
    # pytree keeps the class of a named tuple as its context.
    fields = getattr(context if isinstance(context, type) else node_type, "_fields", None)
    if fields is not None and len(fields) == count:
        return list(fields)
    # Caches keep the names of their children first in their context.
    first_item = context[0] if isinstance(context, (list, tuple)) and context else None
    if (
        isinstance(first_item, (list, tuple))
        and len(first_item) == count
        and all(isinstance(name, str) for name in first_item)
    ):
        return list(first_item)
    return [str(index) for index in range(count)]


def _paths(specification: pytree.TreeSpec, prefix: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if specification.is_leaf():
        yield prefix
        return
    for name, child in zip(_child_names(specification), specification.children(), strict=True):
        yield from _paths(child, (*prefix, name))


def leaf_names(specification: pytree.TreeSpec, stem: str) -> list[str]:
    """Return a unique name for each leaf of a result's structure.

    A name is the path of keys and positions, joined by underscores. A path that begins with a position gets
    `stem` as a prefix, and a result without containers is named `stem`.
    """
    names: list[str] = []
    for path in _paths(specification, ()):
        steps = path if path and not path[0].isdigit() else (stem, *path)
        name = base = "_".join(steps)
        count = 1
        while name in names:
            name, count = f"{base}_{count}", count + 1
        names.append(name)
    return names


def register_structures(*trees: object) -> None:
    """Register dataclasses and the caches of transformers with pytree, which torch.export would else refuse.

    torch.export accepts a container only if pytree can flatten it. A dataclass is flattened by its fields.
    """
    register_caches()
    for tree in trees:
        _register_classes(tree, dataclasses.is_dataclass)


def register_results(*results: object) -> None:
    """Register the containers of a model's results: also objects of other classes, by their attributes.

    An attribute with tensors or numbers is a part of the results. Others are kept as they are.
    """
    register_caches()
    for result in results:
        _register_classes(result, lambda item_class: True)


def _register_classes(tree: object, is_accepted: Callable[[type], bool]) -> None:
    tree_class = type(tree)
    if tree_class not in pytree.SUPPORTED_NODES:
        if isinstance(tree, type) or not is_accepted(tree_class):
            return
        if dataclasses.is_dataclass(tree_class):
            torch.export.register_dataclass(tree_class)
        elif not _holds_tensors(tree):
            return
        else:
            _register_attributes(tree_class)
    for child in pytree.SUPPORTED_NODES[tree_class].flatten_fn(tree)[0]:
        _register_classes(child, is_accepted)


def _holds_tensors(item: object) -> bool:
    """Whether an object of a class of a user or another library has tensors in its attributes."""
    attributes = instance_attributes(item)
    if attributes is None or callable(item) or is_instance(item, (ModuleType, torch.Tensor)):
        return False
    if defining_module(type(item)).split(".")[0] == "torch":
        return False
    return any(is_instance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(attributes))


def _register_attributes(item_class: type) -> None:
    """Register a class with pytree that is flattened by the attributes of its instances."""

    def flatten(item: object) -> tuple[list[object], tuple[list[str], dict[str, object]]]:
        attributes = vars(item)
        parts = {name: value for name, value in attributes.items() if _is_result(value)}
        constants = {name: value for name, value in attributes.items() if name not in parts}
        return list(parts.values()), (list(parts), constants)

    def unflatten(children: Iterable[object], context: tuple[list[str], dict[str, object]]) -> object:
        item: object = object.__new__(item_class)
        vars(item).update(context[1])
        vars(item).update(zip(context[0], children, strict=True))
        return item

    def flatten_with_keys(item: object) -> tuple[list[tuple[Any, object]], object]:
        children, context = flatten(item)
        return [
            (pytree.GetAttrKey(name), child) for name, child in zip(context[0], children, strict=True)
        ], context

    pytree.register_pytree_node(
        item_class,
        flatten,
        unflatten,
        serialized_type_name=f"{item_class.__module__}.{item_class.__qualname__}",
        flatten_with_keys_fn=flatten_with_keys,
    )


def _is_result(value: object) -> bool:
    numbers = (torch.Tensor, int, float, torch.SymInt, torch.SymFloat, torch.SymBool)
    return any(is_instance(leaf, numbers) or _holds_tensors(leaf) for leaf in pytree.tree_leaves(value))
