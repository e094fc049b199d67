"""torch's pytree: the containers of arguments and results."""

from __future__ import annotations

from torch.utils._pytree import (
    SUPPORTED_NODES,
    GetAttrKey,
    KeyEntry,
    MappingKey,
    SequenceKey,
    TreeSpec,
    _get_node_type,
    key_get,
    register_pytree_node,
    tree_flatten,
    tree_flatten_with_path,
    tree_leaves,
    tree_map,
    tree_map_only,
    tree_unflatten,
)

__all__ = [
    "REGISTRATION",
    "SUPPORTED_NODES",
    "GetAttrKey",
    "KeyEntry",
    "MappingKey",
    "SequenceKey",
    "TreeSpec",
    "children",
    "is_internal",
    "key_get",
    "register_pytree_node",
    "tree_flatten",
    "tree_flatten_with_path",
    "tree_leaves",
    "tree_map",
    "tree_map_only",
    "tree_unflatten",
]

REGISTRATION = f"{register_pytree_node.__module__}.{register_pytree_node.__name__}"
"""The function that registers a class of containers, for messages."""


def is_internal(name: str) -> bool:
    """Whether a class is one of torch's own, by its qualified name.

    They contain functions, and are never part of a result.
    """
    top, _, inner = name.partition(".")
    return top == "torch" and inner.startswith("_")


def children(value: object) -> list[object] | None:
    """The direct children of a container, None for a leaf."""
    node_type = _get_node_type(value)
    if node_type not in SUPPORTED_NODES:
        return None
    return list(SUPPORTED_NODES[node_type].flatten_fn(value)[0])
