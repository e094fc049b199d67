"""A frozen graph with weights in the checkpoint; makes its message and writes its file."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import IO, Any

import numpy as np

from .....registration import ModelFileError
from ....files.message import varint
from ..element_types import numpy_type
from ..messages import message_type
from .variables import Stored

LARGEST = 2**31 - 1
"""Bytes of a GraphDef at most, by protobuf's limit for one message."""
_NODE, _ATTR, _KEY, _VALUE, _TENSOR, _CONTENT = 1, 5, 1, 2, 8, 4
"""The numbers of GraphDef.node, NodeDef.attr, the key and the value of its entries, AttrValue.tensor and
TensorProto.tensor_content.
"""


@dataclasses.dataclass
class FrozenGraph:
    """A graph without variables.

    Attributes:
        graph_def: its GraphDef. The Const nodes of variables have a type and a shape, and no contents.
        weights: the contents of these, by the names of the nodes.
        outputs: the results that it was frozen for, "name" or "name:1".
    """

    graph_def: Any
    weights: Mapping[str, Stored]
    outputs: list[str]

    def message(self) -> Any:
        """The GraphDef with the contents of all constants: a new message, as large as the weights.

        Raises:
            ModelFileError: it would be too large, or the checkpoint is damaged.
        """
        self._check_size()
        found = message_type("GraphDef")()
        found.CopyFrom(self.graph_def)
        for node in found.node:
            if node.name in self.weights:
                node.attr["value"].tensor.tensor_content = self.weights[node.name].read().tobytes()
        return found

    def size(self) -> int:
        """The bytes of the message."""
        heads = sum(len(self._head(node)) + self._content(node) for node in self.graph_def.node)
        return heads + len(self._rest())

    def write(self, file: IO[bytes]) -> None:
        """Write the message to a binary file, one weight at a time.

        Raises:
            ModelFileError: it is too large, or the checkpoint is damaged.
        """
        self._check_size()
        for node in self.graph_def.node:
            file.write(self._head(node))
            if self._content(node):
                array = np.ascontiguousarray(self.weights[node.name].read())
                file.write(array.reshape(-1).view(np.uint8).data)
        file.write(self._rest())

    def _check_size(self) -> None:
        size = self.size()
        if size > LARGEST:
            raise ModelFileError(
                f"the frozen graph would have {size} bytes, more than the {LARGEST} of a GraphDef; convert "
                "the graph with its checkpoint instead"
            )

    def _content(self, node: Any) -> int:
        """The bytes of a node's weight."""
        weight = self.weights.get(node.name)
        kind = None if weight is None else numpy_type(weight.dtype)
        return 0 if weight is None or kind is None else math.prod(weight.shape) * kind.itemsize

    def _head(self, node: Any) -> bytes:
        """The field of a node in the GraphDef, up to the contents of its weight."""
        size = self._content(node)
        if not size:
            data = node.SerializeToString(deterministic=True)
            result: bytes = _field(_NODE, len(data)) + data
            return result
        # Fields of one message may stand in any order, so the weight is the last.
        head = node.attr["value"].tensor.SerializeToString(deterministic=True) + _field(_CONTENT, size)
        head = _field(_TENSOR, len(head) + size) + head
        head = _field(_KEY, len(b"value")) + b"value" + _field(_VALUE, len(head) + size) + head
        head = _field(_ATTR, len(head) + size) + head
        without = message_type("NodeDef")()
        without.CopyFrom(node)
        del without.attr["value"]
        head = without.SerializeToString(deterministic=True) + head
        result = _field(_NODE, len(head) + size) + head
        return result

    def _rest(self) -> bytes:
        """The fields of the GraphDef that are not nodes."""
        rest = message_type("GraphDef")(versions=self.graph_def.versions, library=self.graph_def.library)
        return bytes(rest.SerializeToString(deterministic=True))


def _field(number: int, length: int) -> bytes:
    """The start of a field with a length."""
    return varint(number << 3 | 2) + varint(length)
