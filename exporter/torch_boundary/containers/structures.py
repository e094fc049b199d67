"""Tree structures of calls and results: names of leaves, and registration of containers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import torch.export

from . import pytree
from .caches import register_caches


def _child_names(specification: pytree.TreeSpec) -> list[str]:
    """Names of a tree node's children: keys, fields, or positions."""
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
    """A unique name for each leaf of a result's structure.

    The path of keys and positions, joined by underscores. A single leaf is named `stem`, and a path that
    begins with a position is prefixed with it.
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
    """Register containers with pytree that torch.export would refuse: dataclasses, caches of transformers.

    torch.export accepts a container only if pytree can flatten it. A dataclass is flattened by its fields.
    """
    register_caches()
    for tree in trees:
        _register_dataclasses(tree)


def _register_dataclasses(tree: object) -> None:
    tree_class = type(tree)
    if tree_class in pytree.SUPPORTED_NODES:
        children, _ = pytree.SUPPORTED_NODES[tree_class].flatten_fn(tree)
        for child in children:
            _register_dataclasses(child)
    elif dataclasses.is_dataclass(tree_class) and not isinstance(tree, type):
        torch.export.register_dataclass(tree_class)
        for field in dataclasses.fields(tree_class):
            _register_dataclasses(getattr(tree, field.name))
