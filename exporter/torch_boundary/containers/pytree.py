"""torch's pytree: the containers of arguments and results."""

from __future__ import annotations

from torch.utils._pytree import SUPPORTED_NODES as SUPPORTED_NODES
from torch.utils._pytree import GetAttrKey as GetAttrKey
from torch.utils._pytree import MappingKey as MappingKey
from torch.utils._pytree import SequenceKey as SequenceKey
from torch.utils._pytree import TreeSpec as TreeSpec
from torch.utils._pytree import _get_node_type
from torch.utils._pytree import key_get as key_get
from torch.utils._pytree import register_pytree_node as register_pytree_node
from torch.utils._pytree import tree_flatten as tree_flatten
from torch.utils._pytree import tree_flatten_with_path as tree_flatten_with_path
from torch.utils._pytree import tree_leaves as tree_leaves
from torch.utils._pytree import tree_map as tree_map
from torch.utils._pytree import tree_map_only as tree_map_only
from torch.utils._pytree import tree_unflatten as tree_unflatten

REGISTRATION = f"{register_pytree_node.__module__}.{register_pytree_node.__name__}"
"""The function that registers a class of containers, for messages."""


def deregister(container: type) -> None:
    """Forget how a class of containers is flattened."""
    # Not at the top: only one feature needs it, and older releases of torch may lack it.
    from torch.utils._pytree import _deregister_pytree_node

    _deregister_pytree_node(container)


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
