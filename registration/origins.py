"""Records the source nodes that each ONNX node was made from, while a lowering is observed.

They are stored in `ir.Node.meta`, which is not saved. Without an observer nothing is recorded.
"""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

_KEY = "opsetta.origins"


def origins_of(node: ir.Node) -> tuple[ir.Node, ...]:
    """The source nodes that a node was made from; none if the lowering was not observed."""
    sources: tuple[ir.Node, ...] = node.meta.get(_KEY, ())
    return sources


def set_origins(node: ir.Node, sources: Iterable[ir.Node]) -> None:
    """Replace the source nodes that a node was made from."""
    node.meta[_KEY] = tuple(dict.fromkeys(sources))


def inherit(new_node: ir.Node, replaced_node: ir.Node, *merged_nodes: ir.Node) -> None:
    """Copy the metadata of the replaced node to a new node, and add the origins of all given nodes."""
    new_node.metadata_props.update(replaced_node.metadata_props)
    sources = [origin for node in (replaced_node, *merged_nodes) for origin in origins_of(node)]
    if sources:
        set_origins(new_node, (*origins_of(new_node), *sources))
