"""The context in which the nodes of a file's graph are read."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import onnx_ir as ir

from ..driver import LoweringScope


@dataclasses.dataclass(frozen=True)
class FileScope(LoweringScope):
    """The context in which the nodes of a graph are read.

    Attributes:
        opset: the opset of the nodes.
        attributes: the attributes of the enclosing function's call.
        copies: whether names are the file's own, and nodes that mean the same are copied.
        absent: names of the function's inputs that it was not given.
    """

    opset: int
    attributes: Mapping[str, ir.Attr] = dataclasses.field(default_factory=dict)
    copies: bool = True
    absent: frozenset[str] = frozenset()
