"""Handles nodes that are not valid at the file's opset: warns about them, or refuses the file."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from ....registration import GraphError, InvalidNode, InvalidNodesError, Registry
from ....registration.errors import list_nodes
from ....registration.validity.node_check import invalid_nodes
from ....registration.warning import warn
from ...files.reading import REMEDY, TRUSTED, Bounds
from .file_nodes.binding import schema_of
from .file_nodes.foreign_operators import has_versions
from .prepared_models.preparation import opset_of, source_of
from .size import is_describable, limits_of


def warn_of_invalid(nodes: Sequence[InvalidNode]) -> None:
    """Warn about invalid nodes that are written unchanged."""
    if not nodes:
        return
    count = "1 node of the file is" if len(nodes) == 1 else f"{len(nodes)} nodes of the file are"
    text = f"{count} not valid, and written as in the file:"
    warn("\n".join([text, *list_nodes(nodes)]))


def check_source(source: ir.Model, source_opset: int, opset: int, registry: Registry) -> list[InvalidNode]:
    """Return the invalid nodes of a file that are written unchanged, and warn about them.

    If the opset stays, these are all nodes that cannot be read. For another opset, they are the nodes whose
    operator ONNX has at no opset. Nodes with a symbolic function are not among them.

    Raises:
        InvalidNodesError: the meaning of invalid nodes at another opset is not known.
    """
    invalid, readable = [], set[InvalidNode]()
    for node in invalid_nodes(source):
        if not node.is_unknown:
            invalid.append(node)
        elif has_versions(node.operator):
            invalid.append(node)
            # For example a removed operator, which has the meaning of its last version.
            if schema_of(node.operator, source_opset) is not None:
                readable.add(node)
        elif registry.lookup(f"onnx::{node.operator}", "", opset) is None:
            invalid.append(node)
    if source_opset == opset:
        written = [node for node in invalid if node not in readable]
        warn_of_invalid(written)
        return written
    foreign = [node for node in invalid if node.is_unknown and not has_versions(node.operator)]
    unreadable = [node for node in invalid if node not in readable and node not in foreign]
    if unreadable:
        text = f"the file is not valid at its opset {source_opset}, so it cannot be written at opset {opset}:"
        raise InvalidNodesError(text, unreadable)
    warn_of_invalid(foreign)
    return foreign


def invalid_nodes_of_file(model: ir.Model, bounds: Bounds) -> list[InvalidNode]:
    """Return the invalid nodes of a file's model; onnx's inference supplies undeclared ranks and types.

    A model that is too large to convert, or has too many nodes for its size, is checked with its declared
    ones alone, with a warning.

    Raises:
        GraphError: the opset is unknown, or the model exceeds the bounds after inlining.
    """
    if opset_of(model) is None:
        return invalid_nodes(model)
    reason = ""
    try:
        limits_of(model, bounds)
    except GraphError as error:
        reason = str(error)
    if bounds is not TRUSTED and not reason and not is_describable(model):
        reason = f"inferring those of so many nodes would take long for the size of the file; {REMEDY}"
    if reason:
        text = "the nodes are checked with the types and shapes that the file declares, without others"
        warn(f"{text}: {reason}")
        return invalid_nodes(model)
    return invalid_nodes(source_of(model, bounds))
