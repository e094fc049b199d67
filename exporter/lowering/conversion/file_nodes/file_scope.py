"""The context in which the nodes of a file's graph are read."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import onnx_ir as ir

from ...driver import LoweringScope


@dataclasses.dataclass(frozen=True)
class FileScope(LoweringScope):
    """The context in which the nodes of a graph are read.

    Attributes:
        opset: the opset of the nodes.
        attributes: the attributes of the enclosing function's call.
        copies: whether the nodes are the file's, not a function body's: names are kept and nodes copied.
        absent: names of the function's inputs that the call omits.
    """

    opset: int
    attributes: Mapping[str, ir.Attr] = dataclasses.field(default_factory=dict)
    copies: bool = True
    absent: frozenset[str] = frozenset()
