"""What conversion does about nodes of a file that are not valid at the file's own opset."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import onnx_ir as ir

from ....registration import InvalidNode, InvalidNodesError
from ....registration.errors import listed_nodes
from ....registration.validity.node_check import invalid_nodes
from .binding import schema_of

_TO_CALLER = 7
"""Frames between a caller of `lower` and `warn_of_invalid`, of which two belong to each decorator."""


def warn_of_invalid(nodes: Sequence[InvalidNode], further_frames: int = 0) -> None:
    """Warn of nodes that are written as the file has them."""
    if not nodes:
        return
    count = "1 node of the file is" if len(nodes) == 1 else f"{len(nodes)} nodes of the file are"
    text = f"{count} not valid, and written as in the file:"
    warnings.warn("\n".join([text, *listed_nodes(nodes)]), stacklevel=_TO_CALLER + further_frames)


def check_source(source: ir.Model, source_opset: int, opset: int) -> list[InvalidNode]:
    """The invalid nodes of a file that are written as they are, at the file's own opset, with a warning.

    Raises:
        InvalidNodesError: the file is to be written at another opset, where the meaning of invalid nodes is
            not known.
    """
    invalid = invalid_nodes(source)
    if source_opset == opset:
        warn_of_invalid(invalid, 1)
        return invalid
    # A removed operator has the meaning of its last version.
    unreadable = [
        node
        for node in invalid
        if not (node.is_unknown and schema_of(node.operator, source_opset) is not None)
    ]
    if unreadable:
        text = f"the file is not valid at its opset {source_opset}, so it cannot be written at opset {opset}:"
        raise InvalidNodesError(text, unreadable)
    return []
